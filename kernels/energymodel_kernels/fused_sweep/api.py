"""The best points of a huge grid, and the derivatives of their values by every number."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from energymodel.runtime.compilation import Split, cached, split
from energymodel_kernels.backends import resolve
from energymodel_kernels.fused_sweep import kernel, reference
from energymodel_kernels.fused_sweep.keep import Best, Keep, ParetoBins
from energymodel_kernels.fused_sweep.scan_axes import Axis, Grid
from energymodel_kernels.fused_sweep.tiles import Slab, Tile, check, choose_slab, choose_tile


class Gradient(NamedTuple):
    """Derivatives of the objective of each kept point, by its values along the axes and by the parameters."""

    point: Any
    parameters: Any


class Sweep(NamedTuple):
    """Kept points, best first (or by bin).

    - `objective`: infinite where no point was left; evaluated again in the caller's precision.
    - `found`: whether there is a point.
    - `point`: values along the axes, by name; not numbers where there is no point, and so are the next ones.
    - `index`: their numbers along the axes, by name [1]; -1 where there is no point.
    - `quantities`: what the formula returns beside the objective.
    - `gradient`: derivatives of each objective if asked for.
    """

    objective: Float[Array, " kept"]
    found: Bool[Array, " kept"]
    point: Any
    index: Any
    quantities: Any
    gradient: Gradient | None

    @property
    def front(self) -> Bool[Array, " kept"]:
        """For bins: points that no point of a lower bin beats."""
        before = jnp.concatenate([jnp.full(1, jnp.inf), jax.lax.cummin(self.objective)[:-1]])
        return self.found & (self.objective < before)


def fused_sweep(
    formula: Callable[[Any, Any], Any],
    axes: Mapping[str, Axis],
    parameters: Any = (),
    *,
    limits: Sequence[Any] = (),
    keep: Keep | None = None,
    gradient: bool = False,
    implementation: str = "auto",
    dtype: Any = jnp.float32,
    approximate: bool = False,
    tile: Tile | Slab | None = None,
) -> Sweep:
    """Points with the least objective on a product of axes, within limits: `min f(x) where q_i(x) <= limit_i`.

    A point with anything that is not a number among its objective and limited quantities is left out. The search runs
    in `dtype`; the points that it keeps are evaluated again in the precision of the caller, so that the result is an
    ordinary function of parameters and ends of axes: `jax.grad` of it holds at a fixed place on the grid, which for
    the best value is its derivative wherever that exists [Danskin 1967].

    **Arguments:**

    - `formula`: `formula(point, parameters)` to the objective and a tuple of quantities, all scalars; `point` holds a
      value for each axis as an attribute, in the order of `axes`.
    - `axes`: by name.
    - `parameters`: pytree of scalars, such as a component.
    - `limits`: largest value of each quantity, in its unit; infinite for none.
    - `keep`: `Best(count)` or `ParetoBins(...)`.
    - `gradient`: whether to return derivatives by values along the axes and parameters.
    - `implementation`: one of `backends.IMPLEMENTATIONS`, or `"auto"`.
    - `dtype`: precision of the search.
    - `approximate`: exponentials and logarithms by a GPU's special function units: faster, some units less accurate.
    - `tile`: how the grid is cut up, chosen by default.

    **Returns:** the kept points.

    **Raises:** `ValueError` for axes, limits, parameters or a grid that cannot be swept, naming them.
    """
    keep = Best() if keep is None else keep
    keep.check()
    if not axes:
        raise ValueError("a sweep needs at least one axis")
    kernel_wins = isinstance(keep, ParetoBins)  # 8 to 11 times as fast as XLA on an H200
    chosen = resolve(implementation, gpu="pallas_triton" if kernel_wins else "xla")
    grid = Grid(tuple(axes), tuple(axes.values()))
    arguments, question = split((formula, grid, parameters, tuple(limits)), _is_argument)
    is_host = tuple(map(_is_host_number, arguments))  # one transfer to an accelerator takes as long as for all of them
    numbers = np.array([leaf for leaf, host in zip(arguments, is_host, strict=True) if host], np.float64)
    others = [leaf for leaf, host in zip(arguments, is_host, strict=True) if not host]
    return _program(question, is_host, keep, gradient, chosen, dtype, approximate, tile)(numbers, others)


def _is_host_number(leaf: Any) -> bool:
    scalar = isinstance(leaf, np.ndarray | np.generic) and leaf.shape == () and leaf.dtype.kind == "f"
    return scalar or isinstance(leaf, float)


def _is_argument(leaf: Any) -> bool:
    return isinstance(leaf, float) or eqx.is_array(leaf)


@cached
def _program(
    question: Split,
    is_host: tuple[bool, ...],
    keep: Keep,
    gradient: bool,
    implementation: str,
    dtype: Any,
    approximate: bool,
    tile: Tile | Slab | None,
) -> Callable[[Any, Sequence[Any]], Sweep]:
    """The compiled sweep of a formula over axes of these lengths, as a function of all numbers."""

    def sweep(numbers: Any, others: Sequence[Any]) -> Sweep:
        own, rest = iter(numbers), iter(others)
        formula, grid, parameters, limits = question.joined([next(own if host else rest) for host in is_host])
        _check_limits(formula, grid, parameters, limits, dtype)
        division = _tile(tile, grid, keep, implementation)
        grid_only, numbers_only, limits_only = jax.tree.map(
            lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array_like(leaf) else leaf, (grid, parameters, limits)
        )
        sought = reference.Search(formula, grid_only, numbers_only, limits_only, keep, dtype)
        if isinstance(division, Slab):
            points = reference.search(sought, division)
        else:
            points = kernel.select(sought, division, *kernel.scan(sought, division, implementation, approximate))
        some = points.objective < jnp.inf
        indices = [jnp.where(some, i, 0) for i in division.indices(grid, points.outer, points.inner)]
        point = grid.at(indices, jnp.result_type(float))
        objective, quantities = jax.vmap(lambda point: formula(point, parameters))(point)
        slopes = _slopes(formula, point, parameters) if gradient else None
        numbers = jax.tree.map(lambda leaf: jnp.where(some, leaf, jnp.nan), (point, quantities, slopes))
        index = grid.point([jnp.where(some, i, -1) for i in indices])
        return Sweep(jnp.where(some, objective, jnp.inf), some, numbers[0], index, *numbers[1:])

    return jax.jit(sweep)


def _check_limits(formula: Any, grid: Grid, parameters: Any, limits: Sequence[Any], dtype: Any) -> None:
    shapes = [jax.ShapeDtypeStruct((), dtype)] * len(grid.axes)
    _, quantities = eqx.filter_eval_shape(formula, grid.point(shapes), parameters)
    if len(quantities) != len(limits):
        raise ValueError(f"the formula returns {len(quantities)} quantities, but there are {len(limits)} limits")


def _tile(tile: Tile | Slab | None, grid: Grid, keep: Keep, implementation: str) -> Tile | Slab:
    if tile is None:
        in_slabs = implementation == "xla"
        tile = choose_slab(grid, jax.default_backend()) if in_slabs else choose_tile(grid, implementation, keep)
    elif isinstance(tile, Slab) != (implementation == "xla"):
        raise ValueError(f'a {type(tile).__name__} does not fit implementation = "{implementation}"')
    check(tile, grid)
    return tile


def _slopes(formula: Callable[[Any, Any], Any], point: Any, parameters: Any) -> Gradient:
    traced, static = eqx.partition(parameters, eqx.is_array_like)
    dtype = jnp.result_type(float)
    traced = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), traced)

    def objective(point: Any, traced: Any) -> Array:
        return jnp.asarray(formula(point, eqx.combine(traced, static))[0])

    return Gradient(*jax.vmap(jax.grad(objective, argnums=(0, 1)), in_axes=(0, None))(point, traced))
