"""A step of a plan, pass by pass."""

import numpy as np

from energymodel.errors import InputError
from energymodel.performance.pipeline_simulator import SimulatedPass
from energymodel.report.answer import DATA, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.run_tables import Run
from energymodel.scenarios.scenario import Scenario
from energymodel.search.pipeline import Timeline, step_timeline

NAMES = {"F": "forward", "B": "backward", "I": "backward (inputs)", "W": "backward (weights)"}
SHARE = Column("", "", kind="share")
SECONDS = Column("", "", "s")


def step_parts(scenario: Scenario, run: Run) -> tuple[Table | None, Chart | None, Sentence]:
    """The passes of a step as table and chart, and how they fill it; why there are none where none is simulated."""
    try:
        timeline = step_timeline(scenario.system, run.plan)
    except (InputError, ValueError) as error:
        return None, None, Sentence(str(error))
    return passes_table(timeline), timeline_chart(timeline), step_sentence(timeline, run.quantity("step_time"))


def passes_table(timeline: Timeline) -> Table:
    """Passes of all ranks; those that share a slot of a rank have lanes."""
    slots: dict[tuple[int, float], list[SimulatedPass]] = {}
    for of_rank in timeline.simulated.passes:
        slots.setdefault((of_rank.rank, of_rank.start), []).append(of_rank)
    columns = [
        Column("rank", "pipeline rank", kind="count"),
        Column("kind", "pass", kind="words"),
        Column("stage", "virtual stage", kind="count", level=DATA),
        Column("microbatch", "micro-batch", kind="count", level=DATA),
        Column("start", "start", "s"),
        Column("end", "end", "s"),
        Column("lane", "lane", kind="count", level=DATA),
        Column("lanes", "lanes", kind="count", level=DATA),
    ]
    rows = [
        [
            Quantity(rank),
            NAMES[each.operation.kind],
            Quantity(each.operation.stage),
            Quantity(each.operation.microbatch),
            Quantity(start),
            Quantity(each.end),
            Quantity(lane),
            Quantity(len(together)),
        ]
        for (rank, start), together in slots.items()
        for lane, each in enumerate(together)
    ]
    return Table("passes", "A step of the plan", columns, rows, level=DATA)


def timeline_chart(timeline: Timeline) -> Chart:
    """Passes of all ranks against time."""
    step = timeline.simulated
    waits = 1.0 - float(np.mean(step.busy)) / timeline.pipeline_time
    ranks, count = len(step.busy), max(each.operation.microbatch for each in step.passes) + 1
    title = Sentence("The mean rank waits {share} of the time of the passes", {"share": (SHARE, Quantity(waits))})
    if ranks == 1:
        title = Sentence("Without a pipeline no rank waits for another")
    subtitle = (
        f"Passes of one replica through {ranks} pipeline rank{'s' * (ranks > 1)}, schedule {timeline.schedule}, "
        f"{count} micro-batch{'es' * (count > 1)}; what is empty is waiting"
    )
    return Chart("timeline", title, "passes", subtitle=subtitle, axis="pipeline rank", limit=(step.time, "end"))


def step_sentence(timeline: Timeline, step_time: Quantity) -> Sentence:
    """How the passes fill the step, and how far the closed form is from the simulation."""
    closed, simulated = timeline.closed_form_time, timeline.pipeline_time
    whole = float(np.asarray(timeline.step_time.total))
    terms = {name: float(value) / whole for name, value in vars(timeline.step_time).items()}
    exposed = sum(terms[name] for name in ("tensor", "context", "expert", "pipeline", "data"))
    numbers = {
        "step": (SECONDS, step_time),
        "exposed": (SHARE, Quantity(exposed)),
        "bubble": (SHARE, Quantity(terms["bubble"])),
        "passes": (SECONDS, Quantity(simulated)),
        "closed": (SECONDS, Quantity(closed)),
        "off": (Column("", "", kind="change"), Quantity(closed / simulated - 1.0)),
    }
    return Sentence(
        "The step takes {step}; communication that computation does not hide is {exposed} of it, the pipeline bubble "
        "{bubble}. The passes take {passes} by simulation, and {closed} by the closed form that all other numbers rest "
        "on ({off}).",
        numbers,
    )
