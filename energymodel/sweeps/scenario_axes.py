"""How does a dotted path of a scenario become an axis: a number, presets of a component, layouts?"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.scenarios.clock_scale import CLOCK, ClockScale
from energymodel.scenarios.components import build, chosen_numbers, expand_presets
from energymodel.scenarios.question import Question
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.scenarios.validate import check_values
from energymodel.search.layouts import candidates, layout_label, take
from energymodel.search.problem import formulate
from energymodel.search.relaxation import COARSE, fits, screen
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.axis_text import parse_axis
from energymodel.sweeps.scenario_model import ScenarioModel, follow
from energymodel.system.accelerator import Accelerator
from energymodel.system.evaluate import evaluate_once
from energymodel.units import format_quantity, whole_number

LAYOUT = "plan.layout"
ACCELERATOR = "system.accelerator"
MOST_CHIPS = 4096  # made one by one
ALL = "all"


def scenario_axis(scenario: Scenario, path: str, values: Any, minimize: str = "energy") -> Axis:
    """An axis of a scenario: a number by dotted path, presets at the path of a component, or layouts.

    **Arguments:**

    - `path`: such as `plan.batch`, `system.accelerator`, `plan.layout`.
    - `values`: for a number what `parse_axis` reads, or an `Axis` in SI; for a component names of presets with commas,
      or components by label; for `plan.layout` "all" that fit in memory, or how many of those that a coarse grid ranks
      best by `minimize`.

    **Raises:** `InputError` for an unknown path, preset or unit, or a value that the number cannot have.
    """
    if path in scenario.provenance:
        unit = scenario.provenance[path].unit
        if isinstance(values, Axis) and values.unit not in ("1", unit):
            raise InputError(f"axis {path}: its unit is {values.unit}, not {unit}. Give the values in {unit}.")
        if path == CLOCK and isinstance(values, str) and "hz" in values.lower():
            clocks, scale = parse_axis(path, values, "Hz"), ClockScale.of(scenario.system.accelerator)
            values = Axis.of(path, [scale.share_of(float(one), f"axis {path}") for one in clocks.values])
        axis = dataclasses.replace(parse_axis(path, values, unit), unit=unit)
        ends = [float(end(axis.values)) for end in (np.min, np.max)]
        check_values(scenario.system, scenario.plan, path, ends, scenario.tables.get("calibration"), f"axis {path}")
        return axis
    if path == LAYOUT and isinstance(values, str | int):
        return layout_axis(scenario, str(values), minimize)
    if isinstance(values, Mapping):
        return Axis.choice(path, values)
    root, _, name = path.rpartition(".")
    if root == ACCELERATOR and name in (units := chosen_numbers(scenario.accelerator)):
        return near_limit_axis(scenario, name, parse_axis(path, values, units[name]), units[name])
    try:
        component = follow(ScenarioModel(scenario.system, scenario.plan), path)
    except AttributeError:
        component = None
    if component is not None and isinstance(values, Axis):
        return dataclasses.replace(values, name=path)
    if not isinstance(component, eqx.Module) or not path.startswith("system."):
        raise InputError(f'axis: unknown path "{path}". {suggest(path, [*scenario.provenance, LAYOUT])}')
    names = [part.strip() for part in values.split(",")] if isinstance(values, str) else list(values)
    tables = scenario.named_tables
    return Axis.choice(path, {name: follow(load_scenario(tables, {path: name}), path) for name in names})


def near_limit_axis(scenario: Scenario, name: str, axis: Axis, unit: str) -> Axis:
    """Accelerators that follow from a near-limit preset, one of whose chosen numbers takes the values of an axis.

    **Raises:** `InputError` for a value that the number cannot have.
    """
    if len(axis) > MOST_CHIPS:
        raise InputError(f"axis {axis.name}: {len(axis):,} accelerators. Give at most {MOST_CHIPS:,} values.")
    given = scenario.accelerator
    table = {"preset": given} if isinstance(given, str) else dict(given)

    def chip(value: float) -> Accelerator:
        changed = {**table, name: {"value": value, "unit": unit}}
        return build(expand_presets(changed, Accelerator, ACCELERATOR), Accelerator, ACCELERATOR, {})

    return Axis.choice(
        ACCELERATOR, {f"{name} = {format_quantity(value, unit)}": chip(value) for value in map(float, axis.values)}
    )


def layout_axis(scenario: Scenario, text: str, minimize: str = "energy") -> Axis:
    """All layouts that fit in memory, or as many of them as asked for, those that a coarse grid ranks best.

    **Raises:** `InputError` where none fits, or the text is not a number.
    """
    count = text.strip().removesuffix("layouts").strip()
    number = whole_number(count)
    if count != ALL and not number:
        raise InputError(f'axis {LAYOUT}: "{text}" is neither "{ALL}" nor a number of layouts, such as 64.')
    with jax.enable_x64(True):
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        problem = formulate(dataclasses.replace(scenario, optimize=Question(minimize)), baseline)
        chips = float(scenario.plan.chips)
        layouts = candidates(problem.run, chips)
        layouts = take(layouts, np.flatnonzero(fits(problem, layouts, chips)))
        if not len(layouts.tensor):
            raise InputError(f"axis {LAYOUT}: no layout of {chips:g} chips fits in their memory. Raise plan.chips.")
        if number:
            layouts = take(layouts, np.sort(screen(problem, layouts, COARSE).best(number)))
    axis = Axis(LAYOUT, layouts)
    return dataclasses.replace(axis, labels=tuple(layout_label(axis.at(row)) for row in range(len(axis))))
