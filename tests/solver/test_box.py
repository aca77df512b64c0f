"""Variables without bounds as points of a box, there and back."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.solver.box import Box, UnboundedVariables

LOWER = np.array([-np.inf, -1.0, -np.inf, -1.0, 2.0])
UPPER = np.array([np.inf, np.inf, 3.0, 3.0, 2.0])
VARIABLES = UnboundedVariables(Box(jnp.asarray(LOWER), jnp.asarray(UPPER)), jnp.array([1.0, 2.0, 0.5, 1.5, 1.0]))


@settings(deadline=None)
@given(st.lists(st.floats(-0.99, 2.99), min_size=4, max_size=4))
def test_a_point_inside_comes_back(inside):
    x = jnp.asarray([*inside, 2.0])
    there, slope = VARIABLES.x(VARIABLES.z(x))
    np.testing.assert_allclose(there, x, atol=1e-7)
    assert float(slope[4]) == 0.0


@settings(deadline=None)
@given(st.lists(st.floats(-20.0, 20.0), min_size=5, max_size=5))
def test_every_number_is_a_point_of_the_box_and_the_slope_is_its_derivative(z):
    x, slope = VARIABLES.x(jnp.asarray(z))
    assert np.all((np.asarray(x) >= LOWER - 1e-9) & (np.asarray(x) <= UPPER + 1e-9))
    derivative = jnp.diag(jax.jacobian(lambda z: VARIABLES.x(z)[0])(jnp.asarray(z)))
    np.testing.assert_allclose(slope, derivative, atol=1e-9)
