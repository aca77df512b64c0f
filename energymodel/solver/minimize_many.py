"""Thousands of problems of one kind on a host, in rounds that carry on only with the unfinished."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from os import cpu_count
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, PyTree

from energymodel.runtime.compilation import CONFIG, Compiled
from energymodel.runtime.placement import accelerated, for_threads, platform
from energymodel.solver import interior_point as ip
from energymodel.solver.flat_problem import FlatProblem, flatten, spread_bound
from energymodel.solver.model_outside import ModelOutside, StandIn
from energymodel.solver.search_state import InteriorPointState, init
from energymodel.solver.solution import RESULTS, PerConstraint, Solution, SolverOptions, result_is

_KINK = 0.1  # residual above which a lane that hardly moves is not on its way to a minimum
_SETTLED = 1e-6  # of the variables: lanes that move by less in a round stand still at any residual
_STUCK = 1e-4, 1e-3  # the same where the residual is 0.1 to 1, and 10 or more
_ROUND = 8  # iterations between compactions: the median of a design search
_LONG_ROUND = 64  # on an accelerator, where a compaction costs more than some idle lanes
_SEVERAL, _THOUSANDS = 64, 128  # lanes of a chunk that hide the overhead of its operations on a CPU
_THOUSAND = 2048  # lanes of which a last chunk that is not full costs little


def minimize_many(
    objective: Callable[..., Any] | ModelOutside,
    x0: PyTree,
    args: tuple = (),
    *,
    shared: tuple = (),
    bounds: tuple[PyTree, PyTree] | None = None,
    inequalities: Callable[..., PyTree] | None = None,
    equalities: Callable[..., PyTree] | None = None,
    options: SolverOptions | None = None,
    warm: PerConstraint | None = None,
    chunk: int | None = None,
    iterations: int | None = None,
    patient: bool = True,
    dtype: Any = np.float64,
    devices: Sequence[Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Solution:
    """Minimize one `f(x, *args, *shared)` for many starts or data, `min f_i(x_i)` for lanes i [see `minimize`].

    One chunk of lanes is compiled once and serves any number of lanes [1]; after every 8 iterations the
    unfinished ones are gathered into fewer chunks, those that have furthest to go together. Compilation is kept as
    long as the functions are the same objects. Precision is `dtype`, whatever the caller's. Ctrl-C ends the search
    with what is done.

    **Arguments:**

    - `objective`, `inequalities`, `equalities`, `bounds`, `options`: as in `minimize`. Bounds are broadcast against
      `x0` with its lanes. A `ModelOutside` in place of the objective stays outside the compiled search.
    - `x0`, `args`, `warm`: as in `minimize`, every leaf with a leading axis of lanes.
    - `shared`: further arguments that all lanes share.
    - `chunk`: lanes that one device iterates together, even if there are fewer, so that one program serves any number;
      by default `options.chunk`, at least 64 (of 2048 lanes or more, 128), on an accelerator up to 65,536, and no more
      than there are.
    - `iterations`: give a lane up after so many, in multiples of 8 (any number with a `ModelOutside`), if
      `options.max_iterations` allows more; the same program serves any number.
    - `patient`: whether to ask, before a lane is infeasible, if any point is feasible, and to go on where a lane stands
      still, as at a kink. If not, a lane is given up where a violation costs a hundred times as much as the objective
      changes, or where no variable moves by 1e-4 in 8 iterations (1e-3 at a residual above 10) while the residual is
      above 0.1, or by 1e-6 at any residual.
    - `dtype`: `np.float64`, or `np.float32`, whose lanes end as `rounded` where rounding stops them.
    - `devices`: a chunk goes to each, by default to all of the platform that programs run on.
    - `progress`: called with (finished, all) lanes after every chunk.

    **Returns:** `Solution` of NumPy arrays with the leading axis of lanes; `interrupted` marks what Ctrl-C cut off,
    with NaN for lanes that had not begun.

    **Raises:** `ValueError` where leaves disagree on the number of lanes, or there are none.
    """
    options = SolverOptions() if options is None else options
    dtype, default = np.dtype(dtype), CONFIG.jax_default_device if devices is None else devices[0]
    with jax.enable_x64(dtype == np.float64), jax.default_device(default):
        x0 = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), x0)
        args, warm = jax.tree.map(np.asarray, (args, warm))
        lower, upper = (None, None) if bounds is None else bounds
        sides = spread_bound(lower, x0, -np.inf), spread_bound(upper, x0, np.inf)
        lanes = (x0, args, jax.tree.map(np.asarray, sides), warm)
        counts = {leaf.shape[:1] for leaf in jax.tree.leaves(lanes)}
        if len(counts) != 1 or () in counts:
            raise ValueError(
                f"minimize_many: leaves of x0, args and warm have leading axes {sorted(counts)}. Give every leaf the "
                "same leading axis of lanes, and pass what all lanes share as `shared`."
            )
        (count,) = next(iter(counts))
        if count == 0:
            raise ValueError("minimize_many: there are no lanes. Give x0 at least one.")
        devices = jax.devices(platform()) if devices is None else devices
        mesh = Mesh(np.asarray(devices), ("lanes",)) if len(devices) > 1 else None
        together = options.together(sum(leaf[0].size for leaf in jax.tree.leaves(x0)))
        if not accelerated():
            together = max(together, _THOUSANDS if count >= _THOUSAND * len(devices) else _SEVERAL)
        width = chunk or min(together, 1 << max(-(-count // len(devices)) - 1, 0).bit_length())
        most, every = options.max_iterations if iterations is None else iterations, _ROUND
        if isinstance(objective, ModelOutside):
            lanes = (x0, (np.arange(count, dtype=np.int32),), *lanes[2:])  # a lane is known by its number
            iterate, objective = partial(_iterate_outside, objective), StandIn(objective.rows)
        else:
            iterate, most = lambda *chunk: round_all(*chunk, mesh), -(-most // _ROUND) * _ROUND
            every = _LONG_ROUND if accelerated() and patient else _ROUND
        family = _Family(objective, inequalities, equalities, options, shared)
        limits = [*range(every, most, every), most]
        return _iterate_all(family, lanes, count, width * len(devices), iterate, limits, patient, progress)


Progress = tuple[InteriorPointState | None, Solution]
"""States and solutions of lanes; no states where all have ended."""


class _Family(NamedTuple):
    """What the problems of all lanes have in common."""

    objective: Callable[..., Any]
    inequalities: Callable[..., PyTree] | None
    equalities: Callable[..., PyTree] | None
    options: SolverOptions
    shared: tuple

    def problem(self, lane: PyTree) -> FlatProblem:
        """The problem of one lane."""
        x0, args, bounds, warm = lane
        return flatten(self.objective, x0, (*args, *self.shared), bounds, self.inequalities, self.equalities, warm)

    def solution(self, lane: PyTree, state: InteriorPointState) -> Solution:
        """Where a lane is."""
        problem = self.problem(lane)
        return problem.shaped(ip.postprocess(problem, self.options, state))


def _iterate_all(
    family: _Family,
    lanes: PyTree,
    count: int,
    width: int,
    iterate: Callable[..., Progress],
    limits: Sequence[int],
    patient: bool,
    progress: Callable[[int, int], None] | None,
) -> Solution:
    """Where all lanes end: rounds up to each limit, of chunks of the lanes that are left, whose states are kept."""
    solution: Any = None
    left, states = np.arange(count), None

    def advance(left: np.ndarray, states: InteriorPointState | None, limit: int, rows: np.ndarray) -> Progress:
        part = _take(lanes, np.resize(left[rows], width))
        padding = np.where(np.arange(width) < rows.size, -1, family.options.max_iterations).astype(np.int32)
        if states is None:
            state = _init_all(family, part, padding, patient)
        else:
            state = _take(states, np.resize(rows, width))
            state = state._replace(iteration=np.maximum(state.iteration, padding))
        begun = (*part[:3], None)  # the state holds the multipliers: warm and cold lanes share a program
        state, ends = iterate(family, begun, state, np.int32(limit))
        state, ends = jax.tree.map(lambda leaf: np.asarray(leaf)[: rows.size], (state, ends))
        return state if np.any(result_is(ends.result, RESULTS.running)) else None, ends

    try:
        for limit in limits:
            parts, chunks = [], np.split(np.arange(left.size), range(width, left.size, width))
            for rows, (state, ends) in _as_done(partial(advance, left, states, limit), chunks):
                index = left[rows]
                if solution is None:
                    solution = eqx.tree_at(lambda s: s.x, _unknown(ends, count), jax.tree.map(np.array, lanes[0]))
                going = result_is(ends.result, RESULTS.running)
                if not patient:
                    going &= ~_stand_still(_take(solution.x, index), ends)
                for leaf, part in zip(jax.tree.leaves(solution), jax.tree.leaves(ends), strict=True):
                    leaf[index] = part
                if state is not None:
                    parts.append((index[going], _take(state, np.flatnonzero(going))))
                if progress is not None:
                    progress(int(np.sum(~result_is(solution.result, RESULTS.running))), count)
            left, states = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts) if parts else (left[:0], None)
            if not left.size:
                break
            # Lanes that have far to go share chunks, or each chunk would wait for one of them.
            left, states = _take((left, states), np.lexsort((left, -solution.residual[left])))
    except KeyboardInterrupt:
        if solution is None:
            raise
        return _end_as(RESULTS.interrupted, solution)
    return _end_as(RESULTS.out_of_iterations, solution)


def _stand_still(before: PyTree, now: Solution) -> np.ndarray:
    """Lanes whose variables hardly moved in a round from where they were before it."""

    def move(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        return np.max(np.abs(new - old) / np.maximum(1.0, np.abs(old)), axis=tuple(range(1, new.ndim)))

    moves = jax.tree.leaves(jax.tree.map(move, before, now.x))
    stuck = np.clip(now.residual * _STUCK[0], *_STUCK)
    return np.max(moves, axis=0) < np.where(now.residual > _KINK, stuck, _SETTLED)


def _end_as(result: RESULTS, solution: Solution) -> Solution:
    """The same with a result for the lanes that are still running."""
    running = result_is(solution.result, RESULTS.running)
    if not running.any():
        return solution
    ended = jax.tree.map(lambda own, new: np.where(running, new, own), solution.result, result)
    return eqx.tree_at(lambda s: s.result, solution, ended)


def _as_done(function: Callable[[np.ndarray], Any], chunks: list[np.ndarray]) -> Iterator[tuple[np.ndarray, Any]]:
    """Each chunk with its result, as soon as one of the threads has it; ends without the rest when it is closed."""
    call, threads = for_threads(lambda index: (index, function(index))), ThreadPoolExecutor(cpu_count())
    try:
        for done in as_completed([threads.submit(call, index) for index in chunks]):
            yield done.result()
    finally:
        threads.shutdown(cancel_futures=True)


def _unknown(like: PyTree, count: int) -> Any:
    """A tree of the form of some lanes for so many, of which nothing is known."""

    def missing(leaf: np.ndarray) -> np.ndarray:
        value = np.nan if np.issubdtype(leaf.dtype, np.floating) else 0
        return np.full((count, *leaf.shape[1:]), value, leaf.dtype)

    return jax.tree.map(missing, like)


def _take(lanes: PyTree, index: np.ndarray) -> Any:
    """Some lanes; without a copy where they are one piece."""
    piece = index.size > 0 and np.all(np.diff(index) == 1)
    rows = slice(index[0], index[0] + index.size) if piece else index
    return jax.tree.map(lambda leaf: leaf[rows], lanes)


def _init(family: _Family, lanes: PyTree, padding: Array, patient: Array) -> InteriorPointState:
    state = jax.vmap(lambda lane: init(family.problem(lane)))(lanes)
    patience = jnp.broadcast_to(patient, padding.shape)
    return state._replace(iteration=jnp.maximum(state.iteration, padding), patient=patience)


def _iterate_chunk(
    family: _Family, lanes: PyTree, state: InteriorPointState, limit: Array, mesh: Mesh | None
) -> Progress:
    """Iterate a chunk to the end or to `limit`; each device of a mesh iterates its share on its own."""
    arrays, static = eqx.partition(family, eqx.is_array)

    def share(lanes: PyTree, state: InteriorPointState, arrays: PyTree, limit: Array) -> Progress:
        family: _Family = eqx.combine(arrays, static)

        def step(lane: PyTree, state: InteriorPointState) -> InteriorPointState:
            return ip.step(family.problem(lane), family.options, state)

        state = ip.iterate(step, lanes, state, jnp.minimum(limit, family.options.max_iterations))
        return state, jax.vmap(family.solution)(lanes, state)

    if mesh is not None:
        split, same = PartitionSpec("lanes"), PartitionSpec()
        share = jax.shard_map(share, mesh=mesh, in_specs=(split, split, same, same), out_specs=split, check_vma=False)
    return share(lanes, state, arrays, limit)


def _iterate_outside(
    model: ModelOutside, family: _Family, lanes: PyTree, state: InteriorPointState, limit: Any
) -> Progress:
    """Iterate a chunk to the end or to `limit`, with the model evaluated between the programs of an iteration."""
    last = min(int(limit), family.options.max_iterations)
    while (going := result_is(state.result, RESULTS.running) & (np.asarray(state.iteration) < last)).any():
        state = model.step(family, lanes, state, going)
    return state, _solutions(family, lanes, state)


def _all_solutions(family: _Family, lanes: PyTree, state: InteriorPointState) -> Solution:
    return jax.vmap(family.solution)(lanes, state)


_init_all = Compiled(_init, once=True)
_solutions = Compiled(_all_solutions)
round_all = Compiled(_iterate_chunk)
"""One round of a chunk of lanes: nothing else takes as long to compile or to load."""
