"""Time and energy of the passes of a pipeline's stages, at a clock for each rank and direction."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from energymodel.numerics import Numeric, Real, component, real
from energymodel.performance.pipeline_schedule import Schedule, pipeline_makespan, pipeline_schedule
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_load import ChipLoad
from energymodel.system.communication import pipeline_messages
from energymodel.system.operating_point import operating_point
from energymodel.system.plan import TrainingPlan
from energymodel.system.step import step_work
from energymodel.system.training_system import TrainingSystem, as_designed
from energymodel.system.work import layer_work

Clocks = Float[Array | np.ndarray, "2 ranks kinds"]
Passes = Float[Array, "2 stages kinds"]
Per = Literal["rank", "phase", "operation"]
FORWARD_SHARE = 1.0 / 3.0  # of the operations: one product forward for each two backward


class OperationKinds(NamedTuple):
    """Which operations share a clock: the kind of each, and how often a kind repeats by direction and virtual stage."""

    of_operation: Int[Array | np.ndarray, "2 stages microbatches"]
    repeats: Float[Array | np.ndarray, "2 stages kinds"]


def operation_kinds(schedule: Schedule, per: Per) -> OperationKinds:
    """Operations of a rank and direction that share a clock.

    - `"rank"`: all of them;
    - `"phase"`: those beside the bubble, where the slack of a uniform pipeline is, apart from the others: forward
      passes before the first backward one, but for the very first; backward passes after the last forward one, but for
      the very last;
    - `"operation"`: each micro-batch its own.
    """
    shape = (2, schedule.stages, schedule.microbatches)
    if per == "rank":
        kind = np.zeros(shape, np.int32)
    elif per == "operation":
        kind = np.broadcast_to(np.arange(schedule.microbatches, dtype=np.int32), shape)
    else:
        flat = np.zeros(np.prod(shape), np.int32)
        half = flat.size // 2
        for rank in range(schedule.ranks):
            order = np.asarray(schedule.operation)[np.asarray(schedule.works)[:, rank], rank]
            backward = np.flatnonzero(order >= half)
            forward = np.flatnonzero(order < half)
            flat[order[1 : backward[0]]] = 1
            flat[order[forward[-1] + 1 : -1]] = 1
        kind = flat.reshape(shape)
    kinds = int(kind.max()) + 1
    return OperationKinds(
        kind, np.stack([np.sum(kind == number, axis=2) for number in range(kinds)], axis=2).astype(np.float64)
    )


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
        clock = self._by_stage(clocks)
        times = jax.vmap(lambda load, clock: load.busy_time(self.chip, clock))
        return jax.vmap(jax.vmap(times))(self._by_kind(clock), clock)

    def busy_energy(self, clocks: Clocks) -> Passes:
        """Energy of a pass on one chip [J], like `durations`."""
        clock = self._by_stage(clocks)
        load, voltage = self._by_kind(clock), self.chip.voltage(clock)
        static = self.chip.static_power(voltage, self.temperature) * self.durations(clocks)
        return static + load.switching_energy * voltage**2 + load.memory_energy

    def energy(self, clocks: Clocks, kinds: OperationKinds, step_time: Numeric) -> Float[Array, ""]:
        """Energy of a step of all chips [J]: passes, and waiting for the rest of the time of the step [s]."""
        over_waiting = self.busy_energy(clocks) - self.waiting_power * self.durations(clocks)
        waiting = jnp.shape(clocks)[1] * self.waiting_power * step_time
        return self.chips * (jnp.sum(kinds.repeats * over_waiting) + waiting)

    def makespan(self, clocks: Clocks, schedule: Schedule, kinds: OperationKinds) -> Float[Array, ""]:
        """Time of a step [s], by the critical path."""
        return pipeline_makespan(of_operations(self.durations(clocks), kinds), schedule, self.hop)

    def _by_stage(self, clocks: Clocks) -> Passes:
        clocks = jnp.asarray(clocks)
        stages = jnp.shape(self.load.arithmetic)[-1]
        return jnp.tile(clocks, (1, stages // clocks.shape[1], 1))

    def _by_kind(self, like: Passes) -> ChipLoad:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(jnp.asarray(leaf)[..., None], like.shape), self.load)


def of_operations(by_kind: Passes, kinds: OperationKinds) -> Float[Array, "2 stages microbatches"]:
    """A quantity of every operation, from that of its kind."""
    return jnp.take_along_axis(by_kind, jnp.asarray(kinds.of_operation), axis=2)


class ScheduledPipeline(NamedTuple):
    """A pipeline and the order in which its ranks work."""

    pipeline: PipelineLoad
    schedule: Schedule


def layers_per_stage(layers: int, stages: int) -> Float[np.ndarray, " stages"]:
    """Layers of each virtual stage, evenly; what is missing is missing at the last, the first, the one before the last.

    The last one also computes the output head, the first one the embedding [Llama team 2024, sec. 3.3.2].
    """
    full = np.full(stages, -(-layers // stages), np.float64)
    from_the_ends = [index for pair in zip(range(stages - 1, -1, -1), range(stages), strict=True) for index in pair]
    full[list(dict.fromkeys(from_the_ends))[: int(full.sum()) - layers]] -= 1.0
    return full


def pipeline_load(
    system: TrainingSystem, plan: TrainingPlan, layers: Sequence[float] | np.ndarray | None = None
) -> ScheduledPipeline:
    """Passes and schedule of a scenario: interleaved if the layout is, else one forward, one backward.

    A pass is that of the kernels of its layers and their exposed communication; the last virtual stage adds the output
    head. A chip that waits spins at the highest clock, as in `evaluate`. Launch times are left out: a stage is many
    kernels long. Counts of micro-batches, ranks and chunks are rounded.

    **Arguments:**

    - `layers`: of each virtual stage [1]; by default `layers_per_stage`.

    **Raises:** `ValueError` if `layers` does not have one entry for each virtual stage.
    """
    system, plan = as_designed(system, plan)
    layout, chip, software = plan.layout, system.accelerator, system.software
    step = step_work(system, plan, jnp.max(jnp.asarray(plan.batch)))
    division, work, load, traffic = step.division, step.layer, step.load, step.traffic
    exposed = sum(step.exposed)
    point = operating_point(system, plan, step.coolant, load, exposed)
    counts = (layout.pipeline, layout.virtual_stages, division.microbatches)
    ranks, chunks, microbatches = (round(float(count)) for count in counts)
    layers = layers_per_stage(round(float(system.workload.layers)), ranks * chunks) if layers is None else layers
    layers = np.asarray(layers, np.float64)
    if layers.shape != (ranks * chunks,):
        raise ValueError(f"pipeline_load: {layers.size} numbers of layers for {ranks * chunks} virtual stages.")

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
    return ScheduledPipeline(pipeline, pipeline_schedule(ranks, microbatches, chunks))
