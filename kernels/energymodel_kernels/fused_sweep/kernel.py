"""One accelerator kernel that sweeps a grid without memory traffic per point.

Each program decodes its outer values from its number, walks over the inner axes a block of lanes at a time, keeps the
least objective and its number per lane and bin in registers, and reduces once to one value and number per bin.

The k best points lie in the k programs with the least values, since every other program is beaten by k points; so
only these are looked at again for the others of the k.
"""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array

from energymodel.runtime.operations import portable
from energymodel_kernels.backends import BACKENDS, Backend, launch, over_lanes
from energymodel_kernels.flat import Flat, flatten
from energymodel_kernels.fused_sweep.keep import Best, Keep, judge
from energymodel_kernels.fused_sweep.reference import Found, Search
from energymodel_kernels.fused_sweep.scan_axes import Grid, unravel
from energymodel_kernels.fused_sweep.tiles import Tile

LARGEST = 2**31 - 1


def scan(sought: Search, tile: Tile, implementation: str, approximate: bool) -> tuple[Array, Array]:
    """Run the kernel: the least objective of each program and bin, and its number on the inner axes."""
    formula, grid, parameters, limits, keep, dtype = sought
    backend = BACKENDS[implementation](approximate=approximate)
    plan = flatten(formula, grid.point(grid.counts), parameters, dtype)
    ends = [number for axis in grid.axes for number in axis.numbers(dtype)]
    numbers = jnp.stack([jnp.asarray(number, dtype) for number in (*ends, *limits, *plan.numbers)])
    programs = tile.programs(grid)
    spec = backend.scalars_spec(programs, keep.bins)
    shape = partial(jax.ShapeDtypeStruct, backend.scalars_shape(programs, keep.bins))
    objective, inner = launch(
        backend,
        partial(
            _kernel, backend=backend, plan=plan, grid=grid, keep=keep, tile=tile, limits=len(limits), count=numbers.size
        ),
        "fused_sweep",
        programs,
        [(numbers, backend.vector_spec(numbers.size))],
        [(shape(dtype), spec), (shape(jnp.int32), spec)],
        tile.warps,
    )
    return objective.reshape(programs, keep.bins), inner.reshape(programs, keep.bins)


def select(sought: Search, tile: Tile, objective: Array, inner: Array) -> Found:
    """The points to keep, from what `scan` returns: those that `reference.search` finds."""
    keep = sought.keep
    if isinstance(keep, Best) and keep.count > 1:
        return _best_of(sought, keep.count, tile, objective[:, 0], inner[:, 0])
    program = jnp.argmin(objective, axis=0).astype(jnp.int32)
    bins = jnp.arange(keep.bins)
    outer = jax.lax.div(program, jnp.int32(tile.chunks(sought.grid)))
    return Found(objective[program, bins], outer, inner[program, bins])


def _kernel(
    numbers_ref: Any,
    objective_ref: Any,
    inner_ref: Any,
    *,
    backend: Backend,
    plan: Flat,
    grid: Grid,
    keep: Keep,
    tile: Tile,
    limits: int,
    count: int,
) -> None:
    numbers = [numbers_ref[position] for position in range(count)]
    cut = 2 * len(grid.axes)
    ends, bounds, constants = numbers[:cut], numbers[cut : cut + limits], numbers[cut + limits :]
    outer_counts, inner_counts = grid.split(tile.inner)
    program = pl.program_id(0)
    chunks = jnp.int32(tile.chunks(grid))
    start = jax.lax.rem(program, chunks) * jnp.int32(tile.block * tile.steps)
    outer = _values(grid.axes, ends, 0, unravel(jax.lax.div(program, chunks), outer_counts))
    lanes = backend.numbers(tile.block)

    def at(inner: list[Array]) -> tuple[Array, Array]:
        objective, quantities = plan.function(grid.point([*outer, *inner]), constants)
        return judge(objective, quantities, bounds, keep)

    look = portable(over_lanes(at, lanes.ndim), backend.substitutes)

    def step(number: Array, best: list[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
        inner = lanes + (start + number * jnp.int32(tile.block))
        values = _values(grid.axes, ends, len(outer), unravel(inner, inner_counts))
        objective, in_bin = look(values)
        inside = inner < prod(inner_counts)
        new = []
        for slot, (least, where) in enumerate(best):
            better = inside & (in_bin == slot) & (objective < least)
            new.append((jnp.where(better, objective, least), jnp.where(better, inner, where)))
        return new

    shape = backend.shape(tile.block)
    dtype = numbers_ref.dtype
    none = (jnp.full(shape, jnp.inf, dtype), jnp.zeros(shape, jnp.int32))
    best = jax.lax.fori_loop(jnp.int32(0), jnp.int32(tile.steps), step, [none] * keep.bins)
    for slot, (objective, inner) in enumerate(best):
        least = jnp.min(objective)
        backend.write_scalar(objective_ref, program, slot, least)
        first = jnp.min(jnp.where(objective == least, inner, jnp.int32(LARGEST)))
        backend.write_scalar(inner_ref, program, slot, first)


def _values(axes: Sequence[Any], ends: Sequence[Array], skip: int, indices: Sequence[Array]) -> list[Array]:
    """Values along some axes, from what the kernel read of their ends."""
    positions = range(skip, skip + len(indices))
    return [
        axes[position].value(ends[2 * position], ends[2 * position + 1], index)
        for position, index in zip(positions, indices, strict=True)
    ]


def _best_of(sought: Search, count: int, tile: Tile, least: Array, where: Array) -> Found:
    """The best points among all points of the programs with the least values."""
    formula, grid, parameters, limits, keep, dtype = sought
    outer_counts, inner_counts = grid.split(tile.inner)
    # In order of their numbers, so that of equal points the first is kept.
    programs = jnp.sort(jax.lax.top_k(-least, min(count, least.size))[1]).astype(jnp.int32)
    points = jnp.arange(tile.block * tile.steps, dtype=jnp.int32)
    chunks = jnp.int32(tile.chunks(grid))
    bounds = [jnp.asarray(limit, dtype) for limit in limits]
    plan = flatten(formula, grid.point(grid.counts), parameters, dtype)

    def look(program: Array) -> Found:
        outer = jax.lax.div(program, chunks)
        inner = jax.lax.rem(program, chunks) * points.size + points

        def at(inner: Array) -> Array:
            point = grid.at([*unravel(outer, outer_counts), *unravel(inner, inner_counts)], dtype)
            objective, quantities = plan.function(point, plan.numbers)
            return jnp.where(inner < prod(inner_counts), judge(objective, quantities, bounds, keep)[0], jnp.inf)

        # The program's own best point stays, however another compiler rounds at a limit.
        objective = jnp.where(inner == where[program], least[program], jax.vmap(at)(inner))
        return Found(objective, jnp.full_like(inner, outer), inner)

    looked: Found = jax.tree.map(jnp.ravel, jax.vmap(look)(programs))
    order = jax.lax.top_k(-looked.objective, min(count, looked.objective.size))[1]
    best: Found = jax.tree.map(lambda leaf: leaf[order], looked)
    missing = (0, count - order.size)
    return Found(
        jnp.pad(best.objective, missing, constant_values=jnp.inf),
        jnp.pad(best.outer, missing),
        jnp.pad(best.inner, missing),
    )
