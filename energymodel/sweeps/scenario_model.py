"""How does a scenario become a function of some of its numbers, with limits on its outputs?"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.scenarios.scenario import Scenario
from energymodel.search.training_run import LIMITS_OF_SYSTEM, MICROBATCHES, TrainingRun, outputs_at, replace_leaf
from energymodel.sweeps.feasibility import Range
from energymodel.system.evaluate import evaluate
from energymodel.system.outputs import AT_LEAST, OUTPUTS, limited_values, parse_limit
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

PER_REPLICA = "microbatches_per_replica"
HARD_LIMITS: Mapping[str, Range] = dict.fromkeys(LIMITS_OF_SYSTEM, (0.0, math.inf)) | {PER_REPLICA: (1.0, math.inf)}
"""Limits that hold in every sweep of a scenario: what the hardware and the building allow."""
UNITS: Mapping[str, str] = {**OUTPUTS, **dict.fromkeys(HARD_LIMITS, "1")}
ROUNDING = 1e-5  # of a division and a product in float32: a batch of whole micro-batches must pass


class ScenarioModel(eqx.Module):
    """`evaluate` as a function of the numbers and components at some dotted paths."""

    system: TrainingSystem
    plan: TrainingPlan

    def __call__(self, **values: Any) -> dict[str, Any]:
        """Every output that may be minimized or limited, by name, in SI."""
        system, plan = self.at(values)
        outcome = evaluate(system, plan)
        smallest_batch = plan.layout.smallest_batch(plan.chips, system.workload.sequence)
        return {
            **limited_values(system, plan, outcome),
            **{name: getattr(outcome.slack, name.removeprefix("slack.")) for name in LIMITS_OF_SYSTEM},
            PER_REPLICA: jnp.reshape(plan.batch, ()) / smallest_batch * (1.0 + ROUNDING),
        }

    def many(self, rows: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs at many points, on the host in float64: one program, kept between processes, for all axes.

        - `rows`: values at each path, with a leading axis of points.
        """
        system, plan = self.at(jax.tree.map(lambda leaf: leaf[0], rows))
        run = TrainingRun(system, eqx.tree_at(lambda plan: plan.batch, plan, jnp.reshape(plan.batch, (1,))))
        count = len(jax.tree.leaves(rows)[0])
        vectors, places = np.tile(run.vector, (count, 1)), run.places
        for path in _outer_first(rows):
            inner = [place for own, place in places.items() if own == path or own.startswith(f"{path}.")]
            for place, leaf in zip(inner, jax.tree.leaves(rows[path]), strict=True):
                vectors[:, place] = np.reshape(leaf, (count, -1))
        found = outputs_at(run, vectors)
        with np.errstate(divide="ignore"):  # where nothing at all is left of a limit
            rooms = {name: np.log(found[name]) for name in LIMITS_OF_SYSTEM}
        smallest = found[MICROBATCHES] / (1.0 + ROUNDING)
        return {**{name: found[name] for name in OUTPUTS}, **rooms, PER_REPLICA: 1.0 / smallest}

    def at(self, values: Mapping[str, Any]) -> tuple[TrainingSystem, TrainingPlan]:
        """System and plan with other values at some paths, components before the numbers within them."""
        system, plan = self.system, self.plan
        for path in _outer_first(values):
            root, _, rest = path.partition(".")
            if root == "system":
                system = _replace(system, rest, values[path])
            else:
                plan = _replace(plan, rest, values[path])
        return system, plan


def _outer_first(paths: Iterable[str]) -> list[str]:
    return sorted(paths, key=lambda one: one.count("."))


def follow(node: Any, path: str) -> Any:
    """The attribute at a dotted path."""
    for part in path.split("."):
        node = getattr(node, part)
    return node


def _replace(tree: Any, path: str, value: Any) -> Any:
    if not isinstance(value, eqx.Module):
        return replace_leaf(tree, path, value)
    return eqx.tree_at(lambda node: follow(node, path), tree, value)


def model_and_limits(
    what: Scenario | Callable[..., Any], limits: Mapping[str, Any]
) -> tuple[Callable[..., Any], dict[str, Range]]:
    """The model of one point, and ranges of its outputs in SI; a scenario adds those of its hardware and building.

    **Raises:** `InputError` for an unknown output, a value in another unit, or a schedule of the batch.
    """
    if not isinstance(what, Scenario):
        return what, {name: _range(name, limit) for name, limit in limits.items()}
    if what.plan.knots != 1:
        raise InputError(
            "plan.batch: a sweep needs one constant batch, not a schedule of several knots. Give one value."
        )
    numbers = {name: parse_limit(name, value) for name, value in limits.items()}
    ranges = {name: (one, math.inf) if name in AT_LEAST else (-math.inf, one) for name, one in numbers.items()}
    # One number instead of an array of one: kernels take scalars.
    plan = eqx.tree_at(lambda plan: plan.batch, what.plan, jnp.reshape(what.plan.batch, ()))
    return ScenarioModel(what.system, plan), {**HARD_LIMITS, **ranges}


def _range(name: str, limit: Any) -> Range:
    """The largest value, or both ends."""
    try:
        low, high = limit if isinstance(limit, tuple | list) else (-math.inf, limit)
        return float(low), float(high)
    except (TypeError, ValueError):
        raise InputError(f"limit {name}: {limit!r} is neither a number nor (lowest, highest).") from None
