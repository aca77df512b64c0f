"""Weather: do a few hours stand for the year?"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from energymodel.physics.weather import Weather

TEXAS = Weather(293.55, 10.42, 4.12, 289.01, 8.88, 1.81, 3.9)


@given(year=st.floats(0.0, 20.0), day=st.floats(0.0, 10.0))
def test_hours_have_mean_and_variance_of_both_waves(year, day):
    weather = Weather(290.0, year, day, 285.0, year, day, 3.0)
    np.testing.assert_allclose(weather.year_mean(lambda hour: hour.dry_bulb), 290.0, rtol=1e-12)
    variance = weather.year_mean(lambda hour: (hour.dry_bulb - 290.0) ** 2)
    np.testing.assert_allclose(variance, (year**2 + day**2) / 2, atol=1e-9)  # of a cosine: A^2 / 2
    np.testing.assert_allclose([np.subtract(hour.wet_bulb, hour.dry_bulb) for hour in weather.hours()], -5.0, atol=1e-9)


def test_the_hottest_hour_is_above_all_others():
    hottest = TEXAS.hottest()
    np.testing.assert_allclose(hottest.dry_bulb, 293.55 + 10.42 + 4.12)
    for hour in TEXAS.hours():
        assert np.less(hour.dry_bulb, hottest.dry_bulb)
        assert np.less(hour.wet_bulb, hottest.wet_bulb)
    assert all(hour.spread == 3.9 for hour in TEXAS.hours())
