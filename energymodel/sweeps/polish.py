"""What is the best point near a winner, between the points of the grid?"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.runtime import compilation
from energymodel.solver import RESULTS, Values, minimize, result_is
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.feasibility import Output, Range, output_of
from energymodel.sweeps.grid_sample import named_outputs
from energymodel.sweeps.kept_points import Winner


@dataclasses.dataclass(frozen=True)
class Polished:
    """The best point near a winner; `result` and `message` of the solver say how far to trust it."""

    value: float
    point: Mapping[str, Any]
    result: str
    message: str


def polish(
    function: Callable[..., Any], axes: Sequence[Axis], winner: Winner, value: Output, limits: Mapping[str, Range]
) -> Polished:
    """Minimize from a winner over the ranges of the numeric axes; choices stay as they are.

    Positive axes and limits enter as logarithms, so that all rows are of order one.
    """
    moving = [axis for axis in axes if axis.numeric and np.ptp(axis.values) > 0]
    if not moving:
        return Polished(winner.value, winner.point, "nothing to search", "No axis is a number with two values.")
    own = dict(zip((axis.name for axis in axes), winner.index, strict=True))
    fixed = {axis.name: axis.at(own[axis.name]) for axis in axes if axis not in moving}
    ranges = {axis.name: (float(np.min(axis.values)), float(np.max(axis.values))) for axis in moving}
    logarithmic = {name: low > 0 for name, (low, _) in ranges.items()}
    scales = {name: 1.0 if logarithmic[name] else high - low for name, (low, high) in ranges.items()}

    def coordinate(name: str, number: float) -> float:
        return math.log(number) if logarithmic[name] else number / scales[name]

    def point(x: Mapping[str, Any]) -> dict[str, Any]:
        return {name: jnp.exp(one) if logarithmic[name] else one * scales[name] for name, one in x.items()} | fixed

    def problem(x: Mapping[str, Any]) -> Values:
        outputs = named_outputs(function(**point(x)))
        objective = output_of(outputs, value)
        rows = [row for name, ends in limits.items() for row in _rows(outputs[name], *ends)]
        return Values(jnp.log(objective) if winner.value > 0 else objective, jnp.stack(rows) if rows else None)

    with jax.enable_x64(True):
        start = {axis.name: np.float64(coordinate(axis.name, axis.values[own[axis.name]])) for axis in moving}
        lower, upper = ({name: coordinate(name, ends[side]) for name, ends in ranges.items()} for side in (0, 1))
        options = compilation.compiler_options(once=True)
        solution = jax.jit(lambda x: minimize(problem, x, bounds=(lower, upper)), compiler_options=options)(start)
        found = {name: float(one) for name, one in point(solution.x).items() if name in ranges}
        outputs = named_outputs(function(**{**found, **fixed}))
        polished_value = float(output_of({name: float(one) for name, one in outputs.items()}, value))
    trusted = bool(result_is(solution.result, RESULTS.successful, RESULTS.rounded))
    return Polished(
        polished_value,
        {axis.name: found.get(axis.name, winner.point[axis.name]) for axis in axes},
        "successful" if trusted else "not converged",
        RESULTS[solution.result],
    )


def _rows(value: Any, low: float, high: float) -> list[Any]:
    """Constraints, at most zero where the limits hold."""
    rows = []
    if high < math.inf:
        rows.append(jnp.log(value / high) if high > 0 else value - high)
    if low > -math.inf:
        rows.append(jnp.log(low / value) if low > 0 else low - value)
    return rows
