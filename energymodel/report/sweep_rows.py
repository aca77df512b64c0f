"""What did a sweep keep, as rows of numbers: points, or what a reduction makes of all of them?"""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from energymodel.errors import InputError
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.best_points import BestAlong
from energymodel.sweeps.full_array import FullArray
from energymodel.sweeps.histogram import BinCounts, Count, Histogram
from energymodel.sweeps.sweep_result import SweepResult

MOST_ROWS = 10**6
"""Points of a full array in a table or in JSON; more are for a Zarr store."""
Rows = tuple[list[str], Iterator[Sequence[Any]]]


def check_rows(keep: str, points: int) -> None:
    """Check before the work that a full array is small enough for a table.

    **Raises:** `InputError` that says where a larger one is kept.
    """
    if keep.partition(":")[0].strip() == "full" and points > MOST_ROWS:
        raise InputError(
            f"-o: a full array of {points:,} points is more than the {MOST_ROWS:,} that a table or JSON holds. Give "
            "--resume FOLDER, which keeps it as a Zarr store, and leave out -o."
        )


def sweep_rows(swept: SweepResult) -> Rows:
    """Heading and rows, in SI: of a full array all points, of counts and quantiles their numbers, else the points kept.

    A combination of axes at which no point obeys the limits has a row without outputs.
    """
    if isinstance(swept.keep, FullArray):
        return _full(swept)
    if isinstance(swept.keep, Count):
        return ["points", "within limits"], iter([[swept.points, swept.result or 0]])
    if isinstance(swept.keep, Histogram):
        return _distributions(swept.result or {}, swept.units)
    outputs = list(swept.winners[0].outputs) if swept.winners else []
    head = [
        *(_heading(one.name, one.unit) for one in swept.axes),
        *(_heading(name, swept.units.get(name, "1")) for name in outputs),
    ]
    names = [axis.name for axis in swept.axes]
    kept = [[*(one.point[name] for name in names), *(one.outputs[name] for name in outputs)] for one in swept.winners]
    empty = [[*(point.get(name, "") for name in names), *("" for _ in outputs)] for point in infeasible_points(swept)]
    return head, iter([*kept, *empty])


def infeasible_points(swept: SweepResult) -> list[dict[str, Any]]:
    """The combinations of axes for which the best along others was asked, and no point obeys the limits."""
    if not isinstance(swept.keep, BestAlong) or not swept.complete:
        return []
    others = [place for place, axis in enumerate(swept.axes) if axis.name not in swept.keep.axes]
    found = {tuple(one.index[place] for place in others) for one in swept.winners}
    chosen = [swept.axes[place] for place in others]
    return [
        {axis.name: axis.label(one) for axis, one in zip(chosen, index, strict=True)}
        for index in np.ndindex(*(len(axis) for axis in chosen))
        if index not in found
    ]


def _full(swept: SweepResult) -> Rows:
    axes: Sequence[Axis] = swept.grid.axes
    arrays: Mapping[str, Any] = swept.result if swept.result is not None else swept.to_xarray()
    names = list(swept.keep.outputs) if isinstance(swept.keep, FullArray) else []
    columns = [np.asarray(arrays[name]) for name in names]
    head = [
        *(_heading(one.name, one.unit) for one in axes),
        *(_heading(name, swept.units.get(name, "1")) for name in names),
    ]
    rows = (
        [*(axis.label(one) for axis, one in zip(axes, index, strict=True)), *(float(one[index]) for one in columns)]
        for index in np.ndindex(*(len(axis) for axis in axes))
    )
    return head, rows


def _distributions(found: Mapping[str, Any], units: Mapping[str, str]) -> Rows:
    """Bins with their counts, or quantiles by share of the points."""
    if not all(isinstance(one, BinCounts) for one in found.values()):
        rows = (
            [name, share, value, units.get(name, "1")] for name, one in found.items() for share, value in one.items()
        )
        return ["output", "share of points", "value", "unit"], rows
    bins = (
        [name, low, high, int(count), units.get(name, "1")]
        for name, one in found.items()
        for low, high, count in zip(
            [-math.inf, *one.edges], [*one.edges, math.inf], [one.below, *one.counts, one.above], strict=True
        )
        if count
    )
    return ["output", "from", "to", "points", "unit"], bins


def sweep_csv(swept: SweepResult) -> str:
    """The rows as text; numbers in SI, with units in the heading or in a column."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    head, rows = sweep_rows(swept)
    writer.writerow(head)
    writer.writerows(rows)
    return buffer.getvalue()


def _heading(name: str, unit: str) -> str:
    return name if unit == "1" else f"{name} [{unit}]"
