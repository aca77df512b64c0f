"""The answer of `sweep --samples`: distributions of the outputs, chances of limits, Sobol's indices."""

import math
from collections.abc import Mapping
from typing import Any

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers.run_tables import prior_count, priors_table
from energymodel.report.answers.sweep import question_table
from energymodel.report.cells import Column, Quantity, declared, number, present, share, spaced, words
from energymodel.scenarios.scenario import SYSTEM, Scenario
from energymodel.sweeps.monte_carlo import MonteCarlo
from energymodel.sweeps.outcome_spread import DEVIATIONS
from energymodel.sweeps.sample_statistics import ALL, NORMAL
from energymodel.sweeps.scenario_axes import HARD_LIMITS

LOW, MIDDLE, HIGH = 0.05, 0.5, 0.95
TOP = 12
SMALLEST = 0.005  # total index of the factors of the short form
INTERVALS = (
    "Intervals of outputs reach from the 5 % to the 95 % quantile of the samples; those of indices hold with a "
    "probability of 90 %."
)


def samples_answer(scenario: Scenario, drawn: MonteCarlo, asked: Mapping[str, str] | None = None) -> Answer:
    """Random samples in numbers.

    - `asked`: the question in words, such as `{"seed": "0"}`.
    """
    tables = [outputs_table(drawn)] if drawn.spreads else []
    charts = [_outputs_chart(drawn)] if drawn.spreads else []
    tables += [chances_table(drawn)] if drawn.chances else []
    for name in drawn.of if drawn.indices else ():
        indices = indices_table(drawn, name)
        title = f"{{name}} takes part in {{largest}} of the variance of {spaced(name)}"
        subtitle, axis, y = "Sobol indices with 90 % intervals", "share of the variance", ["first", "total"]
        tables.append(indices)
        charts += present(Chart.ranked(indices, "total", title, subtitle, axis, SMALLEST, TOP, y=y))
    cells: dict[Column, Any] = {
        Column("samples", kind="count"): drawn.samples,
        Column("index_samples", "samples of the indices", kind="count"): drawn.index_samples,
        Column("points", kind="count"): drawn.points,
        Column("time", "time, compilation included", "s", digits="two"): drawn.seconds,
        words("complete", level="data"): drawn.complete,
    }
    tables += [Table.facts("run", "The samples", cells), *([question_table(asked)] if asked else [])]
    return Answer.of(
        scenario,
        "samples",
        Sentence(f"{drawn.samples:,} samples of {len(drawn.factors)} uncertain numbers"),
        _sentences(drawn),
        [*tables, priors_table(scenario)],
        charts=charts,
        notes=[prior_count(scenario)],
        rows=tables[0].name,
        result="interrupted" if not drawn.complete else "undefined" if drawn.message else "successful",
        message=drawn.message,
        intervals=INTERVALS,
    )


def _sentences(drawn: MonteCarlo) -> list[Sentence]:
    sentences = [Sentence(drawn.message)] if drawn.message else []
    for name in drawn.of[:1] if drawn.spreads else ():
        text = f"The median {spaced(name)} is {{median:i}}: nine of ten samples lie in that interval."
        sentences.append(Sentence(text, {"median": number(_median(drawn, name))}))
    if ALL in drawn.chances:
        inside = number(drawn.chances[ALL].share, kind="share")
        sentences.append(Sentence("The plan stays within all limits in {share} of the samples.", {"share": inside}))
    if drawn.indices and (ranked := drawn.by_total()):
        of = f"{ranked[0].factor.removeprefix(SYSTEM)} matters most: it takes part in {{total}} of the variance of"
        sentences.append(Sentence(f"{of} {spaced(drawn.of[0])}.", {"total": share(ranked[0].total)}))
    return sentences


def _median(drawn: MonteCarlo, name: str) -> Quantity:
    """The median of an output, with the quantiles of 5 and 95 % of the samples."""
    quantiles = drawn.spreads[name].quantiles
    return Quantity(quantiles[MIDDLE], quantiles[LOW], quantiles[HIGH], unit=drawn.units.get(name, "1"))


def outputs_table(drawn: MonteCarlo) -> Table:
    """Median, deviation, mean and quantiles of each output; those of most interest in the short form."""
    shares = {part: f"quantile_{round(100 * part):02d}" for part in next(iter(drawn.spreads.values())).quantiles}
    first = declared("distributions")
    columns = [
        *first[:4],
        *(Column(name, f"{100 * part:g} %", "", level="full") for part, name in shares.items()),
        *(Column(f"{name}_{end}", unit="", level="data") for name in shares.values() for end in ("low", "high")),
        *first[4:],
    ]
    rows = []
    for name, spread in drawn.spreads.items():
        unit = drawn.units.get(name, "1")
        ends = [end for part in shares for end in spread.ranges.get(part, (math.nan, math.nan))]
        relative, width = spread.deviation / abs(spread.mean) if spread.mean else None, "difference" * (unit == "K")
        rows.append(
            [
                spaced(name),
                _median(drawn, name),
                relative,
                *(Quantity(value, unit=unit) for value in (spread.mean, *spread.quantiles.values())),
                *(Quantity(end, unit=unit) if math.isfinite(end) else None for end in ends),
                *(Quantity(value, unit=unit, kind=width) for value in (spread.deviation, spread.error)),
                spread.undefined,
                name,
            ]
        )
    short = [index for index, name in enumerate(drawn.spreads) if name in drawn.of]
    return Table("outputs", "Distributions", columns, rows, short=short)


def chances_table(drawn: MonteCarlo) -> Table:
    """Chance of each limit, those that some sample breaks in the short form, and of all of them."""
    rows = []
    for name, chance in drawn.chances.items():
        ends = (math.inf,) if name in HARD_LIMITS else drawn.limits.get(name, (math.inf,))
        unit = drawn.units.get(name, "1")
        limits = [Quantity(end, unit=unit) if math.isfinite(end) else None for end in (*ends, math.inf)[:2]]
        label = spaced(name.removeprefix("slack.")) if name in drawn.limits else "all limits"
        rows.append([label, *limits, chance.share, chance.low, chance.high, name])
    short = [index for index, row in enumerate(rows) if row[3] < 1.0 or row[-1] not in HARD_LIMITS]
    return Table("chances", "Chance to stay within limits", declared("chances"), rows, short=short)


def indices_table(drawn: MonteCarlo, name: str) -> Table:
    """Factors by their total index of an output, with 90 % intervals; the largest in the short form."""

    def index(value: float, half: float) -> Quantity:
        """From half the width of the 95 % interval."""
        if not math.isfinite(half):
            return Quantity(value)
        half *= DEVIATIONS / NORMAL
        return Quantity(value, max(value - half, min(value, 0.0)), min(value + half, max(value, 1.0)))

    ranked = drawn.by_total(name)
    cells = {
        words("factor", "number"): [of.factor.removeprefix(SYSTEM) for of in ranked],
        Column("first", "alone", kind="share"): [index(of.first, of.first_half) for of in ranked],
        Column("total", "with others", kind="share"): [index(of.total, of.total_half) for of in ranked],
        Column("first_error", "95 %: ±", kind="share", level="data"): [of.first_half for of in ranked],
        Column("total_error", "95 %: ±", kind="share", level="data"): [of.total_half for of in ranked],
        words("path", level="data"): [of.factor for of in ranked],
    }
    short = range(min(TOP, sum(of.total >= SMALLEST for of in ranked)))
    title = f"What makes {spaced(name)} uncertain: shares of its variance"
    return Table.of(f"indices_{name}", title, cells, short=short)


def _outputs_chart(drawn: MonteCarlo) -> Chart:
    """From the 5 % to the 95 % quantile of each output, around its median."""
    quantiles = {spaced(name): drawn.spreads[name].quantiles for name in drawn.of}
    ratios = {name: of[HIGH] / of[MIDDLE] for name, of in quantiles.items() if of[MIDDLE] > 0.0}
    title = "No output is positive in all samples"
    if ratios:
        title = f"Of the outputs, {max(ratios, key=lambda name: ratios[name])} is the least certain"
    subtitle = "Medians, and quantiles of 5 and 95 % of the samples"
    return Chart("intervals", Sentence(title), "outputs", y=["median"], subtitle=subtitle, only=[*quantiles])
