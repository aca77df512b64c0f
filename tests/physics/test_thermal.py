"""Temperatures and leakage: steady state, transient, feedback up to and beyond runaway."""

from typing import Any

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.special import lambertw

from energymodel.physics import thermal
from energymodel.physics.chiller import chiller_power
from energymodel.physics.leakage import leakage_power
from gradients import check_grads


def runaway_resistance(base_power, leakage, coolant, sensitivity, reference):
    """Largest resistance with a stable temperature, where the loop gain is 1 [derivation: docs/physics.md B6]."""
    if leakage * sensitivity < 1e-30:
        return 1e12
    warm = sensitivity * (reference - coolant) - 1.0
    return np.exp(warm - lambertw(base_power / leakage * np.exp(warm)).real) / (sensitivity * leakage)


# docs/physics.md B6: P_0, P_l, theta_c, R_th, b, theta_0
EXAMPLE = (600.0, 70.0, 308.15, 0.06, 0.015, 338.15)


def leak(temperature):
    return leakage_power(70.0, 1.0, temperature, 3.0, 0.015, 338.15)


def test_without_feedback_temperature_is_steady():
    steady = thermal.steady_temperature(670.0, 308.15, 0.06)
    np.testing.assert_allclose(thermal.leakage_temperature(600.0, 70.0, 308.15, 0.06, 0.0, 338.15), steady, rtol=1e-14)
    np.testing.assert_allclose(thermal.leakage_temperature(670.0, 0.0, 308.15, 0.06, 0.015, 338.15), steady, rtol=1e-14)


def test_feedback_against_the_lambert_function_and_differences():
    # theta = theta_a - W(-R P_l b e^(b (theta_a - theta_0))) / b, theta_a = theta_c + R P_0
    for resistance in (0.01, 0.06, 0.12, 0.14):
        bare = 308.15 + resistance * 600.0
        exact = bare - lambertw(-resistance * 70.0 * 0.015 * np.exp(0.015 * (bare - 338.15))).real / 0.015
        result = thermal.leakage_temperature(600.0, 70.0, 308.15, resistance, 0.015, 338.15)
        np.testing.assert_allclose(result, exact, rtol=1e-12)
    # In units of 100 W, 100 K and 1/(100 K), so that one step of differences suits all arguments.
    point = (6.0, 0.7, 3.0815, 0.06, 1.5, 3.3815)
    check_grads(jax.jit(thermal.leakage_temperature), point, order=1, loops=True, rtol=1e-5)


def test_runaway_resistance_is_the_largest_with_a_fixed_point():
    result: Any = minimize_scalar(
        lambda t: -(t - 308.15) / (600 + 70 * np.exp(0.015 * (t - 338.15))), bounds=(309, 900)
    )
    critical = runaway_resistance(600.0, 70.0, 308.15, 0.015, 338.15)
    np.testing.assert_allclose(critical, -result.fun, rtol=1e-8)
    # a little below, the fixed point is close to unit gain; above, the end of the bracket is returned
    for factor, gain in ((0.999999, 0.997), (1.01, 1.0), (3.0, 1.0)):
        temperature = thermal.leakage_temperature(600.0, 70.0, 308.15, factor * critical, 0.015, 338.15)
        np.testing.assert_allclose(thermal.loop_gain(factor * critical, leak(temperature), 0.015), gain, atol=3e-3)


@given(
    base=st.floats(0.0, 1500.0),
    leakage=st.floats(0.0, 300.0),
    coolant=st.floats(280.0, 330.0),
    sensitivity=st.floats(0.0, 0.03),
    share=st.floats(0.01, 0.95),
)
def test_feedback_balances_heat_and_is_stable(base, leakage, coolant, sensitivity, share):
    critical = runaway_resistance(base, leakage, coolant, sensitivity, 338.15)
    resistance = min(share * critical, 0.5)
    temperature = thermal.leakage_temperature(base, leakage, coolant, resistance, sensitivity, 338.15)
    leaks = leakage * np.exp(sensitivity * (temperature - 338.15))
    np.testing.assert_allclose(temperature, coolant + resistance * (base + leaks), rtol=1e-10)
    assert thermal.loop_gain(resistance, leaks, sensitivity) < 1


def test_feedback_gradients_are_finite_everywhere():
    slopes = jax.jit(jax.grad(thermal.leakage_temperature, argnums=range(6)))
    cases = [
        EXAMPLE,
        (600.0, 0.0, 308.15, 0.06, 0.015, 338.15),  # no leakage
        (600.0, 70.0, 308.15, 0.06, 0.0, 338.15),  # no sensitivity
        (0.0, 0.0, 308.15, 0.06, 0.015, 338.15),  # off
        (600.0, 70.0, 308.15, 0.0, 0.015, 338.15),  # ideal cooling
        (600.0, 70.0, 308.15, 0.2, 0.015, 338.15),  # runaway
        (6000.0, 700.0, 308.15, 3.0, 0.03, 338.15),  # unit gain below the coolant
    ]
    for case in cases:
        assert np.isfinite(thermal.leakage_temperature(*case))
        assert np.all(np.isfinite(slopes(*case))), case


def test_set_point_of_least_power():
    # docs/physics.md B6: 745.5 W at 47.7 °C, 873.0 W at 20 °C, 778.5 W at 30 °C (chiller fit extrapolated).
    def total(supply):
        temperature = thermal.leakage_temperature(600.0, 70.0, supply, 0.06, 0.015, 338.15)
        power = 600.0 + leak(temperature)
        celsius = supply - 273.15
        return power + chiller_power(power, 0.0068 * celsius**2 + 0.0008 * celsius + 0.458)  # Moore et al. 2005

    np.testing.assert_allclose([total(293.15), total(303.15)], [873.0, 778.5], atol=0.05)
    best = float(brentq(jax.jit(jax.grad(total)), 303.15, 333.15))  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose([best - 273.15, float(total(best))], [47.7, 745.5], atol=0.05)
    np.testing.assert_allclose(
        thermal.leakage_temperature(600.0, 70.0, best, 0.06, 0.015, 338.15) - 273.15, 90, atol=0.5
    )


def test_transient_solves_the_heat_balance():
    step = (350.0, 700.0, 308.15, 0.06, 250.0)  # theta_0, P, theta_c, R_th, C_th
    for time in (0.0, 3.0, 40.0):
        slope = jax.grad(thermal.transient_temperature)(time, *step)
        balance = thermal.temperature_slope(thermal.transient_temperature(time, *step), *step[1:])
        np.testing.assert_allclose(slope, balance, atol=1e-12)
    assert thermal.transient_temperature(0.0, *step) == 350.0
    np.testing.assert_allclose(
        thermal.transient_temperature(1e4, *step), thermal.steady_temperature(700.0, 308.15, 0.06)
    )


@given(temperature=st.floats(280.0, 400.0), voltage=st.floats(0.5, 1.1), sensitivity=st.floats(0.01, 0.025))
def test_doubles(temperature, voltage, sensitivity):
    def power(kelvin):
        return leakage_power(70.0, voltage, kelvin, 3.0, sensitivity, 338.15)

    doubling = float(np.log(2.0) / sensitivity)
    assert 27.0 < doubling < 70.0  # docs/physics.md B2: 30 to 70 K
    np.testing.assert_allclose(power(temperature + doubling), 2 * power(temperature), rtol=1e-5)
