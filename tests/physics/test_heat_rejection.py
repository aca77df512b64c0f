"""Heat rejection: free cooling over days, temperatures that the outside reaches, water."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics.heat_rejection import LATENT_HEAT, CoolingTower, DryCooler, EvaporativeAir, free_cooling_share
from energymodel.physics.weather import Hour

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
@settings(max_examples=25, deadline=None)
def test_free_cooling_is_a_share_that_rises_with_supply(supply, source, warming):
    with jax.enable_x64(True):
        share = free_cooling_share(supply, 10.0, source, 3.0)
        assert -1e-12 <= share <= free_cooling_share(supply + warming, 10.0, source, 3.0) + 1e-12 <= 1 + 2e-12


def test_free_cooling_has_sharp_limits_without_spread():
    np.testing.assert_allclose(free_cooling_share(295.0, 10.0, 300.0, 0.0), 0.5, atol=1e-3)  # half of the way
    assert free_cooling_share(295.0, 10.0, 290.0, 0.0) > 1 - 1e-6
    assert free_cooling_share(295.0, 10.0, 310.0, 0.0) < 1e-6
    assert np.isfinite(jax.grad(free_cooling_share, argnums=3)(295.0, 10.0, 300.0, 0.0))


def test_each_kind_reaches_its_temperature():
    assert TOWER.source(SUMMER) == TOWER.condenser(SUMMER) == 299.0  # 295 + 4
    assert DRY.source(SUMMER) == 311.0
    assert DRY.condenser(SUMMER) == EVAPORATIVE.condenser(SUMMER) == 305.0
    np.testing.assert_allclose(EVAPORATIVE.source(SUMMER), 305.0 - 0.8 * 10.0 + 2.0)
    assert EVAPORATIVE.dry_source(SUMMER) == 307.0


def test_towers_evaporate_all_the_time_and_outside_air_only_when_dry_air_is_too_warm():
    # 0.85 x 1.1 x 1.33 / 2.43e9 J/m^3, in liters per kWh: 1.84, near the mean of US data centers, 1.8.
    np.testing.assert_allclose(TOWER.evaporation(0.0, 0.0, 0.1) * 3.6e9, 1.842, atol=1e-3)
    assert DRY.evaporation(0.3, 0.3, 0.1) == 0.0
    assert EVAPORATIVE.evaporation(1.0, 1.0, 0.0) == 0.0
    np.testing.assert_allclose(EVAPORATIVE.evaporation(1.0, 0.4, 0.0), 0.6 * 1.33 / LATENT_HEAT, rtol=1e-6)


def test_fans_move_what_the_outside_takes():
    np.testing.assert_allclose(TOWER.power(0.2, 0.15), 0.018 * 1.15, rtol=1e-6)  # also the work of the chiller
    np.testing.assert_allclose(DRY.power(0.5, 0.15), 0.01, rtol=1e-6)  # the COP holds the fans of the condenser
