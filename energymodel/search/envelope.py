"""Derivatives of the optimal value of a scenario by its numbers, without searching again.

At an optimum the first-order change of the optimal value is that of the Lagrangian with plan and multipliers held
[envelope theorem; Nocedal & Wright 2006, sec. 12.9]: one reverse sweep gives the derivative by every number.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from energymodel.errors import InputError
from energymodel.numerics import Numeric
from energymodel.readers.expressions import data_file
from energymodel.scenarios.question import TOKENS
from energymodel.scenarios.scenario import Scenario
from energymodel.search.problem import DesignProblem, formulate
from energymodel.search.relaxation import solve_relaxed
from energymodel.search.result import Optimum
from energymodel.search.rounding import plan_at
from energymodel.search.training_run import MICROBATCHES, UNITS, TrainingRun, in_float64, output_gradient
from energymodel.solver import RESULTS, Solution, result_is
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import FIELDS, SWITCHES
from energymodel.system.memory import memory_limit
from energymodel.system.outputs import AT_LEAST, LEAST, limited_values, parse_objective
from energymodel.system.plan import ParallelLayout, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.training_system import TrainingSystem

NOT_CONVERGED = (
    "The search in the winning layout did not converge, so the elasticities of the optimum are not shown. "
    "Vary fewer numbers, or relax a limit a little."
)

OF_HARDWARE: Mapping[str, str] = data_file(__file__, "paths.toml")["limits"]
"""Numbers that `formulate` takes as limits; those of heat flux and memory follow from several."""


@dataclasses.dataclass(frozen=True)
class Limit:
    """A limit of the search: its value in `unit`, how the optimal value responds, and whether it is the scenario's own.

    `follows` marks a limit that nobody gave: it is that of the scenario's own plan or hardware and moves with it.
    """

    name: str
    value: float
    unit: str
    elasticity: float
    derivative: float
    follows: bool


class OptimalValue(NamedTuple):
    """The optimal value of a scenario and its derivatives.

    - `value`: objective at the relaxed optimum of the winning layout, SI.
    - `derivatives`: by each number of the scenario, SI; `None` if the search in the winning layout did not converge.
    - `limits`: how it responds to each.
    - `free`: paths whose values the search has chosen.
    - `search`: the optimal value in the same layout with another value of one number; NaN if no plan obeys the limits.
    """

    value: float
    derivatives: Mapping[str, float] | None
    limits: tuple[Limit, ...]
    free: frozenset[str]
    search: Callable[[str, float], float]


def differentiate(best: Optimum) -> OptimalValue:
    """Differentiate the optimal value of a search by every number of its scenario."""
    scenario = best.scenario
    question, run = scenario.optimize, TrainingRun(scenario.system, scenario.plan)

    def problem_of(scenario: Scenario) -> DesignProblem:
        return formulate(scenario, evaluate_once(scenario.system, scenario.plan))

    problem = problem_of(scenario)
    fixed = {name for name in SWITCHES if name not in problem.layout_ranges}
    fixed |= {path.removeprefix("plan.layout.") for path in question.fix if path.startswith("plan.layout.")}
    free = frozenset((*problem.varied, *(f"plan.layout.{name}" for name in FIELDS if name not in fixed)))

    def layout_of(plan: TrainingPlan) -> ParallelLayout:
        """The winning layout, with the fields that every layout takes from the scenario's own."""
        return dataclasses.replace(best.plan.layout, **{name: getattr(plan.layout, name) for name in fixed})

    def solve(problem: DesignProblem, layout: ParallelLayout, start: np.ndarray) -> tuple[Solution, RESULTS]:
        """Relaxed optimum of one layout, and how it ended."""
        solution = solve_relaxed(problem, jax.tree.map(lambda leaf: np.full(1, float(leaf)), layout), start[None])
        return solution, jax.tree.map(lambda leaf: leaf[0], solution.result)

    layout, formulation = layout_of(scenario.plan), problem.formulation
    values = TrainingRun(scenario.system, best.plan).values | {TOKENS: float(best.outcome.tokens)}
    start = [formulation.coordinate(path, np.clip(values[path], *problem.bounds[path])) for path in formulation.paths]
    solution, ended = solve(problem, layout, np.array(start, np.float64))

    def search(path: str, value: float) -> float:
        changed = run.at(run.changed(path, value))
        try:
            moved = problem_of(dataclasses.replace(scenario, system=changed.system, plan=changed.plan))
        except InputError:
            return math.nan
        again, ended = solve(moved, layout_of(changed.plan), np.asarray(solution.x[0]))
        if result_is(ended, RESULTS.interrupted):
            raise KeyboardInterrupt
        return float(np.exp(again.value[0])) if result_is(ended, RESULTS.successful) else math.nan

    value = float(np.exp(solution.value[0]))
    if not result_is(ended, RESULTS.successful):
        return OptimalValue(value, None, (), free, search)
    limits = problem.limits
    following = limits.keys() - question.limits.keys()
    slopes, prices = _lagrangian(problem, solution, layout, free)
    own_prices = {name: price for name, price in prices.items() if name in following}
    slopes = slopes + _through_limits(problem, run, own_prices)
    slopes = slopes + _through_bounds(problem, run, solution, question.vary)
    return OptimalValue(
        value,
        {path: value * float(np.sum(slopes[numbers])) for path, numbers in run.places.items()},
        tuple(
            Limit(name, limits[name], UNITS[name], y, y * value / limits[name], name in following)
            for name, y in prices.items()
        ),
        free,
        search,
    )


def _lagrangian(
    problem: DesignProblem, solution: Solution, layout: ParallelLayout, free: frozenset[str]
) -> tuple[Float[np.ndarray, " n"], dict[str, float]]:
    """Slopes of the logarithm of the value by each number with all limits held, and elasticities by each limit."""
    formulation, point = problem.formulation, np.asarray(solution.x[0])
    system, _ = formulation.at(point, layout, problem.criteria, problem.run)
    plan, outcome = plan_at(problem, point, layout)
    here = in_float64(TrainingRun(system, plan))
    values = {name: float(value) for name, value in limited_values(here.system, here.plan, outcome).items()}
    values |= {own.name: float(own.function(outcome)) for own in formulation.own}
    multipliers = dict(zip(formulation.rows, map(float, solution.multipliers.inequalities[0]), strict=False))
    # Of the logarithm of value over limit, or of limit over value where more is better.
    rows = {name: -y if name in AT_LEAST else y for name, y in multipliers.items() if name in problem.limits}
    weights = {name: y / values[name] for name, y in rows.items()}
    for name, power in parse_objective(problem.minimize).factors:
        if values[name] > LEAST:
            weights[name] = weights.get(name, 0.0) + power / values[name]
    # The row of micro-batches is the logarithm of a ratio that is one where it binds.
    weights[MICROBATCHES] = float(solution.multipliers.inequalities[0][-1])
    places = here.places
    slopes = output_gradient(here, weights)
    prices = {name: -y for name, y in rows.items()}
    if TOKENS not in formulation.paths and isinstance(plan.goal, TokenBudget):  # the loss is held by the tokens
        loss = output_gradient(here, {"loss": 1.0 / values["loss"]})
        price = -float(slopes[places[TOKENS]].item() / loss[places[TOKENS]].item())
        slopes, prices["loss"] = slopes + price * loss, -price
    elif isinstance(plan.goal, TargetLoss):
        prices["loss"] = float(slopes[places["plan.goal.loss"]].item()) * problem.limits["loss"]
    chips = problem.index("plan.chips")
    if chips is not None and problem.bounds["plan.chips"][1] == problem.limits.get("chips"):
        prices["chips"] = -float(solution.multipliers.upper[0][chips])
    for path, numbers in places.items():
        if path in free or path.startswith("plan.goal."):
            slopes[numbers] = 0.0
    return slopes, prices


def _through_limits(problem: DesignProblem, run: TrainingRun, prices: Mapping[str, float]) -> Float[np.ndarray, " n"]:
    """What numbers do through the limits that are taken from the scenario, by their elasticities."""
    elasticities = {name: price / problem.limits[name] for name, price in prices.items()}
    slopes, places = output_gradient(run, {name: elasticities.get(name, 0.0) for name in ("time", "loss")}), run.places
    for name, path in OF_HARDWARE.items():
        slopes[places[path]] += elasticities.get(name, 0.0)
    derived: dict[str, Callable[[TrainingSystem], Numeric]] = {
        "heat_flux": lambda system: system.facility.cooling.loop.heat_flux_limit(),
        "memory": lambda system: memory_limit(system, run.plan),
    }
    for name in derived.keys() & prices.keys():
        gradient = jax.grad(lambda system, limit=derived[name]: jnp.log(limit(system)))(run.system)
        for leaf, numbers in zip(jax.tree.leaves(gradient), places.values(), strict=False):
            slopes[numbers] += prices[name] * np.ravel(leaf)
    return slopes


def _through_bounds(
    problem: DesignProblem, run: TrainingRun, solution: Solution, vary: Mapping[str, Any]
) -> Float[np.ndarray, " n"]:
    """What numbers do through the bounds of variables that `formulate` takes from the scenario."""
    slopes, places = np.zeros_like(run.vector), run.places
    lower, upper = (np.asarray(side[0]) for side in (solution.multipliers.lower, solution.multipliers.upper))
    for path, bound, duals in (
        ("plan.batch", "plan.batch", lower - upper),
        ("plan.clock", "system.accelerator.minimum_clock", lower),
        ("plan.coolant_temperature", "system.facility.cooling.inlet.recommended_lowest", lower),
        ("plan.coolant_temperature", "system.facility.cooling.inlet.recommended_highest", -upper),
    ):
        index = problem.index(path)
        if index is not None and path not in vary:
            slopes[places[bound]] += float(duals[index]) / run.values[bound]
    chips, node = problem.index("plan.chips"), run.values["system.node.chips"]
    if chips is not None and "plan.chips" not in vary:
        low, high = problem.bounds["plan.chips"]
        if low == node < high:  # a whole node at least
            slopes[places["system.node.chips"]] += float(lower[chips]) / node
    return slopes
