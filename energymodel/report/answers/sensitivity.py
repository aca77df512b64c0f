"""The answer of `sensitivity`: what to measure next, what to change next, and the largest elasticities."""

import math
from typing import NamedTuple

from energymodel.report.answer import DATA, FULL, Answer, Cell, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.run_tables import priors_table
from energymodel.report.fields import PERCENT
from energymodel.scenarios.priors import SYSTEM
from energymodel.search.sensitivity import CHANGE, FREE, MEASURE, SHARES, NumberEffects, Sensitivity
from energymodel.search.training_run import is_gain
from energymodel.sweeps.outcome_spread import OutcomeSpread

TOP, BARS = 12, 12
SHARE = Column("", "", kind="share", digits="two")
ELASTICITY = Column("", "", digits="two")
_KINDS = {"specification": "specified"}
_SMALLEST = 5e-5  # relative change that a table shows
_NO_PLAN = "no plan"


def sensitivity_answer(analysis: Sensitivity, spread: OutcomeSpread | None = None, top: int = TOP) -> Answer:
    """Effects of every number of a scenario on some outputs, or on the optimum.

    **Arguments:**

    - `spread`: uncertainty of the outputs, whose intervals are those of `evaluate`.
    - `top`: rows of the short form of each table.
    """
    scenario, head = analysis.scenario, headline(analysis, spread)
    first = next(iter(analysis.values))
    if not analysis.rows:
        tables, charts, sentences, remarks = [outputs_table(analysis, spread)], [], [head], []
    else:
        measure, elasticities = measure_table(analysis, top), elasticity_table(analysis, top)
        change = limits_table(analysis) if analysis.optimum else change_table(analysis, top)
        tables = [measure, change, elasticities, outputs_table(analysis, spread), numbers_table(analysis)]
        charts = [tornado_chart(analysis, measure, name) for name in analysis.values]
        charts += [chart for chart in [_elasticity_chart(analysis, elasticities)] if chart is not None]
        sentences = [head, _measure_sentence(analysis, first), *_change_sentence(analysis, first)]
        remarks = [together_sentence(analysis), prior_sentence(analysis), *notes(analysis)]
    what = f"the lowest {_word(first)}" if analysis.optimum else _word(first)
    return Answer(
        "sensitivity",
        scenario.title,
        Sentence(f"What to measure or change next for {what}"),
        sentences,
        [*(table for table in tables if table.rows), priors_table(scenario)],
        charts,
        remarks,
        inputs=scenario.named_tables,
        rows="numbers" if analysis.rows else "outputs",
        result=str(analysis.result),
        message=analysis.message,
    )


def output_column(analysis: Sensitivity, name: str, spread: OutcomeSpread | None = None) -> Column:
    """The column of an output."""
    kind = "share" if name in PERCENT else "temperature" if analysis.units[name] == "K" else "amount"
    return Column(name, _word(name), analysis.units[name], kind, "interval" if spread is not None else "two")


def output(analysis: Sensitivity, name: str, spread: OutcomeSpread | None = None) -> Quantity:
    """An output with its interval, as `evaluate` has it."""
    return Quantity(analysis.values[name], *(spread.interval(name) if spread is not None else (None, None)))


def headline(analysis: Sensitivity, spread: OutcomeSpread | None = None) -> Sentence:
    """The outputs whose sensitivity is shown."""
    numbers = {
        name: (output_column(analysis, name, spread), output(analysis, name, spread)) for name in analysis.values
    }
    best = analysis.optimum
    if best is None:
        outputs = ", ".join(f"{_word(name)} {{{name}:i}}" for name in analysis.values)
        return Sentence(f"The scenario's own plan: {outputs}.", numbers)
    if not analysis.rows:
        words = (
            f"The search for the lowest {best.minimize} ended {analysis.result}, so the optimum has no sensitivities."
        )
        return Sentence(words)
    change = analysis.values[best.minimize] / best.baseline_value - 1.0
    numbers["change"] = Column("", "", kind="change"), Quantity(change)
    return Sentence(
        f"Lowest {best.minimize} within the limits: {{{best.minimize}:i}}, {{change}} against the scenario's own plan.",
        numbers,
    )


def outputs_table(analysis: Sensitivity, spread: OutcomeSpread | None) -> Table:
    """The outputs, what all uncertain numbers do to them together, and the share of priors in their variance."""
    columns = [
        Column("output", "output", kind="words"),
        Column("value", "value", digits="interval" if spread is not None else "two"),
        Column("together", "all numbers together, ±", kind="share", digits="two"),
        Column("prior_share", "variance from priors", kind="share", digits="two"),
    ]
    rows: list[list[Cell]] = []
    for name in analysis.values:
        value = output(analysis, name, spread)._replace(
            unit=analysis.units[name], kind=output_column(analysis, name).kind
        )
        parts = (analysis.together(name), analysis.prior_share(name)) if analysis.rows else (math.nan, math.nan)
        rows.append([_word(name), value, *map(Quantity, parts)])
    return Table("outputs", "Outputs", columns, rows, level=FULL)


def own_number(row: NumberEffects, value: float | None) -> Cell:
    """A number of the scenario in its own unit."""
    if value is None:
        return None
    kind = "difference" if row.is_difference else "temperature" if row.unit == "K" else ""
    return Quantity(value, unit=row.unit, kind=kind)


def _change(value: float) -> Cell:
    return Quantity(value) if math.isfinite(value) else _NO_PLAN


def measure_table(analysis: Sensitivity, top: int = TOP) -> Table:
    """Uncertain numbers, the one that moves the first output most first."""
    first, *others = analysis.values
    low, high = (f"{100 * share:g} %" for share in SHARES)
    columns = [
        *(Column("number", "number", kind="words"), Column("known", "known as", kind="words")),
        *(Column("low", low), Column("high", high)),
        *_changes(first, f"{_word(first)} at {low}", f"at {high}", 0),
        Column("share", "of variance", kind="share", digits="two"),
        *(Column(f"{name}_size", f"{_word(name)} ±", kind="share", digits="two") for name in others),
        *(column for name in others for column in _changes(name, f"{_word(name)} at {low}", f"at {high}", DATA)),
        Column("search", "", kind="words"),
    ]
    shares = analysis.shares()
    rows: list[list[Cell]] = []
    for row in moving(analysis):
        effects = {
            name: [_change(change) for change in row.changes(name, analysis.values[name])] for name in analysis.values
        }
        sizes = [row.size(name, analysis.values[name]) for name in others]
        share = Quantity(shares[row.path]) if row.path in shares and math.isfinite(shares[row.path]) else None
        by = "" if row.effects[first].exact else "≈ from the elasticity"
        cells = [row.path, _kind(row), own_number(row, row.low), own_number(row, row.high), *effects[first], share]
        rows.append([*cells, *map(_change, sizes), *(cell for name in others for cell in effects[name]), by])
    title = f"Measure next: {_word(first)} with each uncertain number at its {low} and {high} quantile"
    return Table("measure", title, columns, rows, short=range(min(top, len(rows))))


def _changes(name: str, low: str, high: str, level: int) -> list[Column]:
    pairs = ((f"{name}_at_low", low), (f"{name}_at_high", high))
    return [Column(key, title, kind="change", digits="two", level=level) for key, title in pairs]


def moving(analysis: Sensitivity) -> list[NumberEffects]:
    """Uncertain numbers that move any output."""
    values = analysis.values
    return [
        row for row in analysis.by_uncertainty() if any(row.size(name, values[name]) >= _SMALLEST for name in values)
    ]


def together_sentence(analysis: Sensitivity) -> Sentence:
    """What all uncertain numbers do together, to first order."""
    numbers = {name: (SHARE, Quantity(analysis.together(name))) for name in analysis.values}
    parts = ", ".join(f"{_word(name)} ± {{{name}}}" for name in analysis.values)
    count = sum(row.is_uncertain for row in analysis.rows)
    return Sentence(f"All {count} together, if independent (root of the sum of squares): {parts}.", numbers)


def prior_sentence(analysis: Sensitivity) -> Sentence:
    """What rests on numbers that nobody measured: how many matter, and their share of the variance of each output."""
    priors = [row for row in analysis.rows if row.provenance.is_prior and row.path.startswith(SYSTEM)]
    effective = sum(any(effect.derivative for effect in row.effects.values()) for row in priors)
    numbers = {name: (SHARE, Quantity(analysis.prior_share(name))) for name in analysis.values}
    parts = ", ".join(f"{_word(name)} {{{name}}}" for name in analysis.values)
    words = f"Share of the variance that comes from priors ({effective} of the {len(priors)} have any effect): {parts}."
    return Sentence(words, numbers)


class Choice(NamedTuple):
    """The better of the next values of a decision: the row, the value, the changes of the outputs, what breaks."""

    row: NumberEffects
    value: float
    changes: dict[str, float]
    breaks: tuple[str, ...]


def choices(analysis: Sensitivity) -> list[Choice]:
    """The next value of each decision that improves the first output more; those that break a limit last."""
    first = next(iter(analysis.values))
    sign = -1.0 if is_gain(first) else 1.0
    best = []
    for row in analysis.by_step():
        both = [
            Choice(
                row, end, {name: row.changes(name, value)[i] for name, value in analysis.values.items()}, row.breaks[i]
            )
            for i, end in enumerate((row.low, row.high))
            if end is not None
        ]
        both = [choice for choice in both if any(abs(change) >= _SMALLEST for change in choice.changes.values())]
        if both:
            best.append(min(both, key=lambda choice: (bool(choice.breaks), sign * choice.changes[first])))
    return sorted(best, key=lambda choice: (bool(choice.breaks), sign * choice.changes[first]))


def change_table(analysis: Sensitivity, top: int = TOP) -> Table:
    """Decisions, the one whose next value improves the first output most first."""
    columns = [Column("number", "number", kind="words"), Column("from", "from"), Column("to", "to")]
    columns += [Column(name, _word(name), kind="change", digits="two") for name in analysis.values]
    columns.append(Column("breaks", "", kind="words"))
    rows = [
        [
            *(choice.row.path, own_number(choice.row, choice.row.value), own_number(choice.row, choice.value)),
            *(*map(_change, choice.changes.values()), _exceeded(choice.breaks)),
        ]
        for choice in choices(analysis)
    ]
    title = f"Change next: the next value of each decision, by what it does to {_word(next(iter(analysis.values)))}"
    return Table("change", title, columns, rows, short=range(min(top, len(rows))))


def _exceeded(limits: tuple[str, ...]) -> str:
    return f"exceeds the limit of {' and '.join(limits).replace('_', ' ')}" if limits else ""


def limits_table(analysis: Sensitivity) -> Table:
    """Limits of the search and what 1 % more of each does."""
    name = _word(next(iter(analysis.values)))
    columns = [
        *(Column("limit", "limit", kind="words"), Column("value", "value")),
        Column("elasticity", f"{name} (% per %)", digits="two"),
        *(Column("origin", "", kind="words"), Column("derivative", "derivative", "", level=DATA)),
    ]
    rows: list[list[Cell]] = [
        [
            *(
                _word(limit.name),
                Quantity(limit.value, unit=limit.unit, kind="temperature" if limit.unit == "K" else ""),
            ),
            *(Quantity(limit.elasticity), "taken from the scenario; moves with it" if limit.follows else ""),
            Quantity(limit.derivative),
        ]
        for limit in sorted(analysis.limits, key=lambda limit: -abs(limit.elasticity))
    ]
    return Table("limits", f"Change next: limits, by what 1 % more does to the lowest {name}", columns, rows)


def elasticity_table(analysis: Sensitivity, top: int = TOP) -> Table:
    """Numbers with the largest elasticity of the first output first; not of the layout, whose values are few."""
    columns = [
        *(
            Column("number", "number", kind="words"),
            Column("value", "value"),
            Column("known", "known as", kind="words"),
        ),
        Column("action", "next step", kind="words"),
        *(Column(name, _word(name), digits="two") for name in analysis.values),
    ]
    numbers = [
        row for row in analysis.by_elasticity() if row.action != FREE and not row.path.startswith("plan.layout.")
    ]
    rows: list[list[Cell]] = []
    for row in numbers:
        known = [row.effects[name].elasticity for name in analysis.values]
        step = row.action if row.action in (CHANGE, MEASURE) else ""
        cells = [None if elasticity is None else Quantity(elasticity) for elasticity in known]
        rows.append([row.path, own_number(row, row.value), _kind(row), step, *cells])
    first = _word(next(iter(analysis.values)))
    title = f"Largest elasticities of {first}: percent of the output per percent of the number"
    return Table("elasticities", title, columns, rows, short=range(min(top, len(rows))))


def numbers_table(analysis: Sensitivity) -> Table:
    """All numbers and their effects: uncertain ones by the size of their effect, then the others by elasticity.

    Where a number or an output is zero there is no elasticity: the derivative stands alone.
    """
    words = ("path", "kind", "source", "distribution", "action", "range", "breaks")
    columns = [Column(name, name, kind="words") for name in words] + [Column(name, name) for name in _OWN]
    shares = {name: analysis.shares(name) for name in analysis.values}
    for name in analysis.values:
        columns += [Column(f"{name}.elasticity", ""), Column(f"{name}.derivative", "", "")]
        columns += [Column(f"{name}.{end}", "", analysis.units[name]) for end in ("at_low", "at_high")]
        columns += [Column(f"{name}.exact", "", kind="words"), Column(f"{name}.share", "", kind="share")]
    uncertain = analysis.by_uncertainty()
    paths = {row.path for row in uncertain}
    rows = []
    for row in [*uncertain, *(row for row in analysis.by_elasticity() if row.path not in paths)]:
        has_ends = (row.low, row.high) != (None, None)
        of = "quantiles" if row.is_uncertain else "next values" if has_ends else ""
        broken = [f"{limit} at {end}" for end, ends in zip(("low", "high"), row.breaks, strict=True) for limit in ends]
        origin = row.provenance
        cells: list[Cell] = [row.path, origin.kind, origin.source, analysis.scenario.uncertainty.get(row.path, "")]
        cells += [row.action, of, "; ".join(broken), *(own_number(row, getattr(row, name)) for name in _OWN)]
        for name, effect in row.effects.items():
            effects = (effect.elasticity, effect.derivative, effect.low, effect.high)
            cells += [None if number is None else Quantity(number) for number in effects]
            share = shares[name].get(row.path)
            cells += ["yes" if effect.exact else "no", None if share is None else Quantity(share)]
        rows.append(cells)
    return Table("numbers", "All numbers and their effects", columns, rows, level=DATA)


_OWN = ("value", "low", "high")


def _measure_sentence(analysis: Sensitivity, first: str) -> Sentence:
    row = analysis.by_uncertainty(first)[0]
    shares = {"share": analysis.shares(first).get(row.path, 0.0), "priors": analysis.prior_share(first)}
    return Sentence(
        f"Measure {row.path.removeprefix(SYSTEM)} first: its uncertainty causes {{share}} of the variance of "
        f"{_word(first)}; priors together cause {{priors}}.",
        {name: (SHARE, Quantity(share)) for name, share in shares.items()},
    )


def _change_sentence(analysis: Sensitivity, first: str) -> list[Sentence]:
    better = choices(analysis)
    if not better or analysis.optimum:
        return []
    choice = better[0]
    value = own_number(choice.row, choice.value)
    numbers = {"change": (Column("", "", kind="change", digits="two"), Quantity(choice.changes[first]))}
    if isinstance(value, Quantity):
        numbers["value"] = Column("", ""), value
    name = choice.row.path.removeprefix("plan.")
    words = f"Of the decisions, {name} at {{value}} changes {_word(first)} most: by {{change}}."
    return [Sentence(words, numbers)]


def notes(analysis: Sensitivity) -> list[Sentence]:
    """What the tables leave out."""
    lines: list[Sentence] = []
    first = next(iter(analysis.values))
    if any(row.unit == "K" and row.effects[first].elasticity for row in analysis.rows):
        lines.append(Sentence("Elasticities by temperatures are per 1 % of the absolute temperature, about 3 K."))
    for row in analysis.by_uncertainty():
        for end, broken in zip((row.low, row.high), row.breaks, strict=True):
            cell = own_number(row, end)
            if broken and isinstance(cell, Quantity):
                words = f"At {{end}}, {row.path} {_exceeded(broken)}."
                lines.append(Sentence(words, {"end": (Column("", ""), cell)}))
    if any(row.is_uncertain and not row.effects[first].exact for row in analysis.rows):
        lines.append(Sentence("≈ from the elasticity; the others are from new searches in the same layout."))
    if analysis.optimum and any(limit.follows for limit in analysis.limits):
        best = analysis.optimum
        held = Column("", "", "s"), Quantity(best.limits.get("time", float(best.baseline.time)))
        words = "Limits taken from the scenario move with its numbers; hold one with --limit, such as --limit "
        lines.append(Sentence(f'{words}"time={{held}}".', {"held": held}))
    joint: dict[str, list[str]] = {}
    for row in analysis.rows:
        if row.distribution is not None and not row.distribution.has_quantiles:
            joint.setdefault(row.distribution.name, []).append(f"{row.path.rpartition('.')[0]}.*")
    lines += [
        Sentence(f"Not varied alone, because their distribution is joint ({name}): {', '.join(dict.fromkeys(paths))}.")
        for name, paths in joint.items()
    ]
    without = [
        row
        for row in analysis.by_elasticity()
        if row.action == MEASURE and row.distribution is None and row.effects[first].elasticity
    ]
    if without:
        named = {row.path: (ELASTICITY, Quantity(row.effects[first].elasticity or 0.0)) for row in without[:3]}
        listed = ", ".join(f"{path} ({{{path}}})" for path in named)
        words = f"Priors that matter to {_word(first)} without a stated uncertainty: {len(without)}, such as {listed}; "
        lines.append(Sentence(f"{words}give them one in [uncertainty].", named))
    if zero := sum(row.value == 0.0 for row in analysis.rows):
        lines.append(Sentence(f"Numbers that are zero have no elasticity (--json gives their derivatives): {zero}."))
    return lines


def tornado_chart(analysis: Sensitivity, measure: Table, name: str) -> Chart:
    """Changes of an output at the quantiles of the numbers that move it most."""
    value, word = analysis.values[name], _word(name)
    rows = [row for row in analysis.by_uncertainty(name) if _SMALLEST < row.size(name, value) < math.inf][:BARS]
    numbers = {"value": (output_column(analysis, name), Quantity(value))}
    title = f"{rows[0].path.removeprefix(SYSTEM)} moves {word} most" if rows else f"Nothing uncertain moves {word}"
    subtitle = f"Change of {word}, one number at a time, at its quantiles"
    y, only = [f"{name}_at_low", f"{name}_at_high"], [row.path for row in rows] or ["none"]
    axis = f"change of {word}"
    return Chart(
        "tornado",
        Sentence(title, numbers),
        "measure",
        "number",
        y,
        subtitle,
        hover=["low", "high"],
        only=only,
        axis=axis,
    )


def _elasticity_chart(analysis: Sensitivity, table: Table) -> Chart | None:
    """The largest elasticities of the first output as bars."""
    name = next(iter(analysis.values))
    known = [(label, cell) for label, _, cell in table.series(name) if abs(cell.value) >= 5e-4][:BARS]
    if not known:
        return None
    word, (path, largest) = _word(name), known[0]
    change = {"change": (Column("", "", kind="change", digits="two"), Quantity(largest.value / 100.0))}
    title = Sentence(f"1 % more {path.removeprefix(SYSTEM)} changes {word} by {{change}}", change)
    axis, only = f"{word}: percent per percent of the number", [label for label, _ in known]
    return Chart("bars", title, "elasticities", "number", [name], "Largest elasticities", only=only, axis=axis)


def _word(name: str) -> str:
    return name.replace("_", " ")


def _kind(row: NumberEffects) -> str:
    return _KINDS.get(row.provenance.kind, row.provenance.kind)
