"""Cooling from the coolant to the outside: loops, chillers, heat rejection, weather."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energymodel.physics.chiller import LiftChiller, part_load_power
from energymodel.physics.cooling import UNLIMITED_HEAT_FLUX, Cooling, InletClass, SinglePhaseLoop, TwoPhaseLoop
from energymodel.physics.heat_rejection import (
    LATENT_HEAT,
    AbstractHeatRejection,
    CoolingTower,
    DryCooler,
    EvaporativeAir,
    free_cooling_share,
)
from energymodel.physics.weather import Hour, Weather

CHILLER = LiftChiller(3.0, 30.0, 40.0, 6.0, 400.0, 1.0, 0.5, 0.25)
STEADY_LIFT = LiftChiller(5.0, 25.0, 40.0, 25.0, 400.0, 1.0, 0.5, 0.25)  # in weather colder than its supply and 25 K
LOOP = SinglePhaseLoop(0.02, 0.03, 1.0, 0.02, 10.0, UNLIMITED_HEAT_FLUX)
SEASONS = Weather(285.0, 9.0, 3.0, 280.0, 8.0, 2.0, 3.5)
BOILING = TwoPhaseLoop(0.015, 0.01, 2.0, 88e3, 13.4, 1602.0, 0.0083, 0.7, 9.0, 0.7)  # FC-72, docs/physics.md B6
ANY_INLET = InletClass(273.0, 320.0, 273.0, 320.0)
NO_FANS = DryCooler(5.0, 0.0)


def steady(temperature):
    """Weather that never changes, dry and wet alike."""
    return Weather(temperature, 0.0, 0.0, temperature, 0.0, 0.0, 0.1)


def cooling_at(weather, chiller=CHILLER, loop=LOOP, rejection: AbstractHeatRejection = NO_FANS):
    return Cooling(loop, chiller, rejection, weather, ANY_INLET, 0.0)


def demand(cooling, heat, supply):
    return cooling.demand(heat, cooling.at(supply))


def test_power_is_heat_over_cop_with_mover_and_tower():
    # COP = 3 exp((30 - 26.85) / 40) = 3.2458: 308.09 kW of 1 MW, and 2 % of a MW for pumps.
    np.testing.assert_allclose(demand(cooling_at(steady(320.0)), 1e6, 293.15).power, 308.09e3 + 20e3, atol=50.0)
    # COP = 6 exp((20 - 24) / 40) = 5.4290 at tower water of 317 K: 1.8 % of 1 + 1 / 5.4290, and its vapor.
    chiller = LiftChiller(6.0, 20.0, 40.0, 0.0, 400.0, 1.0, 0.5, 0.25)
    needed = demand(cooling_at(steady(313.0), chiller, rejection=CoolingTower(4.0, 0.018, 0.85, 1.33)), 1e6, 293.0)
    work = 1.0 / 5.42902
    np.testing.assert_allclose(needed.power, 1e6 * (work + 0.018 * (1.0 + work) + 0.02), rtol=1e-5)
    np.testing.assert_allclose(needed.water, 0.85 * (1.0 + work) * 1.33 * 1e6 / 2.43e9, rtol=1e-5)


@given(heat=st.floats(0.0, 1e8), supply=st.floats(283.0, 320.0), warming=st.floats(0.0, 10.0))
def test_power_is_proportional_to_heat_and_falls_with_supply(heat, supply, warming):
    cooling = cooling_at(SEASONS, STEADY_LIFT)
    power = demand(cooling, heat, supply).power
    assert power >= 0
    np.testing.assert_allclose(demand(cooling, 2 * heat, supply).power, 2 * power, rtol=1e-12)
    assert demand(cooling, heat, supply + warming).power <= power * (1 + 1e-12)
    assert power <= cooling.hottest_demand(heat, cooling.at(supply)).power * (1 + 1e-12)


def test_the_year_is_the_mean_of_its_hours():
    # An independent sum over 365 x 24 phases, with the formulas called one by one: the rule has 8.
    cooling = cooling_at(SEASONS, STEADY_LIFT)
    year, day = np.meshgrid(np.arange(365) / 365, (np.arange(24) + 0.5) / 24, indexing="ij")
    wave = 9.0 * np.cos(2 * np.pi * year) + 3.0 * np.cos(2 * np.pi * day)
    chilled = 1.0 - np.asarray(free_cooling_share(293.15, 10.0, 285.0 + wave + 5.0, 3.5))
    mean = np.mean(chilled / 5.0) + 0.02
    np.testing.assert_allclose(demand(cooling, 1.0, 293.15).power, mean, rtol=5e-3)


def test_flow_and_fans_of_a_loop_by_hand():
    half = cooling_at(SEASONS, loop=eqx.tree_at(lambda loop: loop.flow, LOOP, jnp.array(0.5)))
    coolant = half.at(290.0)
    np.testing.assert_allclose(coolant.mover_share, 0.02 / 8)
    np.testing.assert_allclose(coolant.resistance, 0.072233, atol=1e-6)  # 0.02 + 0.03 x 2^0.8
    np.testing.assert_allclose([coolant.rise, coolant.return_rise, coolant.last], [20.0, 20.0, 310.0])
    assert half.loop.heat_flux_limit() == UNLIMITED_HEAT_FLUX
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
    # 0.7 x 9 x 14.23 W/cm^2 (with g = 9.80665) covers the 86.0 W/cm^2 of 700 W on 8.14 cm^2.
    np.testing.assert_allclose(BOILING.heat_flux_limit(), 0.7 * 9 * 14.23e4, rtol=1e-3)
    assert BOILING.heat_flux_limit() > 86.0e4
    coolant = BOILING.at(290.0)
    np.testing.assert_allclose([coolant.resistance, coolant.rise, coolant.mover_share], [0.015, 2.0, 0.01])


def test_inlets_have_slack_and_free_cooling_sharp_limits():
    a2 = InletClass(283.15, 308.15, 291.15, 300.15)
    assert a2.slack(298.15) > 0.0
    np.testing.assert_allclose([a2.slack(283.15), a2.slack(308.15)], 0.0, atol=1e-7)
    assert a2.slack(318.15) < 0.0
    assert a2.slack(280.15) < 0.0
    np.testing.assert_allclose(free_cooling_share(295.0, 10.0, 300.0, 0.0), 0.5, atol=1e-3)  # half of the way
    assert free_cooling_share(295.0, 10.0, 290.0, 0.0) > 1 - 1e-6
    assert free_cooling_share(295.0, 10.0, 310.0, 0.0) < 1e-6
    assert np.isfinite(jax.grad(free_cooling_share, argnums=3)(295.0, 10.0, 300.0, 0.0))


def test_gradients_are_finite_at_the_bounds_of_the_chiller():
    cooling = cooling_at(SEASONS)
    for supply in (273.15, 283.15, 295.0, 303.15, 330.0):
        slopes = jax.grad(lambda system, supply=supply: demand(system, 1e6, supply).power)(cooling)
        assert np.all(np.isfinite(jax.tree.leaves(slopes)))


# The median water-cooled chiller of experiments/14_cooling.
WATER_COOLED = LiftChiller(5.44, 23.0, 39.1, 6.0, 293.15, 0.6, 0.5, 0.25)


def test_lift_chiller_has_the_slopes_of_its_fit_and_is_held_beyond():
    # 1 / 39.1 K = 2.56 %/K of lift; the catalogs have +2.2 %/K for supply and -2.5 %/K outside.
    def log_cop(supply, condenser):
        return jnp.log(WATER_COOLED.performance(supply, condenser))

    by_supply, by_condenser = jax.grad(log_cop, (0, 1))(282.15, 298.15)
    np.testing.assert_allclose([by_supply, by_condenser], [0.02558, -0.02558], atol=1e-5)
    warmest = WATER_COOLED.performance(293.15, 305.15)
    assert WATER_COOLED.performance(310.0, 305.15) == warmest  # no machine makes 37 °C water; it mixes 20 °C water
    coldest_condenser = WATER_COOLED.performance(280.15, 286.15)
    assert WATER_COOLED.performance(280.15, 250.0) == coldest_condenser
    for supply, condenser in [(280.0, 250.0), (293.15, 299.15), (330.0, 330.0)]:
        assert np.all(np.isfinite(jax.grad(WATER_COOLED.performance, (0, 1))(supply, condenser)))


@given(load=st.floats(0.25, 1.0), half=st.floats(0.4, 0.55), quarter=st.floats(0.2, 0.35))
def test_part_load_has_the_power_of_the_machine(load, half, quarter):
    np.testing.assert_allclose(
        part_load_power(np.array([1.0, 0.5, 0.25]), half, quarter), [1.0, half, quarter], atol=1e-12
    )
    assert 0.2 - 1e-9 <= part_load_power(load, half, quarter) <= 1.0 + 1e-9
    np.testing.assert_allclose(part_load_power(load, 0.5, 0.25), load, rtol=1e-12)
    np.testing.assert_allclose(np.diff(part_load_power(np.linspace(0.25, 1.0, 4), half, quarter), 3), 0.0, atol=1e-12)
    machine = eqx.tree_at(lambda own: (own.half_load_power, own.quarter_load_power), WATER_COOLED, (half, quarter))
    ratio = machine.performance(280.0, 300.0, load) / WATER_COOLED.performance(280.0, 300.0)
    running = max(load, 0.6)
    np.testing.assert_allclose(ratio, running / part_load_power(running, half, quarter), rtol=1e-12)


TOWER = CoolingTower(4.0, 0.018, 0.85, 1.33)
DRY = DryCooler(6.0, 0.02)
EVAPORATIVE = EvaporativeAir(2.0, 0.8, 0.0, 1.33)
SUMMER = Hour(305.0, 295.0, 3.5)


@pytest.mark.parametrize("source", [280.0, 292.0, 300.0, 306.0])
def test_free_cooling_is_the_mean_of_days(source):
    # An independent sum over days whose source is logistic with a standard deviation of 3 K.
    quantiles = (np.arange(200_000) + 0.5) / 200_000
    days = source + 3.0 * np.sqrt(3.0) / np.pi * np.log(quantiles / (1.0 - quantiles))
    mean = np.mean(np.clip((295.0 + 10.0 - days) / 10.0, 0.0, 1.0))
    np.testing.assert_allclose(free_cooling_share(295.0, 10.0, source, 3.0), mean, atol=2e-4)


@given(supply=st.floats(250.0, 350.0), source=st.floats(250.0, 320.0), warming=st.floats(0.0, 20.0))
def test_free_cooling_is_a_share_that_rises_with_supply(supply, source, warming):
    share = free_cooling_share(supply, 10.0, source, 3.0)
    assert -1e-12 <= share <= free_cooling_share(supply + warming, 10.0, source, 3.0) + 1e-12 <= 1 + 2e-12


def test_heat_rejection_by_hand():
    assert TOWER.at(SUMMER) == (299.0, 299.0, 299.0)  # 295 + 4
    assert DRY.at(SUMMER) == (311.0, 311.0, 305.0)
    np.testing.assert_allclose(np.asarray([*EVAPORATIVE.at(SUMMER)]), [305.0 - 0.8 * 10.0 + 2.0, 307.0, 305.0])
    # 0.85 x 1.1 x 1.33 / 2.43e9 J/m^3, in liters per kWh: 1.84, near the mean of US data centers, 1.8.
    np.testing.assert_allclose(TOWER.per_heat(0.0, 0.0, 0.1).water * 3.6e9, 1.842, atol=1e-3)
    assert DRY.per_heat(0.3, 0.3, 0.1).water == EVAPORATIVE.per_heat(1.0, 1.0, 0.0).water == 0.0
    np.testing.assert_allclose(EVAPORATIVE.per_heat(1.0, 0.4, 0.0).water, 0.6 * 1.33 / LATENT_HEAT, rtol=1e-6)
    np.testing.assert_allclose(TOWER.per_heat(0.2, 0.2, 0.15).power, 0.018 * 1.15, rtol=1e-6)  # and the chiller's work
    np.testing.assert_allclose(DRY.per_heat(0.5, 0.5, 0.15).power, 0.01, rtol=1e-6)  # the COP holds other fans


TEXAS = Weather(293.55, 10.42, 4.12, 289.01, 8.88, 1.81, 3.9)


@given(year=st.floats(0.0, 20.0), day=st.floats(0.0, 10.0))
def test_hours_have_mean_and_variance_of_both_waves(year, day):
    weather = Weather(290.0, year, day, 285.0, year, day, 3.0)
    np.testing.assert_allclose(weather.year_mean(lambda hour: hour.dry_bulb), 290.0, rtol=1e-12)
    variance = weather.year_mean(lambda hour: (hour.dry_bulb - 290.0) ** 2)
    np.testing.assert_allclose(variance, (year**2 + day**2) / 2, atol=1e-9)  # of a cosine: A^2 / 2
    hours = weather.hours()
    np.testing.assert_allclose(np.subtract(hours.wet_bulb, hours.dry_bulb), -5.0, atol=1e-9)


def test_the_hottest_hour_is_above_all_others():
    hottest = TEXAS.hottest()
    np.testing.assert_allclose(hottest.dry_bulb, 293.55 + 10.42 + 4.12)
    hours = TEXAS.hours()
    assert np.all(np.less(hours.dry_bulb, hottest.dry_bulb))
    assert np.all(np.less(hours.wet_bulb, hottest.wet_bulb))
    assert hours.spread == 3.9
