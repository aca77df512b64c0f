"""Which plan is best for a scenario, over all layouts and everything that may vary?"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from energymodel.design.lanes import minimize_many
from energymodel.design.layouts import (
    COARSE,
    FINE,
    Lattice,
    candidates,
    chips_per_replica,
    evaluate_points,
    fits,
    screen,
    take,
)
from energymodel.design.optimum import Conflict, Optimum, Price, RunnerUp
from energymodel.design.problem import Problem, Target, pose
from energymodel.design.quantities import AT_LEAST, OUTPUTS, objective_value, parse_objective
from energymodel.design.realize import Counts, Realized, realize
from energymodel.design.solve import RESULTS, Solution, SolverOptions
from energymodel.presets.scenario import Scenario
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import ParallelLayout, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.training_system import TrainingSystem, evaluate_once, parameters_in_loss
from energymodel.units import InputError, format_quantity

SCREENED = 768  # layouts that the fine grid sees, the best on the coarse one
SEARCHED = 128  # layouts that are searched, the best on the fine grid
ACTIVE = 1e-5  # slack in the logarithm below which a limit counts as reached
LEAST_ELASTICITY = 1e-6
LOSS_STEP = 1e-4
OPTIONS = SolverOptions(hessian="differences", max_iterations=100)
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
    All layouts are screened on a coarse grid; the promising ones are searched by the interior-point solver with
    counts free to be fractions; the best of them are rounded to whole replicas and micro-batches, solved again in
    the rest and evaluated exactly. Wishes of the scenario's `[optimize]` section hold unless given here.

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
    with jax.enable_x64(True):
        tell("evaluating the scenario's own plan")
        baseline = _numpy(evaluate_once(scenario.system, scenario.plan))
        problem = pose(scenario, baseline, minimize, limits, vary, fix)
        return _search(scenario, problem, baseline, tell)


def _search(scenario: Scenario, problem: Problem, baseline: TrainingOutcome, tell: Callable[[str], None]) -> Optimum:
    chips = problem.bounds.get("plan.chips", (0.0, float(scenario.plan.chips)))[1]
    lattice = candidates(problem.given, chips, problem.choices)
    considered = len(lattice.tensor)
    tell(f"screening {considered} layouts")
    lattice = take(lattice, np.flatnonzero(fits(problem, lattice, chips)))
    fitting = len(lattice.tensor)
    if fitting == 0:
        raise InputError(too_large(problem))
    lattice = take(lattice, screen(problem, lattice, COARSE).best(SCREENED))
    screened = screen(problem, lattice, FINE)
    chosen = screened.best(SEARCHED)
    lattice, start = take(lattice, chosen), screened.start[chosen]
    tell(f"searching {len(start)} layouts")
    least, most = layout_bounds(problem, lattice)
    solution = minimize_many(
        problem.form, start, (lattice, problem.targets(len(start))), shared=(problem.given,), bounds=(least, most),
        options=OPTIONS,
    )  # fmt: skip
    violation = np.sum(np.maximum(-solution.slacks.inequalities, 0.0), axis=-1)
    usable = np.isfinite(solution.value) & (violation <= ACTIVE)
    realized: list[Realized] = []
    if usable.any():
        tell("rounding to whole replicas and micro-batches")
        realized = realize(problem, lattice, solution, usable, OPTIONS)
    statistics = {
        "layouts_searched": len(start),
        "layouts_usable": int(np.sum(usable)),
        "iterations": int(np.sum(solution.iterations)),
        "converged": int(np.sum(np.asarray(solution.result == RESULTS.successful))),
    }
    found = _Found(lattice, solution, violation, realized, considered, fitting, statistics)
    return _answer(scenario, problem, baseline, found)


class _Found(NamedTuple):
    """What a search found, lane by lane, and the realizable plans, best first."""

    lattice: Lattice
    solution: Solution
    violation: np.ndarray
    realized: list[Realized]
    considered: int
    fitting: int
    statistics: dict[str, int]


def too_large(problem: Problem) -> str:
    """What to say where no layout fits into memory."""
    memory, chips = (format_quantity(problem.limits[name], OUTPUTS[name]) for name in ("memory", "chips"))
    return (
        f"The model fits into {memory} per chip in no layout of {chips} chips. "
        "Allow more chips (--limit chips=...), more memory, or offload states (plan.layout.offload_optimizer=1)."
    )


def layout_bounds(problem: Problem, lattice: Lattice) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the bounds for each layout: a layout needs its replica's chips."""
    least, most = problem.boxes(len(lattice.tensor))
    place = problem.index("plan.chips")
    if place is not None:
        least[:, place] = np.minimum(np.maximum(least[:, place], np.log(chips_per_replica(lattice))), most[:, place])
    return least, most


def _answer(scenario: Scenario, problem: Problem, baseline: TrainingOutcome, found: _Found) -> Optimum:
    form, solution = problem.form, found.solution
    if found.realized:
        winner = found.realized[0]
        lane, point = winner.layout, winner.point
        result = _verdict(solution, winner)
        message, conflicts = VERDICTS[result], ()
    else:
        lane = int(np.argmin(np.where(np.isfinite(solution.value), found.violation, np.inf)))
        point = solution.x[lane]
        conflicts = _conflicts(problem, solution, lane)
        result, message = "infeasible", _explain(conflicts, found.statistics["layouts_usable"])
        if bool(np.any(solution.result == RESULTS.interrupted)):
            result, message = "interrupted", "The search was interrupted before it found a plan. Run it again."
    layout = take(found.lattice, np.array(lane))
    counts = found.realized[0].counts if found.realized else None
    plan, outcome = finished_plan(scenario, problem, point, counts, layout, problem.target)
    value = float(objective_value(outcome, problem.minimize))
    prices = _prices(problem, found, lane, value) if found.realized else {}
    second = found.realized[1] if len(found.realized) > 1 else None
    runner_up = None
    if second is not None:
        others = jax.tree.map(lambda leaf: leaf[second.layout], found.lattice)
        runner_up = RunnerUp(others, float(np.expm1(second.value - found.realized[0].value)))
    relaxed = float(np.exp(np.min(np.where(found.violation <= ACTIVE, solution.value, np.inf), initial=np.inf)))
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
        layouts_considered=found.considered,
        layouts_feasible=found.fitting,
        runner_up=runner_up,
        relaxed_value=relaxed,
        gap=max(0.0, value / relaxed - 1.0) if np.isfinite(relaxed) else float("inf"),
        result=result,
        message=message,
        conflicts=conflicts,
        statistics=found.statistics,
    )


def finished_plan(
    scenario: Scenario, problem: Problem, point: np.ndarray, counts: Counts | None, layout: ParallelLayout,
    target: Target,
) -> tuple[TrainingPlan, TrainingOutcome]:  # fmt: skip
    """The plan at a point of the search, in the words of the scenario, and its outcome."""
    system, plan = _numpy(problem.form.at(point, layout, target, problem.given))
    if counts is not None:
        plan = _with_whole_counts(plan, system, counts)
    plan = _with_goal_of(scenario.plan, system, plan)
    return plan, _numpy(evaluate_once(system, plan))


def _verdict(solution: Solution, winner: Realized) -> str:
    if bool(np.any(solution.result == RESULTS.interrupted)):
        return "interrupted"
    return "successful" if winner.converged else "not converged"


def _prices(problem: Problem, found: _Found, lane: int, value: float) -> dict[str, Price]:
    """Elasticities from the multipliers of the relaxed optimum of the winning layout."""
    form, solution = problem.form, found.solution
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
    solution = found.solution
    layout = jax.tree.map(lambda leaf: leaf[lane : lane + 1], found.lattice)
    point = solution.x[lane][None, None]
    weights = solution.multipliers.inequalities[lane]

    def lagrangian(factor: float) -> float:
        loss = problem.target.limits["loss"] * factor
        moved = eqx.tree_at(lambda target: target.limits["loss"], problem.target, loss)
        values = evaluate_points(problem.form, point, layout, moved, problem.given)
        return float(values.objective[0, 0] + values.inequalities[0, 0] @ weights)

    return -(lagrangian(1.0 + LOSS_STEP) - lagrangian(1.0 - LOSS_STEP)) / (2.0 * LOSS_STEP)


def _conflicts(problem: Problem, solution: Solution, lane: int) -> tuple[Conflict, ...]:
    """Limits that exclude each other at the point that breaks them least, and the values that this point has."""
    form, limits = problem.form, problem.limits
    short = np.maximum(-solution.slacks.inequalities[lane], 0.0)
    binding = np.asarray(solution.conflict.inequalities[lane]) | (short > ACTIVE)
    missing = {name: float(short[row]) for row, name in enumerate(form.rows) if binding[row] and name in limits}
    place = problem.index("plan.chips")
    if place is not None and bool(solution.conflict.upper[lane][place]):
        missing["chips"] = 0.0
    broken = {name: by for name, by in missing.items() if by > ACTIVE} or missing
    return tuple(
        Conflict(name, limits[name], limits[name] * math.exp(-by if name in AT_LEAST else by), OUTPUTS[name])
        for name, by in sorted(broken.items(), key=lambda item: -item[1])
    )


def _explain(conflicts: tuple[Conflict, ...], usable: int) -> str:
    if usable:
        return (
            "Plans exist only with fractions of replicas or micro-batches. Relax a limit a little, or free plan.batch."
        )
    sentences = []
    for one in conflicts:
        asked, nearest = (format_quantity(number, one.unit) for number in (one.asked, one.nearest))
        short = abs(math.log(one.nearest / one.asked)) > ACTIVE
        sentences.append(f"{one.limit} {asked} (nearest feasible {nearest})" if short else f"{one.limit} {asked}")
    return f"No plan obeys these limits together: {', '.join(sentences)}. Relax the first, or one of the others."


def _with_whole_counts(plan: TrainingPlan, system: TrainingSystem, counts: Counts) -> TrainingPlan:
    """The same plan with chips and batch as whole numbers, not as exponentials of their logarithms."""
    layout = plan.layout
    chips = round(float(layout.tensor * layout.pipeline * layout.context)) * counts.data
    tokens = round(float(layout.microbatch * system.workload.sequence)) * counts.data * counts.microbatches
    batch = np.full(np.shape(plan.batch), float(tokens))
    return eqx.tree_at(lambda plan: (plan.chips, plan.batch), plan, (np.asarray(float(chips)), batch))


def _with_goal_of(own: TrainingPlan, system: TrainingSystem, plan: TrainingPlan) -> TrainingPlan:
    """The same plan with its goal in tokens if the scenario's is: the same numbers, said as the scenario says them."""
    if not isinstance(own.goal, TokenBudget) or not isinstance(plan.goal, TargetLoss):
        return plan
    batch = np.reshape(plan.batch, ())
    tokens = system.learning.tokens(parameters_in_loss(system), plan.goal.loss, batch)
    return eqx.tree_at(lambda plan: plan.goal, plan, TokenBudget(np.asarray(tokens)))


def _numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
