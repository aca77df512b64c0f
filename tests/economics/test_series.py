import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.economics.series import HOUR, pause_price, series_total

steps = st.lists(st.floats(0.0, 10.0), min_size=4, max_size=4)


def test_constant_series_are_price_times_power_times_time():
    np.testing.assert_allclose(series_total(jnp.full(4, 3.0), jnp.full(4, 7.0)), 3.0 * 7.0 * 4.0 * HOUR, rtol=1e-14)


@settings(max_examples=25, deadline=None)
@given(values=steps, powers=steps)
def test_halves_of_a_step_cost_as_much_as_the_step(values, powers):
    values, powers = jnp.asarray(values), jnp.asarray(powers)
    halves = series_total(jnp.repeat(values, 2), jnp.repeat(powers, 2), 1.5)
    np.testing.assert_allclose(halves, series_total(values, powers, 3.0), rtol=1e-12, atol=1e-12)


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
