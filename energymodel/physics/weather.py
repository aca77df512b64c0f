"""Temperature and humidity of the outside air over the hours of a year."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, degrees, real
from energymodel.ranges import ABSOLUTE

LEAST_SPREAD = 0.1
"""Smallest spread of days [K]: weather that never changes has none, and no slope."""
HOT_DAY = 2.0
"""Standard deviations by which a hot day, for which chillers are sized, is warmer than the mean of its month."""
YEAR_NODES, DAY_NODES = 4, 2
"""Equally spaced phases of a year and a day: the mean over them is that over all phases for polynomials of degree 7 and
3 in the cosine [Abramowitz & Stegun 1964, eq. 25.4.38]."""


Result = TypeVar("Result")


class Hour(NamedTuple):
    """Mean outside air at a time of the year and the day [K], and how days scatter about it."""

    dry_bulb: Numeric
    wet_bulb: Numeric
    spread: Numeric


ONE_SPREAD: Any = Hour._make((0, 0, None))  # axes of hours


class Weather(eqx.Module):
    """Weather of a place: a wave over the year, a wave over the day, and days that scatter about both.

    `theta = theta_0 + A_y cos(year) + A_d cos(day)` for dry and wet bulb alike [definition]. Fitted to month-by-hour
    means of 15 places to 0.7 to 2.2 K (dry bulb) and 0.4 to 1.9 K (wet bulb) in the root mean square; the share of free
    cooling of a year is within 2 points (experiments/14_cooling).
    """

    dry_bulb: Real = real("K", doc="mean of the year", within=ABSOLUTE)
    dry_bulb_year: Real = degrees(doc="warmest month above the mean")
    dry_bulb_day: Real = degrees(doc="warmest hour above the mean of the day")
    wet_bulb: Real = real("K", doc="mean of the year", within=ABSOLUTE)
    wet_bulb_year: Real = degrees(doc="warmest month above the mean")
    wet_bulb_day: Real = degrees(doc="warmest hour above the mean of the day")
    spread: Real = degrees(doc="standard deviation of days about the mean of month and hour")

    def hours(self) -> Hour:
        """Hours that stand for the year, with equal weight [year, day]."""
        dtype = jnp.asarray(self.dry_bulb).dtype
        year, day = (
            jnp.cos(math.pi / count * (jax.lax.iota(jnp.int32, count).astype(dtype) + 0.5))
            for count in (YEAR_NODES, DAY_NODES)
        )
        return self._hour(year[:, None], day[None, :])

    def year_mean(self, of_hour: Callable[[Hour], Result]) -> Result:
        """Mean over the year of what a function makes of each hour."""
        each = jax.vmap(jax.vmap(of_hour, in_axes=(ONE_SPREAD,)), in_axes=(ONE_SPREAD,))
        return jax.tree.map(jnp.mean, each(self.hours()))

    def hottest(self) -> Hour:
        """The warmest hour of the warmest month, in the mean of its days."""
        return self._hour(1.0, 1.0)

    def hot_day(self) -> Hour:
        """The same on a day two standard deviations warmer than the mean, as 2.6 % of logistic days are."""
        mean, warmer = self.hottest(), HOT_DAY * jnp.asarray(self.spread)
        return Hour(mean.dry_bulb + warmer, mean.wet_bulb + warmer, LEAST_SPREAD)

    def _hour(self, year: Numeric, day: Numeric) -> Hour:
        return Hour(
            dry_bulb=self.dry_bulb + self.dry_bulb_year * year + self.dry_bulb_day * day,
            wet_bulb=self.wet_bulb + self.wet_bulb_year * year + self.wet_bulb_day * day,
            spread=self.spread,
        )
