"""Own float32 functions: errors in ulp against float64, special values, and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.runtime.operations import portable
from energymodel.sweeps.float32_functions import exp32, log32, pow32, substitutes

PRECISION = 32
LARGEST_ERROR = 2.0
SMALLEST = 2.0**-126
PART = 2**24
CASES = {"exp": (exp32, np.exp), "log": (log32, np.log), "pow": (pow32, np.power)}


def flushed(x):
    """Numbers in float64, subnormal ones as zero, as XLA for CPU reads and writes them."""
    with np.errstate(invalid="ignore"):  # signaling numbers that are none
        wide = np.asarray(x, np.float64)
    return np.where(np.abs(wide) < SMALLEST, np.copysign(0.0, wide), wide)


def largest_error(name, *arguments):
    """Largest error in ulp over arguments; infinite where a value that is no normal number is not the right one."""
    own, reference = CASES[name]
    values = np.asarray(jax.jit(own)(*arguments))
    with np.errstate(all="ignore"):
        exact = reference(*map(flushed, arguments))
        rounded = exact.astype(np.float32)
        spacing = np.spacing(np.maximum(np.abs(rounded), np.float32(SMALLEST)))
        near = np.abs(values - exact) / spacing
        # A result between 2^-126 and the number below may be rounded to either zero or the smallest normal number.
        special = np.where(np.abs(exact) < SMALLEST, (values == 0.0) | (np.abs(values) == SMALLEST), values == rounded)
        special = special | (np.isnan(values) & np.isnan(rounded))
    normal = (np.abs(exact) >= SMALLEST) & np.isfinite(rounded)
    return float(np.max(np.where(normal, near, np.where(special, 0.0, np.inf))))


def stratified(count, seed):
    """Float32 numbers of every sign, exponent and kind: one from each of equal strata of all bit patterns."""
    width = 2**32 // count
    offsets = np.random.default_rng(seed).integers(0, width, count)
    return (np.arange(count) * width + offsets).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("name", ["exp", "log"])
def test_errors_below_two_ulp_on_a_sample_of_all_floats(name):
    assert largest_error(name, stratified(2**20, 0)) < LARGEST_ERROR


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exp", "log"])
def test_errors_below_two_ulp_on_all_floats(name):
    for start in range(0, 2**32, PART):
        bits = np.arange(start, start + PART, dtype=np.uint64).astype(np.uint32)
        assert largest_error(name, bits.view(np.float32)) < LARGEST_ERROR


def test_errors_of_powers_below_two_ulp():
    random = np.random.default_rng(1)
    base = np.exp2(random.uniform(-126, 128, 2**19)).astype(np.float32)
    near_one = np.exp2(random.uniform(1e-3, 0.1, 2**19)).astype(np.float32)
    for bases in (base, near_one):
        exponents = (random.uniform(-126, 128, bases.size) / np.log2(bases.astype(np.float64))).astype(np.float32)
        assert largest_error("pow", bases, exponents) < LARGEST_ERROR
    assert largest_error("pow", stratified(2**19, 2), np.roll(stratified(2**19, 3), 77777)) < LARGEST_ERROR


def test_powers_of_special_numbers_are_those_of_c():
    special = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 1e30, 2.0**24 + 2.0, 2.0**23 + 1.0, np.inf, np.finfo(np.float32).max]
    special = np.array([sign * number for number in special for sign in (1.0, -1.0)] + [np.nan, 1.0000001], np.float32)
    bases, exponents = map(np.ravel, np.meshgrid(special, special))
    assert largest_error("pow", bases, exponents) < LARGEST_ERROR


def test_special_values_by_definition():
    inf, nan = np.inf, np.nan
    x = jnp.array([0.0, -0.0, inf, -inf, nan, 88.8, -87.4, 1e-40], jnp.float32)
    np.testing.assert_array_equal(exp32(x), np.array([1.0, 1.0, inf, 0.0, nan, inf, 0.0, 1.0], np.float32))
    x = jnp.array([0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 1e-40], jnp.float32)
    np.testing.assert_array_equal(log32(x), np.array([-inf, -inf, inf, nan, nan, 0.0, nan, -inf], np.float32))


def test_float64_keeps_the_functions_of_jax():
    own = substitutes()
    with jax.enable_x64(True):
        x = jnp.linspace(0.1, 3.0, 7)

        def function(x):
            return jnp.exp(x) + jnp.log(x) + x ** (x + 0.5)

        np.testing.assert_array_equal(portable(function, own)(x), function(x))
        traced = str(jax.make_jaxpr(portable(function, own))(x))
    assert "bitcast" not in traced
    assert "bitcast" in str(jax.make_jaxpr(portable(function, own))(jnp.ones(7, jnp.float32)))
