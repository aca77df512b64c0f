"""How is a grid divided: which points make a chunk, which chunks make a tile?

A chunk is what one step of a scan evaluates: the last axes in full, times a block of the axis before them. A tile is
a fixed number of consecutive chunks. Both follow from the axes and from nothing else, so that a tile gives the same
bits wherever and whenever it is computed. Chunks are numbered in the order of the axes, outermost first, and so are
points within a chunk: a point is known by (chunk, place), which needs no 64-bit integers.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.sweeps.axes import Axis, cast

CHUNK = 2**18
"""Most points of a chunk: a few arrays of them fit into cache, and each operation is long against its start."""
MOST_CHUNKS = 2**31 - 1
TILE = 2**24
"""Most points of a tile: what is lost when a machine dies."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """A product of axes, outermost first, cut into chunks and tiles.

    Axes before `cut` have one value in a chunk, axes after it all of theirs, and the axis at `cut` a block.
    """

    axes: tuple[Axis, ...]
    cut: int
    block: int
    tile_chunks: int

    @property
    def points(self) -> int:
        """Number of points."""
        return math.prod(len(axis) for axis in self.axes)

    @property
    def blocks(self) -> int:
        """Blocks of the axis that is cut."""
        return -(-len(self.axes[self.cut]) // self.block)

    def points_of_tile(self, number: int) -> int:
        """Points of a tile without padding."""
        first, count = self.tile(number)
        padding = self.blocks * self.block - len(self.axes[self.cut])
        last_blocks = (first + count) // self.blocks - first // self.blocks
        return count * self.volume - last_blocks * padding * (self.volume // self.block)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a chunk: its block, then the axes after it."""
        return (self.block, *(len(axis) for axis in self.axes[self.cut + 1 :]))

    @property
    def volume(self) -> int:
        """Points of a chunk."""
        return math.prod(self.shape)

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return math.prod(len(axis) for axis in self.axes[: self.cut]) * self.blocks

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return -(-self.chunks // self.tile_chunks)

    def tile(self, number: int) -> tuple[int, int]:
        """First chunk of a tile and the number of its chunks."""
        first = number * self.tile_chunks
        return first, min(self.tile_chunks, self.chunks - first)

    def index(self, chunk: int, place: int) -> tuple[int, ...]:
        """Indices along the axes of a point of a chunk."""
        *leading, block = np.unravel_index(chunk, (*(len(axis) for axis in self.axes[: self.cut]), self.blocks))
        first, *rest = np.unravel_index(place, self.shape)
        return tuple(int(one) for one in (*leading, block * self.block + first, *rest))

    def values(self, dtype: Any) -> tuple[Any, ...]:
        """Values of all axes in a precision, the one that is cut padded to whole blocks."""
        found = [jax.tree.map(np.asarray, cast(axis.values, dtype)) for axis in self.axes]
        padding = self.blocks * self.block - len(self.axes[self.cut])
        found[self.cut] = jax.tree.map(
            lambda leaf: np.concatenate([leaf, np.repeat(leaf[-1:], padding, axis=0)]), found[self.cut]
        )
        return tuple(found)

    def chunk_values(self, values: Sequence[Any], chunk: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
        """What a chunk needs of each axis, the indices of its leading axes, and the place of its block."""
        leading = []
        rest, block = chunk // self.blocks, chunk % self.blocks
        for axis in reversed(self.axes[: self.cut]):
            leading.append(rest % len(axis))
            rest = rest // len(axis)
        leading = tuple(reversed(leading))
        found: list[Any] = [
            jax.tree.map(lambda leaf, index=index: leaf[index], tree)
            for tree, index in zip(values[: self.cut], leading, strict=True)
        ]
        start = block * self.block
        found.append(jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, self.block), values[self.cut]))
        return (*found, *values[self.cut + 1 :]), leading, start

    def valid(self, start: Any) -> Any:
        """Which points of a chunk are not padding, in a shape that broadcasts; `None` if all are."""
        if self.blocks * self.block == len(self.axes[self.cut]):
            return None
        inside = start + jnp.arange(self.block) < len(self.axes[self.cut])
        return inside.reshape((self.block,) + (1,) * (len(self.shape) - 1))


def check_size(grid: Grid) -> None:
    """Check that the chunks of a grid can be numbered in 32 bits.

    **Raises:** `InputError` for one that is too large.
    """
    if grid.chunks > MOST_CHUNKS:
        raise InputError(
            f"The grid has {grid.points:.3g} points in {grid.chunks:.3g} chunks, more than {MOST_CHUNKS:,} can be "
            "numbered. Give fewer values on an axis, or several sweeps."
        )


def divide(axes: Sequence[Axis], chunk: int = CHUNK, tile: int = TILE) -> Grid:
    """Cut a grid, its axes outermost first, into chunks and tiles of at most so many points."""
    sizes = [len(axis) for axis in axes]
    cut = len(sizes) - 1
    while cut > 0 and math.prod(sizes[cut:]) <= chunk:
        cut -= 1
    inner = math.prod(sizes[cut + 1 :])
    blocks = -(-sizes[cut] // max(1, chunk // inner))
    block = -(-sizes[cut] // blocks)
    return Grid(tuple(axes), cut, block, max(1, tile // (block * inner)))
