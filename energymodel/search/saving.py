"""Where does the saving of a plan come from: the clock, the coolant, the layout, the batch, the chips?

What a change saves depends on the changes before it. The share of each cause is therefore its mean saving over all
orders in which the causes can change,

    s_i = sum_S |S|! (k - |S| - 1)! / k!  (v(S) - v(S + i)),

with v(S) the objective of the own plan with the causes in S as found [Shapley 1953]; the shares add up to the saving.
"""

import math
from collections.abc import Mapping, Sequence

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
    found: Mapping[str, float],
    layout: ParallelLayout,
) -> dict[str, float]:
    """What each cause saves of the objective, in its unit, the largest first; empty where it cannot be split.

    Numbers of the system that vary are causes of their own, by their path. The loss is one, where a limit moved it.

    **Arguments:**

    - `baseline`: outcome of the scenario's own plan.
    - `found`: value of each variable of the problem in the plan that was found, by path.
    - `layout`: of that plan.
    """
    paths = problem.formulation.paths
    own = {path: float(baseline.tokens) if path == TOKENS else problem.given.number(path) for path in paths}
    target = float(problem.criteria.limits["loss"])
    losses = (float(baseline.loss), target if "loss" in problem.limits else float(baseline.loss))
    changed = {CAUSES.get(path, path) for path in paths if _differ(own[path], found[path])}
    layouts = (problem.given.plan.layout, layout)
    if any(_differ(float(a), float(b)) for a, b in zip(*map(jax.tree.leaves, layouts), strict=True)):
        changed.add(LAYOUT)
    if _differ(*losses):
        changed.add(LOSS)
    causes = sorted(changed)
    if len(causes) > MOST:
        return {}
    within = (np.arange(2 ** len(causes))[:, None] >> np.arange(len(causes))) & 1 == 1

    def chosen(cause: str, own: float, found: float) -> np.ndarray:
        """The own or the found number, in each set of causes."""
        taken = within[:, causes.index(cause)] if cause in causes else np.ones(len(within), bool)
        return np.where(taken, found, own)

    coordinates = [
        problem.formulation.coordinate(path, chosen(CAUSES.get(path, path), own[path], found[path])) for path in paths
    ]
    lattice = jax.tree.map(lambda a, b: chosen(LAYOUT, float(a), float(b)), *layouts)
    criteria = problem.repeated_criteria(len(within))
    criteria = Criteria(criteria.powers, {**criteria.limits, "loss": chosen(LOSS, *losses)})
    plans = plans_at(scenario, problem, np.stack(coordinates, axis=1), lattice, criteria)
    values = np.array([float(objective_value(outcome, problem.minimize)) for _, outcome in plans])
    if not np.all(np.isfinite(values)):
        return {}
    shares = dict(zip(causes, _shapley(values, within), strict=True))
    return dict(sorted(shares.items(), key=lambda share: -abs(share[1])))


def _differ(a: float, b: float) -> bool:
    return abs(a - b) > SAME * max(abs(a), abs(b))


def _shapley(values: Float[np.ndarray, " sets"], within: np.ndarray) -> Sequence[float]:
    """Mean saving of each cause over all orders; `within` says which causes each set holds, in binary order."""
    count = within.shape[1]
    sizes = within.sum(axis=1)
    shares = []
    for cause in range(count):
        without = np.flatnonzero(~within[:, cause])
        orders = [math.factorial(size) * math.factorial(count - size - 1) for size in sizes[without]]
        weights = np.array(orders, np.float64) / math.factorial(count)
        shares.append(float(weights @ (values[without] - values[without + 2**cause])))
    return shares
