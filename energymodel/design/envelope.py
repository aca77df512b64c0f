"""How does the optimal value of a scenario respond to its numbers, without searching again?

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

from energymodel.design.finish import finished_plan
from energymodel.design.layout_search import OPTIONS, layout_bounds
from energymodel.design.layouts import SWITCHES, Lattice
from energymodel.design.numbers import MICROBATCHES, Numbers, gradient
from energymodel.design.problem import TOKENS, Problem, pose
from energymodel.design.result import Optimum
from energymodel.errors import InputError
from energymodel.numerics import Numeric
from energymodel.presets.scenario import Scenario
from energymodel.solver.minimize import RESULTS, Solution
from energymodel.solver.minimize_many import minimize_many
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outputs import AT_LEAST, LEAST, limited_values, parse_objective
from energymodel.system.plan import ParallelLayout, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.training_system import TrainingSystem

NOT_CONVERGED = (
    "The search in the winning layout did not converge, so the elasticities of the optimum are not shown. "
    "Vary fewer numbers, or relax a limit a little."
)


class Envelope(NamedTuple):
    """The optimal value and its derivatives.

    - `value`: objective at the relaxed optimum of the winning layout, SI.
    - `derivatives`: by each number of the scenario, SI; `None` if the search in the winning layout did not converge.
    - `limits`: value of each limit, elasticity and derivative by it; `following` are those taken from the scenario.
    - `free`: paths whose values the search has chosen.
    - `search`: the optimal value in the same layout with another value of one number; NaN if no plan obeys the limits.
    """

    optimum: Optimum
    value: float
    derivatives: Mapping[str, float] | None
    limits: Mapping[str, tuple[float, float, float]]
    following: frozenset[str]
    free: frozenset[str]
    search: Callable[[str, float], float]


def differentiate(best: Optimum, asked: Mapping[str, Any]) -> Envelope:
    """Differentiate the optimal value by every number of the scenario.

    **Arguments:**

    - `best`: what `optimize` has found.
    - `asked`: `limits`, `vary` and `fix` as `optimize` took them.
    """
    scenario, wishes = best.scenario, best.scenario.optimize
    numbers = Numbers(scenario.system, scenario.plan)
    limits = {**wishes.get("limits", {}), **(asked["limits"] or {})}
    vary = {**wishes.get("vary", {}), **(asked["vary"] or {})}
    fix = [*wishes.get("fix", ()), *asked["fix"]]

    def posed(scenario: Scenario) -> Problem:
        baseline = evaluate_once(scenario.system, scenario.plan)
        return pose(scenario, baseline, best.minimize, limits, vary, fix)

    problem = posed(scenario)
    kept = [name for name in SWITCHES if name not in problem.choices]
    kept += [path.removeprefix("plan.layout.") for path in fix if path.startswith("plan.layout.")]
    fields = [field.name for field in dataclasses.fields(ParallelLayout)]
    free = frozenset((*problem.form.paths, *(f"plan.layout.{name}" for name in fields if name not in kept)))

    def layout_of(plan: TrainingPlan) -> ParallelLayout:
        """The winning layout, with the fields that every layout takes from the scenario's own."""
        own = {name: getattr(plan.layout, name) for name in kept}
        return dataclasses.replace(best.plan.layout, **own)

    start = _start(problem, best)
    solution = _solve(problem, layout_of(scenario.plan), start)

    def search(path: str, value: float) -> float:
        system, plan = numbers.at(numbers.changed(path, value))
        try:
            moved = posed(dataclasses.replace(scenario, system=system, plan=plan))
        except InputError:
            return math.nan
        found = _solve(moved, layout_of(plan), np.asarray(solution.x[0]))
        if _ended(found, RESULTS.interrupted):
            raise KeyboardInterrupt
        return float(np.exp(found.value[0])) if _ended(found, RESULTS.successful) else math.nan

    value = float(np.exp(solution.value[0]))
    empty = Envelope(best, value, None, {}, frozenset(), free, search)
    if not _ended(solution, RESULTS.successful):
        return empty
    asked_for = problem.limits
    following = frozenset(name for name in asked_for if name not in limits)
    slopes, prices = _lagrangian(scenario, problem, solution, layout_of(scenario.plan), free)
    slopes = slopes + _through_limits(problem, numbers, prices, following)
    slopes = slopes + _through_bounds(problem, numbers, solution, vary)
    places = numbers.places()
    return empty._replace(
        derivatives={path: value * float(np.sum(slopes[place])) for path, place in places.items()},
        limits={name: (asked_for[name], y, y * value / asked_for[name]) for name, y in prices.items()},
        following=following,
    )


def _ended(solution: Solution, result: Any) -> bool:
    return bool(np.asarray(solution.result == result)[0])


def _start(problem: Problem, best: Optimum) -> Float[np.ndarray, " n"]:
    values = Numbers(best.scenario.system, best.plan).values
    form = problem.form
    point = {path: min(max(values.get(path, 0.0), low), high) for path, (low, high) in problem.bounds.items()}
    if TOKENS in point:
        point[TOKENS] = float(best.outcome.tokens)
    return np.array([float(form.coordinate(path, point[path])) for path in form.paths])


def _solve(problem: Problem, layout: ParallelLayout, start: Float[np.ndarray, " n"]) -> Solution:
    """Relaxed optimum of one layout, in as many equal lanes as the search has compiled."""
    lanes = OPTIONS.chunk
    lattice: Lattice = jax.tree.map(lambda leaf: np.full(lanes, float(leaf)), layout)
    return minimize_many(
        problem.form,
        np.tile(start, (lanes, 1)),
        (lattice, problem.targets(lanes)),
        shared=(problem.given,),
        bounds=layout_bounds(problem, lattice),
        options=OPTIONS,
    )


def _lagrangian(
    scenario: Scenario, problem: Problem, solution: Solution, layout: ParallelLayout, free: frozenset[str]
) -> tuple[Float[np.ndarray, " n"], dict[str, float]]:
    """Slopes of the logarithm of the value by each number with all limits held, and elasticities by each limit."""
    form, point = problem.form, np.asarray(solution.x[0])
    system, _ = form.at(point, layout, problem.target, problem.given)
    plan, outcome = finished_plan(scenario, problem, point, None, layout, problem.target)
    here = Numbers(*jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (system, plan)))
    values = {name: float(value) for name, value in limited_values(here.system, here.plan, outcome).items()}
    multipliers = dict(zip(form.rows, map(float, solution.multipliers.inequalities[0]), strict=False))
    # Of the logarithm of value over limit, or of limit over value where more is better.
    rows = {name: -y if name in AT_LEAST else y for name, y in multipliers.items() if name in problem.limits}
    weights = {name: y / values[name] for name, y in rows.items()}
    for name, power in parse_objective(problem.minimize).factors:
        if values[name] > LEAST:
            weights[name] = weights.get(name, 0.0) + power / values[name]
    # The row of micro-batches is the logarithm of a ratio that is one where it binds.
    weights[MICROBATCHES] = float(solution.multipliers.inequalities[0][-1])
    places = here.places()
    slopes = gradient(here, weights)
    prices = {name: -y for name, y in rows.items()}
    if TOKENS not in form.paths and isinstance(plan.goal, TokenBudget):  # the loss is held by the tokens
        loss = gradient(here, {"loss": 1.0 / values["loss"]})
        price = -float(slopes[places[TOKENS]].item() / loss[places[TOKENS]].item())
        slopes, prices["loss"] = slopes + price * loss, -price
    elif isinstance(plan.goal, TargetLoss):
        prices["loss"] = float(slopes[places["plan.goal.loss"]].item()) * problem.limits["loss"]
    chips = problem.index("plan.chips")
    if chips is not None and problem.bounds["plan.chips"][1] == problem.limits.get("chips"):
        prices["chips"] = -float(solution.multipliers.upper[0][chips])
    for path, place in places.items():
        if path in free or path.startswith("plan.goal."):
            slopes[place] = 0.0
    return slopes, prices


def _through_limits(
    problem: Problem, numbers: Numbers, prices: Mapping[str, float], following: frozenset[str]
) -> Float[np.ndarray, " n"]:
    """What numbers do through the limits that are taken from the scenario."""
    limits = {name: problem.limits[name] for name in following if name in prices}
    planned = {name: prices[name] / limits[name] for name in ("time", "loss") if name in limits}
    slopes = gradient(numbers, planned)
    built = [name for name in limits if name in _of_hardware(numbers.system)]

    def weighted(system: TrainingSystem) -> Numeric:
        return sum(prices[name] * jnp.log(_of_hardware(system)[name]) for name in built)

    if built:
        leaves = jax.tree.leaves((jax.grad(weighted)(numbers.system), numbers.plan))
        count = len(jax.tree.leaves(numbers.system))
        for index, place in enumerate(list(numbers.places().values())[:count]):
            slopes[place] += np.ravel(leaves[index])
    if "chips" in limits:
        slopes[numbers.places()["plan.chips"]] += prices["chips"] / limits["chips"]
    return slopes


def _of_hardware(system: TrainingSystem) -> dict[str, Numeric]:
    """Limits that `pose` takes from the hardware."""
    return {
        "facility_power": system.facility.power_limit,
        "temperature": system.accelerator.maximum_temperature,
        "memory": system.accelerator.memory_capacity,
        "heat_flux": system.facility.cooling.heat_flux_limit(),
    }


def _through_bounds(
    problem: Problem, numbers: Numbers, solution: Solution, vary: Mapping[str, Any]
) -> Float[np.ndarray, " n"]:
    """What numbers do through the bounds of variables that `pose` takes from the scenario."""
    slopes, places = np.zeros_like(numbers.vector), numbers.places()
    lower, upper = (np.asarray(side[0]) for side in (solution.multipliers.lower, solution.multipliers.upper))
    for path, bound, duals in (
        ("plan.batch", "plan.batch", lower - upper),
        ("plan.clock", "system.accelerator.minimum_clock", lower),
    ):
        place = problem.index(path)
        if place is not None and path not in vary:
            slopes[places[bound]] += float(duals[place]) / numbers.values[bound]
    chips, node = problem.index("plan.chips"), numbers.values["system.node.chips"]
    if chips is not None and "plan.chips" not in vary:
        low, high = problem.bounds["plan.chips"]
        if low == node < high:  # a whole node at least
            slopes[places["system.node.chips"]] += float(lower[chips]) / node
    return slopes
