"""What does the page of a run say that `evaluate` or `predict` computes?"""

from energymodel.report.answers.batch_penalty import batch_sentences
from energymodel.report.charts import Axis, Lines, Point, Series
from energymodel.report.fields import Field, shown_outcomes
from energymodel.report.intervals import interval_of, rounded, with_interval
from energymodel.report.number import sentence
from energymodel.report.page.document import Page, Section, figure
from energymodel.report.page.elasticities import elasticities_chart, elasticities_of_plan
from energymodel.report.page.limits_parts import rooms, rooms_chart
from energymodel.report.page.markup import beside, folded, paragraphs, terminal_table
from energymodel.report.page.spending import OWN, energy_bars, largest_sentence, spending_section, time_bars
from energymodel.report.page.step_parts import step_section
from energymodel.report.page.sureness import intervals_chart, output_field, sureness_section
from energymodel.report.tables import outcome_table, plan_table
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.outcome_spread import LEVEL, OutcomeSpread
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.trajectory import RunTrajectory

MAIN_OUTPUTS = (
    *("final loss", "tokens", "steps", "step time", "energy", "calendar time", "throughput", "model FLOP utilization"),
    *("average facility power", "busy chip power", "power usage effectiveness", "junction temperature"),
    *("memory per chip", "money", "operational carbon", "embodied carbon"),
)
"""Titles of the outputs that are shown; the others are under a fold."""


def evaluate_page(
    scenario: Scenario,
    outcome: TrainingOutcome,
    spread: OutcomeSpread,
    command: str,
    *,
    run: RunTrajectory | None = None,
    warnings: tuple[str, ...] = (),
) -> Page:
    """The page of a run: the plan and its outcome, where things go, a step, limits, how sure it is."""
    runs = {OWN: (scenario.plan, outcome)}
    outcomes = outcome_table(outcome, spread)
    tables = beside(
        terminal_table(plan_table(scenario, scenario.plan)),
        terminal_table(outcomes, only=MAIN_OUTPUTS) + folded("All outputs", terminal_table(outcomes, title=False)),
    )
    lines = paragraphs([*warnings, *map(sentence, batch_sentences(scenario, scenario.plan, outcome))])
    room = rooms_chart(outcome)
    known = elasticities_of_plan(scenario, scenario.plan, "energy")
    elasticities = elasticities_chart(known.items(), "energy", "Largest elasticities, the plan held")
    return Page(
        title=scenario.title,
        answer=f"{_number(spread, 'energy')} in {_number(spread, 'time')}",
        summary=run_sentences(scenario, outcome, spread),
        figure=energy_bars(runs),
        sections=[
            Section("Plan and outcome", tables + lines),
            spending_section(scenario, runs, energy=False),
            step_section(scenario, scenario.plan),
            Section("Over the run", figure(trajectory_chart(run)) if run is not None else ""),
            Section("Room to the limits", figure(room) if room is not None else ""),
            Section("What one percent changes", figure(elasticities) if elasticities is not None else ""),
            sureness_section(scenario, spread),
        ],
        command=command,
    )


def run_sentences(scenario: Scenario, outcome: TrainingOutcome, spread: OutcomeSpread) -> list[str]:
    """Three sentences: what the run takes and yields, where it goes, how near the limits and how sure it is."""
    runs = {OWN: (scenario.plan, outcome)}
    tightest, share = rooms(outcome)[0]
    half = intervals_chart(spread).title
    money, carbon = (_number(spread, name) for name in ("money", "carbon_operational"))
    room = f"uses {100.0 * share:.0f} % of the tightest limit, {tightest}"
    if share > 1.0 + 1e-6:
        room = f"exceeds the limit of {tightest}"
    return [
        f"The run takes {_interval(spread, 'time')} and {_interval(spread, 'energy')}, costs {money}, emits {carbon} "
        f"of carbon dioxide in operation, and reaches a loss of {_number(spread, 'loss')}.",
        f"{largest_sentence(energy_bars(runs).bars[0], 'energy')}; "
        f"{_lower(largest_sentence(time_bars(runs).bars[0], 'step time'))}.",
        f"The plan {room}; {_lower(half)}.",
    ]


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]


def _field(spread: OutcomeSpread, name: str) -> Field:
    return (
        output_field(spread.outcome, name)
        if name in ("energy", "step_time")
        else shown_outcomes(spread.outcome)[0][name]
    )


def _number(spread: OutcomeSpread, name: str) -> str:
    """An output in the digits that its interval supports."""
    field = _field(spread, name)
    return rounded(field, *interval_of(field, spread))


def _interval(spread: OutcomeSpread, name: str) -> str:
    """An output with its interval."""
    field = _field(spread, name)
    return with_interval(field.value, *interval_of(field, spread), field.unit, LEVEL)


def trajectory_chart(run: RunTrajectory) -> Lines:
    """Loss against the energy used, along the run."""
    points = tuple(
        Point(float(energy), float(loss)) for energy, loss in zip(run.energy, run.loss, strict=True) if energy > 0.0
    )
    half_energy = next(point.y for point in points if point.x >= 0.5 * points[-1].x)
    title = f"After half of the energy the loss is {half_energy:.3g} nat/token, at the end {points[-1].y:.3g}"
    return Lines(title, Axis("energy", "J"), Axis("loss", "nat/token"), (Series("loss", points),), "Loss along the run")
