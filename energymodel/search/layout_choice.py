"""Whether another layout is surely better than the own one, and which layouts may be the best.

The constants c of a step are known with a distribution, that of a calibration or each its own, and the step times of
two layouts are predicted with errors of their own besides, `s` in the logarithm (`experiments/21_unseen_clusters`).
Both plans are evaluated at the same draws of the constants. Another layout is better than the own one with the
probability

    P = mean over c of Phi(ln(f_own(c) / f(c)) / (sqrt(2) s g)),    g = d ln f / d ln(step time)

with the limits at their prices, where the limit of time is that of the own plan at the draw unless it was given; below
90 % the own layout stays. Layouts are compared without switches of the framework that the own one lacks; the one
chosen then takes those that surely save: layouts that differ in nothing else have the same error s.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtr

from energymodel.ranges import ends_of
from energymodel.scenarios.clusters import KIND, as_fitted
from energymodel.scenarios.scenario import Scenario, distributions
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS, row_scatter
from energymodel.search.layout_search import screen_switched
from energymodel.search.layouts import concatenate, take
from energymodel.search.problem import DesignProblem
from energymodel.search.relaxation import SETTLED, LayoutSearch, evaluate_points, solve_relaxed
from energymodel.search.result import LayoutChoice, LayoutClaim, RankedLayout
from energymodel.search.rounding import RoundedPlan, round_layouts
from energymodel.search.training_run import SLOWDOWN, TrainingRun, changes_along, in_float64
from energymodel.system.layouts import Lattice

SURE = 0.9  # probability of a gain from which on another layout is taken
RARE = 0.01  # probability to be the best below which a layout is not listed
DRAWS = 64  # of the constants of a step
MOST_WEIGHED = 16  # layouts that are evaluated at the draws, those of the lowest objective

Draws = Mapping[str, Float[np.ndarray, " draws"]]
"""Constants of a step by path."""


def weigh_layouts(
    scenario: Scenario, searched: LayoutSearch, rounded: list[RoundedPlan], *, is_given: bool
) -> tuple[LayoutSearch, list[RoundedPlan], LayoutChoice]:
    """The search of the own layout instead of that of all, unless another one is surely better; and the choice.

    The own layout counts only where somebody gave it.
    """
    problem, best = searched.problem, rounded[0]
    draws, follows = constant_draws(scenario, problem.run), "time" not in scenario.optimize.limits
    error, layout = _layout_error(searched, best), _fields(take(searched.lattice, np.array(best.lane)))
    differs = is_given and not np.allclose(_fields(problem.run.plan.layout), layout, rtol=1e-9)
    alone = _search_alone(problem, *_own_lane(problem)) if differs else searched
    plans = round_layouts(alone, alone.usable) if differs else []
    order = [lane for lane in np.argsort(searched.values, kind="stable") if np.isfinite(searched.values[lane])]
    lanes = _relaxed(searched, *dict.fromkeys([best.lane, *order[:MOST_WEIGHED]]))
    if plans:
        lanes = _Lanes(*concatenate(lanes, _relaxed(alone, plans[0].lane)))
    moves, late = _moves(problem, lanes, draws, follows=follows)
    ranked, claim = _ranked(lanes, moves, late, error), None
    if plans:
        lead = plans[0].value - best.value
        gain = -math.expm1(-(lead + float(np.mean(moves[:, -1] - moves[:, 0]))))
        probability = _probability(lead + (moves + late)[:, -1] - (moves + late)[:, 0], math.sqrt(2.0) * error)
        claim = LayoutClaim(gain, probability, gain > 0.0 and probability >= SURE)
    chosen = (alone, plans) if claim and not claim.taken else (searched, rounded)
    if is_given:
        chosen = _with_sure_switches(*chosen, draws, follows=follows)
    return *chosen, LayoutChoice(ranked, claim)


def _search_alone(problem: DesignProblem, lattice: Lattice, start: Float[np.ndarray, "1 n"]) -> LayoutSearch:
    """The search of a single layout."""
    return LayoutSearch(problem, lattice, solve_relaxed(problem, lattice, start, iterations=SETTLED))


def _with_sure_switches(
    searched: LayoutSearch, rounded: list[RoundedPlan], draws: Draws, *, follows: bool
) -> tuple[LayoutSearch, list[RoundedPlan]]:
    """The search of the best layout with those switches that save, if that is sure; else what was searched.

    What no constant explains is the same with and without them.
    """
    problem, best = searched.problem, rounded[0]
    lattice = take(searched.lattice, np.array([best.lane]))
    switched = screen_switched(problem, lattice)[0]
    if np.array_equal(_fields(lattice), _fields(switched)):
        return searched, rounded
    other = _search_alone(problem, switched, searched.solution.x[best.lane][None])
    plans = round_layouts(other, other.usable)
    if not plans:
        return searched, rounded
    lanes = _Lanes(*concatenate(_relaxed(searched, best.lane), _relaxed(other, plans[0].lane)))
    moves, late = _moves(problem, lanes, draws, follows=follows)
    lead = best.value - plans[0].value
    is_sure = lead > 0.0 and _probability(lead - np.diff(moves + late)[:, 0]) >= SURE
    return (other, plans) if is_sure else (searched, rounded)


def _probability(gains: Float[np.ndarray, " draws"], error: float = 0.0) -> float:
    """Probability of a gain in the logarithm with a normal error, by its values at draws."""
    return float(np.mean(ndtr(gains / error) if error else gains > 0.0))


def constant_draws(scenario: Scenario, run: TrainingRun) -> Draws:
    """Antithetic draws of the uncertain constants of a step: those of a calibration together, others each alone.

    Without the slowdown in production, which all layouts have alike.
    """
    values, table = run.values, scenario.tables.get("calibration", {}).get(KIND, {})
    fitted = list(table["names"]) if "slopes" in table else []
    rest = [name for name in NAMES if name not in fitted and f"system.{name}" in scenario.uncertainty]
    half = np.random.default_rng(0).standard_normal((DRAWS // 2, len(fitted) + len(rest)))
    normal, draws = np.concatenate([half, -half]), {}
    if fitted:
        root = np.linalg.cholesky(np.asarray(table["covariance"], np.float64))
        coordinates = np.asarray(table["coordinates"]) + normal[:, : len(fitted)] @ root.T
        for name, is_fitted, column in zip(fitted, as_fitted(table, values), coordinates.T, strict=True):
            if is_fitted:
                draws[f"system.{name}"] = np.array([STEP_CONSTANTS[name].value(number) for number in column])
    alone = {f"system.{name}": scenario.uncertainty[f"system.{name}"] for name in rest}
    uncertain = distributions(dataclasses.replace(scenario, uncertainty=alone), values)
    for (path, distribution), column in zip(uncertain.items(), normal[:, len(fitted) :].T, strict=True):
        draws[path] = np.clip(distribution.quantiles(values[path], ndtr(column)), *ends_of(scenario, path))
    return {path: column for path, column in draws.items() if path != SLOWDOWN}


class _Lanes(NamedTuple):
    """Layouts at their relaxed optima: points, logarithms of the objective, and the price of the limit of time."""

    lattice: Lattice
    points: Float[np.ndarray, "lanes n"]
    values: Float[np.ndarray, " lanes"]
    prices: Float[np.ndarray, " lanes"]


def _relaxed(search: LayoutSearch, *chosen: int) -> _Lanes:
    index = np.array(chosen)
    prices, rows = search.solution.multipliers.inequalities[index], search.problem.formulation.rows
    price = prices[:, rows.index("time")] if "time" in rows else np.zeros(len(index))
    return _Lanes(take(search.lattice, index), search.solution.x[index], search.values[index], price)


def _moves(
    problem: DesignProblem, lanes: _Lanes, draws: Draws, *, follows: bool
) -> tuple[Float[np.ndarray, "draws lanes"], Float[np.ndarray, "draws lanes"]]:
    """Changes of the logarithm of the objective at each draw of the constants, and of the time at the price of its
    limit, which `follows` the own plan's.
    """
    rows, run = problem.formulation.rows, in_float64(problem.run)
    vectors = np.tile(run.vector, (DRAWS + 1, 1))
    for path, values in draws.items():
        vectors[1:, run.places[path]] = values[:, None]
    lattice, points = _own_lane(problem)
    lattice, points = concatenate((lanes.lattice, lanes.points), (lattice, points))

    def at(vector: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " lanes"], Float[np.ndarray, " lanes"]]:
        values = evaluate_points(dataclasses.replace(problem, run=run.at(vector)), points[:, None], lattice)
        time = values.inequalities[:, 0, rows.index("time")] if "time" in rows else np.zeros(len(points))
        return values.objective[:-1, 0], lanes.prices * (time[:-1] - follows * time[-1])

    objective, late = map(np.array, zip(*map(at, vectors), strict=True))
    return objective[1:] - objective[0], late[1:] - late[0]


def _layout_error(search: LayoutSearch, rounded: RoundedPlan) -> float:
    """Standard deviation of the logarithm of the objective by the error of the step time of a layout."""
    lanes = _relaxed(search, rounded.lane)
    system, plan = search.problem.formulation.at(
        lanes.points[0], take(lanes.lattice, np.array(0)), search.problem.criteria, search.problem.run
    )
    run = in_float64(TrainingRun(system, plan))
    slower = np.zeros((1, run.vector.size))
    slower[0, run.places[SLOWDOWN]] = run.values[SLOWDOWN]
    changes = changes_along(run, slower)
    slope = changes.relative(search.problem.minimize) + lanes.prices * changes.relative("time")
    return row_scatter() * abs(float(slope[0]))


def _fields(layout: Lattice) -> np.ndarray:
    """The fields of a layout or of many, each a row."""
    return np.array(jax.tree.leaves(layout), np.float64)


def _own_lane(problem: DesignProblem) -> tuple[Lattice, Float[np.ndarray, "1 n"]]:
    """The own layout and the point of the own plan within the bounds."""
    formulation = problem.formulation
    lattice = jax.tree.map(lambda leaf: np.full(1, float(leaf)), problem.run.plan.layout)
    point = [formulation.coordinate(of, np.clip(problem.start(of), *problem.bounds[of])) for of in formulation.paths]
    return lattice, np.array([point])


def _ranked(
    lanes: _Lanes, moves: Float[np.ndarray, "draws lanes"], late: Float[np.ndarray, "draws lanes"], deviation: float
) -> tuple[RankedLayout, ...]:
    """The layouts that may be the best by their objectives at the draws, the likeliest first."""
    _, first = np.unique(_fields(lanes.lattice), axis=1, return_index=True)
    values, chances = lanes.values + moves + late, np.zeros(len(lanes.values))
    chances[first] = np.mean([chances_of_lowest(draw, deviation) for draw in values[:, first]], axis=0)
    means = lanes.values + moves.mean(axis=0)
    excess = np.expm1(means - np.min(means))
    return tuple(
        RankedLayout(take(lanes.lattice, np.array(lane)), float(excess[lane]), float(chances[lane]))
        for lane in np.argsort(-chances, kind="stable").tolist()
        if chances[lane] >= RARE
    )


def chances_of_lowest(values: Float[np.ndarray, " n"], deviation: float) -> Float[np.ndarray, " n"]:
    """Probability of each of some values to be the lowest, with independent normal errors [1].

    `P_i = int phi(z) prod_j!=i (1 - Phi((v_i - v_j) / s + z)) dz`, zero for infinite values.
    """
    finite = np.isfinite(values)
    if not deviation:
        return np.where(finite, values == np.min(values), 0.0) / max(1, np.sum(values == np.min(values)))
    z, step = np.linspace(-6.0, 6.0, 241, retstep=True)
    apart = (values[finite][:, None] - values[finite]) / deviation
    above = log_ndtr(-(apart[..., None] + z)) * (1.0 - np.eye(len(apart)))[..., None]
    result = np.zeros(len(values))
    result[finite] = np.exp(above.sum(axis=1) - 0.5 * z**2).sum(axis=1) * step / math.sqrt(2.0 * math.pi)
    return result
