"""Cooling systems: parts of the power, weather, loops, PUE."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics import cooling as boil
from energymodel.physics.chiller import AbstractChiller, CarnotChiller, LiftChiller, QuadraticChiller
from energymodel.physics.cooling import UNLIMITED_HEAT_FLUX, Cooling, InletClass, SinglePhaseLoop, TwoPhaseLoop
from energymodel.physics.heat_rejection import AbstractHeatRejection, CoolingTower, DryCooler, free_cooling_share
from energymodel.physics.weather import Weather

MOORE = QuadraticChiller(0.0068, 0.0008, 0.458, 283.15, 303.15)
LOOP = SinglePhaseLoop(0.02, 0.03, 1.0, 0.02, 10.0, UNLIMITED_HEAT_FLUX)
SEASONS = Weather(285.0, 9.0, 3.0, 280.0, 8.0, 2.0, 3.5)
BOILING = TwoPhaseLoop(0.015, 0.01, 2.0, 88e3, 13.4, 1602.0, 0.0083, 0.7, 9.0, 0.7)  # FC-72, docs/physics.md B6
ANY_INLET = InletClass(273.0, 320.0, 273.0, 320.0)
NO_FANS = DryCooler(5.0, 0.0)


def steady(temperature):
    """Weather that never changes, dry and wet alike."""
    return Weather(temperature, 0.0, 0.0, temperature, 0.0, 0.0, 0.1)


def cooling_at(weather, chiller: AbstractChiller = MOORE, loop=LOOP, rejection: AbstractHeatRejection = NO_FANS):
    return Cooling(loop, chiller, rejection, weather, ANY_INLET, 0.0)


def demand(cooling, heat, supply):
    return cooling.demand(heat, cooling.at(supply))


def test_without_free_cooling_power_is_heat_over_cop_and_mover():
    # 1 MW / 3.194 = 313.1 kW (docs/physics.md A2.20), and 2 % of a MW for pumps.
    np.testing.assert_allclose(demand(cooling_at(steady(320.0)), 1e6, 293.15).power, 313.1e3 + 20e3, atol=50.0)


def test_cold_weather_leaves_the_pumps():
    np.testing.assert_allclose(demand(cooling_at(steady(260.0)), 1e6, 298.15).power, 20e3, rtol=1e-6)


def test_a_tower_pays_for_the_work_of_the_chiller_too():
    # COP = 0.9 x 293 / (24 + 18) = 6.279 at tower water of 317 K: 1.8 % of 1 + 1 / 6.279, and its vapor.
    chiller = LiftChiller(0.9, 18.0, 0.0, 400.0, 1.0, 0.0, 0.0)
    needed = demand(cooling_at(steady(313.0), chiller, rejection=CoolingTower(4.0, 0.018, 0.85, 1.33)), 1e6, 293.0)
    work = 1.0 / 6.2786
    np.testing.assert_allclose(needed.power, 1e6 * (work + 0.018 * (1.0 + work) + 0.02), rtol=1e-5)
    np.testing.assert_allclose(needed.water, 0.85 * (1.0 + work) * 1.33 * 1e6 / 2.43e9, rtol=1e-5)


@given(heat=st.floats(0.0, 1e8), supply=st.floats(283.0, 320.0), warming=st.floats(0.0, 10.0))
@settings(max_examples=25, deadline=None)
def test_power_is_proportional_to_heat_and_falls_with_supply(heat, supply, warming):
    with jax.enable_x64(True):
        cooling = cooling_at(SEASONS, CarnotChiller(0.45, 330.0))
        power = demand(cooling, heat, supply).power
        assert power >= 0
        np.testing.assert_allclose(demand(cooling, 2 * heat, supply).power, 2 * power, rtol=1e-12)
        assert demand(cooling, heat, supply + warming).power <= power * (1 + 1e-12)
        assert power <= cooling.hottest_demand(heat, cooling.at(supply)).power * (1 + 1e-12)


def test_the_year_is_the_mean_of_its_hours():
    # An independent sum over 365 x 24 phases, with the formulas called one by one: the rule has 8.
    with jax.enable_x64(True):
        cooling = cooling_at(SEASONS, CarnotChiller(0.45, 318.15))
        year, day = np.meshgrid(np.arange(365) / 365, (np.arange(24) + 0.5) / 24, indexing="ij")
        wave = 9.0 * np.cos(2 * np.pi * year) + 3.0 * np.cos(2 * np.pi * day)
        chilled = 1.0 - np.asarray(free_cooling_share(293.15, 10.0, 285.0 + wave + 5.0, 3.5))
        mean = np.mean(chilled / (0.45 * 293.15 / 25.0)) + 0.02
        np.testing.assert_allclose(demand(cooling, 1.0, 293.15).power, mean, rtol=5e-3)


def test_flow_trades_power_for_resistance_and_rise():
    half = cooling_at(SEASONS, loop=eqx.tree_at(lambda loop: loop.flow, LOOP, jnp.array(0.5)))
    coolant = half.at(290.0)
    np.testing.assert_allclose(coolant.mover_share, 0.02 / 8)
    np.testing.assert_allclose(coolant.resistance, 0.072233, atol=1e-6)  # 0.02 + 0.03 x 2^0.8
    np.testing.assert_allclose([coolant.rise, coolant.return_rise, coolant.last], [20.0, 20.0, 310.0])
    assert half.loop.heat_flux_limit() == UNLIMITED_HEAT_FLUX


def test_fans_speed_up_with_warm_air_and_cool_better():
    # Ten kelvins above rated: 2 ln(1 + e^5) = 10.01343 K, u = e^0.150201 = 1.16207, the cube 1.56925; a fifth of the
    # heat leaves by air.
    loop = eqx.tree_at(
        lambda loop: (loop.air_share, loop.flow_growth, loop.rated_temperature), LOOP, (0.2, 0.015, 298.15)
    )
    cold, warm = loop.at(273.15), loop.at(308.15)
    np.testing.assert_allclose(cold.fan_effort, 0.2, rtol=1e-5)
    np.testing.assert_allclose([warm.fan_effort, warm.mover_share], [0.2 * 1.56925, 0.02 * 1.56925], rtol=1e-4)
    np.testing.assert_allclose(warm.rise, 10.0 / 1.16207, rtol=1e-4)
    assert warm.resistance < loop.at(298.15).resistance
    assert LOOP.at(308.15).fan_effort == BOILING.at(308.15).fan_effort == 0.0


def test_slack_of_an_inlet_class_on_both_sides():
    a2 = InletClass(283.15, 308.15, 291.15, 300.15)
    assert a2.slack(298.15) > 0.0
    np.testing.assert_allclose([a2.slack(283.15), a2.slack(308.15)], 0.0, atol=1e-7)
    assert a2.slack(318.15) < 0.0
    assert a2.slack(280.15) < 0.0


def test_two_phase_loop():
    # 0.7 x 9 x 14.23 W/cm^2 (with g = 9.80665) covers the 86.0 W/cm^2 of 700 W on 8.14 cm^2.
    np.testing.assert_allclose(BOILING.heat_flux_limit(), 0.7 * 9 * 14.23e4, rtol=1e-3)
    assert BOILING.heat_flux_limit() > 86.0e4
    coolant = BOILING.at(290.0)
    np.testing.assert_allclose([coolant.resistance, coolant.rise, coolant.mover_share], [0.015, 2.0, 0.01])


def test_gradients_are_finite_at_the_bounds_of_the_chiller():
    cooling = cooling_at(SEASONS)
    for supply in (273.15, 283.15, 295.0, 303.15, 330.0):
        slopes = jax.grad(lambda system, supply=supply: demand(system, 1e6, supply).power)(cooling)
        assert np.all(np.isfinite(jax.tree.leaves(slopes)))


FC72 = (88e3, 13.4, 1602.0, 0.0083)  # docs/physics.md B6: h_fg, rho_v, rho_l, sigma


def test_critical_heat_flux_vanishes_without_gravity_difference():
    latent, vapor, _, tension = FC72
    ratio = boil.critical_heat_flux(*FC72, gravity=16 * 9.81) / boil.critical_heat_flux(*FC72, gravity=9.81)
    np.testing.assert_allclose(ratio, 2.0)
    assert boil.critical_heat_flux(latent, vapor, vapor, tension) == 0.0
