"""A scenario as a function of the numbers and components at some dotted paths, which are the axes of a sweep."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.learning.loss_law import UNREACHABLE_TOKENS
from energymodel.runtime.placement import beside_accelerator
from energymodel.scenarios.checks import check_values
from energymodel.scenarios.clock_scale import CLOCK, ClockScale
from energymodel.scenarios.components import build, chosen_numbers
from energymodel.scenarios.question import Question
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.search.layouts import fits, layout_label, take
from energymodel.search.problem import formulate
from energymodel.search.relaxation import COARSE, screen
from energymodel.search.training_run import LIMITS_OF_SYSTEM, MICROBATCHES, TrainingRun, outputs_at, replace_leaf
from energymodel.sweeps.axes import Axis, Range, parse_axis
from energymodel.system.accelerator import Accelerator
from energymodel.system.evaluate import evaluate, evaluate_once
from energymodel.system.layouts import candidates
from energymodel.system.outputs import AT_LEAST, OUTPUTS, limited_values, parse_limit
from energymodel.system.plan import TargetLoss, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.units import format_quantity, whole_number

LAYOUT = "plan.layout"
ACCELERATOR = "system.accelerator"
CAP = "plan.power_cap"
MOST_CHIPS = 4096  # made one by one
ALL = "all"
PER_REPLICA = "microbatches_per_replica"
HARD_LIMITS: Mapping[str, Range] = dict.fromkeys(LIMITS_OF_SYSTEM, (0.0, math.inf)) | {PER_REPLICA: (1.0, math.inf)}
"""Limits that hold in every sweep of a scenario: what the hardware and the building allow."""
UNITS: Mapping[str, str] = {**OUTPUTS, **dict.fromkeys(HARD_LIMITS, "1")}
REACHABLE = 0.5 * UNREACHABLE_TOKENS  # tokens beyond which a point does not reach the loss that is held
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

    @property
    def target_loss(self) -> float | None:
        """Loss to which every point trains [nat/token], unless its tokens are stated."""
        return float(self.plan.goal.loss) if isinstance(self.plan.goal, TargetLoss) else None

    def _values(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values with a power cap that each accelerator among them may draw, where the own one has no lower cap."""
        if ACCELERATOR not in values or CAP in values:
            return values
        cap, rated = self.plan.power_cap, values[ACCELERATOR].rated_power
        is_rated = cap >= self.system.accelerator.rated_power * (1.0 - ROUNDING)
        return {**values, CAP: jnp.where(is_rated, rated, jnp.minimum(cap, rated))}

    def many(self, rows: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs at many points, on the host in float64: one program, kept between processes, for all axes.

        - `rows`: values at each path, with a leading axis of points.
        """
        rows = self._values(rows)
        system, plan = self.at(jax.tree.map(lambda leaf: leaf[0], rows))
        run = TrainingRun(system, eqx.tree_at(lambda plan: plan.batch, plan, jnp.reshape(plan.batch, (1,))))
        count = len(jax.tree.leaves(rows)[0])
        vectors, columns = np.tile(run.vector, (count, 1)), run.places
        for path in _outer_first(rows):
            inner = [column for own, column in columns.items() if own == path or own.startswith(f"{path}.")]
            for column, leaf in zip(inner, jax.tree.leaves(rows[path]), strict=True):
                vectors[:, column] = np.reshape(leaf, (count, -1))
        outputs = outputs_at(run, vectors)
        with np.errstate(divide="ignore"):  # where nothing at all is left of a limit
            slack = {name: np.log(outputs[name]) for name in LIMITS_OF_SYSTEM}
        smallest = outputs[MICROBATCHES] / (1.0 + ROUNDING)
        return {**{name: outputs[name] for name in OUTPUTS}, **slack, PER_REPLICA: 1.0 / smallest}

    def at(self, values: Mapping[str, Any]) -> tuple[TrainingSystem, TrainingPlan]:
        """System and plan with other values at some paths, components before the numbers within them."""
        roots: dict[str, Any] = {"system": self.system, "plan": self.plan}
        values = self._values(values)
        for path in _outer_first(values):
            (root, _, rest), value = path.partition("."), values[path]
            if isinstance(value, eqx.Module):
                roots[root] = eqx.tree_at(lambda node, rest=rest: follow(node, rest), roots[root], value)
            else:
                roots[root] = replace_leaf(roots[root], rest, value)
        return roots["system"], roots["plan"]


def _outer_first(paths: Iterable[str]) -> list[str]:
    return sorted(paths, key=lambda path: path.count("."))


def follow(node: Any, path: str) -> Any:
    """The attribute at a dotted path."""
    for part in path.split("."):
        node = getattr(node, part)
    return node


def model_and_limits(
    what: Scenario | Callable[..., Any], limits: Mapping[str, Any], *, holds_loss: bool = False
) -> tuple[Callable[..., Any], dict[str, Range]]:
    """The model of one point, and ranges of its outputs in SI; a scenario adds those of its hardware and building.

    - `holds_loss`: whether each point trains to the limit of the loss, or else to the loss of the scenario's own plan.

    **Raises:** `InputError` for an unknown output, a value in another unit, or a schedule of the batch.
    """
    if not isinstance(what, Scenario):
        return what, {name: _range(name, limit) for name, limit in limits.items()}
    if what.plan.knots != 1:
        raise InputError(
            "plan.batch: a sweep needs one constant batch, not a schedule of several knots. Give one value."
        )
    numbers = {name: parse_limit(name, value) for name, value in limits.items()}
    ranges = {name: (end, math.inf) if name in AT_LEAST else (-math.inf, end) for name, end in numbers.items()}
    # One number instead of an array of one: kernels take scalars.
    plan = eqx.tree_at(lambda plan: plan.batch, what.plan, jnp.reshape(what.plan.batch, ()))
    if holds_loss:
        with jax.enable_x64(True):
            loss = numbers.get("loss") or float(evaluate_once(what.system, what.plan).loss)
        plan = eqx.tree_at(lambda plan: plan.goal, plan, TargetLoss(np.asarray(loss)))
        ranges.pop("loss", None)
        ranges["tokens"] = numbers.get("tokens", -math.inf), REACHABLE
    return ScenarioModel(what.system, plan), {**HARD_LIMITS, **ranges}


def _range(name: str, limit: Any) -> Range:
    """The largest value, or both ends."""
    try:
        low, high = limit if isinstance(limit, tuple | list) else (-math.inf, limit)
        return float(low), float(high)
    except (TypeError, ValueError):
        raise InputError(f"limit {name}: {limit!r} is neither a number nor (lowest, highest).") from None


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
            values = Axis.of(path, [scale.share_of(float(clock), f"axis {path}") for clock in clocks.values])
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
    """Accelerators that follow from a near-limit preset, one of whose chosen numbers takes the values of an axis."""
    if len(axis) > MOST_CHIPS:
        raise InputError(f"axis {axis.name}: {len(axis):,} accelerators. Give at most {MOST_CHIPS:,} values.")
    table = scenario.accelerator
    table = {"preset": table} if isinstance(table, str) else dict(table)

    def chip(value: float) -> Accelerator:
        changed = {**table, name: {"value": value, "unit": unit}}
        return build(changed, Accelerator, ACCELERATOR, {})

    return Axis.choice(
        ACCELERATOR, {f"{name} = {format_quantity(value, unit)}": chip(value) for value in map(float, axis.values)}
    )


def layout_axis(scenario: Scenario, text: str, minimize: str = "energy") -> Axis:
    """All layouts that fit in memory, or as many of them as asked for, those that a coarse grid ranks best."""
    count = text.strip().removesuffix("layouts").strip()
    number = whole_number(count)
    if count != ALL and not number:
        raise InputError(f'axis {LAYOUT}: "{text}" is neither "{ALL}" nor a number of layouts, such as 64.')
    with jax.enable_x64(True), beside_accelerator():
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        problem = formulate(dataclasses.replace(scenario, optimize=Question(minimize)), baseline)
        chips = float(scenario.plan.chips)
        layouts = candidates(scenario.system, scenario.plan.layout, chips)
        layouts = take(layouts, np.flatnonzero(fits(problem, layouts, chips)))
        if not len(layouts.tensor):
            raise InputError(f"axis {LAYOUT}: no layout of {chips:g} chips fits in their memory. Raise plan.chips.")
        if number:
            layouts = take(layouts, np.sort(screen(problem, layouts, COARSE).best(number)))
    axis = Axis(LAYOUT, layouts)
    return dataclasses.replace(axis, labels=tuple(layout_label(axis.at(row)) for row in range(len(axis))))
