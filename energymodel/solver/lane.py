"""How does a search over flat vectors batch and differentiate: chunks of lanes, and the implicit function theorem.

At a solution the optimality conditions hold for all data, so that its derivatives solve one linear system with their
Jacobian [Fiacco 1983, ch. 3]; the derivative of the optimal value needs not even that [envelope theorem].
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from energymodel.solver import interior_point as ip
from energymodel.solver.interior_point import Box, SolverOptions, State

_CONFLICT_SHARE = 1e-3  # share of the penalty that a multiplier must carry to belong to a conflict


class Answer(NamedTuple):
    """A finished lane in the units of the problem, flat. The first six fields carry derivatives."""

    x: Float[Array, "*lanes n"]
    value: Float[Array, "*lanes"]
    rows: Float[Array, "*lanes m"]
    y: Float[Array, "*lanes m"]
    lower_dual: Float[Array, "*lanes n"]
    upper_dual: Float[Array, "*lanes n"]
    compliance: Float[Array, "*lanes m"]
    conflict: Bool[Array, "*lanes m"]
    lower_conflict: Bool[Array, "*lanes n"]
    upper_conflict: Bool[Array, "*lanes n"]
    iterations: Int[Array, "*lanes"]
    residual: Float[Array, "*lanes"]
    status: Int[Array, "*lanes"]


class Lane(NamedTuple):
    """The flat data of one problem: start, bounds, and multipliers of a neighbour `(y, lower, upper)` or `None`."""

    x0: Float[Array, "*lanes n"]
    lower: Float[Array, "*lanes n"]
    upper: Float[Array, "*lanes n"]
    warm: tuple[Array, Array, Array] | None

    def scale(self) -> Float[Array, " n"]:
        """Typical size of each variable, a power of two (exact to apply): `|x0|` or one, at most its range."""
        width = self.upper - self.lower
        size = jnp.maximum(jnp.abs(self.x0), 1.0)
        size = jnp.where((width > 0) & (width < size), width, size)
        return jnp.exp2(jnp.round(jnp.log2(size)))

    def box(self) -> Box:
        """Bounds of the scaled variables."""
        scale = self.scale()
        return Box(self.lower / scale, self.upper / scale)


def begin(lane: Lane, rows: int, options: SolverOptions) -> State:
    """State of a lane before its first evaluation."""
    scale, box = lane.scale(), lane.box()
    warm = None
    if lane.warm is not None:
        y, lower_dual, upper_dual = lane.warm
        warm = (y, jnp.concatenate([lower_dual * scale, upper_dual * scale]))
    x = box.inside(lane.x0 / scale, ip.PUSH if warm is None else ip.WARM_PUSH)
    state = ip.begin(x, rows, options, warm)
    ordered = jnp.all(lane.lower <= lane.upper)
    return state._replace(status=jnp.where(ordered, state.status, ip.BOUNDS_CROSS).astype(jnp.int32))


def advance(
    problem: Callable[[Array], Array], inequalities: int, lane: Lane, options: SolverOptions, state: State, limit: Array
) -> State:
    """Iterate a lane to its end or to `limit` iterations."""
    scale = lane.scale()
    limit = jnp.minimum(limit, options.max_iterations)
    return ip.advance(lambda x: problem(x * scale), inequalities, lane.box(), options, state, limit)


def iterate(
    problem: Callable[[Array], Array], inequalities: int, lane: Lane, options: SolverOptions, state: State, limit: Array
) -> State:
    """One iteration of a lane that has any left; for loops over many lanes, which trace faster than `vmap` of loops."""
    scale = lane.scale()
    moved = ip.iterate(lambda x: problem(x * scale), inequalities, lane.box(), options, state)
    going = ip.unfinished(state, jnp.minimum(limit, options.max_iterations))
    return jax.tree.map(lambda new, old: jnp.where(going, new, old), moved, state)


def finish(inequalities: int, lane: Lane, options: SolverOptions, state: State) -> Answer:
    """Undo the scaling, and say how the lane ended."""
    scale, box = lane.scale(), lane.box()
    equality = jnp.arange(state.y.size) >= inequalities
    n, m, penalty, y = state.x.size, state.y.size, state.penalty, state.y
    least = jnp.finfo(y.dtype).eps * penalty
    u, v = jnp.where(equality, jnp.maximum(y + penalty, least), y), jnp.maximum(penalty - y, least)
    compliance = state.slack[:m] / jnp.where(u > 0, u, 1.0) + state.slack[m:] / v
    over = state.iteration >= options.max_iterations
    status = jnp.where((state.status == ip.RUNNING) & over, ip.OUT_OF_ITERATIONS, state.status)
    # At the least violation the objective no longer counts: the multipliers are a certificate that the rows which
    # carry them cannot hold together [Farkas 1902].
    infeasible, share = status == ip.INFEASIBLE, _CONFLICT_SHARE * penalty
    lower_dual, upper_dual = state.dual[:n], state.dual[n:]
    to_dual = state.scale[1:] / state.scale[0]
    return Answer(
        x=jnp.clip(state.x * scale, lane.lower, lane.upper),
        value=state.values[0],
        rows=state.values[1:],
        y=y * to_dual,
        lower_dual=lower_dual / (state.scale[0] * scale),
        upper_dual=upper_dual / (state.scale[0] * scale),
        compliance=compliance / (to_dual * state.scale[1:]),
        conflict=infeasible & (jnp.abs(y) > share),
        lower_conflict=infeasible & (lower_dual > share) & (box.below | ~box.free),
        upper_conflict=infeasible & (upper_dual > share) & (box.above | ~box.free),
        iterations=jnp.maximum(state.iteration, 0),
        residual=state.residual,
        status=status.astype(jnp.int32),
    )


@eqx.filter_custom_jvp
def solve(
    problem: Callable[[Array], Array], lane: Lane, *, inequalities: int, rows: int, options: SolverOptions
) -> Answer:
    """Search one problem; `vmap` runs chunks of `options.chunk` lanes one after another, each until its lanes end."""
    dynamic, static = eqx.partition((problem, lane), eqx.is_array)

    def one(dynamic: Any) -> Answer:
        problem, lane = eqx.combine(dynamic, static)
        state = begin(lane, rows, options)
        state = advance(problem, inequalities, lane, options, state, jnp.asarray(options.max_iterations))
        return finish(inequalities, lane, options, state)

    chunked = jax.custom_batching.custom_vmap(one)

    @chunked.def_vmap
    def _(lanes: int, batched: Any, dynamic: Any) -> tuple[Answer, Any]:
        (batched,) = (batched,) if not isinstance(batched, list) else batched
        moving, shared = eqx.partition(dynamic, batched)

        def together(moving: Any) -> Answer:
            return jax.vmap(lambda moving: one(eqx.combine(moving, shared)))(moving)

        answer = in_chunks(together, moving, lanes, options.chunk)
        return answer, jax.tree.map(lambda _: True, answer)

    return chunked(dynamic)


def in_chunks(function: Callable[[Any], Any], lanes: Any, count: int, chunk: int) -> Any:
    """`function(lanes)` by equal chunks of at most `chunk` lanes; copies of the last lane fill up the last."""
    chunks = -(-count // chunk)
    if chunks == 1:
        return function(lanes)
    width = -(-count // chunks)
    index = jnp.minimum(jnp.arange(chunks * width), count - 1).reshape(chunks, width)
    result = jax.lax.map(lambda i: function(jax.tree.map(lambda leaf: leaf[i], lanes)), index)
    return jax.tree.map(lambda leaf: leaf.reshape(chunks * width, *leaf.shape[2:])[:count], result)


@solve.def_jvp
def _solve_jvp(primals: Any, tangents: Any, *, inequalities: int, rows: int, options: SolverOptions) -> Any:
    problem, lane = primals
    d_problem, d_lane = tangents
    answer = solve(problem, lane, inequalities=inequalities, rows=rows, options=options)
    x, y, zl, zu = answer.x, answer.y, answer.lower_dual, answer.upper_dual
    lower, upper = jax.lax.stop_gradient((lane.lower, lane.upper))
    box = Box(lower, upper)
    stiff = jnp.where(box.bounded, jnp.concatenate([zl, zu]) / box.distances(x), 0.0)
    stiff_low, stiff_high = jnp.split(jax.lax.stop_gradient(stiff), 2)
    d_lower = jnp.zeros_like(x) if d_lane is None or d_lane.lower is None else d_lane.lower
    d_upper = jnp.zeros_like(x) if d_lane is None or d_lane.upper is None else d_lane.upper
    d_lower = jnp.where(jnp.isfinite(lower), d_lower, 0.0)
    d_upper = jnp.where(jnp.isfinite(upper), d_upper, 0.0)
    weights = jnp.concatenate([jnp.ones((1,), x.dtype), y])

    # How the data alone move values and stationarity, at the point where the search ended.
    def sweep(problem: Any) -> tuple[Array, Array]:
        values, pull = jax.vjp(problem, x)
        return values, pull(weights)[0]

    moved = (None, None)
    if jax.tree.leaves(d_problem):
        _, moved = eqx.filter_jvp(sweep, (problem,), (d_problem,))
    d_values = jnp.zeros_like(weights) if moved[0] is None else moved[0]
    d_pull = jnp.zeros_like(x) if moved[1] is None else moved[1]

    # W dx + J' dy = -d_pull (with the bounds' stiffness),  J dx - compliance dy = -d_rows; fixed variables follow.
    _, jacobian, W = ip.derivatives(problem, x, weights)
    J, free = jacobian[1:], box.free
    top = jnp.concatenate([W + jnp.diag(stiff_low + stiff_high), J.T], axis=1)
    fixed = jnp.concatenate([jnp.eye(x.size, dtype=x.dtype), jnp.zeros_like(J.T)], axis=1)
    bottom = jnp.concatenate([J, -jnp.diag(answer.compliance)], axis=1)
    matrix = jnp.concatenate([jnp.where(free[:, None], top, fixed), bottom])
    right = jnp.concatenate(
        [jnp.where(free, stiff_low * d_lower + stiff_high * d_upper - d_pull, d_lower), -d_values[1:]]
    )
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(matrix), axis=1))
    size = jnp.where(size > 0, size, 1.0)
    moves = jnp.linalg.solve(matrix / size[:, None], right / size)
    dx, dy = moves[: x.size], moves[x.size :]
    d_gradient = W @ dx + J.T @ dy + d_pull
    d_zl = jnp.where(free, -stiff_low * (dx - d_lower), jnp.where(zl > 0, d_gradient, 0.0))
    d_zu = jnp.where(free, stiff_high * (dx - d_upper), jnp.where(zu > 0, -d_gradient, 0.0))
    nothing = jax.tree.map(lambda _: None, answer)
    return answer, nothing._replace(
        x=dx,
        value=weights @ d_values + zl @ d_lower - zu @ d_upper,
        rows=d_values[1:] + J @ dx,
        y=dy,
        lower_dual=d_zl,
        upper_dual=d_zu,
    )
