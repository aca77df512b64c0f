"""What each change of a plan saves of an objective.

What a change saves depends on the changes before it. The share of each cause in the saving is therefore its mean over
all orders in which the causes can change,

    s_i = sum_S |S|! (k - |S| - 1)! / k!  (v(S) - v(S + i)),

with v(S) the objective of the own plan with the causes in S as in the new one [Shapley 1953]; the shares add up to the
saving.
"""

import math
from collections.abc import Mapping
from functools import partial

import jax
import numpy as np
from jaxtyping import Float

from energymodel.readers.expressions import data_file
from energymodel.scenarios.question import TOKENS
from energymodel.search.problem import Criteria, DesignProblem
from energymodel.search.result import SAME_NUMBER
from energymodel.search.rounding import evaluated_plan
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value
from energymodel.system.plan import ParallelLayout

LAYOUT, LOSS = "layout", "loss"
CAUSES: Mapping[str, str] = data_file(__file__, "paths.toml")["causes"]
MOST_CAUSES = 8  # causes: 256 plans; more than that are not split


def saving_by_cause(
    problem: DesignProblem, baseline: TrainingOutcome, variables: Mapping[str, float], layout: ParallelLayout
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
    same = partial(math.isclose, rel_tol=SAME_NUMBER)
    changed = {CAUSES.get(path, path) for path, value in new.items() if not same(own[path], value)}
    if not all(map(same, *map(jax.tree.leaves, layouts))):
        changed.add(LAYOUT)
    causes = sorted(changed)
    if len(causes) > MOST_CAUSES:
        return {}

    def value(unchanged: set[str]) -> float:
        """The objective of the plan found, but for some causes that stay as they were."""
        values = {path: own[path] if CAUSES.get(path, path) in unchanged else new[path] for path in new}
        point = np.array([formulation.coordinate(path, values[path]) for path in formulation.paths])
        criteria = Criteria(problem.criteria.powers, {**problem.criteria.limits, LOSS: values[LOSS]})
        system, plan = formulation.at(point, layouts[LAYOUT not in unchanged], criteria, problem.run)
        return float(objective_value(evaluated_plan(problem, system, plan)[1], problem.minimize))

    sets = (np.arange(2 ** len(causes))[:, None] >> np.arange(len(causes))) & 1 == 1
    values = np.array([value(set(np.array(causes)[~changes].tolist())) for changes in sets])
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
