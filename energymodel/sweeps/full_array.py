"""Outputs on all points of a grid, as arrays in memory or one Zarr store."""

import errno
import importlib
import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.points import output_of
from energymodel.sweeps.reductions import AbstractReduction, Chunk, float_dtype

STORE = "sweep.zarr"


class TileArrays(NamedTuple):
    """Outputs on the chunks of a tile, and the number of its first chunk."""

    first: Any
    outputs: dict[str, Any]


@dataclass(frozen=True)
class FullArray(AbstractReduction):
    """Some outputs on every point; `result` is `{output: array}` over the axes in the order of the grid.

    A point takes 4 bytes for each output in float32; `--dry-run` prints the memory. Points of tiles that did not run
    are NaN.
    """

    outputs: Sequence[str]

    def pick(self, outputs: Any) -> Any:
        """The outputs."""
        return {name: jnp.asarray(output_of(outputs, name), float_dtype()) for name in self.outputs}

    def init(self, grid: Grid) -> TileArrays:
        """Zeros for a tile."""
        zeros = jnp.zeros((grid.tile_chunks, *grid.shape), float_dtype())
        return TileArrays(jnp.zeros((), jnp.int32), dict.fromkeys(self.outputs, zeros))

    def update(self, state: TileArrays, picked: dict[str, Any], chunk: Chunk) -> TileArrays:
        """The tile with another chunk."""
        outputs = {
            name: jax.lax.dynamic_update_index_in_dim(array, picked[name], chunk.position, 0)
            for name, array in state.outputs.items()
        }
        return TileArrays(jnp.asarray(chunk.number - chunk.position, jnp.int32), outputs)

    def merge(self, first: Any, second: Any) -> list[TileArrays]:
        """A list of tiles."""
        return [*_tiles(first), *_tiles(second)]

    def result(self, state: Any, grid: Grid) -> dict[str, np.ndarray]:
        """Arrays over the axes of the grid."""
        tiles = _tiles(state)
        arrays = {name: np.full(grid.sizes, np.nan, part.dtype) for name, part in tiles[0].outputs.items()}
        for tile in tiles:
            _fill(arrays, tile, grid)
        return arrays


def _tiles(state: TileArrays | list[TileArrays]) -> list[TileArrays]:
    return state if isinstance(state, list) else [state]


def _fill(arrays: Mapping[str, Any], tile: TileArrays, grid: Grid) -> None:
    """Write a tile into arrays over the axes of a grid, chunk by chunk."""
    first, cut = int(tile.first), grid.cut
    for number in range(first, min(first + grid.tile_chunks, grid.chunks)):
        *leading, start = grid.index(number, 0)[: cut + 1]
        end = min(start + grid.block, grid.sizes[cut])
        region = (*(slice(index, index + 1) for index in leading), slice(start, end))
        inside = (slice(end - start), *map(slice, grid.sizes[cut + 1 :]))
        for name, parts in tile.outputs.items():
            arrays[name][region] = parts[number - first][inside][(None,) * cut]


def dataset(arrays: Mapping[str, np.ndarray], axes: Sequence[Axis], units: Mapping[str, str]) -> Any:
    """Arrays over a grid as an `xarray.Dataset` with units and coordinates; labels are the coordinates of choices."""
    names = tuple(axis.name for axis in axes)
    return _required("xarray").Dataset(
        {name: (names, array, {"units": units.get(name, "1")}) for name, array in arrays.items()},
        {axis.name: (axis.name, np.array(axis.labels_or_values()), {"units": axis.unit}) for axis in axes},
    )


def open_store(path: Path) -> Any:
    """A Zarr store as one `xarray.Dataset`, which reads what is used."""
    return _required("xarray").open_zarr(path, consolidated=False)


def write_store(
    folder: Path, keep: FullArray, axes: Sequence[Axis], grid: Grid, tiles: Iterator[Any], units: Mapping[str, str]
) -> Path:
    """Write the tiles of a full array into one Zarr store, chunk by chunk; a complete store is left as it is.

    **Raises:** `InputError` where Zarr is not installed or the disk is full.
    """
    path, building = folder / STORE, folder / f".{STORE}.part"
    if path.is_dir():
        return path
    if path.exists() or path.is_symlink():
        raise InputError(f"{path} is not a store of arrays. Remove it, or give another folder.")
    zarr = _required("zarr")
    shutil.rmtree(building, ignore_errors=True)
    chunks = (*(1,) * grid.cut, grid.block, *grid.sizes[grid.cut + 1 :])
    try:
        root = zarr.open_group(str(building), mode="w")

        def array(name: str, names: Sequence[str], unit: str, **layout: Any) -> Any:
            return root.create_array(name, dimension_names=names, attributes={"units": unit}, **layout)

        for axis in axes:
            labels = np.array(axis.labels_or_values())
            array(axis.name, [axis.name], axis.unit, shape=labels.shape, dtype=labels.dtype)[...] = labels
        first = next(tiles)
        layout = {"shape": grid.sizes, "chunks": chunks, "dtype": first.outputs[keep.outputs[0]].dtype}
        arrays = {name: array(name, grid.names, units.get(name, "1"), **layout) for name in keep.outputs}
        for tile in itertools.chain([first], tiles):
            _fill(arrays, tile, grid)
        building.rename(path)
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else f"cannot be written: {error.strerror}"
        raise InputError(
            f"{path}: {reason}. The tiles are stored: free some space and run the same command again."
        ) from None
    return path


def _required(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f'A full array needs {name}. Install it: pip install "energymodel[sweep]".') from None
