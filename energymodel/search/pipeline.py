"""Passes of a pipeline's stages: time and energy at a clock for each rank and direction, and a step pass by pass.

The step of `evaluate` has a closed form for what a rank waits. In a `Timeline` the same passes run through a simulation
of the schedule, which shows when, and how far the closed form is from it.
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from energymodel.errors import InputError
from energymodel.numerics import Numeric, Real, Scalar, component, real
from energymodel.performance.parallelism import balanced_stage_layers, uneven_stage_layers
from energymodel.performance.pipeline_schedule import Schedule, pipeline_makespan, pipeline_schedule
from energymodel.performance.pipeline_simulator import PassTimes, SimulatedStep, simulate_pipeline
from energymodel.runtime.compilation import Compiled
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_load import ChipLoad
from energymodel.system.communication import pipeline_messages
from energymodel.system.operating_point import operating_point
from energymodel.system.outcome import StepTime
from energymodel.system.pipeline_ranks import PassTimes as MeanPassTimes
from energymodel.system.pipeline_ranks import rank_stages
from energymodel.system.plan import SCHEDULES, StagePower, TrainingPlan
from energymodel.system.step import pass_times, settle_stages, step_work, training_step
from energymodel.system.training_system import TrainingSystem, as_designed
from energymodel.system.work import layer_work

Clocks = Float[Array | np.ndarray, "2 ranks kinds"]
Passes = Float[Array, "2 stages kinds"]
Per = Literal["rank", "phase", "operation"]
FORWARD_SHARE = 1.0 / 3.0  # of the operations: one product forward for each two backward
SIMULATED = {
    "gpipe": "gpipe",
    "zero_bubble": "zb-h1",
    "zero_bubble_h2": "zb-h2",
    "zero_bubble_v": "zb-v",
    "dual_pipe": "dualpipe",
}
"""Names of `simulate_pipeline` by field of the layout; without one of them it is 1F1B."""


class OperationKinds(NamedTuple):
    """Which operations share a clock: the kind of each, and how often a kind repeats by direction and virtual stage."""

    of_operation: Int[Array | np.ndarray, "2 stages microbatches"]
    repeats: Float[Array | np.ndarray, "2 stages kinds"]

    def makespan(self, durations: Passes, schedule: Schedule, hop: Numeric) -> Float[Array, ""]:
        """Time of a step by its critical path [s], whose gradient counts the passes of each kind on that path."""
        of_operations = jnp.take_along_axis(durations, jnp.asarray(self.of_operation), axis=2)
        return pipeline_makespan(of_operations, schedule, hop)


def operation_kinds(schedule: Schedule, per: Per) -> OperationKinds:
    """Operations of a rank and direction that share a clock.

    - `"rank"`: all of them;
    - `"phase"`: those beside the bubble, where the slack of a uniform pipeline is, apart from the others: forward
      passes before the first backward one, but for the very first; backward passes after the last forward one, but for
      the very last;
    - `"operation"`: each micro-batch its own.
    """
    shape = (2, schedule.stages, schedule.microbatches)
    kind = np.zeros(shape, np.int32)
    if per == "operation":
        kind += np.arange(schedule.microbatches, dtype=np.int32)
    elif per == "phase":
        flat, half = kind.reshape(-1), kind.size // 2
        for rank in range(schedule.ranks):
            order = np.asarray(schedule.operation)[np.asarray(schedule.works)[:, rank], rank]
            flat[order[1 : np.flatnonzero(order >= half)[0]]] = 1
            flat[order[np.flatnonzero(order < half)[-1] + 1 : -1]] = 1
    repeats = [np.sum(kind == number, axis=2) for number in range(int(kind.max()) + 1)]
    return OperationKinds(kind, np.stack(repeats, axis=2).astype(np.float64))


class PipelineLoad(eqx.Module):
    """The passes of a micro-batch through the stages of a pipeline, and the chips that make them.

    - `load`: leaves by direction (forward, backward) and virtual stage, of one micro-batch on one chip.
    - `temperature`: of the chips [K].
    - `waiting_power`: of a chip between two operations [W].
    - `maximum_clock`: that cap and plan allow [1].
    - `hop`: exposed time from rank to rank [s].
    - `chips`: of one rank, over all replicas [1].
    """

    chip: Accelerator = component()
    load: ChipLoad = component()
    temperature: Real = real("K")
    waiting_power: Real = real("W")
    maximum_clock: Real = real("1")
    hop: Real = real("s")
    chips: Real = real("1")

    def durations(self, clocks: Clocks) -> Passes:
        """Time of a pass [s], by direction, virtual stage and kind, at clocks by direction, rank and kind [1]."""
        return self._by_kind.busy_time(self.chip, self._by_stage(clocks))

    def busy_energy(self, clocks: Clocks) -> Passes:
        """Energy of a pass on one chip [J], like `durations`."""
        load, voltage = self._by_kind, self.chip.voltage(self._by_stage(clocks))
        static = self.chip.static_power(voltage, self.temperature) * self.durations(clocks)
        return static + load.switching_energy * voltage**2 + load.memory_energy

    def energy(self, clocks: Clocks, kinds: OperationKinds, step_time: Numeric) -> Float[Array, ""]:
        """Energy of a step of all chips [J]: passes, and waiting for the rest of the time of the step [s]."""
        over_waiting = self.busy_energy(clocks) - self.waiting_power * self.durations(clocks)
        waiting = jnp.shape(clocks)[1] * self.waiting_power * step_time
        return self.chips * (jnp.sum(kinds.repeats * over_waiting) + waiting)

    def makespan(self, clocks: Clocks, schedule: Schedule, kinds: OperationKinds) -> Float[Array, ""]:
        """Time of a step [s], by the critical path."""
        return kinds.makespan(self.durations(clocks), schedule, self.hop)

    def _by_stage(self, clocks: Clocks) -> Passes:
        stages = jnp.shape(self.load.arithmetic)[-1]
        return jnp.tile(jnp.asarray(clocks), (1, stages // jnp.shape(clocks)[1], 1))

    @property
    def _by_kind(self) -> ChipLoad:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[..., None], self.load)


def pipeline_load(system: TrainingSystem, plan: TrainingPlan) -> tuple[PipelineLoad, Schedule]:
    """Passes and schedule of a scenario: interleaved if the layout is, else one forward, one backward.

    A pass is that of the kernels of its layers and their exposed communication; the last virtual stage adds the output
    head. A chip that waits spins at the highest clock, as in `evaluate`. Launch times are left out: a stage is many
    kernels long. Counts of micro-batches, ranks and chunks are rounded; layers are those of `layers_per_stage`.
    """
    system, plan = as_designed(system, plan)
    layout, chip, software = plan.layout, system.accelerator, system.software
    step = step_work(system, plan, jnp.max(jnp.asarray(plan.batch)))
    division, work, load, traffic = step.division, step.layer, step.load, step.traffic
    exposed = sum(step.exposed)
    point = operating_point(system, plan, step.coolant, load, exposed)
    counts = (layout.pipeline, layout.virtual_stages, division.microbatches)
    ranks, chunks, microbatches = (round(float(count)) for count in counts)
    layers = layers_per_stage(round(float(system.workload.layers)), ranks * chunks)

    # The backward pass does what the forward pass does not, recomputation included.
    recomputes = eqx.tree_at(lambda p: (p.layout.recompute_full, p.layout.recompute_attention), plan, (0.0, 0.0))
    plain = layer_work(system, recomputes, division)
    products = FORWARD_SHARE * plain.flops / work.flops
    traffic_share = FORWARD_SHARE * plain.gemm_bytes / work.gemm_bytes
    kernels_share = 0.5 * plain.elementwise_bytes / work.elementwise_bytes
    spinning = exposed * point.spin_power  # [J], at the highest clock
    exposed_share = 1.0 / (2.0 + layout.recompute_full)
    forward_bytes = work.gemm_bytes * traffic_share + work.elementwise_bytes * kernels_share
    forward = ChipLoad(
        arithmetic=load.arithmetic * products,
        attention=load.attention * work.attention.forward / work.attention.total,
        product_memory=load.product_memory * traffic_share,
        elementwise=load.elementwise * kernels_share + exposed * exposed_share,
        switching_energy=load.switching_energy * products,
        memory_energy=chip.traffic_energy * forward_bytes + spinning * exposed_share,
    )
    both = load._replace(elementwise=load.elementwise + exposed, memory_energy=load.memory_energy + spinning)
    backward = jax.tree.map(lambda total, part: total - part, both, forward)
    head = ChipLoad(
        arithmetic=step.head.time,
        attention=jnp.zeros(()),
        product_memory=jnp.zeros(()),
        elementwise=work.head_bytes / chip.sustained_bandwidth,
        switching_energy=step.head.energy,
        memory_energy=chip.traffic_energy * work.head_bytes,
    )
    last = np.arange(ranks * chunks) == ranks * chunks - 1

    def by_stage(forward: Numeric, backward: Numeric, head: Numeric) -> Array:
        in_layers = jnp.stack([forward, backward])[:, None] * layers
        return in_layers + jnp.asarray([FORWARD_SHARE, 1.0 - FORWARD_SHARE])[:, None] * head * last

    boundaries = jnp.maximum(1.0, pipeline_messages(layout))
    pipeline = PipelineLoad(
        chip=chip,
        load=jax.tree.map(by_stage, forward, backward, head),
        temperature=point.temperature,
        waiting_power=point.static_power + point.spin_power,
        maximum_clock=point.clock,
        hop=(1.0 - software.pipeline_overlap) * traffic.pipeline.time / boundaries,
        chips=plan.chips / layout.pipeline,
    )
    return pipeline, pipeline_schedule(ranks, microbatches, chunks)


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
    layout = plan.layout
    ranks, chunks, count = (round(float(count)) for count in (layout.pipeline, layout.virtual_stages, microbatches))
    chosen = [name for name in SCHEDULES if float(getattr(layout, name)) > 0.0]
    schedule = SIMULATED[chosen[0]] if chosen and ranks > 1 else "1f1b"
    if schedule == "dualpipe" and isinstance(plan.power, StagePower):
        raise InputError("timeline: DualPipe with power by stage (plan.power) is not simulated. Leave out plan.power.")
    layers = stage_layers(system, plan, ranks, chunks)
    stage = np.arange(len(layers))
    rank = np.minimum(stage, len(layers) - 1 - stage) if schedule == "zb-v" else stage % ranks
    kinds = np.where(rank == ranks - 1, 2, np.minimum(rank, 1))  # on the first rank, on one between, on the last one
    slowed = float(system.production_slowdown)
    stages = slowed * passes.layer[kinds] * layers
    stages[-1] += slowed * passes.head[kinds[-1]]
    sends = np.append(np.diff(rank) != 0, False)  # forward; the two stages beside the turn of the V are on one rank
    hop = slowed * float(passes.hop[-1]) * ranks / (2.0 * max(np.sum(sends), 1.0))
    again = float(layout.recompute_full)
    part = stages / (3.0 + again)
    in_thirds = PassTimes(part + hop * sends, (1.0 + again) * part + hop * np.roll(sends, 1), part)
    closed_form = slowed * float(work) + float(step_time.bubble)
    simulated = simulate_pipeline(schedule, ranks, count, chunks, in_thirds)
    return Timeline(schedule, layers, simulated, step_time, closed_form)


def layers_per_stage(layers: int, stages: int) -> Float[np.ndarray, " stages"]:
    """Layers of each virtual stage, evenly; what is missing is missing at the last, the first, the one before the last.

    The last one also computes the output head, the first one the embedding [Llama team 2024, sec. 3.3.2].
    """
    full = np.full(stages, -(-layers // stages), np.float64)
    from_the_ends = [index for pair in zip(range(stages - 1, -1, -1), range(stages), strict=True) for index in pair]
    full[list(dict.fromkeys(from_the_ends))[: int(full.sum()) - layers]] -= 1.0
    return full


def stage_layers(system: TrainingSystem, plan: TrainingPlan, ranks: int, chunks: int) -> Float[np.ndarray, " stages"]:
    """Layers of each virtual stage, as framework and layout divide them [1]."""
    layout, layers = plan.layout, float(system.workload.layers)
    if float(layout.cut_by_hand) > 0.0:
        cut = uneven_stage_layers(layers, float(ranks), layout.first_stage_layers, layout.last_stage_layers)
        of_ranks = np.array([cut.first, *[cut.middle] * (ranks - 2), cut.last], np.float64)[:ranks]
        return np.tile(of_ranks / chunks, chunks)
    if float(system.software.balanced_stages) > 0.0 and ranks > 1:
        workload = system.workload
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
        point = operating_point(system, plan, work.coolant, work.load, sum(work.exposed))
        times = pass_times(system, plan, work, point)
        passes = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, stages.ranks.shape), times)
    count = work.division.microbatches
    own = count * jnp.sum(stages.ranks * stages.work(passes)) / plan.layout.pipeline
    return passes, own, count, training_step(system, plan, batch).time
