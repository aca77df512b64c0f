"""What are all outputs on all points of a grid?"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.sweep.grid import Grid
from energymodel.sweep.reductions import AbstractReduction, Chunk, float_dtype, output_of


@dataclasses.dataclass(frozen=True)
class Full(AbstractReduction):
    """Some outputs on every point; `result` is `{output: array}` over the axes in the order of the grid.

    The arrays take 4 bytes a point and output in float32: `--dry-run` says how much.
    """

    outputs: Sequence[str]

    def pick(self, outputs: Any) -> Any:
        """The outputs."""
        return {name: jnp.asarray(output_of(outputs, name), float_dtype()) for name in self.outputs}

    def init(self, grid: Grid) -> dict[str, Any]:
        """Room for a tile."""
        return {name: jnp.zeros((grid.tile_chunks, *grid.shape), float_dtype()) for name in self.outputs}

    def update(self, state: dict[str, Any], picked: dict[str, Any], chunk: Chunk) -> dict[str, Any]:
        """Write a chunk in its place."""
        return {name: jax.lax.dynamic_update_index_in_dim(state[name], picked[name], chunk.place, 0) for name in state}

    def start(self, state: Any) -> Any:
        """A list of tiles, which merging extends."""
        return {name: [part] for name, part in state.items()}

    def merge(self, first: Any, second: Any) -> Any:
        """Tiles one after the other."""
        more = {name: part if isinstance(part, list) else [part] for name, part in second.items()}
        return {name: [*parts, *more[name]] for name, parts in first.items()}

    def result(self, state: Any, grid: Grid) -> dict[str, np.ndarray]:
        """Arrays over the axes of the grid."""
        return {name: assemble(parts, grid) for name, parts in state.items()}


def assemble(parts: Sequence[np.ndarray], grid: Grid) -> np.ndarray:
    """An array over the axes of a grid from its tiles, those at the end possibly missing (NaN there)."""
    whole = np.full((grid.chunks, *grid.shape), np.nan, parts[0].dtype)
    for number, part in enumerate(parts):
        first, count = grid.tile(number)
        whole[first : first + count] = part[:count]
    leading = tuple(len(axis) for axis in grid.axes[: grid.cut])
    whole = whole.reshape((*leading, grid.blocks * grid.block, *grid.shape[1:]))
    return whole[(slice(None),) * grid.cut + (slice(len(grid.axes[grid.cut])),)]
