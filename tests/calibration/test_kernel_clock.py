"""Time and power of kernels over the clock, and recovery of known constants."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from energymodel.calibration.constant_priors import Values, joint_prior, values_of
from energymodel.calibration.device_power import Profiles
from energymodel.calibration.kernel_clock import (
    CONSTANTS,
    kernel_errors,
    kernel_stretch,
    memory_path_time,
    memory_share,
    split_power,
)
from energymodel.calibration.least_squares import FitOptions, FitProblem, fit

EXACT = FitOptions(starts=2, estimate_noise=False)
MEDIAN: Values = {name: np.asarray(prior.median) for name, prior in CONSTANTS.items()}


def kernels(clock: Any, activity: Any = 0.4, power: Any = 180.0) -> Profiles:
    clock, activity, power = (np.ravel(column) for column in np.broadcast_arrays(clock, activity, power))
    columns = dict.fromkeys(Profiles._fields, np.ones(clock.size))
    measured = {"clock": clock, "memory_activity": activity, "reference_power": 1.0 * power}
    return Profiles(**{**columns, **measured, "reference_time": 2.0 + 0.0 * clock, "rated_power": 250.0 + 0.0 * clock})


def test_stretch_by_hand():
    # p = 2: 0.64 / 0.25 + 0.36 x 1 = 2.92, whose root is 1.708801
    np.testing.assert_allclose(kernel_stretch(0.5, 0.36, 1.0, 2.0), 1.7088007, rtol=1e-7)
    # p = 1 is Amdahl's law for clocks: 0.64 / 0.5 + 0.36
    np.testing.assert_allclose(kernel_stretch(0.5, 0.36, 1.0, 1.0), 1.64, rtol=1e-12)


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


def test_a_lower_clock_is_slower_and_draws_less():
    clock = np.linspace(0.35, 1.0, 27)
    mesh = np.meshgrid(np.linspace(0.0, 1.0, 6), [100.0, 150.0, 250.0], clock, indexing="ij")
    parts = split_power(MEDIAN, kernels(mesh[2], mesh[0], mesh[1]))
    for column in (np.asarray(parts.time), -np.asarray(parts.power)):
        assert np.all(np.diff(column.reshape(mesh[0].shape), axis=2) < 1e-9)


@pytest.mark.slow
def test_gradients():
    def total(floor, saturation, knee):
        values = MEDIAN | {"voltage_floor": floor, "saturation": saturation, "path_clock": knee}
        return jnp.sum(kernel_errors(values, kernels([0.5, 0.8], [0.2, 0.7])) ** 2)

    check_grads(total, (jnp.asarray(0.8), jnp.asarray(0.8), jnp.asarray(0.6)), order=1, modes=("fwd", "rev"))


@pytest.mark.slow
def test_known_constants_come_back():
    """Kernels of known constants, exact: those that the data determine are fitted."""
    truth = values_of(CONSTANTS, joint_prior(CONSTANTS).mean + 0.3 * np.array([1, -1, 1, -1, 1, -1, 1, -1, 1]))
    clock, activity = np.meshgrid(np.linspace(0.4, 0.95, 8), [0.0, 0.2, 0.4, 0.6, 0.8, 0.9])
    power = np.broadcast_to(np.array([120.0, 150.0, 180.0, 200.0, 160.0, 240.0])[:, None], clock.shape)
    runs = kernels(clock, activity, power)
    parts = split_power(truth, runs)
    runs = runs._replace(time=np.asarray(parts.time), power=np.asarray(parts.power))
    fitted = fit(FitProblem(kernel_errors, CONSTANTS, runs, noise=1e-3, options=EXACT))
    assert fitted.converged
    for name in ("voltage_floor", "voltage_knee", "memory", "saturation", "overlap", "path_clock", "path_exponent"):
        np.testing.assert_allclose(float(fitted.values[name]), float(truth[name]), rtol=1e-2, err_msg=name)
