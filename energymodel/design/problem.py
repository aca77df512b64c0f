"""What may be changed, what is minimized and what must hold: a scenario as a problem in logarithms."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.constants import ZERO_CELSIUS
from energymodel.errors import InputError, suggest
from energymodel.numerics import Numeric
from energymodel.presets.scenario import Scenario
from energymodel.presets.validate import check_measured, check_target
from energymodel.solver.minimize import Values
from energymodel.system.evaluate import evaluate
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import (
    AT_LEAST,
    limited_values,
    log_objective,
    parse_limit,
    parse_objective,
)
from energymodel.system.plan import ParallelLayout, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.units import parse_quantity

USUAL_OBJECTIVES = ("energy", "time", "money", "carbon")
USUAL_ROWS = ("time", "facility_power", "temperature", "memory", "heat_flux", "energy", "money", "carbon")
"""Outputs that a form serves whether they are asked for or not, so that one program does for most questions."""
FAR = 1e9  # of the scenario's own value: a limit that was not asked for
TOKENS = "plan.goal.tokens"
CAP = "plan.power_cap"
TOKEN_RANGE = 100.0
COUNTED = ("plan.batch", "plan.chips")  # made of whole micro-batches and replicas
BATCH_RANGE = 64.0
LEAST_RATIO = 1e-12  # of an output to its limit: what costs nothing breaks nothing
COOLANT_RANGE = (ZERO_CELSIUS + 10.0, ZERO_CELSIUS + 45.0)  # docs/physics.md C


class Target(eqx.Module):
    """What is wanted: powers of the outputs whose product is minimized, and limits in SI; by name of output."""

    powers: dict[str, Any]
    limits: dict[str, Any]


class Given(eqx.Module):
    """The numbers of a scenario."""

    system: TrainingSystem
    plan: TrainingPlan


@dataclasses.dataclass(frozen=True)
class Form:
    """The form of a problem: which paths vary, which outputs may be minimized or limited. Hashable.

    Calling it gives the logarithm of the objective and of value over limit (limit over value where more is better),
    at the coordinates of the variables: their logarithms, or for paths in `affine` their values. What is minimized
    and how much is allowed are numbers, so that one compiled program answers all questions of a form.
    """

    paths: tuple[str, ...]
    objectives: tuple[str, ...] = USUAL_OBJECTIVES
    rows: tuple[str, ...] = USUAL_ROWS
    affine: tuple[str, ...] = ()

    def __call__(
        self, point: Float[Array | np.ndarray, " n"], layout: ParallelLayout, target: Target, given: Given
    ) -> Values:
        """Objective and rows, `microbatches` (at least one per replica) last."""
        return _values(self, jnp.asarray(point), layout, target, given)

    def values(self, point: Array, layout: ParallelLayout, target: Target, given: Given) -> Values:
        """The same, traced anew at every call."""
        system, plan = self.at(point, layout, target, given)
        outcome = evaluate(system, plan)
        values = limited_values(system, plan, outcome)
        rows = [excess(name, values[name], target.limits[name]) for name in self.rows]
        group = layout.tensor * layout.pipeline * layout.context
        least_batch = plan.chips / group * layout.microbatch * system.workload.sequence
        rows.append(jnp.log(least_batch / jnp.reshape(plan.batch, ())))
        powers = {name: target.powers[name] for name in self.objectives}
        return Values(log_objective(outcome, powers), jnp.stack(rows))

    def at(
        self, point: Float[Array | np.ndarray, " n"], layout: ParallelLayout, target: Target, given: Given
    ) -> tuple[TrainingSystem, TrainingPlan]:
        """System and plan at a point, in a layout; the goal is the limit of the loss, unless the tokens vary."""
        system, plan = given.system, given.plan
        goal = TokenBudget(jnp.ones(())) if TOKENS in self.paths else TargetLoss(target.limits["loss"])
        plan = eqx.tree_at(lambda plan: (plan.layout, plan.goal), plan, (layout, goal))
        for index, path in enumerate(self.paths):
            value = point[index] if path in self.affine else jnp.exp(point[index])
            if path.startswith("system."):
                system = replace_leaf(system, path.removeprefix("system."), value)
            else:
                plan = replace_leaf(plan, path.removeprefix("plan."), value)
        return system, plan

    def coordinate(self, path: str, value: Any) -> Any:
        """Coordinate of a variable at a value."""
        return value if path in self.affine else np.log(value)


def excess(name: str, value: Numeric, limit: Numeric) -> Float[Array, "..."]:
    """Logarithm by which an output breaks its limit; negative where it keeps it [1]."""
    ratio = jnp.asarray(value) / limit
    return -jnp.log(ratio) if name in AT_LEAST else jnp.log(jnp.maximum(ratio, LEAST_RATIO))


# One trace of the model serves all derivatives and batches of it: tracing is most of the time of a second run.
_values = jax.jit(Form.values, static_argnums=0, inline=True)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A scenario to optimize: form, numbers, what is wanted, and bounds of the variables in SI.

    `limits` are those that hold; the target has far ones for the other rows of the form.
    """

    form: Form
    given: Given
    target: Target
    minimize: str
    limits: Mapping[str, float]
    bounds: Mapping[str, tuple[float, float]]
    choices: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """Ranges of fields of the layout; others take all values that make sense."""

    def boxes(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates of both bounds, one line for each of so many lanes."""
        sides = zip(*(self.form.coordinate(path, np.array(self.bounds[path])) for path in self.form.paths), strict=True)
        least, most = (np.tile(np.array(side), (count, 1)) for side in sides)
        return least, most

    def start(self, path: str) -> float:
        """The scenario's own value of a variable, within its bounds."""
        low, high = self.bounds[path]
        own = math.sqrt(low * high) if path == TOKENS else float(np.reshape(leaf_at(self.given, path), ()))
        return min(max(own, low), high)

    def targets(self, count: int) -> Target:
        """The target for each of so many lanes."""
        return jax.tree.map(lambda leaf: np.full(count, leaf), self.target)

    def with_limit(self, name: str, value: float) -> "Problem":
        """The same problem with another value of a limit that holds."""
        limits = {**self.target.limits, name: np.asarray(value, np.float64)}
        bounds = dict(self.bounds)
        if name == "chips" and "plan.chips" in bounds:
            bounds["plan.chips"] = (bounds["plan.chips"][0], value)
        return dataclasses.replace(
            self, target=Target(self.target.powers, limits), limits={**self.limits, name: value}, bounds=bounds
        )

    def index(self, path: str) -> int | None:
        """Place of a variable in the solver's vector, if it varies."""
        return self.form.paths.index(path) if path in self.form.paths else None


def pose(
    scenario: Scenario,
    baseline: TrainingOutcome,
    minimize: str,
    limits: Mapping[str, Any],
    vary: Mapping[str, tuple[Any, Any]],
    fix: Sequence[str],
    free: Sequence[str] = (),
) -> Problem:
    """Pose the problem of a scenario; the baseline's loss, time and chips are limits unless others are given.

    Outputs in `free` have no limit unless it is given, but a row and a power in the objective that lanes may set.

    **Raises:** `InputError` for an unknown objective, limit or path, or bounds that exclude each other.
    """
    objective = parse_objective(minimize)
    system, plan = scenario.system, scenario.plan
    if plan.knots != 1:
        raise InputError("plan.batch: a schedule of several knots is not optimized; give one constant batch.")
    asked = {
        "time": float(baseline.time),
        "chips": float(plan.chips),
        "loss": float(baseline.loss),
        "facility_power": float(system.facility.power_limit),
        "temperature": float(system.accelerator.maximum_temperature),
        "memory": float(system.accelerator.memory_capacity),
        "heat_flux": float(system.facility.cooling.heat_flux_limit()),
    } | {name: parse_limit(name, value) for name, value in limits.items()}
    dropped = free or (objective.names() if len(objective.factors) == 1 else ())
    asked = {name: value for name, value in asked.items() if name in limits or name not in dropped}
    wanted = {*objective.names(), *free}
    bounds, choices = _bounds(scenario, baseline, asked, vary, fix, tokens="loss" in wanted)
    goal_varies = TOKENS in bounds
    if "loss" in asked:
        check_target(system, asked["loss"], "limit loss")
    not_rows = ("chips",) if goal_varies else ("chips", "loss")  # a bound of a variable, and the goal
    affine = tuple(path for path, (low, _) in bounds.items() if low <= 0.0)
    objectives = tuple(dict.fromkeys((*USUAL_OBJECTIVES, *objective.names(), *free)))
    rows = tuple(dict.fromkeys((*USUAL_ROWS, *free, *(name for name in asked if name not in not_rows))))
    form = Form(tuple(bounds), objectives, rows, affine)
    now = limited_values(system, plan, baseline)
    far = {name: now[name] * (1.0 / FAR if name in AT_LEAST else FAR) for name in rows if name not in asked}
    powers = dict.fromkeys(objectives, 0.0) | dict(objective.factors)
    numbers = Target(powers, {**asked, **far})
    target = jax.tree.map(lambda value: np.asarray(value, np.float64), numbers)
    return Problem(form, Given(system, plan), target, minimize, asked, bounds, choices)


def _bounds(
    scenario: Scenario, baseline: TrainingOutcome, asked: Mapping[str, float],
    vary: Mapping[str, tuple[Any, Any]], fix: Sequence[str], *, tokens: bool,
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]:  # fmt: skip
    """Ranges of the variables, and of the fields of the layout; `tokens` vary where the loss is an objective."""
    plan = scenario.plan
    batch, run = float(np.reshape(plan.batch, ())), float(baseline.tokens)
    chips, node = asked.get("chips", float(plan.chips)), float(scenario.system.node.chips)
    bounds = {
        "plan.batch": (batch / BATCH_RANGE, batch * BATCH_RANGE),
        "plan.clock": (float(scenario.system.accelerator.minimum_clock), 1.0),
        "plan.coolant_temperature": COOLANT_RANGE,
        "plan.chips": (min(node, chips), chips),
    }
    if tokens:
        bounds[TOKENS] = (run / TOKEN_RANGE, run * TOKEN_RANGE)
    choices = {}
    for path, (low, high) in vary.items():
        ends = range_of(scenario, path, low, high)
        if path.startswith("plan.layout."):
            choices[path.removeprefix("plan.layout.")] = ends
        else:
            bounds[path] = ends
    for path in fix:
        if path not in scenario.provenance:
            raise InputError(f'Unknown path "{path}" to fix. {suggest(path, scenario.provenance)}')
        bounds.pop(path, None)
        if path.startswith("plan.layout."):
            name = path.removeprefix("plan.layout.")
            choices[name] = (float(getattr(plan.layout, name)),) * 2
    if not bounds:
        raise InputError("Nothing is left to vary: every variable is fixed. Fix fewer paths or vary another.")
    if "plan.chips" in bounds:
        low, high = bounds["plan.chips"]
        if low > asked["chips"]:
            raise InputError(f"plan.chips: at least {low:g} is more than the limit of {asked['chips']:g} chips.")
        bounds["plan.chips"] = (low, min(high, asked["chips"]))
    return bounds, choices


def range_of(scenario: Scenario, path: str, low: Any, high: Any) -> tuple[float, float]:
    """Range of a variable in SI, from text or numbers.

    **Raises:** `InputError` for an unknown path, what is no range, or power caps below the lowest one measured.
    """
    if path == "plan.goal.loss":
        raise InputError("plan.goal.loss: the loss is held at its limit; give --limit loss=..., or minimize loss.")
    if path != TOKENS and path not in scenario.provenance:
        raise InputError(f'Unknown path "{path}" to vary. {suggest(path, scenario.provenance)}')
    unit = "token" if path == TOKENS else scenario.provenance[path].unit
    ends = [parse_quantity(end, unit, path) if isinstance(end, str) else float(end) for end in (low, high)]
    if not (ends[0] <= ends[1] and math.isfinite(ends[0]) and math.isfinite(ends[1])):
        raise InputError(f"{path}: {low} to {high} is not a range of numbers.")
    if path in (*COUNTED, TOKENS) and ends[0] <= 0.0:
        raise InputError(f"{path}: {low} to {high} is not a range of positive numbers.")
    if path == CAP:
        check_measured(scenario.system, ends[0], scenario.tables.get("calibration"))
    return ends[0], ends[1]


def leaf_at(given: Given, path: str) -> Any:
    """The scenario's own value at a dotted path."""
    node: Any = given
    for part in path.split("."):
        node = getattr(node, part)
    return node


def replace_leaf(tree: Any, path: str, value: Numeric) -> Any:
    """The same tree with another leaf at a dotted path; shape and structure stay."""

    def leaf(node: Any) -> Any:
        for part in path.split("."):
            node = getattr(node, part)
        return node

    return eqx.tree_at(leaf, tree, jnp.reshape(value, jnp.shape(leaf(tree))))
