"""Clocks of lowest energy for each pipeline rank and direction, in a step that ends in time.

The makespan of a schedule is the longest of its paths, each a sum of durations. Only few paths can ever be the longest:
the search starts with some as constraints, finds the best clocks, evaluates the makespan exactly, and adds the critical
paths that it broke, until it breaks none [Kelley 1960]. Every search is a relaxation, so the last one is the optimum.
Slack then costs no time and saves energy [Chung et al. 2024, Perseus].
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.errors import InputError
from energymodel.performance.pipeline_schedule import Schedule
from energymodel.runtime.compilation import Compiled
from energymodel.search.pipeline import OperationKinds, Per, PipelineLoad, operation_kinds, pipeline_load
from energymodel.solver import RESULTS, Solution, minimize_many
from energymodel.system.plan import SCHEDULES, StagePower, TrainingPlan
from energymodel.system.training_system import TrainingSystem

MOST_ROUNDS = 60
FEWEST_PATHS = 32  # rows that are compiled for at least; unused ones are empty
NUDGE = 1e-2  # by which a pass is stretched to find the longest path through it
INTERIOR = 1e-6  # relative time without which a shortest step would leave the search no interior
MOST_CLOCKS = 128  # variables of one search, which is dense
MOST_SLOWDOWN = 1.0  # by which a step may take longer, as a share of its shortest time
GRID = 65  # clocks of all ranks together that are evaluated, evenly spaced in the logarithm
BROKEN = 1e-9  # relative excess of the makespan that calls for one more search


class StageClocks(NamedTuple):
    """The front of energy against step time; every field has a leading axis of deadlines.

    - `clock`: by direction, rank and kind of operation [1]; one kind, two phases, or all micro-batches.
    - `step_time`: exact makespan [s]; below the deadline where waiting costs more than haste saves.
    - `energy`: of a step, all chips [J]; `one_clock_energy` with one clock for all ranks that takes as long.
    - `price`: energy that one more second of step time saves [W].
    - `late`: makespan over the deadline, less one [1].
    - `result`: members of `RESULTS`.
    - `paths`: constraints that the search needed [1].
    """

    clock: Float[np.ndarray, "deadlines 2 ranks kinds"]
    step_time: Float[np.ndarray, " deadlines"]
    energy: Float[np.ndarray, " deadlines"]
    one_clock_energy: Float[np.ndarray, " deadlines"]
    price: Float[np.ndarray, " deadlines"]
    late: Float[np.ndarray, " deadlines"]
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
    """A pipeline, its schedule, which operations share a clock, and the units of time [s] and energy [J]."""

    pipeline: PipelineLoad
    schedule: Schedule
    kinds: OperationKinds
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
        case, bounds = _problem(pipeline, schedule, per)
        fastest = float(case.fastest)
        if np.any(wanted < fastest * (1.0 - BROKEN)):
            raise ValueError(
                f"stage_clocks: a deadline of {wanted.min():.6g} s is shorter than {fastest:.6g} s, the makespan "
                f"at the highest clock, {float(pipeline.maximum_clock):.4g}. Give at least that."
            )
        solution, paths = _cutting_planes(case, bounds, np.maximum(wanted / fastest, 1.0 + INTERIOR))
        choice = solution.x
        step_time = np.asarray(_makespans(choice.log_clock, case))
        broken = jnp.asarray(step_time > choice.stretch * fastest * (1.0 + 10.0 * BROKEN))
        late = jax.vmap(lambda broken, result: RESULTS.where(broken, RESULTS.out_of_iterations, result))
        return StageClocks(
            clock=np.exp(choice.log_clock),
            step_time=step_time,
            energy=np.asarray(_energies(choice.log_clock, case, step_time)),
            one_clock_energy=one_clock(case, bounds, step_time)[1],
            price=solution.multipliers.upper.stretch * case.unit / fastest,
            late=step_time / wanted - 1.0,
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
        count = 2 * schedule.ranks * {"rank": 1, "phase": 2, "operation": schedule.microbatches}[per]
        if count > MOST_CLOCKS:
            raise InputError(f"per {per}: {count} clocks are more than {MOST_CLOCKS}. Take per = rank.")
        fastest = float(_problem(pipeline, schedule, per)[0].fastest)
    return stage_clocks(pipeline, schedule, fastest * np.linspace(1.0, 1.0 + slowdown, points), per=per)


def _problem(pipeline: PipelineLoad, schedule: Schedule, per: Per) -> tuple[_Problem, tuple[np.ndarray, np.ndarray]]:
    """The problem in units of its step at the highest clock, and bounds of the logarithms of the clocks."""
    case = _Problem(pipeline, schedule, operation_kinds(schedule, per))
    repeats = np.asarray(case.kinds.repeats)
    exists = np.sum(repeats.reshape(2, schedule.chunks, schedule.ranks, -1), axis=1) > 0
    highest = np.full(exists.shape, np.log(pipeline.maximum_clock))
    lowest = np.where(exists, np.log(pipeline.chip.minimum_clock), highest)
    fastest = _makespans(highest[None], case)
    unit = _energies(highest[None], case, fastest)
    return case._replace(fastest=float(fastest[0]), unit=float(unit[0])), (lowest, highest)


def one_clock(
    case: _Problem, bounds: tuple[np.ndarray, np.ndarray], step_times: Float[np.ndarray, " times"]
) -> tuple[Float[np.ndarray, " times"], Float[np.ndarray, " times"]]:
    """The one clock for all ranks with which a step takes so long, to 1e-4 of its time, and the energy of the step."""
    lowest, highest = bounds

    def everywhere(logs: np.ndarray) -> np.ndarray:
        return np.broadcast_to(logs[:, None, None, None], (len(logs), *lowest.shape))

    grid = np.linspace(lowest.min(), highest.max(), GRID)
    logs = np.interp(-np.log(step_times), -np.log(_makespans(everywhere(grid), case)), grid)
    times = _makespans(everywhere(logs), case)
    return np.exp(logs), np.asarray(_energies(everywhere(logs), case, times))


def _cutting_planes(case: _Problem, bounds: tuple[np.ndarray, np.ndarray], limit: np.ndarray) -> tuple[Solution, int]:
    """Search until the makespan breaks no deadline, adding the paths that it broke [Kelley 1960], and count them.

    A path is known by how often it takes each pass, and has the time of its hops over the shortest step time.
    """
    lowest, highest = bounds
    paths: dict[bytes, tuple[np.ndarray, float]] = {}

    def add(log_clock: np.ndarray, allowed: np.ndarray) -> bool:
        """Keep the paths that are longer than a deadline allows; whether some of them are new."""
        counts, hops, length = map(np.asarray, _longest_paths(log_clock, case))
        before = len(paths)
        for lane, row in zip(*np.nonzero(length > allowed[:, None]), strict=True):
            passes = np.round(counts[lane, row])
            paths.setdefault(passes.astype(np.int32).tobytes(), (passes, float(hops[lane, row])))
        return len(paths) > before

    def search(choice: _ClocksAndTime) -> Solution:
        size = max(FEWEST_PATHS, 1 << (len(paths) - 1).bit_length())  # filled up with empty ones: few programs
        counts, hops = zip(*paths.values(), strict=True)
        empty = size - len(paths)
        rows = np.stack([*counts, *[np.zeros_like(counts[0])] * empty]), np.asarray([*hops, *[0.0] * empty])
        return minimize_many(
            _energy,
            choice,
            shared=(case, rows),
            bounds=(_ClocksAndTime(lowest, np.asarray(0.5)), _ClocksAndTime(highest, limit)),
            inequalities=_lateness,
        )

    for corner in (highest, lowest):
        add(corner[None], np.zeros(1))
    start = np.broadcast_to(0.5 * (lowest + highest), (len(limit), *lowest.shape))
    solution = search(_ClocksAndTime(start, limit))
    for _ in range(MOST_ROUNDS):
        choice = solution.x
        if not add(choice.log_clock, choice.stretch * (1.0 + BROKEN)):
            break
        solution = search(choice)
    return solution, len(paths)


def _energy(choice: _ClocksAndTime, case: _Problem, _: tuple[Array, Array]) -> Array:
    clocks = jnp.exp(choice.log_clock)
    return case.pipeline.energy(clocks, case.kinds, choice.stretch * case.fastest) / case.unit


def _lateness(choice: _ClocksAndTime, case: _Problem, paths: tuple[Array, Array]) -> Array:
    durations = case.pipeline.durations(jnp.exp(choice.log_clock)) / case.fastest
    counts, hops = paths
    return jnp.sum(counts * durations, axis=(1, 2, 3)) + hops - choice.stretch


@Compiled
def _longest_paths(log_clocks: Array, case: _Problem) -> tuple[Array, Array, Array]:
    """For each deadline and kind of pass the longest path through it: its counts, its hops and its whole length."""
    hop = case.pipeline.hop / case.fastest

    def by_kind(log_clock: Array) -> tuple[Array, Array, Array]:
        durations = case.pipeline.durations(jnp.exp(log_clock)) / case.fastest
        clocks = log_clock.size
        longer = jnp.concatenate([jnp.zeros((1, clocks)), NUDGE * jnp.eye(clocks)]).reshape(-1, *log_clock.shape)

        def path(stretched: Array) -> tuple[Array, Array, Array]:
            length, counts = jax.value_and_grad(case.kinds.makespan)(stretched, case.schedule, hop)
            hops = length - jnp.sum(counts * stretched)
            return counts, hops, jnp.sum(counts * durations) + hops

        return jax.vmap(path)(durations * (1.0 + jnp.tile(longer, (1, 1, case.schedule.chunks, 1))))

    return jax.lax.map(by_kind, log_clocks)


@Compiled
def _makespans(log_clock: Array, case: _Problem) -> Array:
    return jax.lax.map(lambda clock: case.pipeline.makespan(jnp.exp(clock), case.schedule, case.kinds), log_clock)


@Compiled
def _energies(log_clock: Array, case: _Problem, step_time: Array) -> Array:
    return jax.vmap(lambda clock, time: case.pipeline.energy(jnp.exp(clock), case.kinds, time))(log_clock, step_time)
