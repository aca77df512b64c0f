"""The result of a sweep: what its reduction kept, in float64, and the axes at whose end the best point lies."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.scenarios.checks import check_values
from energymodel.sweeps.axes import Axis, Range
from energymodel.sweeps.full_array import FullArray, dataset, open_store
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.points import Output, evaluate_points, feasible, output_of, value_of
from energymodel.sweeps.reductions import AbstractPointReduction, AbstractReduction
from energymodel.sweeps.scenario_axes import ScenarioModel

SAME = 1e-9  # share of what is minimized that counts as none


@dataclasses.dataclass(frozen=True)
class Winner:
    """A point that was kept, in float64.

    - `value`: what is minimized; NaN where nothing is.
    - `index`: its indices along the axes; `point` what they stand for, numbers in SI and labels of choices.
    """

    value: float
    index: tuple[int, ...]
    point: Mapping[str, Any]
    outputs: Mapping[str, float]


class Edge(NamedTuple):
    """An end of an axis at which the best point lies, though the number goes on beyond it.

    - `end`, `beyond`: that end, and the value a step beyond it, in SI.
    - `saving`: share of what is minimized that the step saves [1]; minus infinity where it breaks a limit.
    """

    axis: Axis
    end: float
    beyond: float
    saving: float


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """Result of a sweep.

    - `axes`: in the order of the caller; `grid` names them in the order of the evaluation, as `grid_axes` are.
    - `result`: what the reduction makes of its state.
    - `winners`: points that the reduction kept, best first, in float64.
    - `edges`: ends of axes at which the best point of a scenario lies, though its numbers go on.
    - `loss`: to which every point trains [nat/token]; none where tokens are as given.
    - `points`: number of points evaluated, in `seconds`; `complete` unless the sweep was interrupted.
    - `store`: Zarr store of a full array, if it was written.
    """

    axes: tuple[Axis, ...]
    grid: Grid
    keep: AbstractReduction
    limits: Mapping[str, Range]
    result: Any
    winners: tuple[Winner, ...]
    points: int
    seconds: float
    complete: bool
    message: str
    units: Mapping[str, str]
    store: Path | None
    edges: tuple[Edge, ...] = ()
    loss: float | None = None

    @property
    def grid_axes(self) -> list[Axis]:
        """The axes in the order of the evaluation."""
        return sorted(self.axes, key=lambda axis: self.grid.names.index(axis.name))

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
        return dataset(self.result, self.grid_axes, self.units)


class SweepCost(NamedTuple):
    """What a sweep would take: points, tiles, memory [B], and time [s] from a timed chunk."""

    points: int
    chunk: int
    tiles: int
    memory: int
    seconds: float
    order: tuple[str, ...]


def rank_points(
    function: Callable[..., Any],
    axes: Sequence[Axis],
    indices: Sequence[Sequence[int]],
    minimized: Output | None,
    limits: Mapping[str, Range],
    keep: AbstractPointReduction,
) -> tuple[Winner, ...]:
    """The points that obey the limits in float64, in the order of the reduction."""
    if not indices:
        return ()
    outputs, shape = evaluate_points(function, axes, indices), (len(indices),)
    values = amounts = np.full(shape, math.nan)
    if minimized is not None:
        of = output_of, value_of
        values, amounts = (np.broadcast_to(np.asarray(each(outputs, minimized), np.float64), shape) for each in of)
    rows = np.flatnonzero(feasible(outputs, limits) & (values != np.inf))
    ranked = keep.ranked(values[rows], {name: column[rows] for name, column in outputs.items()})
    return tuple(
        Winner(
            float(amounts[row]),
            tuple(map(int, indices[row])),
            {axis.name: axis.label(number) for axis, number in zip(axes, indices[row], strict=True)},
            {name: float(column[row]) for name, column in outputs.items()},
        )
        for row in rows[list(ranked)]
    )


def edges_of(
    model: ScenarioModel,
    axes: Sequence[Axis],
    searched: Sequence[str],
    winner: Winner,
    minimized: Output,
    limits: Mapping[str, Range],
    calibration: Any,
) -> tuple[Edge, ...]:
    """Ends of the searched axes at which a winner lies, unless the number cannot go on or changes nothing there."""
    point, edges = {axis.name: axis.at(index) for axis, index in zip(axes, winner.index, strict=True)}, []
    for axis in axes:
        values = np.unique(axis.values) if axis.numeric and axis.name in searched else ()
        if len(values) < 2 or point[axis.name] not in (values[0], values[-1]):
            continue
        end, inner = map(float, values[[0, 1] if point[axis.name] == values[0] else [-1, -2]])
        beyond = end * (end / inner) if values[0] > 0.0 else 2.0 * end - inner
        with contextlib.suppress(InputError), np.errstate(all="ignore"), jax.enable_x64(True):
            check_values(model.system, model.plan, axis.name, [beyond], calibration, axis.name)
            outputs = model.many(jax.tree.map(lambda leaf: np.asarray(leaf)[None], {**point, axis.name: beyond}))
            saving = 1.0 - float(np.ravel(value_of(outputs, minimized))[0]) / winner.value
            saving = saving if np.all(feasible(outputs, limits)) and math.isfinite(saving) else -math.inf
            edges += [Edge(axis, end, beyond, saving)] if abs(saving) > SAME else []
    return tuple(edges)
