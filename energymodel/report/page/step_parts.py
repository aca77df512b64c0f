"""What do the ranks of a plan do during a step?"""

import numpy as np

from energymodel.errors import InputError
from energymodel.performance.pipeline_simulator import SimulatedPass
from energymodel.report.charts import Box, RankTimeline
from energymodel.report.intervals import percent
from energymodel.report.page.document import Section, figure
from energymodel.report.page.markup import paragraph
from energymodel.report.timeline_report import NAMES
from energymodel.scenarios.scenario import Scenario
from energymodel.search.timeline import Timeline, step_timeline
from energymodel.system.plan import TrainingPlan
from energymodel.units import format_quantity


def step_section(scenario: Scenario, plan: TrainingPlan) -> Section:
    """The timeline of a step, and what else a step holds; why there is none where the schedule is not simulated."""
    title = "A step of the plan"
    try:
        timeline = step_timeline(scenario.system, plan)
    except (InputError, ValueError) as error:
        return Section(title, paragraph(str(error)))
    return Section(title, figure(timeline_chart(timeline)) + paragraph(step_sentence(timeline)))


def timeline_chart(timeline: Timeline) -> RankTimeline:
    """Passes of all ranks against time."""
    step = timeline.simulated
    waits = 1.0 - float(np.mean(step.busy)) / timeline.pipeline_time
    ranks, count = len(step.busy), max(one.operation.microbatch for one in step.passes) + 1
    title = f"The mean rank waits {100.0 * waits:.1f} % of the time of the passes"
    if ranks == 1:
        title = "Without a pipeline no rank waits for another"
    subtitle = (
        f"Passes of one replica through {ranks} pipeline rank{'s' * (ranks > 1)}, schedule {timeline.schedule}, "
        f"{count} micro-batch{'es' * (count > 1)}; what is empty is waiting"
    )
    return RankTimeline(title, tuple(boxes(step.passes)), subtitle, step.time, "pipeline rank")


def boxes(passes: list[SimulatedPass]) -> list[Box]:
    """Boxes of all passes; those that share a slot of a rank share its height."""
    slots: dict[tuple[int, float], list[SimulatedPass]] = {}
    for one in passes:
        slots.setdefault((one.rank, one.start), []).append(one)
    return [
        Box(rank, NAMES[one.operation.kind], start, one.end, lane, len(together))
        for (rank, start), together in slots.items()
        for lane, one in enumerate(together)
    ]


def step_sentence(timeline: Timeline) -> str:
    """How the passes fill the step, and how far the closed form is from the simulation."""
    closed_form, simulated = timeline.closed_form_time, timeline.pipeline_time
    whole = float(np.asarray(timeline.step_time.total))
    terms = {name: 100.0 * float(value) / whole for name, value in vars(timeline.step_time).items()}
    exposed = sum(terms[name] for name in ("tensor", "context", "expert", "pipeline", "data"))
    passes, closed = format_quantity(simulated, "s"), format_quantity(closed_form, "s")
    off = percent(closed_form / simulated - 1.0, sign="+")
    return (
        f"The step takes {format_quantity(whole, 's')}; communication that computation does not hide is "
        f"{exposed:.1f} % of it, the pipeline bubble {terms['bubble']:.1f} %. The passes take {passes} by simulation, "
        f"and {closed} by the closed form that all other numbers rest on ({off})."
    )
