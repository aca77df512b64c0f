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
from energymodel.design.solve import Values
from energymodel.numerics import Numeric
from energymodel.presets.files import suggest
from energymodel.presets.scenario import Scenario
from energymodel.presets.validate import check_target
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
NOT_ROWS = ("chips", "loss")  # a bound of a variable, and the goal
BATCH_RANGE = 64.0
COOLANT_RANGE = (ZERO_CELSIUS + 10.0, ZERO_CELSIUS + 45.0)  # docs/physics.md C


class Given(eqx.Module):
    """The numbers of a problem, all of which a solution may be differentiated by; limits in SI."""

    system: TrainingSystem
    plan: TrainingPlan
    limits: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Form:
    """The form of a problem: which paths vary, what is minimized, which limits are rows. Hashable, so it compiles once.

    Calling it gives the logarithm of the objective and of value over limit, at the logarithms of the variables.
    """

    minimize: str
    paths: tuple[str, ...]
    rows: tuple[str, ...]

    def __call__(self, logarithms: Float[Array | np.ndarray, " n"], layout: ParallelLayout, given: Given) -> Values:
        """Objective and rows, `microbatches` (at least one per replica) last."""
        return _values(self, jnp.asarray(logarithms), layout, given)

    def values(self, logarithms: Array, layout: ParallelLayout, given: Given) -> Values:
        """The same, traced anew at every call."""
        system, plan = self.at(logarithms, layout, given)
        outcome = evaluate(system, plan)
        values = limited_values(system, plan, outcome)
        ratios = [jnp.log(values[name] / given.limits[name]) for name in self.rows]
        group = layout.tensor * layout.pipeline * layout.context
        least_batch = plan.chips / group * layout.microbatch * system.workload.sequence
        ratios.append(jnp.log(least_batch / jnp.reshape(plan.batch, ())))
        return Values(jnp.log(objective_value(outcome, self.minimize)), jnp.stack(ratios))

    def at(
        self, logarithms: Float[Array | np.ndarray, " n"], layout: ParallelLayout, given: Given
    ) -> tuple[TrainingSystem, TrainingPlan]:
        """System and plan at a point, in a layout, with the loss limit as goal."""
        system, plan = given.system, given.plan
        goal = TargetLoss(given.limits["loss"])
        plan = eqx.tree_at(lambda plan: (plan.layout, plan.goal), plan, (layout, goal))
        for index, path in enumerate(self.paths):
            value = jnp.exp(logarithms[index])
            if path.startswith("system."):
                system = replace_leaf(system, path.removeprefix("system."), value)
            else:
                plan = replace_leaf(plan, path.removeprefix("plan."), value)
        return system, plan


# One trace of the model serves all derivatives and batches of it: tracing is most of the time of a second run.
_values = jax.jit(Form.values, static_argnums=0, inline=True)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A scenario to optimize: form, numbers, and bounds of the variables in SI."""

    form: Form
    given: Given
    bounds: Mapping[str, tuple[float, float]]
    kept: tuple[str, ...] = ()
    """Fields of the layout that stay as the scenario has them."""

    @property
    def least(self) -> np.ndarray:
        """Lower bounds, in the order of the solver's vector."""
        return np.array([self.bounds[path][0] for path in self.form.paths])

    @property
    def most(self) -> np.ndarray:
        """Upper bounds, in the order of the solver's vector."""
        return np.array([self.bounds[path][1] for path in self.form.paths])

    def boxes(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of both bounds, one line for each of so many lanes."""
        return np.tile(np.log(self.least), (count, 1)), np.tile(np.log(self.most), (count, 1))

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
) -> Problem:
    """Pose the problem of a scenario; the baseline's loss, time and chips are limits unless others are given.

    **Raises:** `InputError` for an unknown objective, limit or path, or bounds that exclude each other.
    """
    if minimize not in OBJECTIVES:
        raise InputError(f'Unknown objective "{minimize}". {suggest(minimize, OBJECTIVES)}')
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
    } | {name: _limit(name, value) for name, value in limits.items()}
    if minimize in asked and minimize not in limits:
        del asked[minimize]
    check_target(system, asked["loss"], "limit loss")
    batch = float(np.reshape(plan.batch, ()))
    bounds = {
        "plan.batch": (batch / BATCH_RANGE, batch * BATCH_RANGE),
        "plan.clock": (float(system.accelerator.minimum_clock), 1.0),
        "plan.coolant_temperature": COOLANT_RANGE,
        "plan.chips": (1.0, asked["chips"]),
    }
    bounds |= {path: _range(scenario, path, low, high) for path, (low, high) in vary.items()}
    for path in fix:
        if path not in scenario.provenance:
            raise InputError(f'Unknown path "{path}" to fix. {suggest(path, scenario.provenance)}')
        bounds.pop(path, None)
    kept = tuple(path.removeprefix("plan.layout.") for path in fix if path.startswith("plan.layout."))
    if not bounds:
        raise InputError("Nothing is left to vary: every variable is fixed. Fix fewer paths or vary another.")
    if "plan.chips" in bounds:
        low, high = bounds["plan.chips"]
        if low > asked["chips"]:
            raise InputError(f"plan.chips: at least {low:g} is more than the limit of {asked['chips']:g} chips.")
        bounds["plan.chips"] = (low, min(high, asked["chips"]))
    form = Form(minimize, tuple(bounds), tuple(name for name in asked if name not in NOT_ROWS))
    given = Given(system, plan, {name: np.asarray(value, np.float64) for name, value in asked.items()})
    return Problem(form, given, bounds, kept)


def _limit(name: str, value: Any) -> float:
    if name not in LIMITS:
        raise InputError(f'Unknown limit "{name}". {suggest(name, LIMITS)}')
    number = parse_quantity(value, LIMITS[name], f"limit {name}") if isinstance(value, str) else float(value)
    if not (math.isfinite(number) and number > 0.0):
        raise InputError(f"limit {name}: {value} is not a positive number in {LIMITS[name]}.")
    return number


def _range(scenario: Scenario, path: str, low: Any, high: Any) -> tuple[float, float]:
    if path not in scenario.provenance:
        raise InputError(f'Unknown path "{path}" to vary. {suggest(path, scenario.provenance)}')
    if path.startswith(("plan.layout.", "plan.goal.")):
        raise InputError(f"{path}: layouts are compared one by one and the goal is held; vary another path.")
    unit = scenario.provenance[path].unit
    ends = [parse_quantity(end, unit, path) if isinstance(end, str) else float(end) for end in (low, high)]
    if not (0.0 < ends[0] <= ends[1] and math.isfinite(ends[1])):
        raise InputError(f"{path}: {low} to {high} is not a range of positive numbers.")
    return ends[0], ends[1]


def objective_value(outcome: TrainingOutcome, minimize: str) -> Any:
    """The quantity to minimize [J, s, USD, kg or J s]."""
    return {
        "energy": outcome.energy.total,
        "time": outcome.time,
        "money": outcome.money,
        "carbon": outcome.carbon,
        "etp": outcome.etp,
    }[minimize]


def limited_values(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome) -> dict[str, Any]:
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


def replace_leaf(tree: Any, path: str, value: Numeric) -> Any:
    """The same tree with another leaf at a dotted path; shape and structure stay."""

    def leaf(node: Any) -> Any:
        for part in path.split("."):
            node = getattr(node, part)
        return node

    return eqx.tree_at(leaf, tree, jnp.reshape(value, jnp.shape(leaf(tree))))
