"""Cost, carbon and series of prices: parts, limits, slopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energymodel.economics import cost
from energymodel.economics.carbon import Carbon, embodied_carbon, operational_carbon
from energymodel.economics.cost import pause_price

# docs/physics.md B9
OWNED = cost.OwnedPrice(
    server_multiplier=1.5,
    interest_rate=0.08,
    life=4 * cost.YEAR,
    utilization=0.9,
    electricity=0.08 / 3.6e6,
    demand_charge=15 / (1000 * 730 * 3600),
    facility_price=11.0,
    facility_life=15 * cost.YEAR,
    delay_cost=0.01,
    maintenance=0.06,
)
RENTED = cost.RentedPrice(chip_time=2 / 3600, delay_cost=0.01)
RUN = cost.Usage(chip_price=30e3, chips=16.0, time=1e6, energy=1.6e10, power=2e4)


def test_recovery_factor_pays_back_the_price_and_joins_its_series():
    # The present value of n payments is the price: what the formula is derived from.
    rate, years = 0.08, 7
    payment = cost.capital_recovery_factor(rate, years * cost.YEAR)
    np.testing.assert_allclose(sum(payment / (1 + rate) ** k for k in range(1, years + 1)), 1.0, rtol=1e-12)
    np.testing.assert_allclose(cost.capital_recovery_factor(0.0, 3 * cost.YEAR), 1 / 3, rtol=1e-14)
    # Slope at zero: (n + 1) / (2 n).
    np.testing.assert_allclose(jax.grad(cost.capital_recovery_factor)(0.0, 3 * cost.YEAR), 4 / 6, rtol=1e-12)
    below, above = cost.capital_recovery_factor(jnp.asarray([1e-4 * (1 - 1e-9), 1e-4 * (1 + 1e-9)]), 15 * cost.YEAR)
    np.testing.assert_allclose(below, above, rtol=1e-9)


@given(rate=st.floats(0.0, 0.3), more=st.floats(1e-3, 0.1), years=st.floats(1.0, 30.0))
def test_recovery_factor_rises_with_interest(rate, more, years):
    assert cost.capital_recovery_factor(rate + more, years * cost.YEAR) > cost.capital_recovery_factor(
        rate, years * cost.YEAR
    )


def test_costs_and_carbon_are_the_sums_of_their_parts():
    parts = [
        1e6 * cost.capital_rate(30e3 * 16 * 1.5, 0.08, 4 * cost.YEAR, 0.9),
        1e6 * 43_200 / (31_536_000 * 0.9),  # repairs: 6 % of 720,000 USD a year
        1e6 * cost.capital_rate(11.0 * 2e4, 0.08, 15 * cost.YEAR, 0.9),
        1.6e10 * 0.08 / 3.6e6,
        2e4 * 1e6 * 15 / (1000 * 730 * 3600),
        1e6 * 0.01,
    ]
    np.testing.assert_allclose(OWNED.cost(RUN), sum(parts), rtol=1e-14)
    np.testing.assert_allclose(CARBON.operational(1e9), operational_carbon(1e9, 0.35 / 3.6e6), rtol=1e-14)
    np.testing.assert_allclose(
        CARBON.embodied(150.0, 8.0, 1e6), 1.5 * embodied_carbon(150.0, 8.0, 1e6, 4 * cost.YEAR, 0.8), rtol=1e-14
    )
    assert RENTED.cost(RUN) == RENTED.cost(RUN._replace(energy=0.0, power=0.0))
    np.testing.assert_allclose(RENTED.cost(RUN), 16.0 * 1e6 * 2 / 3600 + 1e4, rtol=1e-14)


@pytest.mark.parametrize("price", [OWNED, RENTED])
def test_cost_is_homogeneous_in_fleet_and_load(price):
    # Doubling chips, energy and power doubles everything but the value of time.
    twice = RUN._replace(chips=32.0, energy=3.2e10, power=4e4)
    delay = 1e6 * 0.01
    np.testing.assert_allclose(price.cost(twice) - delay, 2 * (price.cost(RUN) - delay), rtol=1e-13)


def test_single_precision():
    with jax.enable_x64(False):
        price = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), OWNED)
        value, gradient = jax.value_and_grad(lambda p: p.cost(RUN))(price)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, OWNED.cost(RUN), rtol=1e-5)
    assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(gradient))


# docs/physics.md B9: 0.35 kg/kWh, 4 years, u = 0.8
CARBON = Carbon(intensity=0.35 / 3.6e6, chip_life=4 * cost.YEAR, utilization=0.8, embodied_multiplier=1.5)


def test_at_the_pause_price_a_pause_neither_saves_nor_costs():
    held, price, running, paused = 3.0, 0.2, 11.0, 2.0
    now = pause_price(held, price, running, paused)
    run_now = now * running
    run_later = now * paused + held + price * running
    np.testing.assert_allclose(run_now, run_later, rtol=1e-14)
    assert now > price
    assert (
        pause_price(0.0, price, running, 0.0) == price
    )  # nothing held, nothing drawn: any dearer hour is worth a pause
