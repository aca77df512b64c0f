"""What does the page of random samples of the uncertain numbers say?"""

import math

from energymodel.report.charts import Bar, GroupedBars, Interval, Intervals, Part
from energymodel.report.intervals import ends, quantity, rounded
from energymodel.report.page.document import Page, Section, figure
from energymodel.report.page.markup import paragraphs, terminal_table
from energymodel.report.page.sureness import priors_markup
from energymodel.report.uncertainty_report import SMALLEST, chances_table, indices_table, spreads_table
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.monte_carlo import MonteCarlo

LOW, HIGH = 0.05, 0.95
BARS = 12


def samples_page(scenario: Scenario, found: MonteCarlo, command: str) -> Page:
    """The page of a Monte Carlo run: distributions, chances of limits, what makes outputs uncertain."""
    charts = [indices_chart(found, name) for name in (found.of if found.indices else ())]
    tables = [terminal_table(indices_table(found, name)) for name in (found.of if found.indices else ())]
    spreads = samples_chart(found)
    cost = f"{found.points:,} points in {found.seconds:.1f} s, compilation included."
    return Page(
        title=scenario.title,
        answer=f"{found.samples:,} samples of {len(found.factors)} uncertain numbers",
        summary=_sentences(found),
        figure=spreads,
        sections=[
            Section("Distributions", terminal_table(spreads_table(found)) if found.spreads else ""),
            Section("Chance to stay within limits", terminal_table(chances_table(found)) if found.chances else ""),
            Section(
                "What makes the outputs uncertain",
                "".join(figure(one) for one in charts if one is not None) + "".join(tables),
            ),
            Section("The samples", paragraphs([cost, found.message]) + priors_markup(scenario)),
        ],
        command=command,
    )


def _sentences(found: MonteCarlo) -> list[str]:
    sentences = []
    for name in found.of[:1]:
        one, unit = found.spreads[name], found.units.get(name, "1")
        field, low, high = quantity(one.quantiles[0.5], unit), one.quantiles[LOW], one.quantiles[HIGH]
        sentences.append(
            f"The median {name.replace('_', ' ')} is {rounded(field, low, high)}; nine of ten samples lie between "
            f"{ends(field, low, high).replace(' to ', ' and ')}."
        )
    if "all" in found.chances:
        sentences.append(
            f"The plan stays within all limits in {100.0 * found.chances['all'].share:.3g} % of the samples."
        )
    ranked = found.by_total() if found.indices else []
    if ranked:
        sentences.append(
            f"{ranked[0].factor.removeprefix('system.')} matters most: it takes part in "
            f"{100.0 * ranked[0].total:.0f} % of the variance of {found.of[0].replace('_', ' ')}."
        )
    return sentences


def samples_chart(found: MonteCarlo) -> Intervals:
    """From the 5 % to the 95 % quantile of each output, around its median."""
    rows = []
    for name in found.of:
        one, unit = found.spreads[name], found.units.get(name, "1")
        middle, low, high = (one.quantiles[share] for share in (0.5, LOW, HIGH))
        if middle > 0.0 and math.isfinite(low + high):
            field = quantity(middle, unit)
            words = rounded(field, low, high), ends(field, low, high)
            rows.append(Interval(name.replace("_", " "), middle, low, high, unit, *words))
    title = "No output is positive in all samples"
    if rows:
        title = f"Of the outputs, {max(rows, key=lambda row: row.high / row.value).label} is the least certain"
    return Intervals(title, tuple(rows), "Medians, and quantiles of 5 and 95 % of the samples", HIGH - LOW)


def indices_chart(found: MonteCarlo, name: str) -> GroupedBars | None:
    """Shares of the uncertain numbers in the variance of an output: alone, and in total."""
    rows = [one for one in found.by_total(name) if one.total >= SMALLEST][:BARS]
    if not rows:
        return None

    def part(label: str, value: float, half: float) -> Part:
        return Part(label, max(value, 0.0), max(value - half, 0.0), min(value + half, 1.0))

    groups = tuple(
        Bar(
            one.factor.removeprefix("system."),
            (part("alone", one.first, one.first_half), part("with others", one.total, one.total_half)),
        )
        for one in rows
    )
    word = name.replace("_", " ")
    title = f"{groups[0].label} takes part in {100.0 * rows[0].total:.0f} % of the variance of {word}"
    return GroupedBars(title, "%", groups, "Sobol indices with 95 % intervals", "share of the variance", digits=2)
