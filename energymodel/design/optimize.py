"""Which plan is best for a scenario, over all layouts and everything that may vary?"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from energymodel.design.ahead import programs_ahead, solver_foreseen
from energymodel.design.conflict import SHARED, conflicts
from energymodel.design.finish import finished_plan
from energymodel.design.layout_search import Searched, restart, search_layouts
from energymodel.design.layouts import Lattice, candidates, evaluate_points, fits, take
from energymodel.design.problem import Problem, Target, pose
from energymodel.design.realize import Realized, realize
from energymodel.design.result import Conflict, Optimum, Price, RunnerUp
from energymodel.errors import InputError
from energymodel.presets.scenario import Scenario
from energymodel.solver.minimize import RESULTS
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import AT_LEAST, OUTPUTS, objective_value, parse_objective
from energymodel.units import format_quantity

EXTRA = 1e-2  # of what a limit must give: more of it for whole numbers
NOTHING_YET = "The search was interrupted before it found a plan. Run it again."
LEAST_ELASTICITY = 1e-6
LOSS_STEP = 1e-4
VERDICTS = {
    "successful": "The plan is realizable and obeys every limit.",
    "not converged": (
        "The plan is realizable and obeys every limit, but its optimality is not shown: the iterations ran out. "
        "Start from it, or vary fewer numbers."
    ),
    "interrupted": "The search was interrupted; the plan is the best of those seen so far. Run it again for the best.",
}


def optimize(
    scenario: Scenario,
    minimize: str | None = None,
    limits: Mapping[str, Any] | None = None,
    vary: Mapping[str, tuple[Any, Any]] | None = None,
    fix: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Optimum:
    """Find the best realizable plan of a scenario.

    Batch, clock, coolant temperature and chips vary together, and the parallel layout over its feasible lattice.
    All layouts are screened on a coarse grid; those that can hold the best plan are searched by the interior-point
    solver with counts free to be fractions, the best of them from other starts as well; the best are rounded to whole
    replicas and micro-batches, solved again in the rest and evaluated exactly. Wishes of the scenario's `[optimize]`
    section hold unless given here.

    **Arguments:**

    - `scenario`: from `load_scenario`.
    - `minimize`: `"energy"` [J], the default, `"time"` [s], `"money"` [USD], `"carbon"` [kg] or `"etp"` [J s].
    - `limits`: `{"time": "60 days", "facility_power": 25e6}`, text with a unit or SI; also `money`, `carbon`, `loss`,
      `chips`, `temperature`, `memory`. Unless given, loss, time and chips are those of the scenario's own plan.
    - `vary`: bounds of further variables by dotted path, or other bounds of the usual ones.
    - `fix`: paths that keep the scenario's value.
    - `progress`: called with a sentence at every stage.

    **Returns:** `Optimum`; `result` is `"successful"`, `"infeasible"`, `"not converged"` or `"interrupted"` (by
    Ctrl-C; with the best plan so far), and `message` says what next.

    **Raises:** `InputError` for a limit, path or objective that does not exist.
    """
    tell = progress or (lambda sentence: None)
    wishes = scenario.optimize
    minimize = minimize or str(wishes.get("minimize", "energy"))
    limits = {**wishes.get("limits", {}), **(limits or {})}
    vary = {**wishes.get("vary", {}), **(vary or {})}
    fix = [*wishes.get("fix", ()), *fix]
    with jax.enable_x64(True), solver_foreseen():
        tell("evaluating the scenario's own plan")
        baseline = _numpy(evaluate_once(scenario.system, scenario.plan))
        problem = pose(scenario, baseline, minimize, limits, vary, fix)
        return _search(scenario, problem, baseline, tell)


class _Found(NamedTuple):
    """What a search found, the realizable plans, best first, and what was wanted of them."""

    searched: Searched
    realized: list[Realized]
    target: Target


def _search(scenario: Scenario, problem: Problem, baseline: TrainingOutcome, tell: Callable[[str], None]) -> Optimum:
    chips = problem.bounds.get("plan.chips", (0.0, float(scenario.plan.chips)))[1]
    lattice = candidates(problem.given, chips, problem.choices)
    considered = len(lattice.tensor)
    tell(f"searching {considered:,} layouts")
    lattice = take(lattice, np.flatnonzero(fits(problem, lattice, chips)))
    fitting = len(lattice.tensor)
    if fitting == 0:
        raise InputError(too_large(problem))
    with programs_ahead(scenario, problem, take(lattice, np.array([0]))):
        found = _explore(problem, lattice, tell)
    broken: tuple[Conflict, ...] = ()
    if not (found.realized or found.searched.usable.any() or found.searched.interrupted):
        tell("looking for the limits that exclude each other")
        broken = conflicts(problem, found.searched.lattice)
        found = _nearest(problem, broken, lattice, tell) or found
    return _answer(scenario, problem, baseline, found, broken, (considered, fitting))


def _explore(problem: Problem, lattice: Lattice, tell: Callable[[str], None]) -> _Found:
    searched = restart(problem, search_layouts(problem, lattice))
    realized: list[Realized] = []
    if searched.usable.any():
        tell("rounding to whole replicas and micro-batches")
        realized = realize(problem, searched.lattice, searched.solution, searched.usable)
    return _Found(searched, realized, problem.target)


def _nearest(
    problem: Problem, broken: tuple[Conflict, ...], lattice: Lattice, tell: Callable[[str], None]
) -> _Found | None:
    """The best plans where the limit that has least to give gives it, and a little for whole numbers."""
    ways = [one for one in broken if math.isfinite(one.nearest)]
    ways = [one for one in ways if one.limit not in SHARED] or ways
    if not ways:
        return None
    way = ways[0]
    tell(f"searching with {way.limit} {format_quantity(way.nearest, way.unit)}")
    found = _explore(problem.with_limit(way.limit, way.nearest * (way.nearest / way.asked) ** EXTRA), lattice, tell)
    return found if found.realized else None


def too_large(problem: Problem) -> str:
    """What to say where no layout fits into memory."""
    memory, chips = (format_quantity(problem.limits[name], OUTPUTS[name]) for name in ("memory", "chips"))
    return (
        f"The model fits into {memory} per chip in no layout of {chips} chips. "
        "Allow more chips (--limit chips=...), more memory, or offload states (plan.layout.offload_optimizer=1)."
    )


def _answer(
    scenario: Scenario, problem: Problem, baseline: TrainingOutcome, found: _Found, broken: tuple[Conflict, ...],
    layouts: tuple[int, int],
) -> Optimum:  # fmt: skip
    form, searched = problem.form, found.searched
    solution = searched.solution
    winner = found.realized[0] if found.realized else None
    lane = winner.layout if winner else searched.best()
    result, message = _verdict(searched, winner, broken)
    layout = take(searched.lattice, np.array(lane))
    point, counts = (winner.point, winner.counts) if winner else (solution.x[lane], None)
    plan, outcome = finished_plan(scenario, problem, point, counts, layout, found.target)
    value = float(objective_value(outcome, problem.minimize))
    prices = _prices(problem, found, lane, value) if winner and not broken else {}
    second = found.realized[1] if len(found.realized) > 1 else None
    runner_up = None
    if second is not None:
        others = take(searched.lattice, np.array(second.layout))
        runner_up = RunnerUp(others, float(np.expm1(second.value - found.realized[0].value)))
    relaxed = float(np.exp(np.min(np.where(searched.usable, solution.value, np.inf), initial=np.inf)))
    relaxed = math.inf if broken else min(relaxed, value)
    return Optimum(
        scenario=scenario,
        minimize=problem.minimize,
        plan=plan,
        outcome=outcome,
        baseline=baseline,
        value=value,
        baseline_value=float(objective_value(baseline, problem.minimize)),
        value_unit=parse_objective(problem.minimize).unit,
        limits={name: float(limit) for name, limit in problem.limits.items()},
        limit_units={name: OUTPUTS[name] for name in problem.limits},
        prices=prices,
        active=tuple(name for name, price in prices.items() if abs(price.elasticity) > LEAST_ELASTICITY),
        varied=form.paths,
        layouts_considered=layouts[0],
        layouts_feasible=layouts[1],
        runner_up=runner_up,
        relaxed_value=relaxed,
        gap=max(0.0, value / relaxed - 1.0) if np.isfinite(relaxed) else float("inf"),
        result=result,
        message=message,
        conflicts=broken,
        statistics={
            "layouts_searched": len(solution.value),
            "layouts_left": searched.left,
            "others_excess": float(np.expm1(searched.others - solution.value[lane])),
            "restarts": searched.restarts,
            "restarts_agreeing": searched.agreeing,
            "restarts_spread": searched.spread,
            "iterations": int(np.sum(solution.iterations)),
            "converged": int(np.sum(np.asarray(solution.result == RESULTS.successful))),
        },
    )


def _prices(problem: Problem, found: _Found, lane: int, value: float) -> dict[str, Price]:
    """Elasticities from the multipliers of the relaxed optimum of the winning layout."""
    form, solution = problem.form, found.searched.solution
    multipliers = dict(zip(form.rows, map(float, solution.multipliers.inequalities[lane]), strict=False))
    elasticities = {name: y for name, y in multipliers.items() if name in problem.limits}
    place = problem.index("plan.chips")
    if place is not None and problem.bounds["plan.chips"][1] == problem.limits["chips"]:
        elasticities["chips"] = float(solution.multipliers.upper[lane][place])
    if "loss" in problem.limits and "loss" not in elasticities:
        elasticities["loss"] = _loss_elasticity(problem, found, lane)
    unit = parse_objective(problem.minimize).unit
    signed = {name: -y if name in AT_LEAST else y for name, y in elasticities.items()}
    return {name: Price(y, y * value / problem.limits[name], f"{unit}/({OUTPUTS[name]})") for name, y in signed.items()}


def _loss_elasticity(problem: Problem, found: _Found, lane: int) -> float:
    """Envelope theorem, `- d Lagrangian / d ln loss` at the fixed point of the search, by central difference."""
    solution = found.searched.solution
    layout = take(found.searched.lattice, np.array([lane]))
    point = solution.x[lane][None, None]
    weights = solution.multipliers.inequalities[lane]

    def lagrangian(factor: float) -> float:
        loss = problem.target.limits["loss"] * factor
        moved = eqx.tree_at(lambda target: target.limits["loss"], problem.target, loss)
        values = evaluate_points(problem.form, point, layout, moved, problem.given)
        return float(values.objective[0, 0] + values.inequalities[0, 0] @ weights)

    return -(lagrangian(1.0 + LOSS_STEP) - lagrangian(1.0 - LOSS_STEP)) / (2.0 * LOSS_STEP)


def _verdict(searched: Searched, winner: Realized | None, broken: tuple[Conflict, ...]) -> tuple[str, str]:
    """Result and message of a search."""
    if searched.interrupted:
        return "interrupted", VERDICTS["interrupted"] if winner else NOTHING_YET
    if broken or winner is None:
        return "infeasible", _explain(broken)
    result = "successful" if winner.converged else "not converged"
    return result, VERDICTS[result]


def _explain(broken: tuple[Conflict, ...]) -> str:
    if not broken:
        return (
            "Plans exist only with fractions of replicas or micro-batches. Relax a limit a little, or free plan.batch."
        )
    asked = ", ".join(f"{one.limit} {format_quantity(one.asked, one.unit)}" for one in broken)
    ways = ", or ".join(
        f"{one.limit} to {format_quantity(one.nearest, one.unit)}" for one in broken if math.isfinite(one.nearest)
    )
    return f"No plan obeys these limits together: {asked}. " + (
        f"With all others as they are, move {ways}." if ways else "No one of them can give enough alone: move several."
    )


def _numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
