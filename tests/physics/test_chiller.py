"""Chillers: range, limits, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics.chiller import CarnotChiller, LiftChiller, QuadraticChiller, carnot_cop, part_load_power

MOORE = QuadraticChiller(0.0068, 0.0008, 0.458, 283.15, 303.15)  # Moore et al. 2005, docs/physics.md B6


def test_quadratic_chiller_is_held_at_its_range():
    # 0.0068 x 100 + 0.008 + 0.458 = 1.146; 0.0068 x 900 + 0.024 + 0.458 = 6.602
    np.testing.assert_allclose(
        MOORE.performance(jnp.array([263.15, 283.15, 303.15, 323.15]), 300.0), [1.146, 1.146, 6.602, 6.602]
    )
    np.testing.assert_allclose(MOORE.performance(298.15, 300.0), 4.728)
    for supply in (263.15, 283.15, 303.15, 323.15):
        assert np.isfinite(jax.grad(MOORE.performance)(supply, 300.0))


def test_carnot_chiller_is_a_share_of_the_ideal_and_bounded():
    np.testing.assert_allclose(carnot_cop(300.0, 330.0, 1.0), 10.0)
    chiller = CarnotChiller(0.45, 318.15)
    supply = jnp.array([280.0, 300.0, 317.0, 318.15, 340.0])
    assert np.all(np.isfinite(chiller.performance(supply, 300.0)))
    assert np.all(np.diff(chiller.performance(supply, 300.0)) > 0)
    assert np.all(chiller.performance(supply[:2], 325.0) < chiller.performance(supply[:2], 300.0))
    for temperature in (300.0, 317.15, 318.15, 340.0):
        assert np.isfinite(jax.grad(chiller.performance)(temperature, 300.0))


# The median water-cooled chiller of experiments/14_cooling.
WATER_COOLED = LiftChiller(0.906, 23.5, 6.0, 293.15, 0.6, 0.162, 0.426)


def test_chillers_gain_two_percent_per_kelvin_of_supply_and_lose_two_and_a_half_outside():
    # 1 / T + 1 / (T_h - T + a) at 9 and 25 °C: 0.35 + 2.53 %/K for supply; -2.53 %/K outside, as 326 chillers have it.
    def log_cop(supply, condenser):
        return jnp.log(WATER_COOLED.performance(supply, condenser))

    by_supply, by_condenser = jax.grad(log_cop, (0, 1))(282.15, 298.15)
    np.testing.assert_allclose([by_supply, by_condenser], [0.02886, -0.02532], atol=1e-5)


def test_lift_chiller_is_held_beyond_its_fit():
    warmest = WATER_COOLED.performance(293.15, 305.15)
    assert WATER_COOLED.performance(310.0, 305.15) == warmest  # no machine makes 37 °C water; it mixes 20 °C water
    coldest_condenser = WATER_COOLED.performance(280.15, 286.15)
    assert WATER_COOLED.performance(280.15, 250.0) == coldest_condenser
    for supply, condenser in [(280.0, 250.0), (293.15, 299.15), (330.0, 330.0)]:
        assert np.all(np.isfinite(jax.grad(WATER_COOLED.performance, (0, 1))(supply, condenser)))


@given(load=st.floats(0.0, 1.0))
@settings(max_examples=25, deadline=None)
def test_part_load_draws_at_most_full_power(load):
    assert 0.162 - 1e-6 <= part_load_power(load, 0.162, 0.426) <= 1.0 + 1e-6
    np.testing.assert_allclose(part_load_power(load, 0.0, 0.0), load, atol=1e-6)
