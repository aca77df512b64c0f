"""Electric power of chillers.

Shared arguments: `supply_temperature` T [K]; `condenser_temperature` T_h of what cools the condenser, outside air or
tower water [K]; `load`, heat removed over capacity of all machines, x [1]; `heat` Q that they remove [W]; `capacity`
Q_plant, 0 for the plant that comes with the building and suits any heat [W]; `performance` COP above 0, heat removed
per electric work [1].
"""

import abc

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, degrees, real, share
from energymodel.ranges import ABSOLUTE, SHARE_ABOVE_ZERO


def lift_cop(
    supply_temperature: Numeric, condenser_temperature: Numeric, quality: Numeric, exchange: Numeric
) -> Values:
    """Full-load fit to machines [1], `COP = f T / (T_h - T + a)` [derivation: below].

    An ideal cycle whose refrigerant is colder than the water and warmer than what cools the condenser, by `a` together,
    times what compressor and motor make of it. Fitted to
    228 chillers at 7 to 12 °C of water, 15 to 35 °C of air or 18 to 30 °C of tower water, to 3 % within a chiller
    (experiments/14_cooling).

    **Arguments:**

    - `quality`: share of the ideal COP that compressor and motor reach, f [1].
    - `exchange`: temperature lost in both heat exchangers, a [K], above `T - T_h`.
    """
    supply = jnp.asarray(supply_temperature)
    return supply * quality / (jnp.asarray(condenser_temperature) - supply + exchange)


def part_load_power(load: Numeric, fixed: Numeric, quadratic: Numeric) -> Values:
    """Power of a chiller over that at full load, `p = c_0 + (1 - c_0 - c_2) x + c_2 x^2` [definition].

    Fitted to loads of 0.25 to 1 of water-cooled chillers (experiments/14_cooling).

    **Arguments:**

    - `load`: heat removed over capacity, x [1], 0 to 1.
    - `fixed`: c_0 [1], what it draws at no load.
    - `quadratic`: c_2 [1].

    **Returns:** share [1], 1 at full load.
    """
    load = jnp.asarray(load)
    return load**2 * quadratic + load * (1.0 - jnp.asarray(fixed) - quadratic) + fixed


def plant_load(heat: Numeric, capacity: Numeric) -> Values:
    """Load of all machines of a plant, `x = Q / Q_plant` [definition].

    **Returns:** load [1], 0 for such a plant; above 1 the plant is too small.
    """
    sized = jnp.asarray(capacity) > 0.0
    return jnp.where(sized, heat, 0.0) / jnp.where(sized, capacity, 1.0)


def plant_price(heat: Numeric, capacity: Numeric, price: Numeric) -> Values:
    """Price of a plant beyond one for all heat, which comes with the building, `C = c (Q_plant - Q)` [definition].

    **Returns:** price [USD], negative for a smaller plant.
    """
    sized = jnp.asarray(capacity) > 0.0
    return jnp.where(sized, jnp.asarray(capacity) - heat, 0.0) * price


def chiller_power(heat: Numeric, performance: Numeric) -> Values:
    """Electric power that removes heat [W], `P = Q / COP` [definition]."""
    return jnp.asarray(heat) / performance


class AbstractChiller(eqx.Module):
    """Something that removes heat at a supply temperature for electric work."""

    @abc.abstractmethod
    def performance(self, supply_temperature: Numeric, condenser_temperature: Numeric, load: Numeric = 0.0) -> Values:
        """COP [1] at temperatures of supply and condenser coolant [K] and a load of all machines [1]."""


class LiftChiller(AbstractChiller):
    """Chillers as catalogs state them, see `lift_cop`, that run at a part load.

    Of several machines so many stop that those which run have at least the stated `load`; with all of them running the
    load is that of the plant, `x = max(x_stated, Q / Q_plant)`.
    Beyond its fit the law is held: water is made at `maximum_temperature` at the warmest, and the condenser stays at
    least `minimum_lift` above it.
    """

    quality: Real = real("1", doc="share of the ideal COP that compressor and motor reach", within=SHARE_ABOVE_ZERO)
    exchange: Real = degrees(doc="temperature lost in both heat exchangers")
    minimum_lift: Real = degrees(doc="condenser coolant above supply, at least")
    maximum_temperature: Real = real("K", doc="warmest supply that the machine makes", within=ABSOLUTE)
    load: Real = real("1", doc="least heat over capacity of the machines that run", within=SHARE_ABOVE_ZERO)
    fixed_work: Real = share(doc="power at no load over power at full load")
    quadratic_work: Real = share(doc="curvature of power with load")

    def performance(self, supply_temperature: Numeric, condenser_temperature: Numeric, load: Numeric = 0.0) -> Values:
        """COP [1] at temperatures of supply and condenser coolant [K] and a load of all machines [1]."""
        supply = jnp.minimum(jnp.asarray(supply_temperature), self.maximum_temperature)
        condenser = jnp.maximum(jnp.asarray(condenser_temperature), supply + self.minimum_lift)
        full = lift_cop(supply, condenser, self.quality, self.exchange)
        running = jnp.maximum(jnp.asarray(load), self.load)
        return full * running / part_load_power(running, self.fixed_work, self.quadratic_work)
