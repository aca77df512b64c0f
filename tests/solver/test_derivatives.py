"""Values, Jacobian and weighted Hessian are those that one finds by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.solver.flat_problem import derivatives, difference_points, differenced, jacobian_at


def differences(functions, x, weights):
    return differenced(*jax.vmap(partial(jacobian_at, functions))(difference_points(x)), weights)


@pytest.mark.parametrize(
    ("method", "dtype", "atol"),
    # Forward differences err by half a step, `eps^(1/3)`, times a third derivative, 6 at most, and by the rounding of a
    # slope of 12 over the step, which is 5e-4 in float32.
    [
        (derivatives, "float64", 1e-12),
        (differences, "float64", 3 * 6.1e-6),
        (differences, "float32", 3 * 4.9e-3 + 5e-4),
    ],
)
def test_derivatives_of_two_cubics_by_hand(method, dtype, atol):
    def functions(x):
        return jnp.stack([x[0] ** 2 * x[1], x[1] ** 3])

    values, jacobian, hessian = method(functions, jnp.asarray([1.0, 2.0], dtype), jnp.asarray([2.0, -1.0], dtype))
    np.testing.assert_array_equal(values, [2.0, 8.0])
    np.testing.assert_array_equal(jacobian, [[4.0, 1.0], [0.0, 12.0]])  # 2 x y, x^2; 0, 3 y^2
    np.testing.assert_allclose(hessian, [[8.0, 4.0], [4.0, -12.0]], rtol=0.0, atol=atol)  # 4 y, 4 x; 4 x, -6 y
