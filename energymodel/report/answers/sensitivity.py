"""The answer of `sensitivity`: what to measure next, what to change next, and the largest elasticities."""

import math
from typing import Any, NamedTuple

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers.details import elasticity_chart
from energymodel.report.answers.plan_fields import PERCENT
from energymodel.report.answers.run_tables import priors_table
from energymodel.report.cells import Cell, Column, Level, Quantity, finite, number, present, share, spaced, words
from energymodel.scenarios.scenario import SYSTEM
from energymodel.search.sensitivity import CHANGE, FREE, MEASURE, SHARES, NumberEffects, Sensitivity
from energymodel.search.training_run import is_gain
from energymodel.sweeps.outcome_spread import OutcomeSpread

TOP, BARS = 12, 12
_SMALLEST = 5e-5  # relative change that a table shows


def sensitivity_answer(analysis: Sensitivity, spread: OutcomeSpread | None = None, top: int = TOP) -> Answer:
    """Effects of every number of a scenario on some outputs, or on the optimum.

    **Arguments:**

    - `spread`: uncertainty of the outputs, whose intervals are those of `evaluate`.
    - `top`: rows of the short form of each table.
    """
    scenario, first = analysis.scenario, next(iter(analysis.values))
    tables, charts = [outputs_table(analysis, spread)], []
    sentences, remarks = [headline(analysis, spread)], []
    if analysis.rows:
        elasticities = elasticity_table(analysis, top)
        change = limits_table(analysis) if analysis.optimum else change_table(analysis, top)
        tables = [measure_table(analysis, top), change, elasticities, *tables, numbers_table(analysis)]
        charts = [tornado_chart(analysis, name) for name in analysis.values]
        charts += present(elasticity_chart(elasticities, first, spaced(first), "Largest elasticities"))
        sentences += next_sentences(analysis, first)
        remarks = [*together_sentences(analysis), *notes(analysis)]
    what = f"the lowest {spaced(first)}" if analysis.optimum else spaced(first)
    return Answer.of(
        scenario,
        "sensitivity",
        Sentence(f"What to measure or change next for {what}"),
        sentences,
        [*(table for table in tables if table.rows), priors_table(scenario)],
        charts=charts,
        notes=remarks,
        rows="numbers" if analysis.rows else "outputs",
        result=str(analysis.result),
        message=analysis.message,
    )


def _output(analysis: Sensitivity, name: str, spread: OutcomeSpread | None) -> Quantity:
    """An output with its interval, as `evaluate` has it, in its unit."""
    ends = spread.interval(name) if spread is not None else (None, None)
    return Quantity(analysis.values[name], *ends, unit=analysis.units[name], kind="share" if name in PERCENT else "")


def headline(analysis: Sensitivity, spread: OutcomeSpread | None = None) -> Sentence:
    """The outputs whose sensitivity is shown."""
    digits = "interval" if spread is not None else "two"
    numbers = {name: number(_output(analysis, name, spread), digits=digits) for name in analysis.values}
    best = analysis.optimum
    if best is None:
        outputs = ", ".join(f"{spaced(name)} {{{name}:i}}" for name in analysis.values)
        return Sentence(f"The scenario's own plan: {outputs}.", numbers)
    if not analysis.rows:
        search = f"The search for the lowest {best.minimize} ended {analysis.result}"
        return Sentence(f"{search}, so the optimum has no sensitivities.")
    numbers["change"] = number(analysis.values[best.minimize] / best.baseline_value - 1.0, kind="change")
    against = ", {change} against the scenario's own plan" if best.has_own_plan else ""
    return Sentence(f"Lowest {best.minimize} within the limits: {{{best.minimize}:i}}{against}.", numbers)


def outputs_table(analysis: Sensitivity, spread: OutcomeSpread | None) -> Table:
    """The outputs, what all uncertain numbers do to them together, and the share of priors in their variance."""
    columns = [
        words("output"),
        Column("value", digits="interval" if spread is not None else "two"),
        Column("together", "all numbers together, ±", kind="share", digits="two"),
        Column("prior_share", "variance from priors", kind="share", digits="two"),
    ]
    rows: list[list[Any]] = []
    for name in analysis.values:
        parts = (analysis.together(name), analysis.prior_share(name)) if analysis.rows else (math.nan, math.nan)
        rows.append([spaced(name), _output(analysis, name, spread), *parts])
    return Table("outputs", "Outputs", columns, rows, level="full")


def own_number(row: NumberEffects, value: float | None) -> Cell:
    """A number of the scenario in its own unit."""
    return None if value is None else Quantity(value, unit=row.unit, kind="difference" if row.is_difference else "")


def _change(value: float) -> Cell:
    return Quantity(value) if math.isfinite(value) else "no plan"


def measure_table(analysis: Sensitivity, top: int = TOP) -> Table:
    """Uncertain numbers that move any output, the one that moves the first output most first."""
    values, shares = analysis.values, analysis.shares()
    first, *others = values
    low, high = (f"{100 * share:g} %" for share in SHARES)
    numbers = analysis.by_uncertainty()
    rows = [row for row in numbers if max(row.size(*output) for output in values.items()) >= _SMALLEST]

    def changes(name: str, level: Level) -> dict[Column, Any]:
        titles = {f"{name}_at_low": f"{spaced(name)} at {low}", f"{name}_at_high": f"at {high}"}
        columns = [Column(key, title, kind="change", digits="two", level=level) for key, title in titles.items()]
        pairs = [[*map(_change, row.changes(name, values[name]))] for row in rows]
        return {column: [pair[end] for pair in pairs] for end, column in enumerate(columns)}

    cells: dict[Column, Any] = {
        words("number"): [row.path for row in rows],
        words("known", "known as"): map(_kind, rows),
        Column("low", low): [own_number(row, row.low) for row in rows],
        Column("high", high): [own_number(row, row.high) for row in rows],
        **changes(first, "short"),
        Column("share", "of variance", kind="share", digits="two"): [finite(shares.get(row.path)) for row in rows],
    }
    for name in others:
        cells[Column(f"{name}_size", f"{spaced(name)} ±", kind="share", digits="two")] = [
            _change(row.size(name, values[name])) for row in rows
        ]
    for name in others:
        cells |= changes(name, "data")
    cells[words("search", "")] = ["" if row.effects[first].exact else "≈ from the elasticity" for row in rows]
    title = f"Measure next: {spaced(first)} with each uncertain number at its {low} and {high} quantile"
    return Table.of("measure", title, cells, top)


def together_sentences(analysis: Sensitivity) -> list[Sentence]:
    """What all uncertain numbers do together, to first order, and what of that rests on priors that matter."""
    priors = [row for row in analysis.rows if row.provenance.is_prior and row.path.startswith(SYSTEM)]
    effective = sum(any(effect.derivative for effect in row.effects.values()) for row in priors)
    count, numbers = sum(row.is_uncertain for row in analysis.rows), {}
    for name in analysis.values:
        numbers |= {name: share(analysis.together(name)), f"{name} priors": share(analysis.prior_share(name))}
    together = ", ".join(f"{spaced(name)} ± {{{name}}}" for name in analysis.values)
    of_priors = ", ".join(f"{spaced(name)} {{{name} priors}}" for name in analysis.values)
    effect = f"{effective} of the {len(priors)} have any effect"
    return [
        Sentence(f"All {count} together, if independent (root of the sum of squares): {together}.", numbers),
        Sentence(f"Share of the variance that comes from priors ({effect}): {of_priors}.", numbers),
    ]


class Choice(NamedTuple):
    """The better of the next values of a decision: the row, the value, the changes of the outputs, what breaks."""

    row: NumberEffects
    value: float
    changes: dict[str, float]
    breaks: tuple[str, ...]


def choices(analysis: Sensitivity) -> list[Choice]:
    """The next value of each decision that improves the first output more; those that break a limit last."""
    values, first, best = analysis.values, next(iter(analysis.values)), []
    sign = -1.0 if is_gain(first) else 1.0

    def order(choice: Choice) -> tuple[bool, float]:
        return bool(choice.breaks), sign * choice.changes[first]

    for row in analysis.by_step():
        changes = [{name: row.changes(name, value)[index] for name, value in values.items()} for index in range(2)]
        both = [
            Choice(row, end, changes[index], row.breaks[index])
            for index, end in enumerate((row.low, row.high))
            if end is not None and any(abs(change) >= _SMALLEST for change in changes[index].values())
        ]
        best += [min(both, key=order)] if both else []
    return sorted(best, key=order)


def change_table(analysis: Sensitivity, top: int = TOP) -> Table:
    """Decisions, the one whose next value improves the first output most first."""
    best = choices(analysis)
    cells = {
        words("number"): [choice.row.path for choice in best],
        Column("from"): [own_number(choice.row, choice.row.value) for choice in best],
        Column("to"): [own_number(choice.row, choice.value) for choice in best],
    }
    for name in analysis.values:
        cells[Column(name, kind="change", digits="two")] = [_change(choice.changes[name]) for choice in best]
    cells[words("breaks", "")] = [_exceeded(choice.breaks) for choice in best]
    title = f"Change next: the next value of each decision, by what it does to {spaced(next(iter(analysis.values)))}"
    return Table.of("change", title, cells, top)


def _exceeded(limits: tuple[str, ...]) -> str:
    return f"exceeds the limit of {spaced(' and '.join(limits))}" if limits else ""


def limits_table(analysis: Sensitivity) -> Table:
    """Limits of the search and what 1 % more of each does."""
    name = spaced(next(iter(analysis.values)))
    limits = sorted(analysis.limits, key=lambda limit: -abs(limit.elasticity))
    cells = {
        words("limit"): [spaced(of.name) for of in limits],
        Column("value"): [Quantity(of.value, unit=of.unit) for of in limits],
        Column("elasticity", f"{name} (% per %)", digits="two"): [of.elasticity for of in limits],
        words("origin", ""): ["taken from the scenario; moves with it" if of.follows else "" for of in limits],
        Column("derivative", unit="", level="data"): [of.derivative for of in limits],
    }
    return Table.of("limits", f"Change next: limits, by what 1 % more does to the lowest {name}", cells)


def elasticity_table(analysis: Sensitivity, top: int = TOP) -> Table:
    """Numbers with the largest elasticity of the first output first; not of the layout, whose values are few."""
    ranked = analysis.by_elasticity()
    rows = [row for row in ranked if row.action != FREE and not row.path.startswith("plan.layout.")]
    cells = {
        words("number"): [row.path for row in rows],
        Column("value"): [own_number(row, row.value) for row in rows],
        words("known", "known as"): map(_kind, rows),
        words("action", "next step"): [row.action if row.action in (CHANGE, MEASURE) else "" for row in rows],
    }
    for name in analysis.values:
        cells[Column(name, digits="two")] = [row.effects[name].elasticity for row in rows]
    first = spaced(next(iter(analysis.values)))
    title = f"Largest elasticities of {first}: percent of the output per percent of the number"
    return Table.of("elasticities", title, cells, top)


def numbers_table(analysis: Sensitivity) -> Table:
    """All numbers and their effects: uncertain ones by the size of their effect, then the others by elasticity.

    Where a number or an output is zero there is no elasticity: the derivative stands alone.
    """
    columns = [words(name) for name in ("path", "kind", "source", "distribution", "action", "range", "breaks")]
    columns += [Column(name) for name in ("value", "low", "high")]
    for name, unit in analysis.units.items():
        columns += [Column(f"{name}.elasticity"), Column(f"{name}.derivative", unit="")]
        columns += [Column(f"{name}.{end}", unit=unit, kind="amount") for end in ("at_low", "at_high")]
        columns += [words(f"{name}.exact"), Column(f"{name}.share", kind="share")]
    shares, rows = {name: analysis.shares(name) for name in analysis.values}, []
    for row in {row.path: row for row in (*analysis.by_uncertainty(), *analysis.by_elasticity())}.values():
        broken = [f"{limit} at {end}" for end, ends in zip(("low", "high"), row.breaks, strict=True) for limit in ends]
        next_values = "next values" if (row.low, row.high) != (None, None) else ""
        cells = [row.path, row.provenance.kind, row.provenance.source, analysis.scenario.uncertainty.get(row.path, "")]
        cells += [row.action, "quantiles" if row.is_uncertain else next_values, "; ".join(broken)]
        cells += [own_number(row, number) for number in (row.value, row.low, row.high)]
        for name, of in row.effects.items():
            cells += [of.elasticity, of.derivative, of.low, of.high, of.exact, shares[name].get(row.path)]
        rows.append(cells)
    return Table("numbers", "All numbers and their effects", columns, rows, level="data")


def next_sentences(analysis: Sensitivity, first: str) -> list[Sentence]:
    """What to measure first, and of a plan that was not optimized the decision that changes most."""
    row, of = analysis.by_uncertainty(first)[0], spaced(first)
    numbers = {"share": share(analysis.shares(first).get(row.path, 0.0)), "priors": share(analysis.prior_share(first))}
    measure = f"Measure {row.path.removeprefix(SYSTEM)} first: its uncertainty causes {{share}} of the variance of {of}"
    texts = [f"{measure}; priors together cause {{priors}}."]
    if (better := choices(analysis)) and not analysis.optimum:
        row, value, changes, _ = better[0]
        numbers |= {"change": number(changes[first], kind="change", digits="two")}
        numbers |= {"value": number(own_number(row, value))}
        name = row.path.removeprefix("plan.")
        texts.append(f"Of the decisions, {name} at {{value}} changes {of} most: by {{change}}.")
    return [Sentence(text, numbers) for text in texts]


def notes(analysis: Sensitivity) -> list[Sentence]:
    """What the tables leave out."""
    lines: list[Sentence] = []
    first, best, joint = next(iter(analysis.values)), analysis.optimum, {}
    if any(row.unit == "K" and row.effects[first].elasticity for row in analysis.rows):
        lines.append(Sentence("Elasticities by temperatures are per 1 % of the absolute temperature, about 3 K."))
    for row in analysis.by_uncertainty():
        for end, broken in zip((row.low, row.high), row.breaks, strict=True):
            if broken and end is not None:
                numbers = {"end": number(own_number(row, end))}
                lines.append(Sentence(f"At {{end}}, {row.path} {_exceeded(broken)}.", numbers))
    if any(row.is_uncertain and not row.effects[first].exact for row in analysis.rows):
        lines.append(Sentence("≈ from the elasticity; the others are from new searches in the same layout."))
    if best and any(limit.follows for limit in analysis.limits):
        held = {"held": number(best.limits.get("time", float(best.baseline.time)), "s")}
        text = "Limits taken from the scenario move with its numbers; hold one with --limit, such as --limit "
        lines.append(Sentence(f'{text}"time={{held}}".', held))
    for row in analysis.rows:
        if row.distribution is not None and not row.distribution.has_quantiles:
            joint.setdefault(row.distribution.name, {})[f"{row.path.rpartition('.')[0]}.*"] = None
    for name, paths in joint.items():
        lines.append(Sentence(f"Not varied alone, because their distribution is joint ({name}): {', '.join(paths)}."))
    without = {
        row.path: row.effects[first].elasticity
        for row in analysis.by_elasticity()
        if row.action == MEASURE and row.distribution is None and row.effects[first].elasticity
    }
    if without:
        named = {path: number(elasticity, digits="two") for path, elasticity in list(without.items())[:3]}
        listed = ", ".join(f"{path} ({{{path}}})" for path in named)
        text = f"Priors that matter to {spaced(first)} without a stated uncertainty: {len(without)}, such as {listed}; "
        lines.append(Sentence(f"{text}give them one in [uncertainty].", named))
    if zero := sum(row.value == 0.0 for row in analysis.rows):
        lines.append(Sentence(f"Numbers that are zero have no elasticity (--json gives their derivatives): {zero}."))
    return lines


def tornado_chart(analysis: Sensitivity, name: str) -> Chart:
    """Changes of an output at the quantiles of the numbers that move it most."""
    value, of = analysis.values[name], spaced(name)
    paths = [row.path for row in analysis.by_uncertainty(name) if _SMALLEST < row.size(name, value) < math.inf][:BARS]
    title = f"{paths[0].removeprefix(SYSTEM)} moves {of} most" if paths else f"Nothing uncertain moves {of}"
    y, subtitle = [f"{name}_at_low", f"{name}_at_high"], f"Change of {of}, one number at a time, at its quantiles"
    look = {"hover": ["low", "high"], "only": paths or ["none"], "axis": f"change of {of}"}
    return Chart("tornado", Sentence(title), "measure", "number", y, subtitle, **look)


def _kind(row: NumberEffects) -> str:
    return row.provenance.kind.replace("specification", "specified")
