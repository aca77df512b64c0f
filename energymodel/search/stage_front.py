"""Which clocks should the ranks of a plan's pipeline have, and what do they save beside one clock for all?"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from energymodel.errors import InputError
from energymodel.performance.pipeline_schedule import Schedule
from energymodel.search.pipeline import Per, ScheduledPipeline, pipeline_load
from energymodel.search.pipeline_clocks import StageClocks, one_clock, stage_clocks
from energymodel.system.plan import SCHEDULES, StagePower, TrainingPlan
from energymodel.system.training_system import TrainingSystem

MOST_CLOCKS = 128  # variables of one search, which is dense
MOST_SLOWDOWN = 1.0  # by which a step may take longer, as a share of its shortest time


class StageFront(NamedTuple):
    """Clocks of a pipeline's ranks at several step times, and the same times with one clock for all.

    - `clocks`: the front, from the shortest step on; times are those of the passes alone [s].
    - `one_clock_energy`: of a step with one clock that takes as long [J].
    """

    schedule: Schedule
    clocks: StageClocks
    one_clock_energy: Float[np.ndarray, " deadlines"]

    @property
    def saved(self) -> Float[np.ndarray, " deadlines"]:
        """Share of the energy of one clock that clocks of their own save [1]."""
        return 1.0 - self.clocks.energy / self.one_clock_energy


def stage_front(
    system: TrainingSystem, plan: TrainingPlan, *, per: Per = "rank", points: int = 6, slowdown: float = 0.2
) -> StageFront:
    """Energy of the passes of a step against its time, from the shortest one to `1 + slowdown` times that.

    **Arguments:**

    - `per`: as in `stage_clocks`.
    - `points`: step times, evenly spaced [1].
    - `slowdown`: of the slowest one [1].

    **Raises:** `InputError` for a plan without a pipeline, one whose schedule is not 1F1B or whose stages have power
    caps already, for more clocks than one search can have, and for bad numbers.
    """
    if points < 2:
        raise InputError(f"points: {points} make no front. Give at least 2.")
    if not 0.0 < slowdown <= MOST_SLOWDOWN:
        raise InputError(f"slowdown: {slowdown:g} is not above 0 and at most {MOST_SLOWDOWN:g}. Give for example 0.2.")
    if float(plan.layout.pipeline) <= 1.0:
        raise InputError("plan.layout.pipeline: 1 stage has nothing to wait for. Give a plan with a pipeline.")
    chosen = [name for name in SCHEDULES if float(getattr(plan.layout, name)) > 0.0]
    if chosen:
        raise InputError(
            f"plan.layout.{chosen[0]}: clocks by stage are planned for 1F1B alone. Set plan.layout.schedule=1f1b."
        )
    if isinstance(plan.power, StagePower):
        raise InputError("plan.power: clocks by stage are searched below one power cap. Leave out plan.power.")
    with jax.enable_x64(True):
        scheduled = pipeline_load(system, plan)
        clocks = _number_of_clocks(scheduled, per)
        if clocks > MOST_CLOCKS:
            raise InputError(f"per {per}: {clocks} clocks are more than {MOST_CLOCKS}. Take per = rank.")
        shortest = one_clock(scheduled.pipeline, scheduled.schedule).step_time[-1]
        found = stage_clocks(*scheduled, shortest * np.linspace(1.0, 1.0 + slowdown, points), per=per)
        together = one_clock(scheduled.pipeline, scheduled.schedule, found.step_time)
    return StageFront(scheduled.schedule, found, together.energy)


def _number_of_clocks(scheduled: ScheduledPipeline, per: Per) -> int:
    schedule = scheduled.schedule
    return 2 * schedule.ranks * {"rank": 1, "phase": 2, "operation": schedule.microbatches}[per]
