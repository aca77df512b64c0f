"""How good are the points that a sweep kept, in float64?"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from energymodel.sweeps.axes import Axis
from energymodel.sweeps.feasibility import Output, Range, feasible, output_of
from energymodel.sweeps.grid_sample import evaluate_points
from energymodel.sweeps.reductions import AbstractPointReduction


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


def rank_points(
    function: Callable[..., Any],
    axes: Sequence[Axis],
    indices: Sequence[Sequence[int]],
    minimize: Output | None,
    limits: Mapping[str, Range],
    keep: AbstractPointReduction,
) -> tuple[Winner, ...]:
    """The points that obey the limits in float64, in the order of the reduction."""
    if not indices:
        return ()
    outputs, shape = evaluate_points(function, axes, indices), (len(indices),)
    values = np.full(shape, math.nan)
    if minimize is not None:
        values = np.broadcast_to(np.asarray(output_of(outputs, minimize), np.float64), shape)
    places = np.flatnonzero(feasible(outputs, limits) & (values != np.inf))
    ranked = keep.ranked(values[places], {name: column[places] for name, column in outputs.items()})
    return tuple(
        Winner(
            float(values[place]),
            tuple(int(one) for one in indices[place]),
            {axis.name: axis.label(one) for axis, one in zip(axes, indices[place], strict=True)},
            {name: float(column[place]) for name, column in outputs.items()},
        )
        for place in places[list(ranked)]
    )
