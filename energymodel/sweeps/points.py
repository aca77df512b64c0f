"""Outputs of a model at points of a grid: their limits, their float64 values, and their ranges from a sample."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial, reduce
from operator import and_
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.runtime.compilation import Compiled
from energymodel.runtime.placement import beside_accelerator
from energymodel.sweeps.axes import Axis, Range, cast
from energymodel.sweeps.scenario_axes import ScenarioModel
from energymodel.system.outputs import Objective

Output = str | Callable[[Any], Any]
"""An output by its name, or a function of all outputs."""
FEASIBLE = "feasible"
"""A model may return its own verdict on a point as an output of this name."""
GROUP = 64  # points of one call
MOST_AT_ONCE = 2**13  # points of a scenario, all of whose numbers are held in memory
SAMPLES = 2048
MARGIN = 0.05  # of the range of a sample, in logarithms where it is positive
RESOLUTION = 1e-5  # of a mean: smaller deviations drown in the rounding of float32


@dataclasses.dataclass(frozen=True)
class LogProduct:
    """Logarithm of a product of powers of outputs, which float32 holds whatever the powers."""

    objective: Objective

    def __call__(self, outputs: Mapping[str, Any]) -> Any:
        """The logarithm at one point."""
        xp = np if all(isinstance(outputs[name], np.ndarray | float) for name in self.objective.names()) else jnp
        return sum(power * xp.log(outputs[name]) for name, power in self.objective.factors)


def output_of(outputs: Any, output: Output) -> Any:
    """An output from a mapping, a named tuple or a module."""
    if callable(output):
        return output(outputs)
    return outputs[output] if isinstance(outputs, Mapping) else getattr(outputs, output)


def value_of(outputs: Any, output: Output) -> np.ndarray:
    """The same in float64, a product of powers itself."""
    value = np.asarray(output_of(outputs, output), np.float64)
    with np.errstate(over="ignore"):
        return np.exp(value) if isinstance(output, LogProduct) else value


def within(value: Any, limits: Range) -> Any:
    """Whether `low <= value <= high`; infinite ends, which are never traced, are not compared."""
    low, high = limits
    above = True if isinstance(low, float) and low == -math.inf else value >= low
    return above if isinstance(high, float) and high == math.inf else above & (value <= high)


def feasible(outputs: Any, limits: Mapping[str, Range]) -> Any:
    """Whether the outputs of a point lie within their limits, and the model's own verdict holds."""
    has_verdict = FEASIBLE in outputs if isinstance(outputs, Mapping) else hasattr(outputs, FEASIBLE)
    verdict = output_of(outputs, FEASIBLE) if has_verdict else True
    return reduce(and_, (within(output_of(outputs, name), ends) for name, ends in limits.items()), verdict)


def feasible_values(outputs: Any, names: Sequence[Output], limits: Mapping[str, Range]) -> tuple[jax.Array, ...]:
    """Outputs of a point, all infinite where a limit is broken or one of them is not a finite number."""
    values = [jnp.asarray(output_of(outputs, name)) for name in names]
    permitted = reduce(and_, (jnp.abs(value) < jnp.inf for value in values), feasible(outputs, limits))
    return tuple(jnp.where(permitted, value, jnp.inf) for value in values)


def named_outputs(outputs: Any) -> dict[str, jax.Array]:
    """The numbers among the outputs of a model, by name."""
    if not isinstance(outputs, Mapping):
        outputs = outputs._asdict() if hasattr(outputs, "_asdict") else vars(outputs)
    numbers = int | float | np.number | np.ndarray | jax.Array  # also those that are known while the rest is traced
    return {name: jnp.asarray(value) for name, value in outputs.items() if isinstance(value, numbers)}


def evaluate_points(function: Callable[..., Any], axes: Sequence[Axis], indices: Any) -> Any:
    """All outputs at some points of a grid, in float64, with a leading axis.

    Those of a scenario are evaluated on the host, many at once; others in groups of one compiled size.
    """
    rows, groups = np.asarray(indices, np.int64).reshape(-1, len(axes)), []
    count, call, size = len(rows), partial(_evaluate_group, function), GROUP
    if isinstance(function, ScenarioModel):
        call, size = function.many, MOST_AT_ONCE
    else:
        rows = np.resize(rows, (count + -count % GROUP, len(axes)))
    with jax.enable_x64(True), beside_accelerator():
        values = [jax.tree.map(np.asarray, cast(axis.values, np.float64)) for axis in axes]
        for first in range(0, len(rows), size):
            columns = zip(axes, values, rows[first : first + size].T, strict=True)
            group = {axis.name: jax.tree.map(lambda leaf, at=at: leaf[at], value) for axis, value, at in columns}
            groups.append(jax.device_get(call(group)))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *groups)


def _evaluate(function: Callable[..., Any], rows: dict[str, Any]) -> dict[str, jax.Array]:
    return jax.vmap(lambda row: named_outputs(function(**row)))(rows)


_evaluate_group = Compiled(_evaluate, once=True)


class GridSample:
    """Outputs in float64 at points spread over a grid, its corners included; computed when first needed."""

    def __init__(self, function: Callable[..., Any], axes: Sequence[Axis]) -> None:
        self._function, self._axes = function, axes

    @cached_property
    def outputs(self) -> Mapping[str, np.ndarray]:
        """All outputs by name."""
        lengths = np.array([len(axis) for axis in self._axes])
        ends = itertools.product(*({0, length - 1} for length in lengths))
        corners = np.array(list(itertools.islice(ends, SAMPLES // 4)))
        # A rank-1 lattice on powers of the generalized golden ratio is evenly spread in any number of dimensions.
        ratio = 2.0
        for _ in range(64):
            ratio = (1.0 + ratio) ** (1.0 / (len(lengths) + 1.0))
        steps = ratio ** -np.arange(1.0, len(lengths) + 1.0)
        spread = np.floor(np.modf(0.5 + np.outer(np.arange(SAMPLES - len(corners)), steps))[0] * lengths)
        return evaluate_points(self._function, self._axes, np.concatenate([corners, spread]))

    def range(self, name: str, limits: Mapping[str, Range]) -> Range:
        """Range of the finite values of an output within limits, with a margin; if none is within, of all values."""
        values, finite = self._values(name)
        inside = finite & np.asarray(feasible(self.outputs, limits))
        values = values[inside if np.any(inside) else finite]
        low, high = float(values.min()), float(values.max())
        if low > 0.0:
            factor = max((high / low) ** MARGIN, 1.0 + MARGIN)
            return low / factor, high * factor
        width = MARGIN * max(high - low, abs(high), MARGIN)
        return low - width, high + width

    def moments(self, names: Sequence[str]) -> tuple[list[float], list[float]]:
        """Means and standard deviations of the finite values of outputs; the latter large enough for float32."""
        columns = [values[finite] for values, finite in map(self._values, names)]
        means = [float(values.mean()) for values in columns]
        spreads = zip(columns, means, strict=True)
        return means, [max(float(values.std()), RESOLUTION * abs(mean)) or 1.0 for values, mean in spreads]

    def _values(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        values = np.asarray(self.outputs[name], np.float64)
        finite = np.isfinite(values)
        if not np.any(finite):
            raise InputError(f"{name}: not finite at any of {len(values):,} sampled points. Check the model and axes.")
        return values, finite
