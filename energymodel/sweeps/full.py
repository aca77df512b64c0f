"""What are all outputs on all points of a grid?"""

import dataclasses
import errno
import importlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.reductions import AbstractReduction, Chunk, float_dtype, output_of

STORE = "sweep.zarr"


@dataclasses.dataclass(frozen=True)
class Full(AbstractReduction):
    """Some outputs on every point; `result` is `{output: array}` over the axes in the order of the grid.

    The arrays take 4 bytes a point and output in float32: `--dry-run` says how much.
    """

    outputs: Sequence[str]

    contiguous = True

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


def dataset(arrays: Mapping[str, np.ndarray], grid: Grid, units: Mapping[str, str]) -> Any:
    """Arrays over a grid as an `xarray.Dataset` with units and coordinates; choices are known by their labels.

    **Raises:** `InputError` where xarray is not installed.
    """
    xarray = _needs("xarray")
    names = tuple(axis.name for axis in grid.axes)
    variables = {name: (names, array, {"units": units.get(name, "1")}) for name, array in arrays.items()}
    return xarray.Dataset(
        variables, {axis.name: (axis.name, _labels(axis), {"units": axis.unit}) for axis in grid.axes}
    )


def store(folder: Path, keep: Full, grid: Grid, tiles: Iterable[Any], units: Mapping[str, str]) -> Path:
    """Write the tiles of a full array into one Zarr store, chunk by chunk; it is not made anew if it is complete.

    **Raises:** `InputError` where Zarr is not installed or the disk is full.
    """
    path, building = folder / STORE, folder / f".{STORE}.part"
    if path.exists():
        return path
    zarr = _needs("zarr")
    shutil.rmtree(building, ignore_errors=True)
    try:
        root = zarr.open_group(str(building), mode="w")
        shape, names = tuple(len(axis) for axis in grid.axes), [axis.name for axis in grid.axes]
        chunks = (*(1 for _ in range(grid.cut)), *grid.shape)
        leading = tuple(shape[: grid.cut])
        for axis in grid.axes:
            labels = _labels(axis)
            own = root.create_array(axis.name, shape=labels.shape, dtype=labels.dtype, dimension_names=[axis.name])
            own[...] = labels
            own.attrs["units"] = axis.unit
        arrays: dict[str, Any] = {}
        for number, tile in enumerate(tiles):
            first, count = grid.tile(number)
            for name in keep.outputs:
                if name not in arrays:
                    arrays[name] = root.create_array(
                        name, shape=shape, chunks=chunks, dtype=tile[name].dtype, dimension_names=names
                    )
                    arrays[name].attrs["units"] = units.get(name, "1")
                for place in range(count):
                    *outer, block = np.unravel_index(first + place, (*leading, grid.blocks))
                    start = int(block) * grid.block
                    end = min(start + grid.block, shape[grid.cut])
                    region = (*(slice(int(one), int(one) + 1) for one in outer), slice(start, end))
                    arrays[name][region] = tile[name][place][: end - start].reshape(
                        (1,) * grid.cut + (end - start, *grid.shape[1:])
                    )
        building.rename(path)
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else f"cannot be written: {error.strerror}"
        raise InputError(f"{path}: {reason}. The tiles are kept: make room and run the same command again.") from None
    return path


def open_store(path: Path) -> Any:
    """A Zarr store as one `xarray.Dataset`, read as it is used.

    **Raises:** `InputError` where xarray is not installed.
    """
    return _needs("xarray").open_zarr(path, consolidated=False)


def _labels(axis: Axis) -> np.ndarray:
    return np.array([axis.label(index) for index in range(len(axis))])


def _needs(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f'A full array needs {name}. Install it: pip install "energymodel[sweep]".') from None


def assemble(parts: Sequence[np.ndarray], grid: Grid) -> np.ndarray:
    """An array over the axes of a grid from its tiles, those at the end possibly missing (NaN there)."""
    whole = np.full((grid.chunks, *grid.shape), np.nan, parts[0].dtype)
    for number, part in enumerate(parts):
        first, count = grid.tile(number)
        whole[first : first + count] = part[:count]
    leading = tuple(len(axis) for axis in grid.axes[: grid.cut])
    whole = whole.reshape((*leading, grid.blocks * grid.block, *grid.shape[1:]))
    return whole[(slice(None),) * grid.cut + (slice(len(grid.axes[grid.cut])),)]
