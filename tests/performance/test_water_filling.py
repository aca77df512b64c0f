import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.water_filling import (
    cube_root_power_split,
    cube_root_throughput,
    logarithmic_power_split,
    logarithmic_throughput,
    square_root_power_split,
    square_root_throughput,
    water_level,
)
from gradients import check_grads

few = settings(max_examples=25, deadline=None)
gains = st.lists(st.floats(0.05, 20.0), min_size=4, max_size=4)
seeds = st.integers(0, 2**16)
STATIC = 2.0


def another_split(power, count, seed):
    shares = np.random.default_rng(seed).dirichlet(np.ones(count))
    return jnp.asarray(power * shares)


@few
@given(gains=gains, seed=seeds)
def test_square_root_devices_have_no_better_division(gains, seed):
    c = jnp.asarray(gains)
    split, value = square_root_power_split(60.0, c), square_root_throughput(60.0, c)
    np.testing.assert_allclose(jnp.sum(split), 60.0, rtol=1e-12)
    np.testing.assert_allclose(jnp.sum(c * jnp.sqrt(split)), value, rtol=1e-12)
    assert jnp.sum(c * jnp.sqrt(another_split(60.0, c.size, seed))) <= value * (1 + 1e-12)


@few
@given(gains=gains, seed=seeds)
def test_cube_root_devices_have_no_better_division(gains, seed):
    k = jnp.asarray(gains)
    static = jnp.full_like(k, STATIC)
    split, value = cube_root_power_split(60.0, k, static), cube_root_throughput(60.0, k, static)
    np.testing.assert_allclose(jnp.sum(split), 60.0, rtol=1e-12)
    np.testing.assert_allclose(jnp.sum(k * jnp.cbrt(split - static)), value, rtol=1e-12)
    other = another_split(60.0 - STATIC * k.size, k.size, seed)
    assert jnp.sum(k * jnp.cbrt(other)) <= value * (1 + 1e-12)


@few
@given(gains=gains, power=st.floats(0.01, 100.0), seed=seeds)
def test_logarithmic_devices_have_no_better_division(gains, power, seed):
    g = jnp.asarray(gains)
    split, value = jax.jit(logarithmic_power_split)(power, g), jax.jit(logarithmic_throughput)(power, g)
    np.testing.assert_allclose(jnp.sum(split), power, rtol=1e-9)
    assert jnp.sum(jnp.log(1 + g * another_split(power, g.size, seed))) <= value + 1e-9


@few
@given(gains=gains, power=st.floats(0.01, 100.0))
def test_the_level_agrees_with_the_sorted_active_set(gains, power):
    floors = np.sort(1 / np.asarray(gains))
    levels = (power + np.cumsum(floors)) / np.arange(1, len(gains) + 1)
    active = np.flatnonzero(levels > floors)[-1]
    np.testing.assert_allclose(jax.jit(water_level)(power, jnp.asarray(gains)), levels[active], rtol=1e-9)


def test_no_power_is_no_throughput():
    g = jnp.asarray([1.0, 0.5, 0.2])
    np.testing.assert_allclose(logarithmic_throughput(0.0, g), 0.0, atol=1e-12)
    assert np.isfinite(jax.grad(logarithmic_throughput)(jnp.asarray(0.0), g))


def test_power_below_the_static_powers_does_nothing_and_has_finite_gradients():
    k, static = jnp.asarray([1.0, 2.0]), jnp.asarray([10.0, 10.0])
    for power in (5.0, 20.0):
        assert cube_root_throughput(power, k, static) == 0
        assert np.isfinite(jax.grad(cube_root_throughput)(jnp.asarray(power), k, static))
        np.testing.assert_allclose(cube_root_power_split(power, k, static), static)


def test_the_marginal_watt_is_worth_the_same_everywhere():
    g, power = jnp.asarray([1.0, 0.5, 0.2]), jnp.asarray(6.0)
    # d/dP of the optimal value is the multiplier 1 / level = 1 / 4.5 (docs/physics.md T5)
    np.testing.assert_allclose(jax.grad(logarithmic_throughput)(power, g), 1 / 4.5, rtol=1e-9)


def test_batches_of_problems_keep_their_shape():
    g = jnp.asarray([[1.0, 0.5, 0.2], [1.0, 1.0, 1.0]])
    split = logarithmic_power_split(jnp.asarray([6.0, 6.0]), g)
    np.testing.assert_allclose(split, [[3.5, 2.5, 0.0], [2.0, 2.0, 2.0]], atol=1e-9)
    assert square_root_power_split(jnp.asarray([6.0, 6.0]), g).shape == (2, 3)
    assert cube_root_power_split(jnp.asarray([6.0, 6.0]), g, 0.1 * g).shape == (2, 3)


@pytest.mark.parametrize("power", [1.5, 6.0, 30.0])
def test_gradients_with_one_two_and_three_active_devices(power):
    g = jnp.asarray([1.0, 0.5, 0.2])
    if power == 1.5:
        g = jnp.asarray([1.0, 0.3, 0.2])
    check_grads(jax.jit(logarithmic_power_split), (jnp.asarray(power), g), order=1, loops=True)
    check_grads(jax.jit(logarithmic_throughput), (jnp.asarray(power), g), order=1, loops=True)


def test_gradients_of_the_water_level():
    check_grads(jax.jit(water_level), (jnp.asarray(6.0), jnp.asarray([1.0, 0.5, 0.2])), order=1, loops=True)


def test_gradients():
    gains, static, power = jnp.asarray([1.0, 2.0, 4.0]), jnp.asarray([1.0, 1.0, 2.0]), jnp.asarray(9.0)
    check_grads(jax.jit(square_root_power_split), (power, gains), order=1)
    check_grads(jax.jit(square_root_throughput), (power, gains), order=1)
    check_grads(jax.jit(cube_root_power_split), (power, gains, static), order=1)
    check_grads(jax.jit(cube_root_throughput), (power, gains, static), order=1)
