"""Every search ends in the true verdict: on problems posed so that it is known, and on random linear programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.solver import RESULTS, Values, minimize, minimize_many
from solver.posed_problems import POSED, SUCCESSFUL, programs

CLOSE = 1e-6  # of the optimal value
NEAR = 1e-4  # of the minimizer
# Slow descents, and edges of two roots, where the search gives up. It does not call them successful.
GIVEN_UP = {"hyperbolic valley", "decay on a line", "sum of roots"}


def shape(posed):
    problem = posed.problem
    return problem.x0.size, problem.g(problem.x0).size, problem.h(problem.x0).size


GROUPS = {key: [posed for posed in POSED if shape(posed) == key] for key in sorted({shape(posed) for posed in POSED})}
QUICKLY = (1, 0, 0)


def assert_verdicts(group):
    """All problems of one shape in one program, which is what compiling costs."""

    @jax.jit
    def solve(which, x0, bounds):
        def values(x):
            branches = [lambda x, p=posed.problem: (p.f(x), p.g(x), p.h(x)) for posed in group]
            return Values(*jax.lax.switch(which, branches, x))

        return minimize(values, x0, bounds=bounds)

    for i, posed in enumerate(group):
        problem = posed.problem
        solution = solve(i, problem.x0, problem.bounds)
        if problem.name in GIVEN_UP:
            assert bool(solution.result == RESULTS.out_of_iterations), problem.name
            continue
        assert bool(solution.result == posed.verdict), (problem.name, RESULTS[solution.result], solution.x)
        if bool(posed.verdict == SUCCESSFUL):
            optima = np.array([problem.value, *problem.others])
            error = np.min(np.abs(float(solution.value) - optima) / np.maximum(1.0, np.abs(optima)))
            assert error <= CLOSE, (problem.name, float(solution.value))
        if posed.best is not None:
            small = NEAR if 0 in posed.best else 0.0
            np.testing.assert_allclose(solution.x, posed.best, rtol=NEAR, atol=small, err_msg=problem.name)


def test_verdicts_on_functions_of_one_variable():
    assert_verdicts(GROUPS[QUICKLY])


def test_a_row_counts_as_violated_from_two_tolerances_on():
    """x >= 0 and x + gap <= 0, whose lowest violation is the gap itself, at x = 0."""

    def values(x, gap):
        return Values(jnp.sum((x - 3.0) ** 2), x + gap)

    gaps = 1e-8 * np.array([0.0, 0.5, 1.5, 3.0, 5.0, 9.0, 100.0])  # of which 1e-8 is the tolerance
    solution = jax.jit(jax.vmap(lambda gap: minimize(values, np.ones(1), args=(gap,), bounds=(0.0, 10.0))))(gaps)
    np.testing.assert_allclose(solution.x, 0.0, atol=1e-9)
    np.testing.assert_array_equal(np.asarray(solution.result == RESULTS.successful), gaps <= 2e-8)
    np.testing.assert_array_equal(np.asarray(solution.result == RESULTS.infeasible), gaps > 2e-8)


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in GROUPS if key != QUICKLY], ids=str)
def test_verdicts(key):
    assert_verdicts(GROUPS[key])


def cost(x, c, A, b):
    return c @ x


def rows(x, c, A, b):
    return A @ x - b


def solve_programs(count, distance):
    c, A, b = programs(count, distance, seed=3)
    return minimize_many(cost, np.zeros_like(c), (c, A, b), inequalities=rows)


@pytest.mark.slow
@pytest.mark.parametrize("distance", [1e-4, 1e-5, 1e-6, 1e-7])
def test_programs_that_are_hardly_infeasible(distance):
    solution = solve_programs(80, distance)
    assert np.all(solution.result == RESULTS.infeasible)
    # No point violates all rows by less than the distance.
    assert np.min(np.max(-solution.slacks.inequalities, axis=1)) >= 0.999 * distance
    assert np.all(np.sum(solution.conflict.inequalities, axis=1) >= 2)


@pytest.mark.slow
def test_programs_within_the_tolerance():
    """Infeasible by as much as the tolerance: either verdict is right to the tolerance."""
    solution = solve_programs(80, 1e-8)
    held = np.max(-solution.slacks.inequalities, axis=1) <= 1e-7
    judged = np.asarray(solution.result == RESULTS.infeasible) | np.asarray(solution.result == RESULTS.successful)
    assert np.all(held)
    assert np.sum(judged) >= 79


@pytest.mark.slow
@pytest.mark.parametrize("distance", [-1e-4, -1e-6])
def test_programs_that_are_hardly_feasible(distance):
    solution = solve_programs(80, distance)
    assert np.all(solution.result == RESULTS.successful)
    assert np.max(-solution.slacks.inequalities) <= 1e-8


@pytest.mark.slow
def test_small_minimizers_are_found_to_many_digits():
    """The same parabola at many sizes: all start at one, none may end where the start's units see no difference."""
    sizes = 10.0 ** np.arange(-12, 13, 2)
    solution = minimize_many(lambda x, s: (x / s - 1.0) ** 2, np.ones(sizes.size), (sizes,))
    assert np.all(solution.result == RESULTS.successful)
    np.testing.assert_allclose(solution.x, sizes, rtol=NEAR)
    assert jnp.all(solution.value <= CLOSE)


def test_sums_written_out_are_refused_before_they_compile():
    """Seven operations for each of a thousand points; as arrays they are a handful."""
    times = np.linspace(0.0, 1.0, 1000)

    def model(x, t):
        return x[0] * jnp.exp(-x[1] * t)

    with pytest.raises(ValueError, match="operations on arrays"):
        minimize(lambda x: sum((model(x, t) - 1.0) ** 2 for t in times), jnp.ones(2))
    found = minimize(lambda x: jnp.sum((model(x, times) - 1.0) ** 2), jnp.ones(2))
    np.testing.assert_allclose(found.x, [1.0, 0.0], atol=1e-6)
