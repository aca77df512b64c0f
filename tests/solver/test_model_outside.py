"""A model outside the compiled search: the same optima, multipliers and iterations as with the model in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.solver import RESULTS, SolverOptions, Values, minimize_many
from energymodel.solver.model_outside import ModelOutside
from solver.problems import TARGETS, bent_valley

OPTIONS = SolverOptions(hessian="differences", max_iterations=60)


def flat(x, target):
    values = bent_valley(x, target)
    return jnp.concatenate([values.objective[None], values.inequalities])


@pytest.fixture(scope="module")
def model():
    value, slope = jax.jit(jax.vmap(flat)), jax.jit(jax.vmap(jax.jacfwd(flat)))
    return ModelOutside(
        2,
        lambda x, lanes: np.asarray(value(x, TARGETS[lanes])),
        lambda x, lanes: (np.asarray(value(x, TARGETS[lanes])), np.asarray(slope(x, TARGETS[lanes]))),
    )


def test_a_model_outside_leads_to_the_same_optima(model):
    start, bounds = np.zeros((11, 3)), (-1.5, 1.0)
    inside = minimize_many(bent_valley, start, (TARGETS,), bounds=bounds, options=OPTIONS, chunk=4)
    outside = minimize_many(model, start, bounds=bounds, options=OPTIONS, chunk=4)
    assert np.all(outside.result == RESULTS.successful)
    np.testing.assert_array_equal(outside.iterations, inside.iterations)
    np.testing.assert_allclose(outside.x, inside.x, atol=1e-7)
    np.testing.assert_allclose(outside.value, inside.value, atol=1e-10)
    np.testing.assert_allclose(outside.multipliers.inequalities, inside.multipliers.inequalities, atol=1e-6)
    again = minimize_many(
        model, outside.x, bounds=bounds, options=OPTIONS, chunk=4, warm=outside.multipliers, iterations=24
    )
    assert np.all(again.result == RESULTS.successful)
    assert np.sum(again.iterations) < np.sum(outside.iterations)


def test_lanes_are_given_up_after_the_iterations_asked_for(model):
    solution = minimize_many(model, np.zeros((11, 3)), options=OPTIONS, chunk=4, iterations=2)
    ended = np.asarray(solution.result == RESULTS.out_of_iterations)
    assert ended.any()
    np.testing.assert_array_equal(solution.iterations[ended], 2)


def test_nothing_is_evaluated_where_no_lane_needs_it(model):
    """Derivatives judge a start; every later iteration of a lane looks at one pair of trials or more."""
    asked = {"values": [], "expansion": []}

    def counted(name):
        def answer(points, lanes):
            assert np.all(np.isfinite(points))
            asked[name].append(len(points))
            return getattr(model, name)(points, lanes)

        return answer

    counting = ModelOutside(2, counted("values"), counted("expansion"))
    start = np.zeros((5, 3))
    solution = minimize_many(counting, start, bounds=(-1.5, 1.0), options=OPTIONS, chunk=32)
    assert np.all(solution.result == RESULTS.successful)
    differences = 1 + start.shape[1]
    # One more than its iterations for the start, and one for the verdict.
    assert sum(asked["expansion"]) == differences * np.sum(solution.iterations + 2)
    assert 2 * np.sum(solution.iterations) <= sum(asked["values"]) < 4 * np.sum(solution.iterations)


def test_a_lane_that_stands_still_at_a_kink_is_given_up():
    """`|x - 1| + |x + y|` has its minimum at a kink, where no multipliers hold."""

    def kinked(x, target):
        return jnp.abs(x[0] - target) + jnp.abs(x[0] + x[1])

    start, targets = np.full((3, 2), 0.3), (np.array([1.0, 0.5, -0.7]),)
    patient = minimize_many(kinked, start, targets, options=SolverOptions(max_iterations=200))
    hasty = minimize_many(kinked, start, targets, options=SolverOptions(max_iterations=200), patient=False)
    assert np.all(hasty.result == RESULTS.out_of_iterations)
    assert np.all(hasty.iterations < patient.iterations)
    np.testing.assert_allclose(hasty.x, patient.x, atol=1e-3)  # going on leads nowhere else


def test_infeasibility_without_a_proof_takes_fewer_iterations():
    """Both conditions cannot hold: `x.x <= 2` far away from `x_0 >= 3`."""

    def apart(x):
        return Values(x[0] ** 2, jnp.stack([x @ x - 2.0, 3.0 - x[0]]))

    start = np.ones((2, 2))
    proven = minimize_many(apart, start)
    quick = minimize_many(apart, start, patient=False)
    assert np.all(proven.result == RESULTS.infeasible)
    assert np.all(quick.result == RESULTS.infeasible)
    assert np.all(quick.iterations < proven.iterations)
