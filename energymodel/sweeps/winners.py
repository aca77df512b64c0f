"""How good are the points that were kept, in float64, and what is nearby between the points of the grid?"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel import compilation
from energymodel.solver.minimize import RESULTS, Values, minimize
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.reductions import AbstractReduction, Range, output_of

LANES = 64
SAMPLES = 2048


@dataclasses.dataclass(frozen=True)
class Winner:
    """A point that was kept: its value, its indices along the axes, what they stand for, and its outputs, in float64.

    `point` holds numbers in SI and labels of choices.
    """

    value: float
    index: tuple[int, ...]
    point: Mapping[str, Any]
    outputs: Mapping[str, float]


def evaluate_points(function: Callable[..., Any], axes: Sequence[Axis], indices: Sequence[Sequence[int]]) -> Any:
    """All outputs at some points of a grid, in float64, with a leading axis; in groups of one compiled size."""
    places = np.asarray(indices, np.int64).reshape(len(indices), len(axes))
    arrays, static = _split(function)
    groups = []
    with jax.enable_x64(True):
        for first in range(0, len(places), LANES):
            group = np.resize(places[first : first + LANES], (LANES, len(axes)))
            values = {
                axis.name: jax.tree.map(lambda leaf, own=own: _in_64_bits(leaf)[own], axis.values)
                for axis, own in zip(axes, group.T, strict=True)
            }
            groups.append(jax.device_get(_program(arrays, static, values)))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(places)], *groups)


def _in_64_bits(leaf: Any) -> np.ndarray:
    leaf = np.asarray(leaf)
    return leaf.astype(np.float64) if np.issubdtype(leaf.dtype, np.floating) else leaf


def sample(function: Callable[..., Any], axes: Sequence[Axis], count: int = SAMPLES) -> dict[str, np.ndarray]:
    """All outputs at points spread over a grid, its corners among them, in float64."""
    lengths = np.array([len(axis) for axis in axes])
    corners = np.array(list(itertools.islice(itertools.product(*({0, n - 1} for n in lengths)), count // 4)))
    # A rank-1 lattice on powers of the generalized golden ratio is evenly spread in any number of dimensions.
    ratio = 2.0
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1.0 / (len(axes) + 1.0))
    steps = ratio ** -np.arange(1.0, len(axes) + 1.0)
    spread = np.floor(np.modf(0.5 + np.outer(np.arange(count - len(corners)), steps))[0] * lengths)
    return evaluate_points(function, axes, np.concatenate([corners, spread]).astype(int).tolist())


def _split(function: Any) -> tuple[Any, Any]:
    arrays, static = eqx.partition(function, eqx.is_array)
    leaves, structure = jax.tree.flatten(static)
    return arrays, (tuple(leaves), structure)


def _mapped(arrays: Any, static: Any, values: Any) -> Any:
    function = eqx.combine(arrays, jax.tree.unflatten(static[1], static[0]))
    return jax.vmap(lambda one: named(function(**one)))(values)


_program = jax.jit(_mapped, static_argnums=1, compiler_options=compilation.compiler_options(once=True))


def named(outputs: Any) -> dict[str, Any]:
    """Outputs as a dictionary of numbers."""
    if not isinstance(outputs, Mapping):
        outputs = outputs._asdict() if hasattr(outputs, "_asdict") else vars(outputs)
    return {name: jnp.asarray(value) for name, value in outputs.items() if isinstance(value, int | float | jax.Array)}


def holds(outputs: Mapping[str, Any], limits: Mapping[str, Range]) -> Any:
    """Which points obey the limits, and their own verdict if they give one."""
    verdict = np.asarray(outputs.get("feasible", True)).astype(bool)
    for name, (low, high) in limits.items():
        value = np.asarray(outputs[name])
        verdict = verdict & (value >= low) & (value <= high)
    return verdict


def winners(
    function: Callable[..., Any], axes: Sequence[Axis], indices: Sequence[Sequence[int]],
    value: str | Callable[[Any], Any] | None, limits: Mapping[str, Range], keep: AbstractReduction,
) -> list[Winner]:  # fmt: skip
    """Points in the order of the reduction in float64, without those that break a limit there."""
    if not indices:
        return []
    outputs = evaluate_points(function, axes, indices)
    permitted = np.broadcast_to(holds(outputs, limits), (len(indices),))
    if value is None:
        values = np.full(len(indices), math.nan)
    else:
        values = np.broadcast_to(np.asarray(output_of(outputs, value), np.float64), (len(indices),))
    order = [place for place in range(len(indices)) if permitted[place] and values[place] != np.inf]
    chosen = keep.efficient({name: column[order] for name, column in outputs.items()})
    if chosen is not None:
        order = [order[place] for place in chosen]
    elif keep.ranked:
        order.sort(key=lambda place: values[place])  # stable: ties stay in the order of the grid
    return [
        Winner(
            float(values[place]),
            tuple(int(one) for one in indices[place]),
            {axis.name: axis.label(one) for axis, one in zip(axes, indices[place], strict=True)},
            {name: float(column[place]) for name, column in outputs.items()},
        )
        for place in order[: keep.shown]
    ]


@dataclasses.dataclass(frozen=True)
class Polished:
    """The best point near a winner, between the points of the grid: the solver's words say how far to trust it."""

    value: float
    point: Mapping[str, Any]
    result: str
    message: str


def polish(
    function: Callable[..., Any], axes: Sequence[Axis], winner: Winner, value: str | Callable[[Any], Any],
    limits: Mapping[str, Range],
) -> Polished:  # fmt: skip
    """Search from a winner over the ranges of the numeric axes, its choices kept, by `design.minimize`.

    Positive axes and limits go in as logarithms, so that all rows are of order one.
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

    positive = winner.value > 0

    def problem(x: Mapping[str, Any]) -> Values:
        outputs = named(function(**point(x)))
        objective = output_of(outputs, value)
        rows = [row for name, ends in limits.items() for row in _rows(outputs[name], *ends)]
        return Values(jnp.log(objective) if positive else objective, jnp.stack(rows) if rows else None)

    with jax.enable_x64(True):
        start = {axis.name: np.float64(coordinate(axis.name, axis.values[own[axis.name]])) for axis in moving}
        lower, upper = ({name: coordinate(name, ends[side]) for name, ends in ranges.items()} for side in (0, 1))
        options = compilation.compiler_options(once=True)
        solution = jax.jit(lambda x: minimize(problem, x, bounds=(lower, upper)), compiler_options=options)(start)
        found = {name: float(one) for name, one in point(solution.x).items() if name in ranges}
        outputs = {name: float(one) for name, one in jax.device_get(named(function(**{**found, **fixed}))).items()}
    trusted = bool((solution.result == RESULTS.successful) | (solution.result == RESULTS.rounded))
    return Polished(
        float(output_of(outputs, value)),
        {axis.name: found.get(axis.name, winner.point[axis.name]) for axis in axes},
        "successful" if trusted else "not converged",
        RESULTS[solution.result],
    )


def _rows(value: Any, low: float, high: float) -> list[Any]:
    rows = []
    if high < math.inf:
        rows.append(jnp.log(value / high) if high > 0 else value - high)
    if low > -math.inf:
        rows.append(jnp.log(low / value) if low > 0 else low - value)
    return rows
