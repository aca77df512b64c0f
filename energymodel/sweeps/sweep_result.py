"""What does a sweep return?"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from energymodel.errors import InputError
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.feasibility import Range
from energymodel.sweeps.full_array import FullArray, dataset, open_store
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.kept_points import Winner
from energymodel.sweeps.polish import Polished
from energymodel.sweeps.program_choice import Choice
from energymodel.sweeps.reductions import AbstractReduction


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """What a sweep found.

    - `axes`: in the order of the caller; those of `grid` are in the order of the evaluation.
    - `result`: what the reduction makes of its state.
    - `winners`: points that the reduction kept, best first, in float64; `polished` is the best point near the first.
    - `points`: number of points evaluated, in `seconds`; `complete` unless the sweep was interrupted.
    - `store`: Zarr store of a full array, if it was written.
    - `choice`: which program evaluated the points, and why.
    """

    axes: tuple[Axis, ...]
    grid: Grid
    keep: AbstractReduction
    limits: Mapping[str, Range]
    result: Any
    winners: tuple[Winner, ...]
    polished: Polished | None
    points: int
    seconds: float
    complete: bool
    message: str
    units: Mapping[str, str]
    store: Path | None
    choice: Choice

    @property
    def best(self) -> Winner:
        """The best point.

        **Raises:** `InputError` where no point obeys the limits.
        """
        if not self.winners:
            raise InputError(self.message)
        return self.winners[0]

    def to_xarray(self) -> Any:
        """The full array as an `xarray.Dataset` with units and coordinates, from its Zarr store if it has one.

        **Raises:** `InputError` for another reduction, an unfinished store, or where xarray is not installed.
        """
        if not isinstance(self.keep, FullArray):
            raise InputError("to_xarray: only a full array can be converted. Keep full:energy,time.")
        if self.store is not None:
            return open_store(self.store)
        if self.result is None:
            raise InputError(f"to_xarray: {self.message} Resume it first.")
        return dataset(self.result, self.grid, self.units)


@dataclasses.dataclass(frozen=True)
class SweepCost:
    """What a sweep would take: points, tiles, memory [B], and time [s] from a timed chunk."""

    points: int
    chunk: int
    tiles: int
    memory: int
    seconds: float
    order: tuple[str, ...]
