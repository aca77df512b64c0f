"""Whether another layout is surely better than the own one, and which layouts may be the best.

The constants c of a step are known with a distribution, that of a calibration or each its own, and the step times of
two layouts are predicted with errors of their own besides, `s` in the logarithm (`experiments/21_unseen_clusters`).
Both plans are evaluated at the same draws of the constants. Another layout is better than the own one with the
probability

    P = mean over c of Phi(ln(f_own(c) / f(c)) / (sqrt(2) s g)),    g = d ln f / d ln(step time)

with the limits at their prices; below 90 % the own layout stays.
"""

import dataclasses
import math
from collections.abc import Mapping

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtr

from energymodel.ranges import ends_of
from energymodel.scenarios.clusters import KIND
from energymodel.scenarios.scenario import Scenario, distributions
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS, row_scatter
from energymodel.search.layouts import take
from energymodel.search.problem import DesignProblem
from energymodel.search.relaxation import SETTLED, LayoutSearch, solve_relaxed
from energymodel.search.result import LayoutChoice, LayoutClaim, RankedLayout
from energymodel.search.rounding import RoundedPlan, round_layouts
from energymodel.search.training_run import SLOWDOWN, TrainingRun, in_float64
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outputs import objective_value
from energymodel.system.plan import ParallelLayout

SURE = 0.9  # probability of a gain from which on another layout is taken
RARE = 0.01  # probability to be the best below which a layout is not listed
DRAWS = 64  # of the constants of a step
MOST_WEIGHED = 16  # layouts that are evaluated at the draws, those of the lowest objective
UNCHANGED = 1e-4  # relative difference of a constant that was not changed since it was fitted

Draws = Mapping[str, Float[np.ndarray, " draws"]]
"""Constants of a step by path."""


def weigh_layouts(
    scenario: Scenario, searched: LayoutSearch, rounded: list[RoundedPlan], *, is_given: bool
) -> tuple[LayoutSearch, list[RoundedPlan], LayoutChoice]:
    """The search of the own layout instead of that of all, unless another one is surely better; and the choice.

    The own layout counts only where somebody gave it.
    """
    own, best, draws = searched.problem.run.plan.layout, rounded[0], constant_draws(scenario, searched.problem.run)
    layout = take(searched.lattice, np.array(best.lane))
    differs = is_given and not np.allclose(_fields(own), _fields(layout), rtol=1e-9)
    alone = _search_alone(searched.problem, own) if differs else searched
    plans = round_layouts(alone, alone.usable) if differs else []
    order = np.argsort(searched.values, kind="stable")[:MOST_WEIGHED].tolist()
    lanes = dict.fromkeys([best.lane, *(lane for lane in order if np.isfinite(searched.values[lane]))])
    moves = {lane: _moves(searched, lane, draws) for lane in lanes}
    values = {lane: searched.values[lane] + moves[lane][:-1] for lane in lanes}
    deviation, layouts = moves[best.lane][-1], [take(searched.lattice, np.array(lane)) for lane in lanes]
    if not plans:
        return searched, rounded, LayoutChoice(_ranked(layouts, np.stack([*values.values()]), deviation))
    own_moves = _moves(alone, plans[0].lane, draws)
    logarithms = np.stack([*values.values(), alone.values[plans[0].lane] + own_moves[:-1]])
    ranked = _ranked([*layouts, own], logarithms, deviation)
    gains = plans[0].value - best.value + own_moves[:-1] - moves[best.lane][:-1]
    error = math.hypot(deviation, own_moves[-1])
    probability = float(np.mean(ndtr(gains / error))) if error else float(np.mean(gains > 0.0))
    gain = -math.expm1(-float(np.mean(gains)))
    taken = gain > 0.0 and probability >= SURE
    choice = LayoutChoice(ranked, LayoutClaim(gain, probability, taken))
    return (searched, rounded, choice) if taken else (alone, plans, choice)


def constant_draws(scenario: Scenario, run: TrainingRun) -> Draws:
    """Antithetic draws of the uncertain constants of a step: those of a calibration together, others each alone."""
    values, table = run.values, scenario.tables.get("calibration", {}).get(KIND, {})
    fitted = list(table["names"]) if "slopes" in table else []
    rest = [name for name in NAMES if name not in fitted and f"system.{name}" in scenario.uncertainty]
    half = np.random.default_rng(0).standard_normal((DRAWS // 2, len(fitted) + len(rest)))
    normal, draws = np.concatenate([half, -half]), {}
    if fitted:
        root = np.linalg.cholesky(np.asarray(table["covariance"], np.float64))
        coordinates = np.asarray(table["coordinates"]) + normal[:, : len(fitted)] @ root.T
        for name, value, column in zip(fitted, table["values"], coordinates.T, strict=True):
            if math.isclose(values[f"system.{name}"], value, rel_tol=UNCHANGED):
                draws[f"system.{name}"] = np.array([STEP_CONSTANTS[name].value(number) for number in column])
    alone = {f"system.{name}": scenario.uncertainty[f"system.{name}"] for name in rest}
    uncertain = distributions(dataclasses.replace(scenario, uncertainty=alone), values)
    for (path, distribution), column in zip(uncertain.items(), normal[:, len(fitted) :].T, strict=True):
        draws[path] = np.clip(distribution.quantiles(values[path], ndtr(column)), *ends_of(scenario, path))
    return draws


def _moves(search: LayoutSearch, lane: int, draws: Draws) -> Float[np.ndarray, " draws+1"]:
    """Changes of the logarithm of the objective, with limits at their prices, at each draw of the constants; the last
    one is that with a step time one error of a layout longer.
    """
    problem, rows = search.problem, search.problem.formulation.rows
    layout = take(search.lattice, np.array(lane))
    run = in_float64(
        TrainingRun(*problem.formulation.at(search.solution.x[lane], layout, problem.criteria, problem.run))
    )
    steps, places = np.zeros((DRAWS + 1, run.vector.size)), run.places
    for path in draws.keys() - set(problem.formulation.paths):
        steps[:-1, places[path]] = (draws[path] - run.values[path])[:, None]
    steps[-1, places[SLOWDOWN]] = row_scatter() * run.values[SLOWDOWN]
    price = search.solution.multipliers.inequalities[lane][rows.index("time")] if "time" in rows else 0.0
    evaluate_numbers, structure = evaluate_once.of_numbers(run.system, run.plan)
    numbers, changes = jax.device_put((jax.tree.leaves(run), run.moved(steps)))

    def logarithm(change: Mapping[int, np.ndarray]) -> float:
        leaves = evaluate_numbers([*map(change.get, range(len(numbers)), numbers)])
        outcome = jax.tree.unflatten(structure, map(np.asarray, leaves))
        return math.log(float(objective_value(outcome, problem.minimize))) + price * math.log(float(outcome.time))

    logarithms = np.array([logarithm(change) for change in ({}, *changes)])
    return logarithms[1:] - logarithms[0]


def _fields(layout: ParallelLayout) -> Float[np.ndarray, " fields"]:
    return np.array(jax.tree.leaves(layout), np.float64)


def _search_alone(problem: DesignProblem, layout: ParallelLayout) -> LayoutSearch:
    """The search of a single layout, from the plan of the problem."""
    lattice, formulation = jax.tree.map(lambda leaf: np.full(1, float(leaf)), layout), problem.formulation
    start = [formulation.coordinate(of, np.clip(problem.start(of), *problem.bounds[of])) for of in formulation.paths]
    return LayoutSearch(problem, lattice, solve_relaxed(problem, lattice, np.array([start]), iterations=SETTLED))


def _ranked(
    layouts: list[ParallelLayout], values: Float[np.ndarray, "layouts draws"], deviation: float
) -> tuple[RankedLayout, ...]:
    """Those of the layouts with these logarithms of the objective that may be the best, the likeliest first."""
    _, first = np.unique([*map(_fields, layouts)], axis=0, return_index=True)
    means, chances = values.mean(axis=1), np.zeros(len(layouts))
    chances[first] = np.mean([chances_of_lowest(draw, abs(deviation)) for draw in values[first].T], axis=0)
    excess = np.expm1(means - np.min(means))
    return tuple(
        RankedLayout(layouts[index], float(excess[index]), float(chances[index]))
        for index in np.argsort(-chances, kind="stable").tolist()
        if chances[index] >= RARE
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
