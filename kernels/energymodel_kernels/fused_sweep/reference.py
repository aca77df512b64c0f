"""The answer of a sweep in plain JAX: specification of the kernel, and what runs where no kernel is faster.

A loop over slabs of the grid; in a slab every axis is its own `vmap`, so that each expression is evaluated on the axes
it depends on only. A slab whose least value changes nothing is not looked at again.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from energymodel_kernels.fused_sweep.keep import Best, Keep, judge
from energymodel_kernels.fused_sweep.scan_axes import Grid, unravel
from energymodel_kernels.fused_sweep.tiles import Slab


class Found(NamedTuple):
    """Kept points: the objective (infinite where there is none) and the two numbers of `Slab` or `Tile`."""

    objective: Float[Array, " kept"]
    outer: Int[Array, " kept"]
    inner: Int[Array, " kept"]


class Search(NamedTuple):
    """What is searched where, and in which precision; see `fused_sweep` for the fields."""

    formula: Callable[[Any, Any], Any]
    grid: Grid
    parameters: Any
    limits: Sequence[Any]
    keep: Keep
    dtype: Any


def search(sought: Search, slab: Slab) -> Found:
    """Points of the grid that are kept, by looking at all of them."""
    formula, grid, parameters, limits, keep, dtype = sought
    outer_counts, (first, *_) = grid.split(slab.inner)
    pieces = slab.pieces(grid)
    parameters = jax.tree.map(lambda leaf: _rounded(leaf, dtype), parameters)
    limits = [jnp.asarray(limit, dtype) for limit in limits]
    values = [axis.value(*axis.numbers(dtype), jnp.arange(axis.count, dtype=jnp.int32)) for axis in grid.axes]
    cut = len(outer_counts)
    numbers = jnp.arange(slab.points(grid), dtype=jnp.int32)

    def look(number: Array) -> tuple[Array, Array]:
        """Objective and bin of all points of a slab."""
        block, piece = jax.lax.div(number, jnp.int32(pieces)), jax.lax.rem(number, jnp.int32(pieces))
        outer = [value[index] for value, index in zip(values[:cut], unravel(block, outer_counts), strict=True)]
        leading = piece * slab.width + jnp.arange(slab.width, dtype=jnp.int32)

        def at(leading: tuple[Array, Array], *inner: Array) -> tuple[Array, Array]:
            inside, value = leading
            objective, quantities = formula(grid.point([*outer, value, *inner]), parameters)
            objective, slot = judge(objective, quantities, limits, keep)
            return jnp.where(inside, objective, jnp.inf), jnp.where(inside, slot, -1)

        look_at = at
        for axis in reversed(range(slab.inner)):
            look_at = jax.vmap(look_at, in_axes=tuple(0 if other == axis else None for other in range(slab.inner)))
        first_values = values[cut][jnp.minimum(leading, first - 1)]
        objective, slot = look_at((leading < first, first_values), *values[cut + 1 :])
        return objective.ravel(), slot.ravel()

    def best(number: Array, state: Found) -> Found:
        objective = look(number)[0]
        if keep.points == 1:
            within = jnp.argmin(objective)[None].astype(jnp.int32)
        else:
            within = jax.lax.top_k(-objective, min(keep.points, objective.size))[1].astype(jnp.int32)
        new = Found(objective[within], jnp.full_like(within, number), within)
        joined: Found = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), state, new)
        order = jnp.argsort(joined.objective, stable=True)[: keep.points]
        return jax.tree.map(lambda leaf: leaf[order], joined)

    def best_by_bin(number: Array, state: Found) -> Found:
        objective, slot = look(number)
        least = _least_by_bin(objective, slot, keep.bins)
        ties = (slot >= 0) & (objective == least[jnp.maximum(slot, 0)])
        within = jnp.full(keep.bins, numbers.size, jnp.int32)
        within = within.at[jnp.where(ties, slot, keep.bins)].min(numbers, mode="drop")
        new = Found(least, jnp.full_like(within, number), within)
        return jax.tree.map(lambda old, new: jnp.where(least < state.objective, new, old), state, new)

    def step(number: Array, state: Found) -> Found:
        objective, slot = look(number)
        if isinstance(keep, Best):
            better, update = jnp.min(objective) < state.objective[-1], best
        else:
            better = jnp.any(_least_by_bin(objective, slot, keep.bins) < state.objective)
            update = best_by_bin
        return jax.lax.cond(better, update, lambda number, state: state, number, state)

    nowhere = jnp.zeros(keep.points, jnp.int32)
    start = Found(jnp.full(keep.points, jnp.inf, dtype), nowhere, nowhere)
    return jax.lax.fori_loop(jnp.int32(0), jnp.int32(slab.slabs(grid)), step, start)


def _least_by_bin(objective: Array, slot: Array, bins: int) -> Array:
    """Least objective in each bin; bin -1 is none."""
    least = jnp.full(bins, jnp.inf, objective.dtype)
    return least.at[jnp.where(slot < 0, bins, slot)].min(objective, mode="drop")


def _rounded(leaf: Any, dtype: Any) -> Any:
    """A floating-point number in the precision of the sweep; anything else as it is."""
    return jnp.asarray(leaf, dtype) if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
