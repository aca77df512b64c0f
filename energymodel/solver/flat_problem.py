"""Problems over pytrees as problems over one vector, with their derivatives, and solutions in the shapes of both."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from energymodel.solver.solution import RESULTS, PerConstraint, Solution


class Values(NamedTuple):
    """Objective and constraints from one function, where they share a model that should be evaluated once."""

    objective: Any
    inequalities: PyTree = None
    equalities: PyTree = None


class FlatSolution(NamedTuple):
    """Where a search ended, in the units of the problem. The first four fields carry derivatives."""

    x: Float[Array, " n"]
    value: Float[Array, ""]
    rows: Float[Array, " m"]
    multipliers: Float[Array, " limits"]  # of the rows, the lower and the upper bounds
    compliance: Float[Array, " m"]
    conflict: Bool[Array, " limits"]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    result: RESULTS


class FlatProblem(eqx.Module):
    """A problem over one vector: minimize the first of `values`, with inequalities and equalities after it.

    - `functions`: x to objective, inequalities and equalities in the caller's shapes.
    - `scale`: typical size of each variable, a power of two: `|x0|` or one, at most its range.
    - `warm`: multipliers of a neighboring solution whose x is `x0`, as in `FlatSolution`, or `None`.
    - `x_like`, `inequalities_like`, `equalities_like`: shapes of the caller's pytrees.
    """

    functions: Callable[[Array], tuple[Array, PyTree, PyTree]]
    x0: Float[Array, " n"]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    scale: Float[Array, " n"]
    warm: Float[Array, " limits"] | None
    x_like: PyTree
    inequalities_like: PyTree
    equalities_like: PyTree

    def values(self, x: Float[Array, " n"]) -> Float[Array, " k"]:
        """Objective, inequalities and equalities in one vector."""
        value, g, h = self.functions(x)
        return jnp.concatenate([value[None], ravel(g, x.dtype), ravel(h, x.dtype)])

    @property
    def operations(self) -> int:
        """Operations of all functions together, each written out once however large its arrays are."""
        return _operations(jax.make_jaxpr(self.values)(self.x0).jaxpr)

    @property
    def inequalities(self) -> int:
        """Number of inequalities."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.inequalities_like))

    @property
    def rows(self) -> int:
        """Number of inequalities and equalities."""
        return self.inequalities + sum(leaf.size for leaf in jax.tree.leaves(self.equalities_like))

    @property
    def equality(self) -> Bool[Array, " m"]:
        """Which rows are equalities."""
        return jnp.arange(self.rows) >= self.inequalities

    def shaped(self, flat: FlatSolution) -> Solution:
        """Give a solution the shapes in which the problem came."""
        ends = np.cumsum([self.inequalities, self.rows - self.inequalities, flat.x.size])
        likes = self.inequalities_like, self.equalities_like, self.x_like, self.x_like

        def per_constraint(limits: Array) -> PerConstraint:
            return PerConstraint(*map(unravel, jnp.split(limits, ends), likes))

        return Solution(
            x=unravel(flat.x, self.x_like),
            value=flat.value,
            multipliers=per_constraint(flat.multipliers),
            slacks=per_constraint(jnp.concatenate([-flat.rows, flat.x - self.lower, self.upper - flat.x])),
            conflict=per_constraint(flat.conflict),
            iterations=flat.iterations,
            residual=flat.residual,
            result=flat.result,
        )


def flatten(
    objective: Callable[..., Any],
    x0: PyTree,
    args: tuple,
    bounds: tuple[PyTree, PyTree] | None,
    inequalities: Callable[..., PyTree] | None,
    equalities: Callable[..., PyTree] | None,
    warm: PerConstraint | None,
) -> FlatProblem:
    """Flatten a problem, and hoist whatever its functions close over into arrays that may be differentiated."""
    dtype = jnp.result_type(float, *jax.tree.leaves(x0))
    x_like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), dtype), x0)
    flat = ravel(x0, dtype)
    if flat.size == 0:
        raise ValueError("minimize: x0 holds no numbers, so there is nothing to choose. Give at least one variable.")
    lower, upper = (None, None) if bounds is None else bounds

    def functions(flat: Array) -> tuple[Array, PyTree, PyTree]:
        x = unravel(flat, x_like)
        values = objective(x, *args)
        values = values if isinstance(values, Values) else Values(values)

        def joined(shared: PyTree, own: Callable[..., PyTree] | None) -> PyTree:
            if own is None:
                return shared
            return own(x, *args) if shared is None else (shared, own(x, *args))

        g, h = joined(values.inequalities, inequalities), joined(values.equalities, equalities)
        return jnp.asarray(values.objective, dtype), g, h

    converted = eqx.filter_closure_convert(functions, flat)
    converted = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, converted)
    f_like, g_like, h_like = jax.eval_shape(converted, flat)
    if f_like.shape != ():
        raise ValueError(
            f"minimize: the objective has shape {f_like.shape}. Return a scalar; add up or pick one entry."
        )
    start = jax.lax.stop_gradient(flat)
    low = ravel(spread_bound(lower, x_like, -jnp.inf), dtype)
    high = ravel(spread_bound(upper, x_like, jnp.inf), dtype)
    width, size = high - low, jnp.maximum(jnp.abs(start), 1.0)
    size = jnp.where((width > 0) & (width < size), width, size)
    return FlatProblem(
        functions=converted,
        x0=start,
        lower=low,
        upper=high,
        scale=jnp.exp2(jnp.round(jnp.log2(size))),
        warm=None if warm is None else jax.lax.stop_gradient(ravel(warm, dtype)),
        x_like=x_like,
        inequalities_like=g_like,
        equalities_like=h_like,
    )


def derivatives(
    functions: Callable[[Array], Array], x: Float[Array, " n"], weights: Float[Array, " k"]
) -> tuple[Array, Array, Array]:
    """Values, Jacobian and the Hessian of `weights . functions`, from one linearization of the reverse sweep.

    The sweep returns the values beside the weighted gradient, so that its n tangents carry both matrices.
    """

    def sweep(x: Array) -> tuple[Array, Array]:
        values, pull = jax.vjp(functions, x)
        return values, pull(weights)[0]

    (values, _), tangent = jax.linearize(sweep, x)
    jacobian, hessian = jax.vmap(tangent, out_axes=-1)(jnp.eye(x.size, dtype=x.dtype))
    return values, jacobian, 0.5 * (hessian + hessian.T)


def difference_points(x: Any) -> Any:
    """A point and, for forward differences, those around it."""
    return x[..., None, :] + _difference(x) * np.eye(x.shape[-1] + 1, x.shape[-1], -1, dtype=x.dtype)


def differenced(
    values: Float[Array, "n+1 k"], jacobians: Float[Array, "n+1 k n"], weights: Float[Array, " k"]
) -> tuple[Array, Array, Array]:
    """Values, Jacobian and the Hessian of `weights . functions`, from forward differences of the Jacobian.

    The residual of the optimality conditions needs values and Jacobian only, and those are exact.
    """
    slopes = weights @ jacobians
    hessian = (slopes[1:] - slopes[0]) / _difference(slopes)
    return values[0], jacobians[0], 0.5 * (hessian + hessian.T)


def _difference(like: Any) -> float:
    return float(np.finfo(like.dtype).eps) ** (1 / 3)


def jacobian_at(functions: Callable[[Array], Array], point: Float[Array, " n"]) -> tuple[Array, Array]:
    """Values and Jacobian by forward mode."""
    push = jax.vmap(lambda direction: jax.jvp(functions, (point,), (direction,)), out_axes=(None, -1))
    return push(jnp.eye(point.size, dtype=point.dtype))


def _operations(jaxpr: Jaxpr) -> int:
    """Equations of a function and of those that it calls."""
    inner = [part for equation in jaxpr.eqns for part in jax.tree.leaves(equation.params, is_leaf=_is_function)]
    functions = [part.jaxpr if isinstance(part, ClosedJaxpr) else part for part in inner if _is_function(part)]
    return len(jaxpr.eqns) + sum(_operations(function) for function in functions)


def _is_function(part: Any) -> bool:
    return isinstance(part, ClosedJaxpr | Jaxpr)


def ravel(tree: PyTree, dtype: Any) -> Float[Array, " n"]:
    """All leaves in one vector."""
    leaves = [jnp.ravel(jnp.asarray(leaf, dtype)) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate([jnp.zeros(0, dtype), *leaves])


def unravel(vector: Array, like: PyTree) -> PyTree:
    """The inverse of `ravel`, keeping the kind of numbers that the vector holds."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves], dtype=int)
    pieces = [vector[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)]
    return jax.tree.unflatten(structure, pieces)


def spread_bound(bound: PyTree, like: PyTree, missing: float) -> PyTree:
    """A bound for every number of a pytree, from a prefix of it with `None` where there is no bound."""

    def fill(bound: ArrayLike | None, part: PyTree) -> PyTree:
        value = missing if bound is None else bound
        return jax.tree.map(lambda leaf: jnp.broadcast_to(jnp.asarray(value, leaf.dtype), leaf.shape), part)

    try:
        return jax.tree.map(fill, bound, like, is_leaf=lambda leaf: leaf is None)
    except ValueError as error:
        raise ValueError(
            f"minimize: a bound of structure {jax.tree.structure(bound)} does not fit x0 of structure "
            f"{jax.tree.structure(like)}. Give one number, or a pytree like x0 (None where there is no bound)."
        ) from error
