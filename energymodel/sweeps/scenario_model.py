"""How does a scenario become a function of the axes, and a dotted path an axis?"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.design.layouts import COARSE, candidates, fits, layout_word, screen, take
from energymodel.design.problem import CAP, pose, replace_leaf
from energymodel.errors import InputError, suggest
from energymodel.presets.renamed import current_name
from energymodel.presets.scenario import Scenario, load_scenario
from energymodel.presets.validate import check_measured
from energymodel.sweeps.axes import Axis, parse_axis
from energymodel.sweeps.reductions import Range
from energymodel.system.evaluate import evaluate, evaluate_once
from energymodel.system.outcome import Slack
from energymodel.system.outputs import OUTPUTS, limited_values
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

LAYOUT = "plan.layout"
ALL = "all"
PER_REPLICA = "microbatches_per_replica"
HARD_SLACKS = tuple(name for name in Slack.__dataclass_fields__ if name != "information")
"""What the hardware and the building allow; the capacity for information is a prior and only a warning."""
HARD_LIMITS: Mapping[str, Range] = {f"slack.{name}": (0.0, float("inf")) for name in HARD_SLACKS} | {
    PER_REPLICA: (1.0, float("inf"))
}
"""Limits that hold in every sweep of a scenario."""
UNITS: Mapping[str, str] = {**OUTPUTS, **dict.fromkeys(HARD_LIMITS, "1")}


class ScenarioModel(eqx.Module):
    """`evaluate` as a function of the numbers and components at some dotted paths."""

    system: TrainingSystem
    plan: TrainingPlan

    def __call__(self, **values: Any) -> dict[str, Any]:
        """Every output that may be minimized or limited, by name, in SI."""
        system, plan = self.at(values)
        outcome = evaluate(system, plan)
        layout = plan.layout
        group = layout.tensor * layout.pipeline * layout.context
        least_batch = plan.chips / group * layout.microbatch * system.workload.sequence
        return {
            **limited_values(system, plan, outcome),
            **{f"slack.{name}": getattr(outcome.slack, name) for name in HARD_SLACKS},
            # Division and product round: a batch of whole micro-batches must pass.
            PER_REPLICA: jnp.reshape(plan.batch, ()) / least_batch * (1.0 + ROUNDING),
        }

    def at(self, values: Mapping[str, Any]) -> tuple[TrainingSystem, TrainingPlan]:
        """System and plan with other values at some paths, components before the numbers within them."""
        system, plan = self.system, self.plan
        for path in sorted(values, key=lambda one: one.count(".")):
            root, _, rest = path.partition(".")
            if root == "system":
                system = _replace(system, rest, values[path])
            else:
                plan = _replace(plan, rest, values[path])
        return system, plan


ROUNDING = 1e-5


def _replace(tree: Any, path: str, value: Any) -> Any:
    if not isinstance(value, eqx.Module):
        return replace_leaf(tree, path, value)
    return eqx.tree_at(lambda node: _follow(node, path), tree, value)


def _follow(node: Any, path: str) -> Any:
    for part in path.split("."):
        node = getattr(node, part)
    return node


def scenario_axis(scenario: Scenario, path: str, values: Any, minimize: str = "energy") -> Axis:
    """An axis of a scenario: a number by dotted path, presets at the path of a component, or layouts.

    **Arguments:**

    - `scenario`: from `load_scenario`.
    - `path`: such as `plan.batch`, `system.accelerator`, `plan.layout`.
    - `values`: for a number what `parse_axis` reads; for a component names of presets with commas, or components by
      label; for `plan.layout` "all" that fit into memory, or the number of those that a coarse grid ranks first.
    - `minimize`: what ranks the layouts.

    **Raises:** `InputError` for an unknown path, preset or unit, or power caps below the lowest one measured.
    """
    path = current_name(path)
    if isinstance(values, Axis):
        return _measured(scenario, _checked(scenario, path, values))
    if path in scenario.provenance:
        return _measured(scenario, parse_axis(path, values, scenario.provenance[path].unit))
    if isinstance(values, Mapping):
        return Axis.choice(path, values)
    if path == LAYOUT and isinstance(values, str | int):
        return layout_axis(scenario, str(values), minimize)
    root = ScenarioModel(scenario.system, scenario.plan)
    try:
        component = _follow(root, path)
    except AttributeError:
        component = None
    if not isinstance(component, eqx.Module) or not path.startswith("system."):
        raise InputError(f'axis: unknown path "{path}". {suggest(path, [*scenario.provenance, LAYOUT])}')
    names = [part.strip() for part in values.split(",")] if isinstance(values, str) else list(values)
    tables = {"name": scenario.name, **scenario.tables}
    loaded = {name: load_scenario(tables, {path: name}) for name in names}
    return Axis.choice(path, {name: _follow(one, path) for name, one in loaded.items()})


def _measured(scenario: Scenario, axis: Axis) -> Axis:
    """The same axis, if no power cap of it lies below the lowest one that was measured."""
    if axis.name == CAP:
        check_measured(
            scenario.system, float(np.min(axis.values)), scenario.tables.get("calibration"), f"axis {CAP}"
        )  # fmt: skip
    return axis


def _checked(scenario: Scenario, path: str, axis: Axis) -> Axis:
    """An axis made by hand, with the unit of its path.

    **Raises:** `InputError` for an unknown path, or values that are not in its SI unit.
    """
    if path not in scenario.provenance:
        try:
            _follow(ScenarioModel(scenario.system, scenario.plan), path)
        except AttributeError:
            raise InputError(f'axis: unknown path "{path}". {suggest(path, [*scenario.provenance, LAYOUT])}') from None
        return axis
    unit = scenario.provenance[path].unit
    if axis.unit not in ("1", unit):
        raise InputError(f"axis {path}: its unit is {axis.unit}, not {unit}. Give the values in {unit}.")
    return dataclasses.replace(axis, name=path, unit=unit)


def layout_axis(scenario: Scenario, text: str, minimize: str = "energy") -> Axis:
    """The layouts that fit into memory, or so many of them that a coarse grid ranks first.

    **Raises:** `InputError` where none fits, or the number is none.
    """
    word = text.strip().removesuffix("layouts").strip()
    if word != ALL and not (word.isdecimal() and int(word) > 0):
        raise InputError(f'axis {LAYOUT}: "{text}" is neither "{ALL}" nor a number of layouts, such as 64.')
    with jax.enable_x64(True):
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        problem = pose(scenario, baseline, minimize, {}, {}, ())
        chips = float(scenario.plan.chips)
        lattice = candidates(problem.given, chips)
        lattice = take(lattice, np.flatnonzero(fits(problem, lattice, chips)))
        if not len(lattice.tensor):
            raise InputError(f"axis {LAYOUT}: no layout of {chips:g} chips fits into their memory. Raise plan.chips.")
        if word != ALL:
            lattice = take(lattice, np.sort(screen(problem, lattice, COARSE).best(int(word))))
    rows = (jax.tree.map(lambda leaf, index=index: leaf[index], lattice) for index in range(len(lattice.tensor)))
    labels = tuple(layout_word(row) for row in rows)
    return Axis(LAYOUT, lattice, "1", labels)
