"""The first-order solver beside closed forms and the dense solver, also past the size of that one."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.learning.critical_batch import PowerCriticalBatch
from energymodel.learning.learning import CriticalBatchLearning
from energymodel.learning.loss_law import ChinchillaLaw
from energymodel.learning.schedule import quadrature_over_progress
from energymodel.solver import RESULTS, FirstOrderOptions, SolverOptions, minimize_first_order
from energymodel.solver.box import Box
from energymodel.solver.first_order import UnboundedVariables
from solver.problems import HS71, ended, fast

first_order = eqx.filter_jit(minimize_first_order)


def rosenbrock(x):
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def test_every_number_is_a_point_of_the_box_and_the_slope_is_its_derivative():
    lower, upper = np.array([-np.inf, -1.0, -np.inf, -1.0, 2.0]), np.array([np.inf, np.inf, 3.0, 3.0, 2.0])
    scale = jnp.array([1.0, 2.0, 0.5, 1.5, 1.0])
    variables = UnboundedVariables(Box(jnp.asarray(lower), jnp.asarray(upper)), scale)
    for z in np.random.default_rng(0).uniform(-20.0, 20.0, (20, 5)):
        x, slope = variables.x(jnp.asarray(z))
        assert np.all((np.asarray(x) >= lower - 1e-9) & (np.asarray(x) <= upper + 1e-9))
        np.testing.assert_allclose(variables.x(variables.z(x))[0], x, atol=1e-6)
        derivative = jnp.diag(jax.jacobian(lambda z: variables.x(z)[0])(jnp.asarray(z)))
        np.testing.assert_allclose(slope, derivative, atol=1e-9)


def test_hock_schittkowski_71():
    solution = first_order(**HS71)
    assert ended(solution, RESULTS.successful)
    np.testing.assert_allclose(solution.x, [1.0, 4.7429994, 3.8211503, 1.3794082], atol=1e-6)
    np.testing.assert_allclose(solution.value, 17.0140173, atol=1e-6)
    # Multipliers as Ipopt's documentation prints them.
    np.testing.assert_allclose(solution.multipliers.inequalities, 0.5523, atol=1e-4)
    np.testing.assert_allclose(solution.multipliers.lower, [1.0879, 0, 0, 0], atol=1e-4)


@pytest.mark.parametrize(
    ("objective", "problem", "result"),
    [
        (lambda x: jnp.sum(x**2), {"inequalities": lambda x: jnp.stack([x[0] - 1.0, 2.0 - x[0]])}, RESULTS.infeasible),
        (lambda x: jnp.sum(x**2), {"equalities": lambda x: -1.0 - x[0] ** 2}, RESULTS.infeasible),
        (lambda x: jnp.log(-1.0 - jnp.sum(x**2)), {}, RESULTS.non_finite),
        (lambda x: jnp.sum(x), {"options": FirstOrderOptions(max_iterations=50)}, RESULTS.out_of_iterations),
        (lambda x: jnp.sum(x**2), {"bounds": (1.0, -1.0)}, RESULTS.bounds_cross),
    ],
    ids=["infeasible", "infeasible from below", "not finite", "unbounded", "bounds cross"],
)
def test_what_has_no_answer_says_so(objective, problem, result):
    solution = first_order(objective, np.ones(2), **problem)
    assert ended(solution, result)


def test_infeasible_rows_are_named():
    solution = first_order(
        lambda x: jnp.sum(x**2), np.ones(2), inequalities=lambda x: jnp.stack([x[0] - 1.0, 2.0 - x[0], x[1] - 5.0])
    )
    np.testing.assert_array_equal(solution.conflict.inequalities, [True, True, False])


def test_float32_stops_at_what_it_reaches():
    solution = first_order(rosenbrock, np.full(4, -1.2, np.float32))
    assert solution.x.dtype == np.float32
    assert ended(solution, RESULTS.successful)
    np.testing.assert_allclose(solution.x, 1.0, atol=2e-3)


# A schedule of the batch, whose best cost is known: docs/physics.md A0.12

EXPONENT, FIXED, END = 0.462, 1e6, 1.4e12
LEARNING = CriticalBatchLearning(
    loss_law=ChinchillaLaw(1.8172, 482.01, 0.3478, 2085.43, 0.3658),
    critical_batch=PowerCriticalBatch(2048 * 0.0471, EXPONENT),
    absorbed_overhead=0.0,
)
RUN_LEVEL = 2048 * 0.0471 * END**EXPONENT


def schedule_cost(knots):
    """Logarithm of the time of a run over its ideal."""
    cost, _ = quadrature_over_progress(lambda batch: 1.0 + FIXED / batch, END, knots, LEARNING, 70e9)
    return jnp.log(cost / END)


def token_overhead(knots, most):
    """Tokens against a limit on them, as a multiple of the ideal."""
    _, tokens = quadrature_over_progress(lambda batch: 1.0 + FIXED / batch, END, knots, LEARNING, 70e9)
    return jnp.log(tokens / (END * most))


BOUNDS = (np.log(1e5), np.log(1e9))


@pytest.mark.slow
@pytest.mark.parametrize("knots", [8, 16])
def test_schedule_agrees_with_the_dense_solver(knots):
    start = np.full(knots, np.log(4e6))
    problems: list[dict[str, Any]] = [{}, {"inequalities": partial(token_overhead, most=1.1)}]
    for problem in problems:
        mine = first_order(schedule_cost, start, bounds=BOUNDS, **problem)
        theirs = fast(schedule_cost, start, bounds=BOUNDS, options=SolverOptions(hessian="differences"), **problem)
        assert ended(mine, RESULTS.successful)
        assert ended(theirs, RESULTS.successful)
        # A limit may be broken by the tolerance, which its multiplier turns into a gain.
        np.testing.assert_allclose(mine.value, theirs.value, rtol=0, atol=3e-7 if problem else 1e-10)
        np.testing.assert_allclose(mine.x, theirs.x, rtol=0, atol=1e-3)
        if problem:
            np.testing.assert_allclose(mine.multipliers.inequalities, theirs.multipliers.inequalities, rtol=1e-4)
            assert mine.multipliers.inequalities > 0


def test_schedule_of_256_knots_reaches_the_closed_form():
    solution = first_order(schedule_cost, np.full(256, np.log(4e6)), bounds=BOUNDS)
    assert ended(solution, RESULTS.successful)
    # Constant 1.3439, adaptive 1.3291: docs/physics.md A0.12.
    ratio = FIXED / RUN_LEVEL
    adaptive = 1 + 2 * np.sqrt(ratio * (1 - EXPONENT)) / (1 - EXPONENT / 2) + ratio
    constant = (1 + np.sqrt(ratio)) ** 2
    np.testing.assert_allclose([constant, adaptive], [1.3439, 1.3291], atol=1e-4)
    cost = float(np.exp(solution.value))
    assert adaptive <= cost <= adaptive * (1 + 1e-4)
    # Linear pieces follow the square root of a power; its infinite slope at the start spoils the first of them.
    progress = np.linspace(0.0, 1.0, 256)[4:]
    critical = RUN_LEVEL / (1 - EXPONENT) * progress**EXPONENT
    np.testing.assert_allclose(np.exp(solution.x[4:]), np.sqrt(FIXED * critical), rtol=5e-3)
