"""Distance from the bounds at which an interior point starts anew, cold or warm."""

import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.solver.flat_problem import flatten
from energymodel.solver.search_state import PUSH, WARM_PUSH, init, started_anew


@pytest.mark.parametrize(("warm", "push"), [(False, PUSH), (True, WARM_PUSH)])
def test_a_new_start_keeps_its_distance_from_bounds_in_new_units(warm, push):
    bounds = jnp.array([1.0, 0.0]), jnp.array([3.0, 4.0])
    problem = flatten(jnp.sum, jnp.array([1.0, 3.0]), (), bounds, None, None, None)
    state, size, no = init(problem), jnp.array([0.5, 8.0]), jnp.asarray(False)
    at_bound = jnp.array([1.0, 3.0]) / state.size
    anew = started_anew(problem, state, at_bound, size, warm=jnp.asarray(warm), level=no)
    at = np.asarray(anew.x * size)
    assert at[0] == pytest.approx(1.0 + push)  # a share of the bound, which is less than its range
    assert at[1] == pytest.approx(3.0)  # far from both
