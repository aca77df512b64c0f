"""Ipopt beside our own search: the same optima, multipliers and results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.solver import RESULTS, SolverOptions, minimize
from experiment import Experiment
from solver.problems import read

pytestmark = pytest.mark.slow  # published problems

ipopt = Experiment("20_joint_search").ipopt.ipopt
PROBLEMS = {problem.name: problem for problem in read("published")}


@pytest.mark.parametrize("name", ["HS012", "HS071"])  # inequalities alone, and with equalities and bounds
@pytest.mark.parametrize("hessian", ["exact", "differences"])
def test_both_find_the_published_optimum_at_the_same_prices(name, hessian):
    problem = PROBLEMS[name]
    rows = {"inequalities": problem.g, "equalities": problem.h if "equal" in problem.row else None}
    options = SolverOptions(hessian=hessian)
    own, peer = (
        solve(problem.f, problem.x0, bounds=problem.bounds, **rows, options=options) for solve in (minimize, ipopt)
    )
    for solution in (own, peer):
        assert bool(solution.result == RESULTS.successful)
        np.testing.assert_allclose(solution.value, problem.optima[0], rtol=1e-6)
    for theirs, mine in zip(jax.tree.leaves(peer.multipliers), jax.tree.leaves(own.multipliers), strict=True):
        np.testing.assert_allclose(theirs, mine, atol=1e-4 * max(1.0, np.abs(mine).max(initial=0.0)))


def test_both_end_in_the_same_results():
    for solve in (minimize, ipopt):
        infeasible = solve(lambda x: x**2, 0.0, inequalities=lambda x: jnp.stack([x + 1, 1 - x]))
        assert bool(infeasible.result == RESULTS.infeasible)
        assert bool(infeasible.conflict.inequalities.any())
        assert bool(solve(lambda x: x * jnp.nan, 1.0).result == RESULTS.non_finite)
        assert bool(solve(lambda x: x, 0.0).result == RESULTS.unbounded)
