"""Chillers: range, limits, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics.chiller import (
    CarnotChiller,
    QuadraticChiller,
    carnot_cop,
    chiller_power,
    free_cooling_fraction,
    quadratic_cop,
)
from gradients import check_grads

MOORE = QuadraticChiller(0.0068, 0.0008, 0.458, 283.15, 303.15)  # Moore et al. 2005, docs/physics.md B6


def test_quadratic_chiller_is_held_at_its_range():
    # 0.0068 x 100 + 0.008 + 0.458 = 1.146; 0.0068 x 900 + 0.024 + 0.458 = 6.602
    np.testing.assert_allclose(
        MOORE.performance(jnp.array([263.15, 283.15, 303.15, 323.15])), [1.146, 1.146, 6.602, 6.602]
    )
    np.testing.assert_allclose(MOORE.performance(298.15), 4.728)
    for supply in (263.15, 283.15, 303.15, 323.15):
        assert np.isfinite(jax.grad(MOORE.performance)(supply))


def test_carnot_chiller_is_a_share_of_the_ideal_and_bounded():
    np.testing.assert_allclose(carnot_cop(300.0, 330.0, 1.0), 10.0)
    chiller = CarnotChiller(0.45, 318.15)
    supply = jnp.array([280.0, 300.0, 317.0, 318.15, 340.0])
    assert np.all(np.isfinite(chiller.performance(supply)))
    assert np.all(np.diff(chiller.performance(supply)) > 0)
    for temperature in (300.0, 317.15, 318.15, 340.0):
        assert np.isfinite(jax.grad(chiller.performance)(temperature))


@given(supply=st.floats(250.0, 350.0), wet_bulb=st.floats(260.0, 305.0), warming=st.floats(0.0, 20.0))
@settings(max_examples=25, deadline=None)
def test_free_cooling_is_a_share_that_rises_with_supply(supply, wet_bulb, warming):
    share = free_cooling_fraction(supply, wet_bulb, 5.0, 1.5)
    assert 0 <= share <= free_cooling_fraction(supply + warming, wet_bulb, 5.0, 1.5) <= 1


def test_free_cooling_is_half_where_supply_meets_tower_water():
    assert free_cooling_fraction(295.0, 290.0, 5.0, 1.5) == 0.5


def test_ideal_chiller_needs_nothing():
    assert chiller_power(1e6, 1e12) == 1e-6


def test_gradients():
    check_grads(quadratic_cop, (298.15, 0.0068, 0.0008, 0.458), order=1, rtol=1e-4)
    check_grads(lambda t: MOORE.performance(t), (298.15,), order=2)
    check_grads(carnot_cop, (3.0, 5.0, 0.45), order=2)
    check_grads(chiller_power, (2.0, 3.0), order=2)
    check_grads(free_cooling_fraction, (3.0, 2.5, 0.1, 1.5), order=2)
