"""Do time and power of a kernel follow the clock as the formulas say, and do known constants come back from data?"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from energymodel.calibration.constant_priors import Values, joint_prior, values_of
from energymodel.calibration.kernel_clock import (
    CONSTANTS,
    Kernels,
    kernel_errors,
    kernel_stretch,
    memory_path_time,
    memory_share,
    share_from_stretch,
    split_power,
)
from energymodel.calibration.least_squares import FitOptions, FitProblem, fit

EXACT = FitOptions(starts=2, estimate_noise=False)
MEDIAN: Values = {name: np.asarray(one.median) for name, one in CONSTANTS.items()}


def kernels(clock: Any, activity: Any = 0.4, power: Any = 180.0, second_clock=0.0, second_time=1.0) -> Kernels:
    clock, activity, power = np.broadcast_arrays(*(np.asarray(one, float) for one in (clock, activity, power)))
    one = np.ones(clock.size)
    return Kernels(
        clock.ravel(),
        2.0 * one,
        power.ravel(),
        activity.ravel(),
        second_clock * one,
        second_time * one,
        250.0 * one,
        one,
        one,
    )


def test_stretch_by_hand():
    # p = 2: 0.64 / 0.25 + 0.36 x 1 = 2.92, whose root is 1.708801
    np.testing.assert_allclose(kernel_stretch(0.5, 0.36, 1.0, 2.0), 1.7088007, rtol=1e-7)
    # p = 1 is Amdahl's law for clocks: 0.64 / 0.5 + 0.36
    np.testing.assert_allclose(kernel_stretch(0.5, 0.36, 1.0, 1.0), 1.64, rtol=1e-12)
    np.testing.assert_allclose(share_from_stretch(1.7088007, 0.5, 1.0, 2.0), 0.36, rtol=1e-6)


def test_memory_path_is_flat_above_its_knee_and_a_power_law_below():
    # Far below the knee: (0.6 / 0.1)^1.5; far above it, as at clock 1.
    np.testing.assert_allclose(memory_path_time(0.1, 0.6, 1.5), 14.69694, rtol=2e-3)
    np.testing.assert_allclose(memory_path_time(0.9, 0.6, 1.5), 1.0, atol=2e-3)
    assert float(memory_path_time(1.0, 0.6, 1.5)) == 1.0


def test_share_of_memory_is_small_for_idle_and_near_one_for_saturated_memory():
    shares = np.asarray(memory_share(np.array([0.0, 0.4, 5.0]), 0.8, 3.0))
    np.testing.assert_allclose(shares, [0.0, 0.125, 1.0], atol=1e-3)


def test_profile_is_itself_and_parts_add_up():
    parts = split_power(MEDIAN, kernels([1.0, 1.0, 0.6], [0.0, 0.8, 0.8], [60.0, 220.0, 220.0]))
    np.testing.assert_allclose(parts.power[:2], [60.0, 220.0], rtol=1e-12)
    np.testing.assert_allclose(parts.time[:2], 2.0, rtol=1e-12)
    np.testing.assert_allclose(parts.static + parts.memory + parts.core, parts.power, rtol=1e-12)
    assert float(parts.power[2]) < 220.0
    assert float(parts.time[2]) > 2.0


def test_second_clock_is_met():
    """Where the time at a second clock is given, it is predicted, whatever the counters say."""
    runs = kernels(0.7, activity=[0.0, 0.4, 0.9], second_clock=0.7, second_time=1.2)
    np.testing.assert_allclose(split_power(MEDIAN, runs).time, 2.4, rtol=1e-9)


def test_a_lower_clock_is_slower_and_draws_less():
    clock = np.linspace(0.35, 1.0, 27)
    mesh = np.meshgrid(np.linspace(0.0, 1.0, 6), [100.0, 150.0, 250.0], clock, indexing="ij")
    parts = split_power(MEDIAN, kernels(mesh[2], mesh[0], mesh[1]))
    for one in (np.asarray(parts.time), -np.asarray(parts.power)):
        assert np.all(np.diff(one.reshape(mesh[0].shape), axis=2) < 1e-9)


@pytest.mark.slow
def test_gradients():
    def total(floor, saturation, knee):
        values = MEDIAN | {"voltage_floor": floor, "saturation": saturation, "path_clock": knee}
        return jnp.sum(kernel_errors(values, kernels([0.5, 0.8], [0.2, 0.7])) ** 2)

    check_grads(total, (jnp.asarray(0.8), jnp.asarray(0.8), jnp.asarray(0.6)), order=1, modes=("fwd", "rev"))


@pytest.mark.slow
def test_known_constants_come_back():
    """Kernels of known constants, exact: those that the data determine are found."""
    known = values_of(CONSTANTS, joint_prior(CONSTANTS).mean + 0.3 * np.array([1, -1, 1, -1, 1, -1, 1, -1, 1]))
    clock, activity = np.meshgrid(np.linspace(0.4, 0.95, 8), [0.0, 0.2, 0.4, 0.6, 0.8, 0.9])
    power = np.broadcast_to(np.array([120.0, 150.0, 180.0, 200.0, 160.0, 240.0])[:, None], clock.shape)
    runs = kernels(clock, activity, power)
    parts = split_power(known, runs)
    runs = runs._replace(time=np.asarray(parts.time), power=np.asarray(parts.power))
    found = fit(FitProblem(kernel_errors, CONSTANTS, runs, noise=1e-3, options=EXACT))
    assert found.converged
    for name in ("voltage_floor", "voltage_knee", "memory", "saturation", "overlap", "path_clock", "path_exponent"):
        np.testing.assert_allclose(float(found.values[name]), float(known[name]), rtol=1e-2, err_msg=name)
