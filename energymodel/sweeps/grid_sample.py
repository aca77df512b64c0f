"""Float64 outputs of a model at points of a grid, and their ranges from points spread over it."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.runtime.compilation import Compiled
from energymodel.runtime.placement import beside_accelerator
from energymodel.sweeps.axes import Axis, cast
from energymodel.sweeps.feasibility import Range, feasible
from energymodel.sweeps.scenario_axes import ScenarioModel

GROUP = 64  # points of one call
MOST_AT_ONCE = 2**13  # points of a scenario, all of whose numbers are held in memory
SAMPLES = 2048
MARGIN = 0.05  # of the range of a sample, in logarithms where it is positive
RESOLUTION = 1e-5  # of a mean: smaller deviations drown in the rounding of float32


def evaluate_points(function: Callable[..., Any], axes: Sequence[Axis], indices: Sequence[Sequence[int]]) -> Any:
    """All outputs at some points of a grid, in float64, with a leading axis; in groups of one compiled size.

    That of a scenario evaluates many points at once on the host.
    """
    rows_of_indices = np.asarray(indices, np.int64).reshape(len(indices), len(axes))
    if isinstance(function, ScenarioModel):
        call, size = function.many, MOST_AT_ONCE
    else:
        call, size = partial(_evaluate_group, function), GROUP
        rows_of_indices = np.resize(rows_of_indices, (-(-len(indices) // GROUP) * GROUP, len(axes)))
    groups = []
    with jax.enable_x64(True), beside_accelerator():
        values = [jax.tree.map(np.asarray, cast(axis.values, np.float64)) for axis in axes]
        for first in range(0, len(rows_of_indices), size):
            columns = rows_of_indices[first : first + size].T
            rows = {
                axis.name: jax.tree.map(lambda leaf, column=column: leaf[column], value)
                for axis, value, column in zip(axes, values, columns, strict=True)
            }
            groups.append(jax.device_get(call(rows)))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(indices)], *groups)


def _evaluate(function: Callable[..., Any], rows: dict[str, Any]) -> dict[str, jax.Array]:
    return jax.vmap(lambda row: named_outputs(function(**row)))(rows)


_evaluate_group = Compiled(_evaluate, once=True)


def named_outputs(outputs: Any) -> dict[str, jax.Array]:
    """The numbers among the outputs of a model, by name."""
    if not isinstance(outputs, Mapping):
        outputs = outputs._asdict() if hasattr(outputs, "_asdict") else vars(outputs)
    numbers = int | float | np.number | np.ndarray | jax.Array  # also those that are known while the rest is traced
    return {name: jnp.asarray(value) for name, value in outputs.items() if isinstance(value, numbers)}


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
        return evaluate_points(self._function, self._axes, np.concatenate([corners, spread]).astype(int).tolist())

    def range(self, name: str, limits: Mapping[str, Range]) -> Range:
        """Range of the finite values of an output within limits, with a margin; if none is within, of all values.

        **Raises:** `InputError` where no value is finite.
        """
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
        """Means and standard deviations of the finite values of outputs; the latter large enough for float32.

        **Raises:** `InputError` where no value is finite.
        """
        finite = [values[finite] for values, finite in map(self._values, names)]
        means = [float(values.mean()) for values in finite]
        return means, [
            max(float(values.std()), RESOLUTION * abs(mean)) or 1.0 for values, mean in zip(finite, means, strict=True)
        ]

    def _values(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        values = np.asarray(self.outputs[name], np.float64)
        finite = np.isfinite(values)
        if not np.any(finite):
            raise InputError(f"{name}: not finite at any of {len(values):,} sampled points. Check the model and axes.")
        return values, finite
