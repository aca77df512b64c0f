"""The answer of `sweep --samples`: distributions of the outputs, chances of limits, Sobol's indices."""

import math
from collections.abc import Mapping

from energymodel.report.answer import DATA, FULL, Answer, Cell, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.run_tables import prior_count, priors_table
from energymodel.report.answers.sweep import question_table
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.monte_carlo import MonteCarlo
from energymodel.sweeps.outcome_spread import DEVIATIONS
from energymodel.sweeps.sample_statistics import ALL, NORMAL, Chance, SobolIndex, Spread
from energymodel.sweeps.scenario_axes import HARD_LIMITS

LOW, MIDDLE, HIGH = 0.05, 0.5, 0.95
TOP = 12
SMALLEST = 0.005  # total index of the factors of the short form
INTERVALS = (
    "Intervals of outputs reach from the 5 % to the 95 % quantile of the samples; those of indices hold with a "
    "probability of 90 %."
)
_SHARE = Column("", "", kind="share", digits="two")


def samples_answer(scenario: Scenario, drawn: MonteCarlo, asked: Mapping[str, str] | None = None) -> Answer:
    """Random samples in numbers.

    - `asked`: the question in words, such as `{"seed": "0"}`.
    """
    tables, charts = [], []
    if drawn.spreads:
        tables.append(outputs_table(drawn))
        charts.append(_outputs_chart(drawn))
    if drawn.chances:
        tables.append(chances_table(drawn))
    for name in drawn.of if drawn.indices else ():
        tables.append(indices_table(drawn, name))
        charts += _indices_charts(drawn, name)
    cells: dict[Column, Cell] = {
        Column("samples", "samples", kind="count"): Quantity(drawn.samples),
        Column("index_samples", "samples of the indices", kind="count"): Quantity(drawn.index_samples),
        Column("points", "points", kind="count"): Quantity(drawn.points),
        Column("time", "time, compilation included", "s", digits="two"): Quantity(drawn.seconds),
        Column("complete", "complete", kind="words", level=DATA): "yes" if drawn.complete else "no",
    }
    tables.append(Table("run", "The samples", [*cells], [[*cells.values()]], tall=True))
    if asked:
        tables.append(question_table(asked))
    return Answer(
        "samples",
        scenario.title,
        Sentence(f"{drawn.samples:,} samples of {len(drawn.factors)} uncertain numbers"),
        _sentences(drawn),
        [*tables, priors_table(scenario)],
        charts,
        [prior_count(scenario)],
        inputs=scenario.named_tables,
        rows=tables[0].name,
        result="interrupted" if not drawn.complete else "undefined" if drawn.message else "successful",
        message=drawn.message,
        intervals=INTERVALS,
    )


def _sentences(drawn: MonteCarlo) -> list[Sentence]:
    sentences = [Sentence(drawn.message)] if drawn.message else []
    for name in drawn.of[:1] if drawn.spreads else ():
        numbers = {"median": (Column("", "", ""), _quantity(drawn, name, drawn.spreads[name].quantiles[MIDDLE]))}
        words = f"The median {_word(name)} is {{median:i}}: nine of ten samples lie in that interval."
        sentences.append(Sentence(words, numbers))
    if ALL in drawn.chances:
        numbers = {"share": (Column("", "", kind="share"), Quantity(drawn.chances[ALL].share))}
        sentences.append(Sentence("The plan stays within all limits in {share} of the samples.", numbers))
    ranked = drawn.by_total() if drawn.indices else []
    if ranked:
        words = (
            f"{_factor(ranked[0])} matters most: it takes part in {{total}} of the variance of {_word(drawn.of[0])}."
        )
        sentences.append(Sentence(words, {"total": (_SHARE, Quantity(ranked[0].total))}))
    return sentences


def _quantity(drawn: MonteCarlo, name: str, value: float) -> Quantity:
    """A number of an output, with the quantiles of 5 and 95 % of the samples."""
    quantiles, unit = drawn.spreads[name].quantiles, drawn.units.get(name, "1")
    return Quantity(value, quantiles[LOW], quantiles[HIGH], unit=unit, kind="temperature" if unit == "K" else "")


def outputs_table(drawn: MonteCarlo) -> Table:
    """Median, deviation, mean and quantiles of each output; those of most interest in the short form."""
    shares = [*next(iter(drawn.spreads.values())).quantiles]
    columns = [
        Column("output", "output", kind="words"),
        Column("median", "median", ""),
        Column("relative_deviation", "deviation", kind="share", digits="two"),
        Column("mean", "mean", ""),
        *(Column(_percent(share), f"{100 * share:g} %", "", level=FULL) for share in shares),
        *(Column(f"{_percent(share)}_{end}", "", "", level=DATA) for share in shares for end in ("low", "high")),
        Column("deviation", "", "", level=DATA),
        Column("error", "", "", level=DATA),
        Column("undefined", "", kind="share", level=DATA),
        Column("name", "", kind="words", level=DATA),
    ]
    rows = [_outputs_row(drawn, name, spread) for name, spread in drawn.spreads.items()]
    short = [index for index, name in enumerate(drawn.spreads) if name in drawn.of]
    return Table("outputs", "Distributions", columns, rows, short=short)


def _outputs_row(drawn: MonteCarlo, name: str, spread: Spread) -> list[Cell]:
    unit = drawn.units.get(name, "1")
    kind = "temperature" if unit == "K" else ""

    def exact(value: float, kind: str = kind) -> Quantity:
        return Quantity(value, unit=unit, kind=kind)

    ends = [end for share in spread.quantiles for end in spread.ranges.get(share, (math.nan, math.nan))]
    return [
        _word(name),
        _quantity(drawn, name, spread.quantiles[MIDDLE]),
        Quantity(spread.deviation / abs(spread.mean)) if spread.mean else None,
        exact(spread.mean),
        *map(exact, spread.quantiles.values()),
        *(exact(end) if math.isfinite(end) else None for end in ends),
        exact(spread.deviation, kind and "difference"),
        exact(spread.error, kind and "difference"),
        Quantity(spread.undefined),
        name,
    ]


def _percent(share: float) -> str:
    return f"quantile_{round(100 * share):02d}"


def chances_table(drawn: MonteCarlo) -> Table:
    """Chance of each limit, those that some sample breaks in the short form, and of all of them."""
    columns = [
        Column("limit", "limit", kind="words"),
        Column("least", "at least", ""),
        Column("most", "at most", ""),
        Column("chance", "chance", kind="share"),
        Column("chance_low", "95 % from", kind="share"),
        Column("chance_high", "to", kind="share"),
        Column("name", "", kind="words", level=DATA),
    ]
    rows = [_chances_row(drawn, name, chance) for name, chance in drawn.chances.items()]
    doubtful = [chance.share < 1.0 or name not in HARD_LIMITS for name, chance in drawn.chances.items()]
    short = [index for index, shows in enumerate(doubtful) if shows]
    return Table("chances", "Chance to stay within limits", columns, rows, short=short)


def _chances_row(drawn: MonteCarlo, name: str, chance: Chance) -> list[Cell]:
    label = _word(name.removeprefix("slack.")) if name in drawn.limits else "all limits"
    unit = drawn.units.get(name, "1")
    kind = "temperature" if unit == "K" else ""
    ends = drawn.limits.get(name, (-math.inf, math.inf))
    if name in HARD_LIMITS:
        ends = -math.inf, math.inf
    bounds = [Quantity(end, unit=unit, kind=kind) if math.isfinite(end) else None for end in ends]
    return [label, *bounds, Quantity(chance.share), Quantity(chance.low), Quantity(chance.high), name]


def indices_table(drawn: MonteCarlo, name: str) -> Table:
    """Factors by their total index of an output; the largest in the short form."""
    columns = [
        Column("factor", "number", kind="words"),
        Column("first", "alone", kind="share"),
        Column("total", "with others", kind="share"),
        Column("first_error", "95 %: ±", kind="share", level=DATA),
        Column("total_error", "95 %: ±", kind="share", level=DATA),
        Column("path", "", kind="words", level=DATA),
    ]
    ranked = drawn.by_total(name)
    rows: list[list[Cell]] = [
        [
            _factor(index),
            _index(index.first, index.first_half),
            _index(index.total, index.total_half),
            Quantity(index.first_half),
            Quantity(index.total_half),
            index.factor,
        ]
        for index in ranked
    ]
    count = sum(index.total >= SMALLEST for index in ranked)
    title = f"What makes {_word(name)} uncertain: shares of its variance"
    return Table(f"indices_{name}", title, columns, rows, short=range(min(TOP, count)))


def _index(value: float, half: float) -> Quantity:
    """A share of the variance with the 90 % interval that follows from half the width of the 95 % interval."""
    if not math.isfinite(half):
        return Quantity(value)
    half *= DEVIATIONS / NORMAL
    return Quantity(value, max(value - half, min(value, 0.0)), min(value + half, max(value, 1.0)))


def _factor(index: SobolIndex) -> str:
    return index.factor.removeprefix("system.")


def _word(name: str) -> str:
    return name.replace("_", " ")


def _outputs_chart(drawn: MonteCarlo) -> Chart:
    """From the 5 % to the 95 % quantile of each output, around its median."""
    quantiles = {name: drawn.spreads[name].quantiles for name in drawn.of}
    ratios = {name: of[HIGH] / of[MIDDLE] for name, of in quantiles.items() if of[MIDDLE] > 0.0}
    title = "No output is positive in all samples"
    if ratios:
        title = f"Of the outputs, {_word(max(ratios, key=lambda name: ratios[name]))} is the least certain"
    only = [_word(name) for name in drawn.of]
    subtitle = "Medians, and quantiles of 5 and 95 % of the samples"
    return Chart("intervals", Sentence(title), "outputs", y=["median"], subtitle=subtitle, only=only)


def _indices_charts(drawn: MonteCarlo, name: str) -> list[Chart]:
    """Shares of the uncertain numbers in the variance of an output: alone, and in total."""
    ranked = [index for index in drawn.by_total(name) if index.total >= SMALLEST][:TOP]
    if not ranked:
        return []
    words = f"{_factor(ranked[0])} takes part in {{total}} of the variance of {_word(name)}"
    title, table = Sentence(words, {"total": (_SHARE, Quantity(ranked[0].total))}), f"indices_{name}"
    only, axis = [_factor(index) for index in ranked], "share of the variance"
    y, subtitle = ["first", "total"], "Sobol indices with 90 % intervals"
    return [Chart("bars", title, table, "factor", y, subtitle, only=only, axis=axis)]
