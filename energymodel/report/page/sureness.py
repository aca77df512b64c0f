"""How sure is an outcome: intervals, what they come from, and which numbers are priors?"""

from collections.abc import Sequence

import jax

from energymodel.report.charts import Bar, Column, GroupedBars, Interval, Intervals, Part, Table
from energymodel.report.fields import Field, shown_outcomes, total
from energymodel.report.intervals import ends, interval_of, is_known, rounded
from energymodel.report.page.document import Section, figure
from energymodel.report.page.markup import bullets, folded, paragraph, paragraphs
from energymodel.report.tables import INTERVALS, given_priors, prior_count
from energymodel.scenarios.priors import priors
from energymodel.scenarios.scenario import Scenario
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.outcome_spread import DEVIATIONS, LEVEL, OutcomeSpread, directions_of, in_float64
from energymodel.system.outcome import TrainingOutcome

SHOWN = (
    "energy", "time", "money", "carbon_operational", "carbon_embodied", "step_time", "mfu", "power_average",
    "power_peak", "pue", "memory_per_chip", "energy_per_bit", "landauer_multiple",
)  # fmt: skip
"""Outputs whose intervals are drawn."""
CAUSES = 10
SMALLEST = 0.005  # share of the variance of a cause that is shown


def sureness_section(
    scenario: Scenario, spread: OutcomeSpread, names: Sequence[str] = SHOWN, cause: str = "energy"
) -> Section:
    """Intervals of some outputs, what makes one of them uncertain, priors."""
    causes = causes_chart(scenario, spread, cause)
    return Section(
        "How sure the numbers are",
        figure(intervals_chart(spread, names))
        + paragraph(
            INTERVALS.replace("--json has all", "the tables behind the figures and --json have all"), "em-muted"
        )
        + (figure(causes) if causes is not None else "")
        + priors_markup(scenario),
    )


def output_field(outcome: TrainingOutcome, name: str) -> Field:
    """An output, or a total, with its title and unit."""
    if name in ("energy", "step_time"):
        unit = "J" if name == "energy" else "s"
        return Field(name, name, name.replace("_", " "), unit, total(getattr(outcome, name)))
    return shown_outcomes(outcome)[0][name]


def intervals_chart(spread: OutcomeSpread, names: Sequence[str] = SHOWN) -> Intervals:
    """Intervals of outputs, each relative to its value; the first of them has the title."""
    rows = []
    for name in names:
        field = output_field(spread.outcome, name)
        low, high = interval_of(field, spread)
        if field.value > 0.0 and is_known(field, low, high):
            shown, words = rounded(field, low, high), ends(field, low, high)
            rows.append(Interval(field.title, field.value, low, high, field.unit, shown, words))
    half, first = DEVIATIONS * spread.deviation(names[0]), names[0].replace("_", " ").capitalize()
    title = f"{first} is known within about {100.0 * half:.0f} %" if half else "Intervals of the outcome"
    return Intervals(title, tuple(rows), f"Intervals that hold with a probability of {100.0 * LEVEL:g} %", LEVEL)


def causes_chart(scenario: Scenario, spread: OutcomeSpread, name: str = "energy") -> GroupedBars | None:
    """Which uncertain numbers make an output uncertain, by their share of its variance."""
    with jax.enable_x64(True):
        known = directions_of(scenario, in_float64(TrainingRun(scenario.system, scenario.plan)))
    shares: dict[str, float] = {}
    moved = spread.relative(name)
    whole = float((moved**2).sum())
    if not whole or len(moved) != len(known.names):
        return None
    for cause, change in zip(known.names, moved, strict=True):
        shares[cause] = shares.get(cause, 0.0) + float(change) ** 2 / whole
    order = [one for one in sorted(shares, key=lambda one: -shares[one]) if shares[one] >= SMALLEST][:CAUSES]
    groups = tuple(
        Bar(
            one.removeprefix("system."),
            (Part("assumed (prior)" if known.is_prior[one] else "measured or published", shares[one]),),
        )
        for one in order
    )
    word = name.replace("_", " ")
    of_priors = sum(share for one, share in shares.items() if known.is_prior[one])
    title = f"{100.0 * of_priors:.0f} % of the variance of {word} comes from numbers that nobody measured"
    return GroupedBars(
        title, "%", groups, f"Share of the variance of {word}, to first order", "share of the variance", digits=2
    )


def priors_markup(scenario: Scenario) -> str:
    """How many numbers are priors, those of the plan, and under a fold all of the system."""
    of_plan = [f"{path}: {source}" for path, source in given_priors(scenario).items()]
    rows = [[path.removeprefix("system."), scenario.provenance[path].source] for path in priors(scenario)]
    return (
        paragraph(prior_count(scenario))
        + (paragraphs(["Of the plan, these numbers are assumed:"]) + bullets(of_plan) if of_plan else "")
        + folded(f"All {len(rows)} priors of the system", _scrolled(Table([Column("number"), Column("source")], rows)))
    )


def _scrolled(table: Table) -> str:
    return f'<div class="em-scroll">{table.html()}</div>'
