"""Outcomes of preset scenarios with changes, predictions of rows of a table of layouts, and their slopes."""

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.calibration.layout_table import inputs_of, layouts
from energymodel.calibration.step_prediction import predict_row
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate, evaluate_once
from gradients import interpreted

LANES = 32
prediction = jax.jit(predict_row)
"""Prediction of a row on a system, compiled once for each kind of system."""


@cache
def outcome_of(name: str, *changes: str) -> Any:
    """Outcome of a scenario with changes as on the command line, in float64, computed once in a process."""
    scenario = load_scenario(name, changes)
    with jax.enable_x64(True):
        return jax.device_get(evaluate_once(scenario.system, scenario.plan))


def row_inputs(row: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """What a prediction reads of a row."""
    table = layouts([{**row, **changes}])
    return {name: values[0] for name, values in inputs_of(table).items()}


def replaced(tree: Any, numbers: Mapping[str, Any]) -> Any:
    """The same tree with other numbers by path."""

    def places(tree: Any) -> list[Any]:
        return [attrgetter(path)(tree) for path in numbers]

    def number(old: Any, value: Any) -> Any:
        return value if isinstance(value, jax.Array) else np.full(np.shape(old), float(value))

    return eqx.tree_at(places, tree, list(map(number, places(tree), numbers.values())))


class Run(NamedTuple):
    """Root of the paths of a run."""

    system: Any
    plan: Any


def assert_log_slopes(
    outputs: Callable[[Any], tuple[Any, ...]],
    scenario: Any,
    point: Mapping[str, float],
    rtol: float,
    atol: float = 1e-9,
) -> np.ndarray:
    """Check slopes of logarithms of outputs of a run by those of some numbers by differences.

    `point`: the numbers by path, as in "plan.clock". Returns the slopes [output, number].
    """
    run, start = Run(scenario.system, scenario.plan), np.log(list(point.values()))
    unit, step = np.eye(len(start)), 1e-5

    def logs(x: jax.Array) -> jax.Array:
        changed = replaced(run, dict(zip(point, jnp.exp(x), strict=True)))
        return jnp.log(jnp.stack(outputs(evaluate(*changed))))

    def along(lanes: np.ndarray, function: Callable[[jax.Array], Any]) -> np.ndarray:
        """At each of the lanes, filled up: operations of one shape are compiled once."""
        return np.asarray(interpreted(jax.vmap(function))(np.resize(lanes, (LANES, len(start)))))[: len(lanes)]

    with jax.enable_x64(True):
        slopes = along(unit, lambda direction: jax.jvp(logs, (start,), (direction,))[1])
        values = along(np.concatenate([start - step * unit, start + step * unit]), logs)
    below, above = np.split(values, 2)
    for name, slope, central in zip(point, slopes, (above - below) / (2.0 * step), strict=True):
        np.testing.assert_allclose(slope, central, rtol=rtol, atol=atol, err_msg=name)
    return slopes.T
