"""The solver divides a power as the closed forms do: docs/physics.md, T5."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.allocation import divide_power
from energymodel.performance.water_filling import (
    cube_root_power_split,
    cube_root_throughput,
    logarithmic_power_split,
    square_root_power_split,
    square_root_throughput,
    water_level,
)
from energymodel.solver import RESULTS

QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
fast = eqx.filter_jit(divide_power, compiler_options=QUICK)  # pyright: ignore[reportCallIssue]


def ended(split):
    return bool(np.all(split.result == RESULTS.successful))


def square_root(powers, gains):
    return gains * jnp.sqrt(powers)


def cube_root(powers, gains, static):
    return gains * jnp.cbrt(powers - static)


def logarithm(powers, gains):
    return jnp.log1p(gains * powers)


def test_square_root_devices():
    c = jnp.asarray([1.0, 4.0, 9.0])
    split = fast(square_root, 60.0, np.zeros(3), np.full(3, 60.0), (c,))
    assert ended(split)
    np.testing.assert_allclose(split.powers, square_root_power_split(60.0, c), rtol=1e-6)
    np.testing.assert_allclose(split.throughput, square_root_throughput(60.0, c), rtol=1e-9)
    np.testing.assert_allclose(split.price, jax.grad(square_root_throughput)(60.0, c), rtol=1e-6)


@pytest.mark.slow
def test_cube_root_devices_and_one_at_its_least_power():
    k, s = jnp.asarray([1.0, 2.0, 4.0]), jnp.full(3, 10.0)
    split = fast(cube_root, 90.0, s, np.full(3, 90.0), (k, s))
    assert ended(split)
    np.testing.assert_allclose(split.powers, cube_root_power_split(90.0, k, s), rtol=1e-6)
    np.testing.assert_allclose(split.price, jax.grad(cube_root_throughput)(90.0, k, s), rtol=1e-6)
    # The first device may not go below 18 W: the others divide the remaining 72 W as if it were not there.
    bound = fast(cube_root, 90.0, np.asarray([18.0, 10.0, 10.0]), np.full(3, 90.0), (k, s))
    assert ended(bound)
    np.testing.assert_allclose(bound.powers[0], 18.0, rtol=1e-6)
    np.testing.assert_allclose(bound.powers[1:], cube_root_power_split(72.0, k[1:], s[1:]), rtol=1e-6)


def test_water_filling_leaves_a_poor_device_off():
    g = jnp.asarray([1.0, 0.5, 0.2])
    split = fast(logarithm, 6.0, np.zeros(3), np.full(3, 6.0), (g,))
    assert ended(split)
    np.testing.assert_allclose(split.powers, logarithmic_power_split(6.0, g), atol=6e-6)
    np.testing.assert_allclose(split.powers, [3.5, 2.5, 0.0], atol=6e-6)
    np.testing.assert_allclose(split.price, 1.0 / water_level(6.0, g), rtol=1e-6)


def test_derivative_of_the_split_is_that_of_the_closed_form():
    c = jnp.asarray([1.0, 4.0, 9.0])

    def solved(power):
        return divide_power(square_root, power, np.zeros(3), np.full(3, 100.0), (c,)).powers

    # Powers are proportional to the whole: c^2 / sum c^2.
    slope = jax.jit(jax.jacrev(solved), compiler_options=QUICK)(60.0)
    np.testing.assert_allclose(slope, c**2 / 98.0, rtol=1e-6)
