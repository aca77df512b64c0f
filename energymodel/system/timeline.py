"""A step of a pipeline pass by pass, and the layers of its stages.

The step of `evaluate` has a closed form for what a rank waits. In a `Timeline` the same passes run through a simulation
of the schedule, which shows when, and how far the closed form is from it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from energymodel.errors import InputError
from energymodel.numerics import Scalar
from energymodel.performance.parallelism import balanced_stage_layers, uneven_stage_layers
from energymodel.performance.pipeline_simulator import PassTimes, SimulatedStep, simulate_pipeline
from energymodel.runtime.compilation import Compiled
from energymodel.system.chip_load import operating_point
from energymodel.system.outcome import StepTime
from energymodel.system.pipeline_ranks import PassTimes as MeanPassTimes
from energymodel.system.pipeline_ranks import rank_stages
from energymodel.system.plan import SCHEDULES, StagePower, TrainingPlan
from energymodel.system.step import pass_times, settle_stages, step_work, training_step
from energymodel.system.training_system import TrainingSystem, as_designed

SIMULATED = {
    "gpipe": "gpipe",
    "zero_bubble": "zb-h1",
    "zero_bubble_h2": "zb-h2",
    "zero_bubble_v": "zb-v",
    "dual_pipe": "dualpipe",
}
"""Names of `simulate_pipeline` by field of the layout; without one of them it is 1F1B."""


class Timeline(NamedTuple):
    """A training step pass by pass.

    - `schedule`, `layers`: name of the schedule, and layers of each virtual stage [1].
    - `simulated`: the pipeline of one replica, in s.
    - `step_time`: terms of the step as `evaluate` has them [s].
    - `closed_form_time`: its closed form of the time from the start of the first to the end of the last pass [s].
    """

    schedule: str
    layers: Float[np.ndarray, " stages"]
    simulated: SimulatedStep
    step_time: StepTime
    closed_form_time: float

    @property
    def pipeline_time(self) -> float:
        """Time of the passes by the simulation [s]: where ranks go on with the next step at once, that of a period."""
        return self.simulated.period if self.schedule in ("zb-h2", "zb-v") else self.simulated.time


def step_timeline(system: TrainingSystem, plan: TrainingPlan) -> Timeline:
    """Simulate the pipeline of a plan with the pass times of `evaluate` [docs/step_time.md].

    A third of a stage's time is forward, a third each of the backward pass is for inputs and for weights; with full
    recomputation the forward pass runs again before the backward one. Who sends is busy for the exposed part of the
    communication. Of a batch that changes along the run, the last one is shown.

    **Raises:** `ValueError` for counts that the schedule cannot run, which `evaluate` refuses as well;
    `InputError` for DualPipe with power by stage.
    """
    with jax.enable_x64(True):
        passes, work, microbatches, step_time = jax.tree.map(np.asarray, _times_of_step(system, plan))
    layout, slowed = plan.layout, float(system.production_slowdown)
    ranks, chunks, count = (round(float(count)) for count in (layout.pipeline, layout.virtual_stages, microbatches))
    chosen = [name for name in SCHEDULES if float(getattr(layout, name)) > 0.0]
    schedule = SIMULATED[chosen[0]] if chosen and ranks > 1 else "1f1b"
    if schedule == "dualpipe" and isinstance(plan.power, StagePower):
        raise InputError("timeline: DualPipe with power by stage (plan.power) is not simulated. Leave out plan.power.")
    layers = stage_layers(system, plan)
    stage = np.arange(len(layers))
    rank = np.minimum(stage, len(layers) - 1 - stage) if schedule == "zb-v" else stage % ranks
    kinds = np.where(rank == ranks - 1, 2, np.minimum(rank, 1))  # on the first rank, on one between, on the last one
    stages = slowed * passes.layer[kinds] * layers
    stages[-1] += slowed * passes.head[kinds[-1]]
    sends = np.append(np.diff(rank) != 0, False)  # forward; the two stages beside the turn of the V are on one rank
    hop = slowed * float(passes.hop[-1]) * ranks / (2.0 * max(np.sum(sends), 1.0))
    again = float(layout.recompute_full)
    part = stages / (3.0 + again)
    in_thirds = PassTimes(part + hop * sends, (1.0 + again) * part + hop * np.roll(sends, 1), part)
    simulated = simulate_pipeline(schedule, ranks, count, chunks, in_thirds)
    return Timeline(schedule, layers, simulated, step_time, slowed * float(work) + float(step_time.bubble))


def layers_per_stage(layers: int, stages: int) -> Float[np.ndarray, " stages"]:
    """Layers of each virtual stage, evenly; what is missing is missing at the last, the first, the one before the last.

    The last one also computes the output head, the first one the embedding [Llama team 2024, sec. 3.3.2].
    """
    full = np.full(stages, -(-layers // stages), np.float64)
    from_the_ends = np.stack([np.arange(stages)[::-1], np.arange(stages)], axis=1).ravel()
    full[list(dict.fromkeys(from_the_ends.tolist()))[: int(full.sum()) - layers]] -= 1.0
    return full


def stage_layers(system: TrainingSystem, plan: TrainingPlan) -> Float[np.ndarray, " stages"]:
    """Layers of each virtual stage, as framework and layout divide them [1]."""
    layout, workload, layers = plan.layout, system.workload, float(system.workload.layers)
    ranks, chunks = (round(float(count)) for count in (layout.pipeline, layout.virtual_stages))
    if float(layout.cut_by_hand) > 0.0:
        cut = uneven_stage_layers(layers, float(ranks), layout.first_stage_layers, layout.last_stage_layers)
        of_ranks = np.array([cut.first, *[cut.middle] * (ranks - 2), cut.last], np.float64)[:ranks]
        return np.tile(of_ranks / chunks, chunks)
    if float(system.software.balanced_stages) > 0.0 and ranks > 1:
        in_weights = workload.vocabulary * workload.hidden * workload.layers / workload.active_layer_parameters
        first, last = (float(count) for count in balanced_stage_layers(layers, float(ranks), in_weights))
        between = layers_per_stage(round(layers - first - last), ranks - 2) if ranks > 2 else []
        return np.array([first, *between, last])
    return layers_per_stage(round(layers), ranks * chunks)


@Compiled
def _times_of_step(system: TrainingSystem, plan: TrainingPlan) -> tuple[MeanPassTimes, Scalar, Scalar, StepTime]:
    """Times of a micro-batch on the three kinds of ranks, work of the mean rank in a step, terms of the step [s]."""
    system, plan = as_designed(system, plan)
    batch = jnp.ravel(jnp.asarray(plan.batch))[-1]
    work = step_work(system, plan, batch)
    stages = rank_stages(plan.layout, work.division)
    if isinstance(plan.power, StagePower):
        passes = settle_stages(system, plan, plan.power, work).passes
    else:
        point = operating_point(system, plan, work.coolant, work.load, sum(work.traffic.exposed))
        times = pass_times(system, plan, work, point)
        passes = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, stages.ranks.shape), times)
    count = work.division.microbatches
    own = count * jnp.sum(stages.ranks * stages.work(passes)) / plan.layout.pipeline
    return passes, own, count, training_step(system, plan, batch).time
