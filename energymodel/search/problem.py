"""A scenario as a problem in logarithms: variables, objective, limits and bounds."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.errors import InputError
from energymodel.numerics import Numeric
from energymodel.ranges import declaration
from energymodel.scenarios.checks import check_target
from energymodel.scenarios.clock_scale import CLOCK
from energymodel.scenarios.components import OFFERS
from energymodel.scenarios.files import inlet_class
from energymodel.scenarios.question import BATCH, OVER_PROGRESS, TOKENS
from energymodel.scenarios.scenario import Scenario
from energymodel.search.training_run import TrainingRun, replace_leaf
from energymodel.solver import Values
from energymodel.system.evaluate import evaluate
from energymodel.system.layouts import SCHEDULING, SEARCHED
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import (
    AT_LEAST,
    LIMIT_OF_SLACK,
    OwnOutput,
    check_own_outputs,
    is_output,
    limited_values,
    limits_of_system,
    log_objective,
    own_outputs,
    parse_objective,
)
from energymodel.system.plan import SCHEDULES, ParallelLayout, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.units import format_quantity

USUAL_OBJECTIVES = ("energy", "time", "money", "carbon")
USUAL_ROWS = (*LIMIT_OF_SLACK.values(), "time", "energy", "money", "carbon")
"""Outputs that a formulation serves whether they are asked for or not: one compiled program answers most questions."""
FAR = 1e9  # of the scenario's own value: a limit that was not asked for
LEEWAY = 1.05  # time over that of a layout that nobody gave: it is the fastest, so that no other has its time
TOKEN_RANGE = 100.0
BATCH_RANGE = 64.0
COOLANT = "plan.coolant_temperature"
ROUNDING = 1e-9  # of a conversion from °C
SMALLEST_RATIO = 1e-12  # of an output to its limit: what costs nothing breaks nothing


class Criteria(eqx.Module):
    """Powers of the outputs whose product is minimized, and limits in SI; by name of output."""

    powers: dict[str, Any]
    limits: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Formulation:
    """The structure of a problem: which paths vary, which outputs may be minimized or limited. Hashable.

    What is minimized and how much is allowed are numbers, so that one compiled program answers all questions of this
    structure. Coordinates are logarithms of the variables, or for paths in `affine` their values. `own` are the outputs
    among them that a user defined. With `knots` the logarithms of the batch at so many knots of progress come before
    the other coordinates.
    """

    paths: tuple[str, ...]
    objectives: tuple[str, ...] = USUAL_OBJECTIVES
    rows: tuple[str, ...] = USUAL_ROWS
    affine: tuple[str, ...] = ()
    knots: int = 0
    own: tuple[OwnOutput, ...] = ()

    def values(
        self, point: Float[Array | np.ndarray, " n"], layout: ParallelLayout, criteria: Criteria, run: TrainingRun
    ) -> Values:
        """Logarithms of the objective and of value over limit (limit over value where more is better).

        The last row is `microbatches`, at least what the pipeline schedule needs.
        """
        system, plan = self.at(point, layout, criteria, run)
        outcome = evaluate(system, plan)
        values = limited_values(system, plan, outcome)
        rows = [excess(name, _row_value(name, values, outcome), criteria.limits[name]) for name in self.rows]
        smallest_batch = layout.smallest_batch(plan.chips, system.workload.sequence)
        rows.append(jnp.log(smallest_batch / jnp.min(plan.batch)))
        powers = {name: criteria.powers[name] for name in self.objectives}
        return Values(log_objective(outcome, powers), jnp.stack(rows))

    def at(
        self, point: Float[Array | np.ndarray, " n"], layout: ParallelLayout, criteria: Criteria, run: TrainingRun
    ) -> tuple[TrainingSystem, TrainingPlan]:
        """System and plan at a point, in a layout; the goal is the limit of the loss, unless the tokens vary."""
        system, plan = run.system, run.plan
        goal = TokenBudget(jnp.ones(())) if TOKENS in self.paths else TargetLoss(criteria.limits["loss"])
        plan = eqx.tree_at(lambda plan: (plan.layout, plan.goal), plan, (layout, goal))
        if self.knots:
            plan = eqx.tree_at(lambda plan: plan.batch, plan, jnp.exp(jnp.asarray(point)[: self.knots]))
        for index, path in enumerate(self.paths, self.knots):
            value = point[index] if path in self.affine else jnp.exp(point[index])
            if path.startswith("system."):
                system = replace_leaf(system, path.removeprefix("system."), value)
            else:
                plan = replace_leaf(plan, path.removeprefix("plan."), value)
        return system, plan

    def coordinate(self, path: str, value: Any) -> Any:
        """Coordinate of a variable at a value; minus infinity for a part that is left out, whose exponential is 0."""
        with np.errstate(divide="ignore"):
            return value if path in self.affine else np.log(value)

    def value(self, path: str, coordinate: Any) -> Any:
        """Value of a variable at a coordinate."""
        return coordinate if path in self.affine else np.exp(coordinate)


def row_of_objective(minimize: str) -> str:
    """Name of the row that limits an objective: that of its output, or the objective itself."""
    alone = is_output(minimize) and minimize not in AT_LEAST
    return minimize if alone else "*".join(f"{name}^{power!r}" for name, power in parse_objective(minimize).factors)


def _row_value(name: str, values: Mapping[str, Any], outcome: TrainingOutcome) -> Numeric:
    """Value of a row: an output, or an objective that is limited."""
    if name in values:
        return values[name]
    return jnp.exp(log_objective(outcome, dict(parse_objective(name).factors)))


def excess(name: str, value: Numeric, limit: Numeric) -> Float[Array, "..."]:
    """Logarithm by which an output breaks its limit; negative where it keeps it [1]."""
    ratio = jnp.asarray(value) / limit
    return -jnp.log(ratio) if name in AT_LEAST else jnp.log(jnp.maximum(ratio, SMALLEST_RATIO))


@dataclasses.dataclass(frozen=True)
class DesignProblem:
    """A scenario to optimize: its formulation, its numbers, what is minimized, limits and bounds of variables in SI.

    `limits` are those that hold; `criteria` has far ones for the other rows of the formulation. `layout_ranges` are
    ranges of fields of the layout; other fields take all values that make sense, and `switches` those that save. Chips
    come in multiples of `block`, if that is not 0.
    """

    formulation: Formulation
    run: TrainingRun
    criteria: Criteria
    minimize: str
    limits: Mapping[str, float]
    bounds: Mapping[str, tuple[float, float]]
    layout_ranges: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    block: int = 0
    switches: tuple[str, ...] = ()

    @property
    def varied(self) -> tuple[str, ...]:
        """Paths of the variables that have more than one value."""
        return tuple(path for path in self.formulation.paths if self.bounds[path][0] < self.bounds[path][1])

    @property
    def counts(self) -> tuple[str, ...]:
        """Paths of whole numbers beside chips and batch: spare nodes, lanes and ports of the network."""
        paths = [path for path in self.formulation.paths if path != TOKENS]
        return tuple(path for path in paths if declaration(self.run, path).metadata.get("integer"))

    @property
    def most_chips(self) -> float:
        """The most chips that a plan may use."""
        return self.bounds["plan.chips"][1] if "plan.chips" in self.bounds else self.run.number("plan.chips")

    def boxes(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates of lower and upper bounds, one line for each of so many lanes."""
        paths = self.formulation.paths
        bounds = [self.formulation.coordinate(path, np.array(self.bounds[path])) for path in paths]
        lower, upper = np.reshape(bounds, (len(paths), 2)).T  # a schedule may be all that varies
        return np.tile(lower, (count, 1)), np.tile(upper, (count, 1))

    def start(self, path: str) -> float:
        """The scenario's own value of a variable, within its bounds."""
        low, high = self.bounds[path]
        own = math.sqrt(low * high) if path == TOKENS else self.run.number(path)
        return min(max(own, low), high)

    def values_at(self, point: Float[np.ndarray, " n"], plan: TrainingPlan) -> dict[str, float]:
        """Value of each variable in SI at a point of the solver, whose plan has exact counts."""
        paths, exact = self.formulation.paths, {"plan.chips": plan.chips, BATCH: np.reshape(plan.batch, ())}
        values = dict(zip(paths, map(self.formulation.value, paths, point), strict=True))
        exact |= {path: np.round(values[path], 9) for path in self.counts}
        return {path: float(exact.get(path, value)) for path, value in values.items()}

    def asking(
        self, powers: Mapping[str, float] | None = None, limits: Mapping[str, float] | None = None
    ) -> "DesignProblem":
        """The same problem with other powers of outputs to minimize, and other values of limits that hold."""
        limits, bounds = dict(limits or {}), dict(self.bounds)
        powers = self.criteria.powers if powers is None else {**dict.fromkeys(self.criteria.powers, 0.0), **powers}
        criteria = Criteria(powers, {**self.criteria.limits, **limits})
        criteria = jax.tree.map(lambda value: np.asarray(value, np.float64), criteria)
        if "chips" in limits and "plan.chips" in bounds:
            bounds["plan.chips"] = (bounds["plan.chips"][0], limits["chips"])
        return dataclasses.replace(self, criteria=criteria, limits={**self.limits, **limits}, bounds=bounds)

    def index(self, path: str) -> int | None:
        """Index of a variable in the solver's vector, if it varies."""
        return self.formulation.paths.index(path) if path in self.formulation.paths else None


def formulate(scenario: Scenario, baseline: TrainingOutcome, free: Sequence[str] = ()) -> DesignProblem:
    """The problem of a scenario's question; the baseline's loss, time and chips are limits unless others are given.

    Outputs in `free` have no limit unless it is given, but a row and a power in the objective that lanes may set.

    **Raises:** `InputError` for a loss that cannot be reached, bounds that exclude each other, and a batch schedule or
    power by stage (`design.refinement`).
    """
    check_plain(scenario)
    question, system, plan = scenario.optimize, scenario.system, scenario.plan
    objective = parse_objective(question.minimize)
    most_chips = question.vary.get("plan.chips", (0.0, float(plan.chips)))[1]
    own = {
        "time": float(baseline.time) * (LEEWAY if "layout" in scenario.chosen else 1.0),
        "chips": most_chips + float(system.spare_chips(plan.spares)),
        "loss": float(baseline.loss),
    }
    dropped = free or (objective.names() if len(objective.factors) == 1 else ())
    seeks_loss = "loss" in {*objective.names(), *free}
    if seeks_loss and question.limits.keys() & set(USUAL_OBJECTIVES):
        dropped = (*dropped, "time")  # another limit ends the run
    elif objective.names() == ("loss",) and "layout" in scenario.chosen:
        check_ends(scenario)
    hard = limits_of_system(system, plan, baseline)
    if seeks_loss or float(baseline.slack.information) <= 0.0:  # a warning of plans, which a loss leaves no way to obey
        del hard["capacity_use"]
    limits = {**{name: own[name] for name in own if name not in dropped}, **hard, **question.limits}
    bounds, layout_ranges = _bounds(scenario, baseline, limits, tokens_vary=seeks_loss)
    if "loss" in limits:
        check_target(system, plan, limits["loss"], "limit loss")
    not_rows = () if TOKENS in bounds else ("loss",)  # the goal
    if float(plan.spares) == 0.0 and "plan.spares" not in bounds:
        not_rows += ("chips",)  # a bound of the variable
    objectives = tuple(dict.fromkeys((*USUAL_OBJECTIVES, *objective.names(), *free)))
    limited = (name for name in limits if name not in not_rows)
    rows = tuple(dict.fromkeys((*USUAL_ROWS, row_of_objective(question.minimize), *free, *limited)))
    named = tuple(dict.fromkeys((*objectives, *question.limits)))
    check_own_outputs(named, baseline)
    values = limited_values(system, plan, baseline)
    far = {
        name: _row_value(name, values, baseline) * (1.0 / FAR if name in AT_LEAST else FAR)
        for name in rows
        if name not in limits
    }
    powers = dict.fromkeys(objectives, 0.0) | dict(objective.factors)
    criteria = jax.tree.map(lambda value: np.asarray(value, np.float64), Criteria(powers, {**limits, **far}))
    affine = tuple(path for path, (low, _) in bounds.items() if low <= 0.0)
    formulation = Formulation(tuple(bounds), objectives, rows, affine, own=own_outputs(named))
    asked = criteria, question.minimize, limits, bounds, layout_ranges, question.block
    offered = scenario.tables["system"]["software"].get(OFFERS, ())
    taken = {name: {*layout_ranges.get(name, (0.0, float(name in offered)))} for name in SCHEDULING}
    decided = SCHEDULES if {1.0} in [taken[name] for name in SCHEDULES] else ()
    switches = tuple(name for name, ends in taken.items() if ends == {0.0, 1.0} and name not in decided)
    return DesignProblem(formulation, TrainingRun(system, plan), *asked, switches)


def check_ends(scenario: Scenario) -> None:
    """Refuse a lowest loss without a limit that ends the run.

    **Raises:** `InputError` that says which limits do.
    """
    if not scenario.optimize.limits.keys() & set(USUAL_OBJECTIVES):
        raise InputError(
            f"minimize {scenario.optimize.minimize}: more parameters and tokens always lower the loss. Limit time, "
            'money, energy or carbon, such as --limit "time=30 d".'
        )


def check_plain(scenario: Scenario) -> None:
    """Refuse what only `optimize` searches, in its best layouts.

    **Raises:** `InputError` that names it.
    """
    question, plan = scenario.optimize, scenario.plan
    if plan.knots > 1:
        raise InputError(
            f"{BATCH}: it has {plan.knots} knots, but a constant batch was asked for. "
            f"Vary them (optimize --vary {BATCH}{OVER_PROGRESS}), or give one batch."
        )
    if question.refined:
        path = [*question.stages, BATCH + OVER_PROGRESS][0]
        raise InputError(f"vary {path}: only optimize lets it vary, for the model as it is. Leave it out here.")


def _bounds(
    scenario: Scenario, baseline: TrainingOutcome, limits: Mapping[str, float], *, tokens_vary: bool
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, ...]]]:
    """Ranges of the variables, and of the fields of the layout; coolant must be what the equipment takes."""
    plan, question = scenario.plan, scenario.optimize
    batch, tokens = float(np.reshape(plan.batch, ())), float(baseline.tokens)
    chips = limits.get("chips", float(plan.chips))
    inlet = scenario.system.facility.cooling.inlet
    bounds: dict[str, Any] = {
        "plan.batch": (batch / BATCH_RANGE, batch * BATCH_RANGE),
        CLOCK: (float(scenario.system.accelerator.minimum_clock), 1.0),
        COOLANT: (float(inlet.recommended_lowest), float(inlet.recommended_highest)),
        "plan.chips": (min(float(scenario.system.node.chips), chips), chips),
    }
    if tokens_vary:
        bounds[TOKENS] = (tokens / TOKEN_RANGE, tokens * TOKEN_RANGE)
    bounds |= question.vary
    for path in question.fix:
        bounds.pop(path, None)
        if path.startswith("plan.layout."):
            value = float(getattr(plan.layout, path.removeprefix("plan.layout.")))
            bounds[path] = (value, value)
    own = float(plan.coolant_temperature)
    asked, taken = bounds.get(COOLANT, (own, own)), (float(inlet.lowest), float(inlet.highest))
    if asked[0] < taken[0] * (1.0 - ROUNDING) or asked[1] > taken[1] * (1.0 + ROUNDING):
        asks, takes = (" to ".join(format_quantity(end, "K") for end in dict.fromkeys(x)) for x in (asked, taken))
        another = inlet_class(asked[1] if asked[1] > taken[1] else asked[0], *taken)
        raise InputError(
            f"{COOLANT}: {asks} is outside {takes}, which the equipment takes (system.facility.cooling.inlet). Stay "
            f"within, or choose equipment of another class, such as system.facility.cooling.inlet={another}."
        )
    layout = [path for path in bounds if path.startswith("plan.layout.")]
    layout_ranges = {path.removeprefix("plan.layout."): bounds.pop(path) for path in layout}
    if not bounds and all(len({*layout_ranges.get(name, (0.0, 1.0))}) == 1 for name in SEARCHED):
        raise InputError("Nothing is left to vary: every variable is fixed. Fix fewer paths or vary another.")
    clock = float(plan.clock)
    bounds = bounds or {CLOCK: (clock, clock)}  # the solver has a variable where layouts alone vary
    if question.block > chips:
        raise InputError(
            f"block: {question.block} chips are more than the {chips:,.12g} that there may be. Give fewer."
        )
    if question.block and "plan.chips" not in bounds:
        raise InputError(f"block: {question.block}, but plan.chips is fixed. Leave out one of them.")
    if "plan.chips" in bounds:
        low, high = bounds["plan.chips"]
        if low > chips:
            raise InputError(f"plan.chips: at least {low:,.12g} is more than the limit of {chips:,.12g} chips.")
        if high > chips:
            raise InputError(
                f"vary plan.chips: {high:,.12g} is more than the limit of {chips:,.12g} chips. "
                "Raise the limit (--limit chips=...), or lower the end of the range."
            )
    return bounds, layout_ranges
