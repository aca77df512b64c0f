"""What runs on accelerators, on the CPU: the same minima, multipliers and iterations as there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.runtime import placement
from energymodel.solver import RESULTS, SolverOptions, minimize, minimize_many
from energymodel.solver.newton_system import DAMPINGS, cholesky, cholesky_solve, factorize, factorize_once
from solver.problems import TARGETS, bent_valley

BOUNDS = (-1.5, 1.0)


@pytest.fixture
def accelerated(monkeypatch):
    monkeypatch.setattr(placement, "platform", lambda: "gpu")
    assert SolverOptions().together(12) == 65_536


def many():
    return minimize_many(bent_valley, np.zeros((11, 3)), (TARGETS,), bounds=BOUNDS)


def single():
    return jax.vmap(lambda target: minimize(lambda x: bent_valley(x, target), jnp.zeros(3), bounds=BOUNDS))(TARGETS)


@pytest.mark.parametrize("solve", [many, pytest.param(single, marks=pytest.mark.slow)])
def test_lanes_end_where_they_do_on_a_cpu(monkeypatch, solve):
    ours = solve()
    monkeypatch.setattr(placement, "platform", lambda: "gpu")
    theirs = solve()
    assert np.all(np.asarray(theirs.result == RESULTS.successful))
    np.testing.assert_array_equal(ours.iterations, theirs.iterations)
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-9)
    np.testing.assert_allclose(ours.multipliers.inequalities, theirs.multipliers.inequalities, atol=1e-8)


@pytest.mark.usefixtures("accelerated")
def test_a_factorization_that_is_written_out_is_that_of_the_library():
    root = np.random.default_rng(1).normal(size=(5, 7, 7))
    matrix, right = jnp.asarray(root @ root.transpose(0, 2, 1)), jnp.arange(7.0)
    factor = jax.vmap(cholesky)(matrix)
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), atol=1e-10)
    solution = jax.vmap(cholesky_solve, in_axes=(0, None))(factor, right)
    np.testing.assert_allclose(matrix @ solution[..., None], np.tile(right[:, None], (5, 1, 1)), atol=1e-8)


@pytest.mark.usefixtures("accelerated")
def test_the_first_damping_that_makes_a_matrix_definite_is_taken():
    # Of diag(a, 1) and size 1, the lowest pivot with damping d is a + d.
    for lowest, damping, bends in ((1.0, 0.0, False), (-1e-3, 1e-2, False), (-0.05, 0.1, True), (-1.0, 1.01, True)):
        ones = jnp.ones(2)
        matrix, none = jnp.diag(jnp.array([lowest, 1.0])), jnp.asarray(0.0)
        factor, taken, saddle = factorize(matrix, ones, ones, none)
        assert (float(taken), bool(saddle)) == (damping, bends)
        definite = [
            bool(factorize_once(matrix, ones, ones, none, jnp.asarray(number))[2]) for number in range(len(DAMPINGS))
        ]
        assert definite == [number >= DAMPINGS.index(damping) for number in range(len(DAMPINGS))]
        np.testing.assert_allclose(jnp.diag(factor) ** 2, [lowest + damping, 1.0 + damping], atol=1e-12)
