"""Ipopt and SLSQP behind the interface of `minimize`: the same optima, multipliers and results as our own search."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.solver import RESULTS, SolverOptions, minimize
from energymodel.solver.flat_problem import flatten
from energymodel.solver.oracles import _numpy_problem
from solver.problems import read

PEERS = ("ipopt", "slsqp")
# Equalities, inequalities and bounds, alone and together.
NAMES = ("HS012", "HS071")
PROBLEMS = {problem.name: problem for problem in read("published")}


@pytest.mark.parametrize("name", NAMES)
def test_peers_agree_with_our_search(name):
    problem = PROBLEMS[name]
    constraints = {"inequalities": problem.g, "equalities": problem.h if "equal" in problem.row else None}

    def solve(method):
        return minimize(problem.f, problem.x0, bounds=problem.bounds, **constraints, method=method)

    ours = solve("interior-point")
    assert bool(ours.result == RESULTS.successful)
    np.testing.assert_allclose(ours.value, problem.optima[0], rtol=1e-6)
    for method in PEERS:
        peer = solve(method)
        assert bool(peer.result == RESULTS.successful), method
        np.testing.assert_allclose(peer.value, ours.value, rtol=1e-6, atol=1e-6)
        for theirs, mine in zip(jax.tree.leaves(peer.multipliers), jax.tree.leaves(ours.multipliers), strict=True):
            np.testing.assert_allclose(theirs, mine, atol=1e-4 * max(1.0, np.abs(mine).max(initial=0.0)))
        assert int(peer.iterations) > 0


def test_ipopt_with_a_hessian_by_differences():
    problem = PROBLEMS["HS071"]

    def solve(hessian):
        functions = {"inequalities": problem.g, "equalities": problem.h, "options": SolverOptions(hessian=hessian)}
        return minimize(problem.f, problem.x0, bounds=problem.bounds, method="ipopt", **functions)

    differences, exact = solve("differences"), solve("exact")
    assert bool(differences.result == RESULTS.successful)
    np.testing.assert_allclose(differences.value, problem.optima[0], rtol=1e-6)
    assert int(differences.iterations) == int(exact.iterations)


def test_differences_of_an_oracle_are_exact_for_a_quadratic_at_zero_and_far_away():
    matrix = np.array([[2.0, 1.0], [1.0, 6.0]])
    problem = flatten(lambda x: 0.5 * x @ matrix @ x, jnp.zeros(2), (), None, None, None, None)
    numpy_problem = _numpy_problem(problem, SolverOptions(hessian="differences"))
    for x in (np.zeros(2), np.array([0.0, 1e4]), np.array([-1e6, 1e-3])):
        np.testing.assert_allclose(numpy_problem.hessian(x, np.ones(1)), matrix, rtol=1e-4)


@pytest.mark.parametrize("method", PEERS)
def test_peers_take_pytrees_arguments_and_fixed_variables(method):
    """min (a-1)^2 + (b-2)^2 + (c-3)^2 + k a c with c fixed at 2, a <= -1/2: as `test_minimize` derives by hand."""
    solution = minimize(
        lambda x, k: (x["a"] - 1) ** 2 + (x["b"][0] - 2) ** 2 + (x["c"] - 3) ** 2 + k * x["a"] * x["c"],
        {"a": 0.0, "b": jnp.zeros(1), "c": 5.0},
        args=(1.0,),
        bounds=({"a": None, "b": -jnp.inf, "c": 2.0}, {"a": -0.5, "b": None, "c": 2.0}),
        method=method,
    )
    np.testing.assert_allclose([solution.x["a"], solution.x["b"][0], solution.x["c"]], [-0.5, 2.0, 2.0], atol=1e-6)
    np.testing.assert_allclose(solution.multipliers.upper["c"], 2.5, atol=1e-5)
    np.testing.assert_allclose(solution.multipliers.upper["a"], 1.0, atol=1e-5)
    np.testing.assert_allclose(solution.multipliers.lower["a"], 0.0, atol=1e-5)


@pytest.mark.parametrize("method", PEERS)
def test_peers_end_in_the_same_results(method):
    infeasible = minimize(lambda x: x**2, 0.0, inequalities=lambda x: jnp.stack([x + 1, 1 - x]), method=method)
    assert bool(infeasible.result == RESULTS.infeasible)
    assert bool(infeasible.conflict.inequalities.any())
    assert bool(minimize(lambda x: x**2, 1.0, bounds=(2.0, 1.0), method=method).result == RESULTS.bounds_cross)
    assert bool(minimize(lambda x: x * jnp.nan, 1.0, method=method).result == RESULTS.non_finite)


def test_ipopt_finds_an_objective_without_minimum():
    assert bool(minimize(lambda x: x, 0.0, method="ipopt").result == RESULTS.unbounded)


@pytest.mark.parametrize("method", PEERS)
def test_peers_do_not_run_inside_transformations(method):
    with pytest.raises(ValueError, match="cannot be traced"):
        jax.jit(lambda x: minimize(lambda y: (y - x) ** 2, 0.0, method=method).value)(1.0)
    with pytest.raises(ValueError, match="cannot be traced"):
        jax.grad(lambda x: minimize(lambda y: (y - x) ** 2, 0.0, method=method).value)(1.0)


def test_unknown_method_and_missing_package(monkeypatch):
    with pytest.raises(ValueError, match='Choose "interior-point"'):
        minimize(lambda x: x**2, 1.0, method="simplex")
    for method, module in (("ipopt", "casadi"), ("slsqp", "scipy.optimize")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=r"energymodel\[oracles\]"):
            minimize(lambda x: x**2, 1.0, method=method)
