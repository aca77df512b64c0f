"""What does the page of a run's physical limits say?"""

from energymodel.report.charts import Bar, GroupedBars, Part
from energymodel.report.intervals import like, with_interval
from energymodel.report.limits_report import Limits, bounds_table, limits_lines, run_limits
from energymodel.report.page.document import Page, Section, figure
from energymodel.report.page.markup import paragraphs, terminal_table
from energymodel.report.page.spending import bits_line, energy_flow
from energymodel.report.page.sureness import sureness_section
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.outcome_spread import DEVIATIONS, LEVEL, OutcomeSpread
from energymodel.system.outcome import TrainingOutcome
from energymodel.units import format_quantity


def limits_page(scenario: Scenario, outcome: TrainingOutcome, spread: OutcomeSpread, command: str) -> Page:
    """The page of the bounds: the ladder, the speed limits, where the energy goes, how sure it is."""
    limits = run_limits(scenario, outcome)
    half = DEVIATIONS * spread.deviation("energy")
    table = terminal_table(bounds_table(limits, half), title=False)
    return Page(
        title=scenario.title,
        answer="How far the run is from the bounds of physics, technology and its own chip",
        summary=_sentences(limits, spread),
        figure=ladder_chart(limits),
        sections=[
            Section("Lower bounds on energy", table + paragraphs(limits_lines(limits, spread))),
            Section("Where the energy goes", figure(energy_flow(outcome)) + bits_line(outcome)),
            sureness_section(scenario, spread),
        ],
        command=command,
    )


def _sentences(limits: Limits, spread: OutcomeSpread) -> list[str]:
    low, high = spread.interval("energy")
    half = DEVIATIONS * spread.deviation("energy")
    energy = with_interval(limits.energy, low, high, "J", LEVEL)
    by_key = {one.key: one for one in limits.bounds}
    times = {key: like(one.multiple, "1", half) for key, one in by_key.items()}
    return [
        f"The run takes {energy}.",
        f"That is {times['roofline']} times what operations and memory traffic alone take on its chip, and "
        f"{times['cmos_wall']} times what arithmetic takes in the best CMOS that is foreseen.",
        f"It is {times['landauer_operation']} times Landauer's limit for the bits that the operations erase.",
    ]


def ladder_chart(limits: Limits) -> GroupedBars:
    """Energy of the run above its lower bounds, on a logarithmic axis."""
    bounds = sorted((one for one in limits.bounds if one.energy > 0.0), key=lambda one: -one.energy)
    groups = tuple(Bar(one.title, (Part("", one.energy),)) for one in bounds)
    groups = (Bar("the run", (Part("", limits.energy),)), *groups)
    nearest = bounds[0]
    title = f"The run takes {nearest.multiple:.2g} times the nearest bound: {nearest.title}"
    subtitle = f"Lower bounds on the energy of the run; bits are erased at {format_quantity(limits.temperature, 'K')}"
    return GroupedBars(title, "J", groups, subtitle, "energy", log=True)
