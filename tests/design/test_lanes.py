"""Many problems at once on the host: same answers, in rounds, with progress and interruption."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.design.lanes import minimize_many
from energymodel.design.solve import RESULTS


def distance(x, target, power):
    return jnp.sum(jnp.abs(x - target) ** 2) + power * jnp.sum((x - target) ** 4)


def budget(x, target, power):
    return jnp.sum(x) - 1.0


TARGETS = np.random.default_rng(1).normal(size=(11, 3))


def search(**options):
    return minimize_many(
        distance,
        np.zeros((11, 3)),
        (TARGETS,),
        shared=(0.1,),
        bounds=(-1.0, None),
        inequalities=budget,
        chunk=4,
        **options,
    )


def test_lanes_satisfy_their_own_optimality_conditions():
    seen = []
    solution = search(progress=lambda done, total: seen.append((done, total)))
    assert np.all(solution.result == RESULTS.successful)
    assert seen[-1] == (11, 11)
    assert isinstance(solution.x, np.ndarray)
    assert solution.x.dtype == np.float64
    gradient = 2 * (solution.x - TARGETS) + 0.4 * (solution.x - TARGETS) ** 3
    gradient += solution.multipliers.inequalities[:, None] - solution.multipliers.lower
    np.testing.assert_allclose(gradient, 0.0, atol=1e-7)
    assert np.all(solution.slacks.inequalities > -1e-8)
    warm = minimize_many(
        distance,
        solution.x,
        (TARGETS + 0.01,),
        shared=(0.1,),
        bounds=(-1.0, None),
        inequalities=budget,
        warm=solution.multipliers,
        chunk=4,
    )
    assert np.all(warm.result == RESULTS.successful)
    assert warm.iterations.mean() < solution.iterations.mean()


def test_precision_of_the_caller_does_not_matter():
    with jax.enable_x64(False):
        solution = search()
    assert solution.residual.dtype == np.float64
    assert solution.residual.max() <= 1e-8


def test_interruption_keeps_what_is_done():
    def stop(done, total):
        raise KeyboardInterrupt

    def valley(x, steepness):
        return steepness * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2

    solution = minimize_many(valley, np.array([[-1.2, 1.0], [1.0, 1.0]]), (np.array([100.0, 100.0]),), progress=stop)
    np.testing.assert_array_equal(solution.result == RESULTS.interrupted, [True, False])
    np.testing.assert_array_equal(solution.result == RESULTS.successful, [False, True])


def test_lanes_must_agree():
    with pytest.raises(ValueError, match="leading axis"):
        minimize_many(distance, np.zeros((3, 2)), (np.zeros((4, 2)), np.zeros(3)))
