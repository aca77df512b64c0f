import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.economics.series import series_at, series_mean, series_total
from gradients import check_grads

TIMES = np.asarray([0.0, 2.0, 5.0, 6.0])
knot_values = st.lists(st.floats(0.0, 10.0), min_size=4, max_size=4)


def test_constant_series_are_price_times_power_times_time():
    np.testing.assert_allclose(series_total(TIMES, jnp.full(4, 3.0), jnp.full(4, 7.0)), 3.0 * 7.0 * 6.0, rtol=1e-14)


@settings(max_examples=25, deadline=None)
@given(values=knot_values, powers=knot_values)
def test_total_is_the_integral_of_the_interpolated_product(values, powers):
    # Simpson's rule is exact for the quadratic product within each segment.
    values, powers = jnp.asarray(values), jnp.asarray(powers)

    def product(t):
        return series_at(t, TIMES, values) * series_at(t, TIMES, powers)

    left, right = TIMES[:-1], TIMES[1:]
    simpson = jnp.sum((right - left) / 6 * (product(left) + 4 * product((left + right) / 2) + product(right)))
    np.testing.assert_allclose(series_total(TIMES, values, powers), simpson, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(series_total(TIMES, values, powers), series_total(TIMES, powers, values), rtol=1e-12)


@settings(max_examples=25, deadline=None)
@given(values=knot_values, time=st.floats(-5.0, 15.0))
def test_mean_and_interpolation_lie_between_the_extremes(values, time):
    values = jnp.asarray(values)
    for inside in (series_mean(TIMES, values), series_at(time, TIMES, values)):
        assert jnp.min(values) - 1e-12 <= inside <= jnp.max(values) + 1e-12


def test_running_when_energy_is_cheap_costs_less():
    price = jnp.asarray([1.0, 2.0, 3.0, 4.0])
    early, late = jnp.asarray([2.0, 1.5, 1.0, 0.5]), jnp.asarray([0.5, 1.0, 1.5, 2.0])
    assert series_total(TIMES, price, early) / series_mean(TIMES, early) < series_total(
        TIMES, price, late
    ) / series_mean(TIMES, late)


def test_series_gradient():
    values, powers = jnp.asarray([1.0, 3.0, 2.0, 5.0]), jnp.asarray([2.0, 2.0, 4.0, 1.0])
    check_grads(series_total, (TIMES, values, powers), order=1, modes=("fwd", "rev"))
    check_grads(series_mean, (TIMES, values), order=1, modes=("fwd", "rev"))
    check_grads(lambda t, v: series_at(t, TIMES, v), (jnp.asarray(3.3), values), order=1, modes=("fwd", "rev"))
