"""Cooling systems: parts of the power, weather, loops, PUE."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics.chiller import CarnotChiller, QuadraticChiller
from energymodel.physics.cooling import (
    UNLIMITED_HEAT_FLUX,
    Cooling,
    SinglePhaseLoop,
    TwoPhaseLoop,
    power_usage_effectiveness,
)
from gradients import check_grads

MOORE = QuadraticChiller(0.0068, 0.0008, 0.458, 283.15, 303.15)
LOOP = SinglePhaseLoop(0.02, 0.03, 1.0, 0.02, 10.0, UNLIMITED_HEAT_FLUX)
BOILING = TwoPhaseLoop(0.015, 0.01, 2.0, 88e3, 13.4, 1602.0, 0.0083, 0.7, 9.0, 0.7)  # FC-72, docs/physics.md B6
HOT = Cooling(LOOP, MOORE, 320.0, 5.0, 1.5)  # weather that cools nothing


def test_without_free_cooling_power_is_heat_over_cop_and_mover():
    # 1 MW / 3.194 = 313.1 kW (docs/physics.md A2.20), and 2 % of a MW for pumps.
    np.testing.assert_allclose(HOT.power(1e6, 293.15), 313.1e3 + 20e3, atol=50.0)


def test_cold_weather_leaves_the_pumps():
    cold = Cooling(LOOP, MOORE, 260.0, 5.0, 1.5)
    np.testing.assert_allclose(cold.free_fraction(298.15), 1.0, rtol=1e-9)
    np.testing.assert_allclose(cold.power(1e6, 298.15), 20e3, rtol=1e-6)


@given(heat=st.floats(0.0, 1e8), supply=st.floats(283.0, 320.0), warming=st.floats(0.0, 10.0))
@settings(max_examples=25, deadline=None)
def test_power_is_proportional_to_heat_and_falls_with_supply(heat, supply, warming):
    with jax.enable_x64(True):
        cooling = Cooling(LOOP, CarnotChiller(0.45, 330.0), 290.0, 5.0, 1.5)
        power = cooling.power(heat, supply)
        assert power >= 0
        np.testing.assert_allclose(cooling.power(2 * heat, supply), 2 * power, rtol=1e-12)
        assert cooling.power(heat, supply + warming) <= power * (1 + 1e-12)


def test_flow_trades_power_for_resistance_and_rise():
    half = eqx.tree_at(lambda loop: loop.flow, LOOP, jnp.array(0.5))
    np.testing.assert_allclose(half.mover_power(1000.0), 2.5)  # 20 W / 8
    np.testing.assert_allclose(half.thermal_resistance(), 0.072233, atol=1e-6)  # 0.02 + 0.03 x 2^0.8
    np.testing.assert_allclose(half.rise(), 20.0)
    cooling = Cooling(half, MOORE, 290.0, 5.0, 1.5)
    np.testing.assert_allclose(
        [cooling.thermal_resistance(), cooling.coolant_rise, cooling.heat_flux_limit()],
        [half.thermal_resistance(), 20.0, UNLIMITED_HEAT_FLUX],
    )


def test_two_phase_loop():
    np.testing.assert_allclose(BOILING.mass_flow(700.0), 11.36e-3, atol=5e-6)  # docs/physics.md B6
    # 0.7 x 9 x 14.23 W/cm^2 (with g = 9.80665) covers the 86.0 W/cm^2 of 700 W on 8.14 cm^2.
    np.testing.assert_allclose(BOILING.heat_flux_limit(), 0.7 * 9 * 14.23e4, rtol=1e-3)
    assert BOILING.heat_flux_limit() > 86.0e4
    np.testing.assert_allclose(
        [BOILING.thermal_resistance(), BOILING.rise(), BOILING.mover_power(700.0)], [0.015, 2.0, 7.0]
    )


def test_pue_is_one_without_overhead_and_adds_up():
    assert power_usage_effectiveness(0.0, 0.0, 0.0, 4.0, 0.0) == 1.0
    np.testing.assert_allclose(power_usage_effectiveness(0.04, 0.02, 1.0, 4.0, 0.01), 1.32)


def test_gradients():
    check_grads(power_usage_effectiveness, (0.04, 0.02, 0.2, 4.0, 0.01), order=2)
    cooling = Cooling(LOOP, MOORE, 290.0, 5.0, 1.5)
    check_grads(lambda heat, supply: cooling.power(heat, 295.0 + supply), (1.0, 0.5), order=2, rtol=1e-4)
    check_grads(
        lambda flow: eqx.tree_at(lambda loop: loop.flow, LOOP, flow).thermal_resistance(), (jnp.array(0.7),), order=2
    )
    for supply in (273.15, 283.15, 295.0, 303.15, 330.0):
        slopes = jax.grad(lambda system, supply=supply: system.power(1e6, supply))(cooling)
        assert np.all(np.isfinite(jax.tree.leaves(slopes)))
