"""Clocks of lowest energy for each pipeline rank and direction, in a step that ends in time.

The makespan of a schedule is the longest of its paths, each a sum of durations. Only few paths can ever be the longest:
the search starts with some as constraints, finds the best clocks, evaluates the makespan exactly, and adds the critical
paths that it broke, until it breaks none [Kelley 1960]. Every search is a relaxation, so the last one is the optimum.
Slack then costs no time and saves energy [Chung et al. 2024, Perseus].
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from energymodel.errors import InputError
from energymodel.numerics import Numeric, Real, Scalar, component, real
from energymodel.performance.pipeline_schedule import Schedule, pipeline_makespan, pipeline_schedule
from energymodel.physics.switching import busy_power
from energymodel.runtime.compilation import Compiled
from energymodel.solver import RESULTS, Solution, minimize_many
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_load import ChipLoad, operating_point
from energymodel.system.communication import pipeline_messages
from energymodel.system.plan import RECOMPUTED, SCHEDULES, StagePower, TrainingPlan
from energymodel.system.step import step_work
from energymodel.system.timeline import stage_layers
from energymodel.system.training_system import TrainingSystem, as_designed
from energymodel.system.work import layer_work

Per = Literal["rank", "phase", "operation"]
Clocks = Float[Array | np.ndarray, "2 ranks kinds"]
Passes = Float[Array, "2 stages kinds"]
Kinds = Int[Array | np.ndarray, "2 stages microbatches"]
"""Which operations share a clock: the kind of each, counted from 0 for each rank and direction."""
FORWARD_SHARE = 1.0 / 3.0  # of the operations: one product forward for each two backward
MOST_ROUNDS = 60
FEWEST_PATHS = 32  # rows that are compiled for at least; unused ones are empty
NUDGE = 1e-2  # by which a pass is stretched to find the longest path through it
INTERIOR = 1e-6  # relative time without which a shortest step would leave the search no interior
MOST_CLOCKS = 128  # variables of one search, which is dense
MOST_SLOWDOWN = 1.0  # by which a step may take longer, as a share of its shortest time
GRID = 65  # clocks of all ranks together that are evaluated, evenly spaced in the logarithm
BROKEN = 1e-9  # relative excess of the makespan that calls for one more search


def operation_kinds(schedule: Schedule, per: Per) -> Kinds:
    """Operations of a rank and direction that share a clock.

    - `"rank"`: all of them;
    - `"phase"`: those beside the bubble, where the slack of a uniform pipeline is, apart from the others: forward
      passes before the first backward one, but for the very first; backward passes after the last forward one, but for
      the very last;
    - `"operation"`: each micro-batch its own.
    """
    kinds = np.zeros((2, schedule.stages, schedule.microbatches), np.int32)
    if per == "operation":
        kinds += np.arange(schedule.microbatches, dtype=np.int32)
    elif per == "phase":
        flat, half = kinds.reshape(-1), kinds.size // 2
        for rank in range(schedule.ranks):
            order = np.asarray(schedule.operation)[np.asarray(schedule.works)[:, rank], rank]
            flat[order[1 : np.flatnonzero(order >= half)[0]]] = 1
            flat[order[np.flatnonzero(order < half)[-1] + 1 : -1]] = 1
    return kinds


def _of_operations(passes: Passes, kinds: Kinds) -> Float[Array, "2 stages microbatches"]:
    return jnp.take_along_axis(passes, jnp.asarray(kinds), axis=2)


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

    def passes(self, clocks: Clocks) -> tuple[Passes, Passes]:
        """Time [s] and energy on one chip [J] of a pass, at clocks by direction, rank and kind [1]."""
        load = jax.tree.map(lambda leaf: jnp.asarray(leaf)[..., None], self.load)
        chunks = load.arithmetic.shape[1] // jnp.shape(clocks)[1]
        by_stage = jnp.tile(jnp.asarray(clocks), (1, chunks, 1))
        voltage, time = self.chip.voltage(by_stage), load.busy_time(self.chip, by_stage)
        static = self.chip.static_power(voltage, self.temperature) * time
        swing = self.chip.charging.swing(by_stage, voltage)
        return time, busy_power(static, load.switching_energy, swing, load.memory_energy)

    def makespan(self, clocks: Clocks, schedule: Schedule, kinds: Kinds) -> Scalar:
        """Time of a step [s], by the critical path."""
        return pipeline_makespan(_of_operations(self.passes(clocks)[0], kinds), schedule, self.hop)

    def energy(self, clocks: Clocks, kinds: Kinds, step_time: Numeric) -> Scalar:
        """Energy of a step of all chips [J]: passes, and waiting for the rest of the time of the step [s]."""
        time, energy = self.passes(clocks)
        over_waiting = jnp.sum(_of_operations(energy - self.waiting_power * time, kinds))
        return self.chips * (over_waiting + jnp.shape(clocks)[1] * self.waiting_power * step_time)


def pipeline_load(system: TrainingSystem, plan: TrainingPlan) -> tuple[PipelineLoad, Schedule]:
    """Passes and schedule of a scenario: interleaved if the layout is, else one forward, one backward.

    A pass is that of the kernels of its layers (`stage_layers`) and their exposed communication; the last virtual stage
    adds the output head. A chip that waits spins at the highest clock, as in `evaluate`. Launch times are left out: a
    stage is many kernels long. Counts of micro-batches, ranks and chunks are rounded.
    """
    layers = stage_layers(system, plan)
    system, plan = as_designed(system, plan)
    layout, chip, software = plan.layout, system.accelerator, system.software
    step = step_work(system, plan, jnp.max(jnp.asarray(plan.batch)))
    division, work, load = step.division, step.layer, step.load
    exposed = sum(step.traffic.exposed)
    point = operating_point(system, plan, step.coolant, load, exposed)
    counts = (layout.pipeline, division.microbatches, layout.virtual_stages)

    # The backward pass does what the forward pass does not, recomputation included.
    once = eqx.tree_at(lambda p: [getattr(p.layout, name) for name in RECOMPUTED], plan, [0.0] * len(RECOMPUTED))
    plain = layer_work(system, once, division)
    products = FORWARD_SHARE * plain.flops / work.flops
    traffic = FORWARD_SHARE * plain.gemm_bytes / work.gemm_bytes
    kernels = 0.5 * plain.elementwise_bytes / work.elementwise_bytes
    spinning = exposed * point.spin_power  # [J], at the highest clock
    exposed_share = 1.0 / (2.0 + layout.recompute_full)
    forward_bytes = work.gemm_bytes * traffic + work.elementwise_bytes * kernels
    forward = ChipLoad(
        arithmetic=load.arithmetic * products,
        attention=load.attention * work.attention.forward / work.attention.total,
        product_memory=load.product_memory * traffic,
        elementwise=load.elementwise * kernels + exposed * exposed_share,
        switching_energy=load.switching_energy * products,
        memory_energy=chip.traffic_energy * forward_bytes + spinning * exposed_share,
    )
    both = load._replace(elementwise=load.elementwise + exposed, memory_energy=load.memory_energy + spinning)
    shares, last = jnp.asarray([FORWARD_SHARE, 1.0 - FORWARD_SHARE]), np.arange(len(layers)) == len(layers) - 1

    def by_stage(forward: Scalar, both: Scalar, head: Scalar) -> Array:
        return jnp.stack([forward, both - forward])[:, None] * layers + shares[:, None] * head * last

    pipeline = PipelineLoad(
        chip=chip,
        load=jax.tree.map(by_stage, forward, both, step.head),
        temperature=point.temperature,
        waiting_power=point.static_power + point.spin_power,
        maximum_clock=point.clock,
        hop=(1.0 - software.pipeline_overlap)
        * step.traffic.pipeline.time
        / jnp.maximum(1.0, pipeline_messages(layout)),
        chips=plan.chips / layout.pipeline,
    )
    return pipeline, pipeline_schedule(*(round(float(count)) for count in counts))


class StageClocks(NamedTuple):
    """The front of energy against step time; every field has a leading axis of deadlines.

    - `clock`: by direction, rank and kind of operation [1]; one kind, two phases, or all micro-batches.
    - `step_time`: exact makespan [s]; below the deadline where waiting costs more than haste saves.
    - `energy`: of a step, all chips [J]; `one_clock_energy` with one clock for all ranks that takes as long.
    - `price`: energy that one more second of step time saves [W].
    - `result`: members of `RESULTS`.
    - `paths`: constraints that the search needed [1].
    """

    clock: Float[np.ndarray, "deadlines 2 ranks kinds"]
    step_time: Float[np.ndarray, " deadlines"]
    energy: Float[np.ndarray, " deadlines"]
    one_clock_energy: Float[np.ndarray, " deadlines"]
    price: Float[np.ndarray, " deadlines"]
    result: RESULTS
    paths: int

    @property
    def saved(self) -> Float[np.ndarray, " deadlines"]:
        """Share of the energy of one clock that clocks of their own save [1]."""
        return 1.0 - self.energy / self.one_clock_energy


class _ClocksAndTime(NamedTuple):
    """Logarithms of the clocks, and the step time over the shortest one."""

    log_clock: Array | np.ndarray
    stretch: Array | np.ndarray


class _Problem(NamedTuple):
    """A pipeline, its schedule, which operations share a clock, bounds of the logarithms of clocks, and the units.

    These are time [s] and energy [J] of its step at the highest clock.
    """

    pipeline: PipelineLoad
    schedule: Schedule
    kinds: Kinds
    lowest: Array | np.ndarray
    highest: Array | np.ndarray
    fastest: float | Array = 1.0
    unit: float | Array = 1.0


def stage_clocks(
    pipeline: PipelineLoad, schedule: Schedule, deadlines: float | Sequence[float] | np.ndarray, *, per: Per = "rank"
) -> StageClocks:
    """Clocks of lowest energy, `min E(phi) + n P_wait t` with `n_k . d(phi) + h_k <= t <= T` over all paths k.

    With durations and energies convex in the logarithms of the clocks, the optimum is the best of all
    [derivation: docs/physics.md C]. A host function: all deadlines are searched together, and share the paths.

    **Arguments:**

    - `deadlines`: T [s], any number of them; at least the makespan at the highest clock, which counts as one
      millionth more so that the search has an interior.
    - `per`: a clock for each direction and `"rank"`, for its warm-up or cool-down apart (`"phase"`), or for each
      micro-batch of its own (`"operation"`, as in Perseus). The search is dense: up to some hundred clocks.

    **Raises:** `ValueError` for a deadline that even the highest clock misses.
    """
    with jax.enable_x64(True):
        wanted = np.atleast_1d(np.asarray(deadlines, np.float64))
        case = _problem(pipeline, schedule, per)
        fastest = float(case.fastest)
        if np.any(wanted < fastest * (1.0 - BROKEN)):
            raise ValueError(
                f"stage_clocks: a deadline of {wanted.min():.6g} s is shorter than {fastest:.6g} s, the makespan "
                f"at the highest clock, {float(pipeline.maximum_clock):.4g}. Give at least that."
            )
        solution, paths = _cutting_planes(case, np.maximum(wanted / fastest, 1.0 + INTERIOR))
        choice = solution.x
        step_time = np.asarray(_makespans(choice.log_clock, case))
        broken = jnp.asarray(step_time > choice.stretch * fastest * (1.0 + 10.0 * BROKEN))
        late = jax.vmap(lambda broken, result: RESULTS.where(broken, RESULTS.out_of_iterations, result))
        return StageClocks(
            clock=np.exp(choice.log_clock),
            step_time=step_time,
            energy=np.asarray(_energies(choice.log_clock, case, step_time)),
            one_clock_energy=_one_clock_energy(case, step_time),
            price=solution.multipliers.upper.stretch * case.unit / fastest,
            result=late(broken, solution.result),
            paths=paths,
        )


def stage_front(
    system: TrainingSystem, plan: TrainingPlan, *, per: Per = "rank", points: int = 6, slowdown: float = 0.2
) -> StageClocks:
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
        pipeline, schedule = pipeline_load(system, plan)
        count = 2 * schedule.ranks * (1 + int(operation_kinds(schedule, per).max()))
        if count > MOST_CLOCKS:
            raise InputError(f"per {per}: {count} clocks are more than {MOST_CLOCKS}. Take per = rank.")
        fastest = float(_problem(pipeline, schedule, per).fastest)
    return stage_clocks(pipeline, schedule, fastest * np.linspace(1.0, 1.0 + slowdown, points), per=per)


def _problem(pipeline: PipelineLoad, schedule: Schedule, per: Per) -> _Problem:
    kinds = operation_kinds(schedule, per)
    of_ranks = kinds.reshape(2, schedule.chunks, schedule.ranks, -1).swapaxes(1, 2).reshape(2, schedule.ranks, -1)
    exists = np.stack([np.any(of_ranks == kind, axis=2) for kind in range(1 + kinds.max())], axis=2)
    highest = np.full(exists.shape, np.log(pipeline.maximum_clock))
    lowest = np.where(exists, np.log(pipeline.chip.minimum_clock), highest)
    case = _Problem(pipeline, schedule, kinds, lowest, highest)
    fastest = _makespans(highest[None], case)
    return case._replace(fastest=float(fastest[0]), unit=float(_energies(highest[None], case, fastest)[0]))


def _one_clock_energy(case: _Problem, step_times: Float[np.ndarray, " times"]) -> Float[np.ndarray, " times"]:
    """Energy of a step at the one clock for all ranks with which it takes so long, to 1e-4 of its time."""

    def everywhere(logs: np.ndarray) -> np.ndarray:
        return np.broadcast_to(logs[:, None, None, None], (len(logs), *np.shape(case.lowest)))

    grid = np.linspace(np.min(case.lowest), np.max(case.highest), GRID)
    logs = everywhere(np.interp(-np.log(step_times), -np.log(_makespans(everywhere(grid), case)), grid))
    return np.asarray(_energies(logs, case, _makespans(logs, case)))


def _cutting_planes(case: _Problem, limit: np.ndarray) -> tuple[Solution, int]:
    """Search until the makespan breaks no deadline, adding the paths that it broke [Kelley 1960], and count them.

    A path is known by how often it takes each pass, and has the time of its hops over the shortest step time.
    """
    bounds = _ClocksAndTime(case.lowest, np.asarray(0.5)), _ClocksAndTime(case.highest, limit)
    paths: dict[bytes, tuple[np.ndarray, float]] = {}

    def add(log_clock: Array | np.ndarray, allowed: np.ndarray) -> bool:
        """Keep the paths that are longer than a deadline allows; whether some of them are new."""
        counts, hops, length = map(np.asarray, _longest_paths(log_clock, case))
        before = len(paths)
        for lane, row in zip(*np.nonzero(length > allowed[:, None]), strict=True):
            passes = np.round(counts[lane, row])
            paths.setdefault(passes.astype(np.int32).tobytes(), (passes, float(hops[lane, row])))
        return len(paths) > before

    def search(choice: _ClocksAndTime) -> Solution:
        empty = max(FEWEST_PATHS, 1 << (len(paths) - 1).bit_length()) - len(paths)  # filled up: few programs
        counts, hops = zip(*paths.values(), strict=True)
        rows = np.stack([*counts, *[np.zeros_like(counts[0])] * empty]), np.append(hops, np.zeros(empty))
        return minimize_many(_energy, choice, shared=(case, rows), bounds=bounds, inequalities=_lateness)

    for corner in (case.highest, case.lowest):
        add(corner[None], np.zeros(1))
    start = np.broadcast_to(0.5 * (case.lowest + case.highest), (len(limit), *np.shape(case.lowest)))
    solution = search(_ClocksAndTime(start, limit))
    for _ in range(MOST_ROUNDS):
        if not add(solution.x.log_clock, solution.x.stretch * (1.0 + BROKEN)):
            break
        solution = search(solution.x)
    return solution, len(paths)


def _energy(choice: _ClocksAndTime, case: _Problem, _: tuple[Array, Array]) -> Array:
    clocks = jnp.exp(choice.log_clock)
    return case.pipeline.energy(clocks, case.kinds, choice.stretch * case.fastest) / case.unit


def _lateness(choice: _ClocksAndTime, case: _Problem, paths: tuple[Array, Array]) -> Array:
    durations = case.pipeline.passes(jnp.exp(choice.log_clock))[0] / case.fastest
    counts, hops = paths
    return jnp.sum(counts * durations, axis=(1, 2, 3)) + hops - choice.stretch


@Compiled
def _longest_paths(log_clocks: Array, case: _Problem) -> tuple[Array, Array, Array]:
    """For each deadline and kind of pass the longest path through it: its counts, its hops and its whole length."""
    hop = case.pipeline.hop / case.fastest

    def length(passes: Passes) -> Array:  # its gradient counts the passes of each kind on the critical path
        return pipeline_makespan(_of_operations(passes, case.kinds), case.schedule, hop)

    def by_kind(log_clock: Array) -> tuple[Array, Array, Array]:
        durations = case.pipeline.passes(jnp.exp(log_clock))[0] / case.fastest
        clocks = log_clock.size
        longer = jnp.concatenate([jnp.zeros((1, clocks)), NUDGE * jnp.eye(clocks)]).reshape(-1, *log_clock.shape)

        def path(stretched: Array) -> tuple[Array, Array, Array]:
            longest, counts = jax.value_and_grad(length)(stretched)
            hops = longest - jnp.sum(counts * stretched)
            return counts, hops, jnp.sum(counts * durations) + hops

        return jax.vmap(path)(durations * (1.0 + jnp.tile(longer, (1, 1, case.schedule.chunks, 1))))

    return jax.lax.map(by_kind, log_clocks)


@Compiled
def _makespans(log_clock: Array, case: _Problem) -> Array:
    return jax.lax.map(lambda clock: case.pipeline.makespan(jnp.exp(clock), case.schedule, case.kinds), log_clock)


@Compiled
def _energies(log_clock: Array, case: _Problem, step_time: Array) -> Array:
    return jax.vmap(lambda clock, time: case.pipeline.energy(jnp.exp(clock), case.kinds, time))(log_clock, step_time)
