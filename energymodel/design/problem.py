"""What may be changed, what is minimized and what must hold: a scenario as a problem in logarithms."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.constants import ZERO_CELSIUS
from energymodel.design.solve import Values
from energymodel.numerics import Numeric
from energymodel.presets.files import suggest
from energymodel.presets.scenario import Scenario
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import ParallelLayout, TargetLoss, TrainingPlan
from energymodel.system.training_system import TrainingSystem, evaluate
from energymodel.units import InputError, parse_quantity

OBJECTIVES = {"energy": "J", "time": "s", "money": "USD", "carbon": "kg", "etp": "J s"}
LIMITS = {
    "time": "s",
    "facility_power": "W",
    "money": "USD",
    "carbon": "kg",
    "loss": "nat/token",
    "chips": "1",
    "temperature": "K",
    "memory": "B",
    "heat_flux": "W/m^2",
}
BATCH_RANGE = 64.0
COOLANT_RANGE = (ZERO_CELSIUS + 10.0, ZERO_CELSIUS + 45.0)  # docs/physics.md C
DEFAULT_VARIABLES = ("plan.batch", "plan.clock", "plan.coolant_temperature", "plan.chips")

Scalar = Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A scenario to optimize: continuous variables with bounds, one objective, limits in SI."""

    system: TrainingSystem
    plan: TrainingPlan
    minimize: str
    variables: Mapping[str, tuple[float, float]]
    limits: Mapping[str, float]

    @property
    def paths(self) -> tuple[str, ...]:
        """Dotted paths of the variables, in the order of the solver's vector."""
        return tuple(self.variables)

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the inequalities, in the order of the solver's rows."""
        return (*(name for name in self.limits if name not in ("chips", "loss")), "microbatches")

    def at(self, logarithms: Float[Array, " n"], layout: ParallelLayout) -> tuple[TrainingSystem, TrainingPlan]:
        """System and plan at a point, in a layout."""
        system, plan = self.system, eqx.tree_at(lambda plan: plan.layout, self.plan, layout)
        for index, path in enumerate(self.paths):
            value = jnp.exp(logarithms[index])
            if path.startswith("system."):
                system = replace_leaf(system, path.removeprefix("system."), value)
            else:
                plan = replace_leaf(plan, path.removeprefix("plan."), value)
        return system, plan

    def __call__(self, logarithms: Float[Array, " n"], layout: ParallelLayout, loss: Numeric) -> Values:
        """Logarithm of the objective and of value over limit, at a loss to be reached."""
        system, plan = self.at(logarithms, layout)
        plan = eqx.tree_at(lambda plan: plan.goal, plan, TargetLoss(loss))
        outcome = evaluate(system, plan)
        values = limited_values(system, plan, outcome)
        ratios = [jnp.log(values[name] / self.limits[name]) for name in self.rows[:-1]]
        group = layout.tensor * layout.pipeline * layout.context
        least_batch = plan.chips / group * layout.microbatch * system.workload.sequence
        ratios.append(jnp.log(least_batch / jnp.reshape(plan.batch, ())))
        return Values(jnp.log(objective_value(outcome, self.minimize)), jnp.stack(ratios))


def pose(
    scenario: Scenario,
    baseline: TrainingOutcome,
    minimize: str,
    limits: Mapping[str, Any],
    vary: Mapping[str, tuple[Any, Any]],
    fix: Sequence[str],
) -> Problem:
    """Pose the problem of a scenario: its own wishes, then those given; the baseline's time and chips are limits.

    **Raises:** `InputError` for an unknown objective, limit or path, or bounds that exclude each other.
    """
    if minimize not in OBJECTIVES:
        raise InputError(f'Unknown objective "{minimize}". {suggest(minimize, OBJECTIVES)}')
    system, plan = scenario.system, scenario.plan
    if plan.knots != 1:
        raise InputError("plan.batch: a schedule of several knots cannot be optimized yet; give one constant batch.")
    bounds = {
        "time": float(baseline.time),
        "chips": float(plan.chips),
        "loss": float(baseline.loss),
        "facility_power": float(system.facility.power_limit),
        "temperature": float(system.accelerator.maximum_temperature),
        "memory": float(system.accelerator.memory_capacity),
        "heat_flux": float(system.facility.cooling.heat_flux_limit()),
    }
    for name, given in limits.items():
        if name not in LIMITS:
            raise InputError(f'Unknown limit "{name}". {suggest(name, LIMITS)}')
        value = parse_quantity(given, LIMITS[name], f"limit {name}") if isinstance(given, str) else float(given)
        if not (math.isfinite(value) and value > 0.0):
            raise InputError(f"limit {name}: {given} is not a positive number.")
        bounds[name] = value
    batch = float(np.reshape(plan.batch, ()))
    ranges = {
        "plan.batch": (batch / BATCH_RANGE, batch * BATCH_RANGE),
        "plan.clock": (float(system.accelerator.minimum_clock), 1.0),
        "plan.coolant_temperature": COOLANT_RANGE,
        "plan.chips": (1.0, bounds["chips"]),
    }
    for path, (low, high) in vary.items():
        ranges[path] = _range(scenario, path, low, high)
    for path in fix:
        if path not in scenario.provenance:
            raise InputError(f'Unknown path "{path}" to fix. {suggest(path, scenario.provenance)}')
        ranges.pop(path, None)
    if not ranges:
        raise InputError("Nothing is left to vary: every variable is fixed. Fix fewer paths or vary another.")
    low, high = ranges.get("plan.chips", (1.0, bounds["chips"]))
    if "plan.chips" in ranges:
        ranges["plan.chips"] = (low, min(high, bounds["chips"]))
    return Problem(system=system, plan=plan, minimize=minimize, variables=ranges, limits=bounds)


def _range(scenario: Scenario, path: str, low: Any, high: Any) -> tuple[float, float]:
    if path not in scenario.provenance:
        raise InputError(f'Unknown path "{path}" to vary. {suggest(path, scenario.provenance)}')
    if path.startswith("plan.layout.") or path.startswith("plan.goal."):
        raise InputError(f"{path}: layouts are compared one by one and the goal is held; vary another path.")
    unit = scenario.provenance[path].unit
    ends = [parse_quantity(end, unit, path) if isinstance(end, str) else float(end) for end in (low, high)]
    if not (0.0 < ends[0] <= ends[1] and math.isfinite(ends[1])):
        raise InputError(f"{path}: {low} to {high} is not a range of positive numbers.")
    return ends[0], ends[1]


def objective_value(outcome: TrainingOutcome, minimize: str) -> Scalar:
    """The quantity to minimize [J, s, USD, kg or J s]."""
    return {
        "energy": outcome.energy.total,
        "time": outcome.time,
        "money": outcome.money,
        "carbon": outcome.carbon,
        "etp": outcome.etp,
    }[minimize]


def limited_values(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome) -> dict[str, Scalar]:
    """What each limit is compared with, in the unit of `LIMITS`."""
    return {
        "time": outcome.time,
        "facility_power": outcome.power_peak,
        "money": outcome.money,
        "carbon": outcome.carbon,
        "loss": outcome.loss,
        "chips": jnp.asarray(plan.chips),
        "temperature": outcome.temperature,
        "memory": outcome.memory_per_chip,
        "heat_flux": outcome.power_busy / system.accelerator.die_area,
    }


def replace_leaf(tree: Any, path: str, value: Any) -> Any:
    """The same tree with another leaf at a dotted path; shape and structure stay."""

    def leaf(node: Any) -> Any:
        for part in path.split("."):
            node = getattr(node, part)
        return node

    return eqx.tree_at(leaf, tree, jnp.reshape(value, jnp.shape(leaf(tree))))
