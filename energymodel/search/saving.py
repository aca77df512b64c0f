"""Shares of a saving by cause: clock, coolant, layout, batch, chips, loss.

What a change saves depends on the changes before it. The share of each cause is therefore its mean saving over all
orders in which the causes can change,

    s_i = sum_S |S|! (k - |S| - 1)! / k!  (v(S) - v(S + i)),

with v(S) the objective of the own plan with the causes in S as found [Shapley 1953]; the shares add up to the saving.
"""

import math
from collections.abc import Mapping

import jax
import numpy as np
from jaxtyping import Float

from energymodel.scenarios.question import TOKENS
from energymodel.scenarios.scenario import Scenario
from energymodel.search.problem import Criteria, DesignProblem
from energymodel.search.rounding import plans_at
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value
from energymodel.system.plan import ParallelLayout

LAYOUT, LOSS = "layout", "loss"
CAUSES = {
    "plan.clock": "clock",
    "plan.power_cap": "clock",
    "plan.coolant_temperature": "coolant",
    "plan.batch": "batch",
    TOKENS: "batch",
    "plan.chips": "chips",
}
MOST = 8  # causes: 256 plans; more than that are not split
SAME = 1e-9  # relative change of a number that counts as none


def saving_by_cause(
    scenario: Scenario,
    problem: DesignProblem,
    baseline: TrainingOutcome,
    variables: Mapping[str, float],
    layout: ParallelLayout,
) -> dict[str, float]:
    """What each cause saves of the objective, in its unit, the largest first; empty where it cannot be split.

    Numbers of the system that vary are causes of their own, by their path. The loss is one, where a limit moved it.

    **Arguments:**

    - `baseline`: outcome of the scenario's own plan.
    - `variables`: value of each variable of the problem in the plan that was found, by path.
    - `layout`: of that plan.
    """
    formulation, layouts = problem.formulation, (problem.run.plan.layout, layout)
    own = {path: problem.run.number(path) for path in formulation.paths if path != TOKENS}
    own = {TOKENS: float(baseline.tokens), LOSS: float(baseline.loss), **own}
    new = {**variables, LOSS: float(problem.criteria.limits[LOSS]) if LOSS in problem.limits else own[LOSS]}
    causes = {CAUSES.get(path, path) for path, value in new.items() if not math.isclose(own[path], value, rel_tol=SAME)}
    if not all(math.isclose(a, b, rel_tol=SAME) for a, b in zip(*map(jax.tree.leaves, layouts), strict=True)):
        causes.add(LAYOUT)
    causes = sorted(causes)
    if len(causes) > MOST:
        return {}
    sets = (np.arange(2 ** len(causes))[:, None] >> np.arange(len(causes))) & 1 == 1

    def chosen(cause: str, own: float, new: float) -> np.ndarray:
        """The own or the new number, in each set of causes."""
        return np.where(sets[:, causes.index(cause)] if cause in causes else True, new, np.full(len(sets), own))

    coordinates = [
        formulation.coordinate(path, chosen(CAUSES.get(path, path), own[path], new[path])) for path in formulation.paths
    ]
    lattice = jax.tree.map(lambda a, b: chosen(LAYOUT, float(a), float(b)), *layouts)
    powers, limits = jax.tree.map(
        lambda leaf: np.full(len(sets), leaf), (problem.criteria.powers, problem.criteria.limits)
    )
    criteria = Criteria(powers, {**limits, LOSS: chosen(LOSS, own[LOSS], new[LOSS])})
    plans = plans_at(scenario, problem, np.stack(coordinates, axis=1), lattice, criteria)
    values = np.array([float(objective_value(outcome, problem.minimize)) for _, outcome in plans])
    if not np.all(np.isfinite(values)):
        return {}
    shares = zip(causes, _shapley(values, sets), strict=True)
    return dict(sorted(shares, key=lambda share: -abs(share[1])))


def _shapley(values: Float[np.ndarray, " sets"], sets: np.ndarray) -> list[float]:
    """Mean saving of each cause over all orders; `sets` holds the causes of each set, in binary order."""
    count, sizes = sets.shape[1], sets.sum(axis=1)
    orders = np.array([math.factorial(size) * math.factorial(max(count - size - 1, 0)) for size in range(count + 1)])
    shares = []
    for cause in range(count):
        without = np.flatnonzero(~sets[:, cause])
        weights = orders[sizes[without]] / math.factorial(count)
        shares.append(float(weights @ (values[without] - values[without + 2**cause])))
    return shares
