"""Division of a grid into the work of one program, or of one step of plain JAX.

The outer axes are decoded once per program, so that what depends on them alone is computed once; the inner axes are
numbered through by its lanes.
"""

from math import ceil, prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from energymodel_kernels.fused_sweep.keep import Keep
from energymodel_kernels.fused_sweep.scan_axes import Grid, unravel

MOST_NUMBERS = 2**31 - 2**20
"""Programs, and points of the inner axes, are numbered in 32 bits."""

_LANES = {"pallas_triton": 256, "pallas_tpu": 1024, "interpret": 256}
_LEAST_LANES = {"pallas_triton": 128, "pallas_tpu": 1024, "interpret": 128}
_POINTS = 2**14  # of one program: enough that its start and its reduction do not show
_PROGRAMS = 2**11  # wanted before programs get long: several for each multiprocessor
_PLAIN_POINTS = {"cpu": 2**18, "gpu": 2**24, "tpu": 2**22}  # of a step of plain JAX: fits caches, or fills a GPU
_MOST_BY_LEAST = 4


class Tile(NamedTuple):
    """The work of one program of a kernel: `steps` blocks of `block` lanes over the last `inner` axes; its `warps`.

    A point is known by its numbers on the outer axes and on the inner ones.
    """

    inner: int
    block: int
    steps: int
    warps: int = 4

    def chunks(self, grid: Grid) -> int:
        """Programs that share one set of outer values [1]."""
        return ceil(prod(grid.split(self.inner)[1]) / (self.block * self.steps))

    def programs(self, grid: Grid) -> int:
        """Programs of the whole grid [1]."""
        return prod(grid.split(self.inner)[0]) * self.chunks(grid)

    def indices(self, grid: Grid, outer: Array, inner: Array) -> list[Array]:
        """Indices of points along the axes."""
        return [*unravel(outer, grid.split(self.inner)[0]), *unravel(inner, grid.split(self.inner)[1])]


class Slab(NamedTuple):
    """One step of plain JAX: `width` values of the first of the last `inner` axes, and all of the others.

    A point is known by the number of its slab and its number in the slab.
    """

    inner: int
    width: int

    def pieces(self, grid: Grid) -> int:
        """Slabs that share one set of outer values [1]."""
        return ceil(grid.split(self.inner)[1][0] / self.width)

    def points(self, grid: Grid) -> int:
        """Points of a slab [1]."""
        return self.width * prod(grid.split(self.inner)[1][1:])

    def slabs(self, grid: Grid) -> int:
        """Slabs of the whole grid [1]."""
        return prod(grid.split(self.inner)[0]) * self.pieces(grid)

    def indices(self, grid: Grid, slab: Array, number: Array) -> list[Array]:
        """Indices of points along the axes."""
        outer, (_, *rest) = grid.split(self.inner)
        pieces = jnp.int32(self.pieces(grid))
        first, *others = unravel(number, (self.width, *rest))
        return [*unravel(jax.lax.div(slab, pieces), outer), jax.lax.rem(slab, pieces) * self.width + first, *others]


def choose_tile(grid: Grid, implementation: str, keep: Keep) -> Tile:
    """A tile for a kernel: few outer values are decoded per lane, few lanes idle, enough programs for the chip."""
    least, lanes = _LEAST_LANES[implementation], _LANES[implementation]
    if keep.bins > 8:  # a value and a number per bin and lane must fit the registers
        lanes = least
    inner = _trailing(grid, _POINTS // 4)
    points = prod(grid.split(inner)[1])
    block = least
    while block < min(lanes, points):
        block *= 2
    wanted = max(1, min(_POINTS, prod(grid.counts) // _PROGRAMS)) / block
    chunks = max(1, round(points / (block * max(1.0, wanted))))
    return Tile(inner, block, ceil(points / (block * chunks)))


def choose_slab(grid: Grid, platform: str) -> Slab:
    """A slab for plain JAX: large enough to hide the loop around it, small enough for what the machine keeps near."""
    least = _PLAIN_POINTS.get(platform, _PLAIN_POINTS["cpu"])
    inner = _trailing(grid, least)
    first, *rest = grid.split(inner)[1]
    most = max(1, _MOST_BY_LEAST * least // prod(rest))
    return Slab(inner, ceil(first / ceil(first / most)))


def check(tile: Tile | Slab, grid: Grid) -> None:
    """**Raises:** `ValueError` if the grid has more programs, or points of one, than 32 bits can number."""
    if isinstance(tile, Tile):
        programs, points = tile.programs(grid), prod(grid.split(tile.inner)[1])
    else:
        programs, points = tile.slabs(grid), tile.points(grid)
    if max(programs, points) > MOST_NUMBERS:
        raise ValueError(
            f"a grid of {prod(grid.counts):.3g} points has {programs} programs of {points} inner points: "
            f"at most {MOST_NUMBERS} of each can be numbered, sweep a part of an axis at a time"
        )


def _trailing(grid: Grid, least: int) -> int:
    """How many of the last axes have at least so many points together."""
    points = 1
    for position, count in enumerate(reversed(grid.counts)):
        points *= count
        if points >= least:
            return position + 1
    return len(grid.counts)
