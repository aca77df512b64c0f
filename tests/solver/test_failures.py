"""Problems without an answer end in a result that says so; summits and saddles are not taken for answers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.solver import RESULTS, Values, minimize
from solver.problems import fast

LINES = {
    "line": (lambda x: x, 0.0, RESULTS.unbounded),
    "cap": (lambda x: -(x**2), 0.5, RESULTS.unbounded),
    "cubic": (lambda x: x**3 + x, 1.0, RESULTS.unbounded),
    "exponential": (lambda x: -jnp.exp(x), 0.5, RESULTS.unbounded),
    "kink": (lambda x: jnp.abs(x - 1.0), 4.0, RESULTS.out_of_iterations),
    "two parabolas": (lambda x: jnp.maximum((x - 1) ** 2, (x + 1) ** 2), 4.0, RESULTS.out_of_iterations),
    "cusp": (lambda x: jnp.sqrt(jnp.abs(x)), 4.0, RESULTS.out_of_iterations),
    "edge of definition": (lambda x: jnp.sqrt(x - 1.0) + (x - 0.5) ** 2, 4.0, RESULTS.out_of_iterations),
    "nan": (lambda x: x * jnp.nan, 1.0, RESULTS.non_finite),
    "slope of nan": (lambda x: jnp.sqrt(x), 0.0, RESULTS.non_finite),
    "well behind a summit": (lambda x: (x**2 - 1.0) ** 2, 0.0, RESULTS.successful),
    "bowl": (lambda x: (x - 3.0) ** 4 + x, 0.0, RESULTS.successful),
}


@pytest.fixture(scope="module")
def ends():
    """All in one program, which is what compiling costs."""
    functions = [function for function, _, _ in LINES.values()]

    @eqx.filter_jit
    def solve(which, x0):
        return minimize(lambda x: jax.lax.switch(which, functions, x), x0)

    with jax.enable_x64(True):
        return {name: solve(jnp.asarray(i), jnp.asarray(x0)) for i, (name, (_, x0, _)) in enumerate(LINES.items())}


@pytest.mark.parametrize("name", LINES)
def test_every_objective_ends_in_its_result(ends, name):
    solution, (_, _, result) = ends[name], LINES[name]
    assert bool(solution.result == result), RESULTS[solution.result]
    message = RESULTS[result]
    assert len(message.split(". ")) >= 2 or result == RESULTS.successful


def test_where_they_end(ends):
    assert all(float(ends[name].value) < -1e10 for name in ("line", "cap", "cubic", "exponential"))
    # Minima at kinks are approached, but not claimed.
    np.testing.assert_allclose([ends["kink"].x, ends["two parabolas"].x], [1.0, 0.0], atol=1e-6)
    assert np.isfinite(ends["edge of definition"].value)
    # Started on the summit at zero, where the gradient vanishes, the search goes down to one of the wells at 1 and -1.
    np.testing.assert_allclose(jnp.abs(ends["well behind a summit"].x), 1.0, atol=1e-6)
    # d/dx (x - 3)^4 + x = 0 at 3 - 4^(-1/3).
    np.testing.assert_allclose(ends["bowl"].x, 3.0 - 0.25 ** (1 / 3), atol=1e-7)


def test_ray_of_a_linear_program():
    """min -a, a <= 2 b + 1 with a, b >= 0: (2 t, t) goes down for ever; with b <= 4 the corner (9, 4) is the end."""

    def solve(top):
        return fast(lambda x: -x[0], jnp.ones(2), bounds=(0.0, top), inequalities=lambda x: x[0] - 2 * x[1] - 1.0)

    assert bool(solve(jnp.array([jnp.inf, jnp.inf])).result == RESULTS.unbounded)
    ended = solve(jnp.array([jnp.inf, 4.0]))
    assert bool(ended.result == RESULTS.successful)
    np.testing.assert_allclose(ended.x, [9.0, 4.0], atol=1e-6)


def test_saddles_are_left():
    """min a b + c on a cube with c = a, from the saddle at its center: a (b + 1) is least, -2, at a = -1, b = 1."""
    solution = fast(lambda x: Values(x[0] * x[1] + x[2], equalities=x[2] - x[0]), jnp.zeros(3), bounds=(-1.0, 1.0))
    assert bool(solution.result == RESULTS.successful)
    np.testing.assert_allclose(solution.x, [-1.0, 1.0, -1.0], atol=1e-6)


def test_unbounded_lanes_leave_the_others_alone():
    """x^2 / 2 - p x has its minimum at p; with the sign of its curvature turned there is none."""

    def end(curvature):
        return minimize(lambda x: curvature * x**2 / 2 - 3.0 * x, 1.0)

    solution = jax.jit(jax.vmap(end))(jnp.array([1.0, -1.0, 0.5]))
    np.testing.assert_array_equal(solution.result == RESULTS.successful, [True, False, True])
    np.testing.assert_array_equal(solution.result == RESULTS.unbounded, [False, True, False])
    np.testing.assert_allclose(solution.x[jnp.array([0, 2])], [3.0, 6.0], atol=1e-7)
