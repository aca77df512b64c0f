"""Temperature and humidity of the outside air over the hours of a year."""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, real
from energymodel.ranges import ABSOLUTE, DEGREES

LEAST_SPREAD = 0.1
"""Smallest spread of days [K]: weather that never changes has none, and no slope."""
HOT_DAY = 2.0
"""Standard deviations by which a hot day, for which chillers are sized, is warmer than the mean of its month."""
YEAR_NODES = tuple(math.cos(math.pi * (2 * k + 1) / 8) for k in range(4))
DAY_NODES = tuple(math.cos(math.pi * (2 * k + 1) / 4) for k in range(2))
"""Cosines of equally spaced phases of a year and a day: their mean is that over all phases for polynomials of degree
7 and 3 [Abramowitz & Stegun 1964, eq. 25.4.38]."""


Result = TypeVar("Result")


class Hour(NamedTuple):
    """Mean outside air at a time of the year and the day [K], and how days scatter about it."""

    dry_bulb: Numeric
    wet_bulb: Numeric
    spread: Numeric


class Weather(eqx.Module):
    """Weather of a place: a wave over the year, a wave over the day, and days that scatter about both.

    `theta = theta_0 + A_y cos(year) + A_d cos(day)` for dry and wet bulb alike [definition]. Fitted to month-by-hour
    means of 15 places to 0.7 to 2.2 K (dry bulb) and 0.4 to 1.9 K (wet bulb) in the root mean square; the share of free
    cooling of a year is within 2 points (experiments/14_cooling).
    """

    dry_bulb: Real = real("K", doc="mean of the year", within=ABSOLUTE)
    dry_bulb_year: Real = real("K", doc="warmest month above the mean", difference=True, within=DEGREES)
    dry_bulb_day: Real = real("K", doc="warmest hour above the mean of the day", difference=True, within=DEGREES)
    wet_bulb: Real = real("K", doc="mean of the year", within=ABSOLUTE)
    wet_bulb_year: Real = real("K", doc="warmest month above the mean", difference=True, within=DEGREES)
    wet_bulb_day: Real = real("K", doc="warmest hour above the mean of the day", difference=True, within=DEGREES)
    spread: Real = real(
        "K", doc="standard deviation of days about the mean of month and hour", difference=True, within=DEGREES
    )

    def hours(self) -> list[Hour]:
        """Hours that stand for the year, with equal weight."""
        return [self._hour(year, day) for year in YEAR_NODES for day in DAY_NODES]

    def year_mean(self, of_hour: Callable[[Hour], Result]) -> Result:
        """Mean over the year of what a function makes of each hour."""
        results = [of_hour(hour) for hour in self.hours()]
        return jax.tree.map(lambda *values: sum(values[1:], start=values[0]) / len(values), *results)

    def hottest(self) -> Hour:
        """The warmest hour of the warmest month, in the mean of its days."""
        return self._hour(1.0, 1.0)

    def hot_day(self) -> Hour:
        """The same on a day two standard deviations warmer than the mean, as 2.6 % of logistic days are."""
        mean, warmer = self.hottest(), HOT_DAY * jnp.asarray(self.spread)
        return Hour(mean.dry_bulb + warmer, mean.wet_bulb + warmer, LEAST_SPREAD)

    def _hour(self, year: float, day: float) -> Hour:
        return Hour(
            dry_bulb=self.dry_bulb + self.dry_bulb_year * year + self.dry_bulb_day * day,
            wet_bulb=self.wet_bulb + self.wet_bulb_year * year + self.wet_bulb_day * day,
            spread=self.spread,
        )
