"""Energy of a pipeline over its deadline, by the law of `experiments/03_frequency`."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from energymodel.calibration.constant_priors import Values
from energymodel.calibration.least_squares import FitOptions, FitProblem, fit
from experiment import Experiment

pytestmark = pytest.mark.slow

front = Experiment("03_frequency").pipeline_front
MEDIAN: Values = {name: np.asarray(ones.median) for name, ones in front.CONSTANTS.items()}


def plans(stretch, power=300.0):
    ones = np.ones(np.size(stretch))
    return front.Deadlines(
        np.atleast_1d(np.asarray(stretch, float)),
        power * ones,
        85.0 * ones,
        400.0 * ones,
        8.0 / 9.0 * ones,
        15.0 / 16.0 * ones,
        0.64 * ones,
        ones,
    )


def test_clock_inverts_the_stretch():
    np.testing.assert_allclose(front.clock_for_stretch(0.75 / 0.8 + 0.25, 0.25, 0.5), 0.8, rtol=1e-12)
    np.testing.assert_allclose(front.clock_for_stretch(9.0, 0.25, 0.5), 0.5)


def test_switching_power_by_hand():
    # (300 - 85) / (8/9) = 241.875 W while it works, less 20 W of memory, over a mean square of 0.9687
    np.testing.assert_allclose(front.switching_power_of(plans(1.0), 20.0, 0.9687), 229.0441, rtol=1e-5)


def test_fastest_plan_is_itself_and_late_ones_wait():
    """Beyond the lowest clock, a longer step only adds waiting: 85 W of the 300 W of the fastest plan."""
    ratio = np.asarray(front.front_energy(MEDIAN, plans([1.0, 3.0, 4.0])))
    np.testing.assert_allclose(ratio[0], 1.0, rtol=1e-12)
    np.testing.assert_allclose(ratio[2] - ratio[1], 85.0 / 300.0, rtol=1e-9)


def test_front_falls_and_then_rises():
    ratio = np.asarray(front.front_energy(MEDIAN, plans(np.linspace(1.0, 1.8, 40))))
    lowest = int(np.argmin(ratio))
    assert 0 < lowest < 39
    assert np.all(np.diff(ratio[: lowest + 1]) < 0.0)
    assert np.all(np.diff(ratio[lowest:]) > 0.0)


def test_gradients():
    def total(floor, knee, memory):
        values = MEDIAN | {"voltage_floor": floor, "voltage_knee": knee, "memory_time": memory}
        return jnp.sum(front.front_errors(values, plans([1.05, 1.2])) ** 2)

    check_grads(total, (jnp.asarray(0.75), jnp.asarray(0.65), jnp.asarray(0.2)), order=1, modes=("fwd", "rev"))


def test_known_constants_come_back():
    truth = MEDIAN | {"voltage_floor": np.asarray(0.68), "voltage_knee": np.asarray(0.8)}
    stretch = np.tile(np.linspace(1.02, 1.4, 12), 2)
    runs = plans(stretch)._replace(power=np.repeat([270.0, 320.0], 12))
    runs = runs._replace(energy=np.asarray(front.front_energy(truth, runs)))
    options = FitOptions(starts=2, estimate_noise=False)
    fitted = fit(FitProblem(front.front_errors, front.CONSTANTS, runs, noise=1e-3, options=options))
    for name in ("voltage_floor", "voltage_knee"):
        np.testing.assert_allclose(float(fitted.values[name]), float(truth[name]), rtol=2e-2, err_msg=name)
