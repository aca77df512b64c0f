"""Roots in a bracket: found to rounding for the curves that the models have, at kinks, and at the ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.numerics import implicit_root, softplus

MANY = 500
RANDOM = np.random.default_rng(0)


def spread(low, high):
    """Numbers spread evenly in the logarithm."""
    return 10 ** RANDOM.uniform(low, high, MANY)


CURVES = {  # increasing function of x and a root that is known, over all of the bracket
    "cubic power": (lambda x, a, b: x**3 + a * x + b * jnp.exp(2.0 * x), (spread(-3, 3), spread(-3, 3)), (0.2, 1.0)),
    "hot leakage": (lambda x, a, b: a * x + jnp.exp(b * x), (spread(-3, 3), spread(-1, 1.3)), (0.0, 1.0)),
    "sharp knee": (lambda x, a, b: x + a * softplus((x - 0.6) / b), (spread(-1, 1), spread(-3, -1)), (0.1, 1.0)),
    "saturation": (lambda x, a, b: x / (x + a) + 1e-3 * b * x, (spread(-3, 2), spread(-1, 1)), (0.0, 50.0)),
    "kink": (lambda x, a, b: a * x + b * jnp.maximum(x - 0.5, 0.0), (spread(-1, 1), spread(0, 3)), (0.0, 1.0)),
}


@pytest.mark.parametrize("name", CURVES)
def test_roots_are_found_to_rounding(name):
    curve, (a, b), (low, high) = CURVES[name]
    expected = RANDOM.uniform(low, high, MANY)

    def root(expected, a, b):
        level = curve(expected, a, b)
        return implicit_root(lambda x, case: curve(x, *case[1:]) - case[0], low, high, (level, a, b))

    result, slopes = jax.jit(jax.vmap(jax.value_and_grad(root)))(expected, a, b)
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9 * (high - low))
    np.testing.assert_allclose(slopes, 1.0, rtol=1e-6)  # the root moves with the known one


@pytest.mark.parametrize(("level", "expected"), [(-1.0, 0.25), (0.0625, 0.25), (4.0, 2.0), (5.0, 2.0)])
def test_without_a_root_the_nearer_end_is_the_answer(level, expected):
    result = implicit_root(lambda x, level: x**2 - level, 0.25, 2.0, level)
    assert float(result) == expected


def test_the_ramp_is_smooth_at_its_corner():
    value, slope, bend = (f(0.0) for f in (softplus, jax.grad(softplus), jax.grad(jax.grad(softplus))))
    assert (float(value), float(slope), float(bend)) == pytest.approx((np.log(2.0), 0.5, 0.25))
