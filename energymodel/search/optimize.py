"""The best realizable plan of a scenario over all layouts and everything that may vary, and what it saves."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import numpy as np

from energymodel.scenarios.question import Limits, Minimize, Ranges
from energymodel.scenarios.scenario import Scenario
from energymodel.search.causes import saving_by_cause
from energymodel.search.conflicts import Way, conflicts
from energymodel.search.layout_choice import weigh_layouts
from energymodel.search.layout_search import restart, screen_switched, search_layouts, worth_of_switches
from energymodel.search.layouts import fitting_layouts, take
from energymodel.search.problem import Criteria, DesignProblem, formulate
from energymodel.search.refinement import (
    EvaluatedPlan,
    near_tie,
    refine,
    saved_beside,
    tolerance_of,
    without_refinements,
)
from energymodel.search.relaxation import (
    LayoutSearch,
    Screening,
    evaluate_points,
    lane_model,
    layout_bounds,
    model_expansion,
    solve_relaxed,
)
from energymodel.search.result import (
    OBEYS_EVERY_LIMIT,
    OBEYS_LIMITS_ASKED,
    Conflict,
    LayoutChoice,
    Optimum,
    Price,
    RankedLayout,
    SearchResult,
    exceeded_limits,
)
from energymodel.search.rounding import RoundedPlan, plan_at, round_layouts
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import Lattice
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import AT_LEAST, objective_value, parse_objective, unit_of
from energymodel.units import format_quantity

NOTHING_YET = "The search was interrupted before it found a plan. Run it again."
_NO_SINGLE_LIMIT = "No single limit can give enough: move several, or fix fewer numbers."
SMALLEST_ELASTICITY = 1e-6
LARGEST_RESIDUAL = 0.1  # of the optimality conditions, with which multipliers still are prices to a few percent
STEEPEST = 20.0  # percent of the objective that a percent of a limit can be worth
MARGIN = 1e-3  # in the logarithm: a limit with more of it costs nothing
LOSS_STEP = 1e-4
NEARLY = 0.01  # in the logarithm: a lane that breaks its limits by less is rounded, as it stalls at a kink
_GLANCE = 0.02  # [s] between two looks at whether the derivatives are traced


def optimize(
    scenario: Scenario,
    minimize: Minimize | None = None,
    limits: Limits | None = None,
    vary: Ranges | None = None,
    fix: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
    *,
    tolerance: float | str | None = None,
    block: int | str | None = None,
    keep_layout: bool = True,
    throw: bool = False,
) -> Optimum:
    """Find the best realizable plan of a scenario.

    Batch, clock, coolant temperature and chips vary together, and the parallel layout over its feasible lattice.
    All layouts are screened on a coarse grid; those that can hold the best plan are searched by the interior-point
    solver with counts free to be fractions, the best of them with restarts; the best are rounded to whole replicas
    and micro-batches, solved again in the rest and evaluated exactly. What the scenario's `[optimize]` section asks
    holds unless stated otherwise here.

    **Arguments:**

    - `scenario`: from `load_scenario`.
    - `minimize`: `"energy"` [J], the default, `"time"` [s], `"money"` [USD], `"carbon"` [kg] or `"etp"` [J s].
    - `limits`: `{"time": "60 days", "facility_power": 25e6}`, text with a unit or SI; also `money`, `carbon`, `loss`,
      `chips`, `temperature`, `memory`. Unless given, loss, time and chips are those of the scenario's own plan.
    - `vary`: bounds of further variables by dotted path, or other bounds of the usual ones. `"plan.batch@0..1"` is a
      batch at 8 knots of progress, `"plan.batch@0..1:16"` at 16; `"plan.power.*"` are power caps by pipeline stage.
    - `fix`: paths that keep the scenario's value.
    - `progress`: called with a sentence at every stage.
    - `tolerance`: of plans whose objective exceeds the lowest by at most this share, 0.005 unless given, the one with
      the least energy (money, if energy is minimized) is taken, where that saves more than it costs; 0 for the optimum.
    - `keep_layout`: whether the own layout stays unless another one is better with 90 %, by the error of the model;
      not where the tolerance is 0, and where nobody gave a layout.
    - `block`: chips are a multiple of it; unless given, of a node, or as much of it as divides the scenario's own.
    - `throw`: raise the message of the result unless it is `successful`.

    **Returns:** `Optimum`; `result` is a member of `SearchResult` (`interrupted` by Ctrl-C, with the best plan so
    far), and `message` says what next.

    **Raises:** `InputError` for a limit, path or objective that does not exist; `RuntimeError` if `throw`.
    """
    tell = progress or (lambda sentence: None)
    scenario = scenario.with_question(minimize, limits, vary, fix, tolerance, block)
    with jax.enable_x64(True), ThreadPoolExecutor(1) as threads:
        threads.submit(model_expansion.preload)  # the derivatives that were used last
        tell("evaluating the scenario's own plan")
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        plain = without_refinements(scenario, baseline) if scenario.optimize.refined else scenario
        is_given = keep_layout and "layout" not in scenario.chosen
        optimum = _best_plan(scenario, formulate(plain, baseline), baseline, tell, is_given=is_given)
    if throw:
        optimum.result.throw_unless_successful(optimum.message)
    return optimum


def _best_plan(
    scenario: Scenario,
    problem: DesignProblem,
    baseline: TrainingOutcome,
    tell: Callable[[str], None],
    *,
    is_given: bool,
) -> Optimum:
    """The best plan of a scenario, whose layouts are searched by its problem without refinements.

    The own layout stays, unless another one is surely better, where it `is_given`. Layouts are compared with it without
    more switches, unless no plan obeys the limits without.
    """
    lattice, considered = fitting_layouts(problem)
    tell(f"searching {considered:,} layouts")
    tolerance = tolerance_of(scenario)
    with _preloaded_programs(problem, take(lattice, np.array([0]))):
        searched, rounded = None, []
        if is_given and tolerance > 0.0:
            searched, rounded = _search_and_round(problem, lattice, tolerance, tell)
        if searched is None or not (rounded or searched.interrupted):
            lattice, coarse = screen_switched(problem, lattice)
            searched, rounded = _search_and_round(problem, lattice, tolerance, tell, coarse)
    broken: tuple[Conflict, ...] = ()
    if not (rounded or searched.interrupted):
        tell("looking for the limits that exclude each other")
        broken, way = conflicts(problem, searched.lattice, partial(_realizable, lattice, tell))
        searched, rounded = way or (searched, rounded)
    layouts, choice = (considered, len(lattice.tensor)), LayoutChoice()
    if rounded and not broken and not searched.interrupted and tolerance > 0.0:
        tell("weighing layouts by the error of the model")
        searched, rounded, choice = weigh_layouts(scenario, searched, rounded, is_given=is_given)
    optimum = _optimum(scenario, problem, baseline, searched, rounded, broken, layouts, tell)
    if rounded and not broken:
        optimum = dataclasses.replace(optimum, choice=choice, switches=worth_of_switches(problem, optimum))
    if scenario.optimize.refined and rounded and not broken and not searched.interrupted:
        optimum = refine(searched, rounded, optimum, tell)
    return optimum


def _search_and_round(
    problem: DesignProblem,
    lattice: Lattice,
    tolerance: float,
    tell: Callable[[str], None],
    coarse: Screening | None = None,
) -> tuple[LayoutSearch, list[RoundedPlan]]:
    """The layouts that can hold the best plan, and their realizable plans, best first."""
    searched = restart(search_layouts(problem, lattice, tolerance, coarse))
    rounded: list[RoundedPlan] = []
    if searched.usable.any():
        tell("rounding to whole replicas and micro-batches")
        rounded = round_layouts(searched, searched.broken <= NEARLY)
        if rounded and not searched.solved[rounded[0].lane]:
            searched = restart(searched, rounded[0].lane)  # for the prices of the limits
    return searched, rounded


def _realizable(lattice: Lattice, tell: Callable[[str], None], problem: DesignProblem) -> Way:
    """Plans of a problem in whole numbers, without restarts.

    **Raises:** `KeyboardInterrupt` where the search is interrupted.
    """
    searched = search_layouts(problem, lattice, 0.0)
    if searched.interrupted:
        raise KeyboardInterrupt
    tell("trying limits in whole replicas and micro-batches")
    return Way(searched, round_layouts(searched, searched.broken <= NEARLY) if searched.usable.any() else [])


def _optimum(
    scenario: Scenario,
    problem: DesignProblem,
    baseline: TrainingOutcome,
    searched: LayoutSearch,
    rounded: list[RoundedPlan],
    broken: tuple[Conflict, ...],
    layouts: tuple[int, int],
    tell: Callable[[str], None],
) -> Optimum:
    solution, winner = searched.solution, rounded[0] if rounded else None
    lane = winner.lane if winner else searched.best
    point, counts = (winner.point, winner.counts) if winner else (solution.x[lane], None)
    layout = take(searched.lattice, np.array(lane))
    plan, outcome = plan_at(searched.problem, point, layout, counts=counts)
    best, tie, tolerance = float(objective_value(outcome, problem.minimize)), None, tolerance_of(scenario)
    if winner and not broken and not searched.interrupted and tolerance > 0.0:
        saved = saved_beside(problem.minimize)
        tell(f"looking for less {saved} within {100.0 * tolerance:g} % of the optimum")
        exact = EvaluatedPlan(plan, outcome, point)
        (plan, outcome, point, _), tie = near_tie(searched, rounded, exact, tolerance)
    variables, value = problem.values_at(point, plan), float(objective_value(outcome, problem.minimize))
    result, message = _verdict(searched, winner, broken, exceeded_limits(scenario, plan, outcome))
    trusted = winner and not broken
    prices = _prices(searched, lane, value) if trusted else {}
    runner_up = None
    if len(rounded) > 1:
        excess = float(np.expm1(rounded[1].value - rounded[0].value))
        runner_up = RankedLayout(take(searched.lattice, np.array(rounded[1].lane)), excess)
    relaxed = math.inf if broken else min(float(np.exp(np.min(searched.values, initial=np.inf))), best)
    return Optimum(
        scenario=scenario,
        plan=plan,
        outcome=outcome,
        baseline=baseline,
        value=value,
        baseline_value=float(objective_value(baseline, problem.minimize)),
        value_unit=parse_objective(problem.minimize).unit,
        limits={name: float(limit) for name, limit in problem.limits.items()},
        limit_units={name: unit_of(name) for name in problem.limits},
        prices=prices,
        active=tuple(name for name, price in prices.items() if abs(price.elasticity) > SMALLEST_ELASTICITY),
        varied=problem.varied,
        layouts_considered=layouts[0],
        layouts_feasible=layouts[1],
        runner_up=runner_up,
        relaxed_value=relaxed,
        gap=max(0.0, best / relaxed - 1.0) if np.isfinite(relaxed) else math.inf,
        result=result,
        message=message,
        conflicts=broken,
        statistics={
            "layouts_searched": len(solution.value),
            "layouts_left": searched.left,
            "others_excess": float(np.expm1(searched.others - solution.value[lane])),
            "restarts": searched.restarts,
            "restarts_agreeing": searched.agreeing,
            "restarts_astray": searched.astray,
            "restarts_spread": searched.spread,
            "iterations": int(np.sum(solution.iterations)),
            "converged": int(np.sum(searched.solved)),
            "residual": float(solution.residual[lane]),
        },
        found=variables,
        near_tie=tie,
        saving=saving_by_cause(problem, baseline, variables, plan.layout) if trusted else {},
    )


def _prices(searched: LayoutSearch, lane: int, value: float) -> dict[str, Price]:
    """Elasticities from the multipliers of the relaxed optimum of the winning layout, zero for limits with a margin.

    None where multipliers are no prices: at a kink of the model they do not converge, and where the limits leave no
    margin about the plan they grow beyond all bounds.
    """
    problem, solution, own = searched.problem, searched.solution, searched.solution.multipliers.inequalities[lane]
    layout, point = take(searched.lattice, np.array([lane])), solution.x[lane][None, None]

    def values_at(criteria: Criteria) -> tuple[float, np.ndarray]:
        values = evaluate_points(problem, point, layout, criteria)
        return float(values.objective[0, 0]), values.inequalities[0, 0]

    weights = np.where(values_at(problem.criteria)[1] < -MARGIN, 0.0, own)
    rows = dict(zip(problem.formulation.rows, map(float, weights), strict=False))
    if float(solution.residual[lane]) > LARGEST_RESIDUAL or max(map(abs, rows.values()), default=0.0) > STEEPEST:
        return {}
    elasticities = {name: y for name, y in rows.items() if name in problem.limits}
    index = problem.index("plan.chips")
    if index is not None and problem.bounds["plan.chips"][1] == problem.limits["chips"]:
        elasticities["chips"] = elasticities.get("chips", 0.0) + float(solution.multipliers.upper[lane][index])
    if "loss" in problem.limits and "loss" not in elasticities:
        # Envelope theorem, `- d Lagrangian / d ln loss` at the fixed point of the search, by central difference.
        ends = []
        for factor in (1.0 + LOSS_STEP, 1.0 - LOSS_STEP):
            loss = problem.criteria.limits["loss"] * factor
            objective, inequalities = values_at(problem.asking(limits={"loss": loss}).criteria)
            ends.append(objective + float(inequalities @ own))
        elasticities["loss"] = (ends[1] - ends[0]) / (2.0 * LOSS_STEP)
    unit = parse_objective(problem.minimize).unit
    signed = {name: -y if name in AT_LEAST else y for name, y in elasticities.items()}
    return {name: Price(y, y * value / problem.limits[name], f"{unit}/({unit_of(name)})") for name, y in signed.items()}


def _verdict(
    searched: LayoutSearch, winner: RoundedPlan | None, broken: tuple[Conflict, ...], exceeded: str
) -> tuple[SearchResult, str]:
    """Result and message of a search; `exceeded` names the limits of the system that the plan exceeds all the same."""
    if searched.interrupted:
        result = SearchResult.interrupted
        return result, result.message if winner else NOTHING_YET
    if broken:
        asked = ", ".join(f"{limit.limit} {format_quantity(limit.asked, limit.unit)}" for limit in broken)
        ways = [limit for limit in broken if math.isfinite(limit.nearest)]
        ways = ", or ".join(f"{limit.limit} to {format_quantity(limit.nearest, limit.unit)}" for limit in ways)
        advice = f"With all others as they are, move {ways}." if ways else _NO_SINGLE_LIMIT
        return SearchResult.infeasible, f"No plan obeys these limits together: {asked}. {advice}"
    if winner is None:
        return SearchResult.infeasible, SearchResult.infeasible.message
    result = SearchResult.successful if winner.converged else SearchResult.not_converged
    if exceeded:
        return result, result.message.replace(OBEYS_EVERY_LIMIT, f"{OBEYS_LIMITS_ASKED}; {exceeded}")
    return result, result.message


@contextmanager
def _preloaded_programs(problem: DesignProblem, layout: Lattice) -> Iterator[None]:
    """Compile the programs of a search in threads, in the first search of a process.

    Tracing needs the interpreter for itself; the compiler does not, and it takes longest on the derivatives. So these
    are traced before anything else (`benchmarks/compile_time.py`). What fails here fails again where it is needed.
    """
    lower, upper = layout_bounds(problem, layout)
    middle, model = 0.5 * (lower + upper), lane_model(problem, layout)

    def in_double(function: Callable[[], Any]) -> Any:
        with jax.enable_x64(True):  # a thread starts with the default
            return function()

    with ThreadPoolExecutor() as threads:
        if model_expansion.unused:
            derivatives = threads.submit(in_double, lambda: model.expansion(middle, np.zeros(1, np.int32)))
            while not (model_expansion.traced or derivatives.done()):
                time.sleep(_GLANCE)
            threads.submit(in_double, lambda: plan_at(problem, middle[0], take(layout, np.array(0))))
            threads.submit(in_double, lambda: solve_relaxed(problem, layout, middle, iterations=1))
        yield
