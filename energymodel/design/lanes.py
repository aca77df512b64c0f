"""How are thousands of problems of one kind solved on a host: in rounds, carrying on only with the unfinished."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from energymodel.compilation import Compiled, concurrently
from energymodel.design import search
from energymodel.design.interior_point import State, unfinished
from energymodel.design.solve import RESULTS, PerConstraint, Solution, SolverOptions, Task, prepare

_ROUND = 8  # iterations between compactions: the median of a design search


def minimize_many(
    objective: Callable[..., Any],
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
    progress: Callable[[int, int], None] | None = None,
) -> Solution:
    """Minimize one `f(x, *args, *shared)` for many starts or data, `min f_i(x_i)` for lanes i [see `minimize`].

    One chunk of lanes is compiled once and serves any number of lanes [1]; after every 8 iterations the
    unfinished ones are gathered into fewer chunks. Compilation is kept as long as the functions are the same objects.
    Runs in float64 whatever the caller's precision. Ctrl-C ends the search with what is done.

    **Arguments:**

    - `objective`, `inequalities`, `equalities`, `bounds`, `options`: as in `minimize`. Bounds are broadcast against
      `x0` with its lanes.
    - `x0`, `args`, `warm`: as in `minimize`, every leaf with a leading axis of lanes.
    - `shared`: further arguments that all lanes share.
    - `chunk`: lanes per compiled call, `options.chunk` by default.
    - `progress`: called with (finished, all) lanes after every round.

    **Returns:** `Solution` of NumPy arrays with the leading axis of lanes; `interrupted` marks what Ctrl-C cut off.

    **Raises:** `ValueError` where leaves disagree on the number of lanes.
    """
    options = SolverOptions() if options is None else options
    with jax.enable_x64(True):
        x0 = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), x0)
        args, warm = jax.tree.map(np.asarray, (args, warm))
        sides = (None, None) if bounds is None else bounds
        lower, upper = (_spread(side, x0, missing) for side, missing in zip(sides, (-np.inf, np.inf), strict=True))
        lanes = (x0, args, (lower, upper), warm)
        counts = {leaf.shape[:1] for leaf in jax.tree.leaves(lanes)}
        if len(counts) != 1 or () in counts:
            raise ValueError(
                f"minimize_many: leaves of x0, args and warm have leading axes {sorted(counts)}. Give every leaf the "
                "same leading axis of lanes, and pass what all lanes share as `shared`."
            )
        (count,) = next(iter(counts))
        functions = (objective, inequalities, equalities)
        return _rounds(functions, lanes, shared, options, count, chunk or options.chunk, progress)


def _rounds(
    functions: tuple,
    lanes: PyTree,
    shared: tuple,
    options: SolverOptions,
    count: int,
    chunk: int,
    progress: Callable[[int, int], None] | None,
) -> Solution:
    width = min(chunk, 1 << max(count - 1, 0).bit_length())
    store: Any = None  # states and solutions of all lanes
    left, limit = np.arange(count), _ROUND
    try:
        while left.size:
            chunks = [left[first : first + width] for first in range(0, left.size, width)]

            def advance(index: np.ndarray, store: Any = store, limit: int = limit) -> Any:
                padded = np.resize(index, width)
                part = _take(lanes, padded)
                state = _begin_all(functions, options, part, shared) if store is None else _take(store[0], padded)
                return jax.tree.map(np.asarray, _round_all(functions, options, part, shared, state, np.int32(limit)))

            results = concurrently(advance, chunks)
            if store is None:
                store = jax.tree.map(lambda leaf: np.empty((count, *leaf.shape[1:]), leaf.dtype), results[0])
            for index, result in zip(chunks, results, strict=True):
                for into, leaf in zip(jax.tree.leaves(store), jax.tree.leaves(result), strict=True):
                    into[index] = leaf[: index.size]
            left = left[np.asarray(store[1].result == RESULTS.running)[left]]
            limit += _ROUND
            if progress is not None:
                progress(count - left.size, count)
    except KeyboardInterrupt:
        if store is None:
            raise
        solution = store[1]
        cut = jax.vmap(lambda r: RESULTS.where(r == RESULTS.running, RESULTS.interrupted, r))(solution.result)
        return eqx.tree_at(lambda s: s.result, solution, jax.tree.map(np.asarray, cut))
    if store is None:
        raise ValueError("minimize_many: there are no lanes. Give x0 at least one.")
    return store[1]


def _take(lanes: PyTree, index: np.ndarray) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], lanes)


def _task(functions: tuple, lane: PyTree, shared: tuple) -> Task:
    objective, inequalities, equalities = functions
    x0, args, bounds, warm = lane
    return prepare(objective, x0, (*args, *shared), bounds, inequalities, equalities, warm)


def _begin(functions: tuple, options: SolverOptions, lanes: PyTree, shared: tuple) -> State:
    def one(lane: PyTree) -> State:
        task = _task(functions, lane, shared)
        return search.begin(task.lane, task.rows, options)

    return jax.vmap(one)(lanes)


def _round(
    functions: tuple, options: SolverOptions, lanes: PyTree, shared: tuple, state: State, limit: Array
) -> tuple[State, Solution]:
    def step(lane: PyTree, state: State) -> State:
        task = _task(functions, lane, shared)
        return search.iterate(task.problem, task.inequalities, task.lane, options, state, limit)

    def end(lane: PyTree, state: State) -> Solution:
        task = _task(functions, lane, shared)
        return task.solution(search.finish(task.inequalities, task.lane, options, state))

    last = jnp.minimum(limit, options.max_iterations)
    state = jax.lax.while_loop(
        lambda state: jnp.any(unfinished(state, last)), lambda state: jax.vmap(step)(lanes, state), state
    )
    return state, jax.vmap(end)(lanes, state)


_begin_all, _round_all = Compiled(_begin, once=True), Compiled(_round, once=True)


def _spread(bound: PyTree, x0: PyTree, missing: float) -> PyTree:
    """A bound for every number of every lane."""

    def fill(bound: Any, part: PyTree) -> PyTree:
        value = missing if bound is None else bound
        return jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(value, np.float64), leaf.shape), part)

    return jax.tree.map(fill, bound, x0, is_leaf=lambda leaf: leaf is None)
