"""Electric power of chillers.

Shared arguments: `supply_temperature` T [K]; `condenser_temperature` T_h of what cools the condenser, outside air or
tower water [K]; `load`, heat removed over capacity of all machines, x [1]; `heat` Q that they remove and `capacity`
Q_plant, above 0 [W]; `performance` COP above 0, heat removed per electric work [1].
"""

import abc

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, degrees, real, share
from energymodel.ranges import ABOVE_ZERO, ABSOLUTE, SHARE_ABOVE_ZERO


def lift_cop(lift: Numeric, rated_cop: Numeric, rated_lift: Numeric, scale: Numeric) -> Values:
    """Full-load fit to machines [1], `COP = COP_r exp((L_r - L) / L_0)` [definition].

    Fitted to 228 chillers at 7 to 12 °C of water, 15 to 35 °C of air or 18 to 30 °C of tower water
    (experiments/14_cooling): with one reading of a machine known, its others have mean errors of 2.5 % (air) and 3.9 %
    (water). An ideal cycle, `T / L`, rises faster at low lift than compressors do.

    **Arguments:**

    - `lift`: of the heat, from water to what cools the condenser, `L = T_h - T` [K].
    - `rated_cop`, `rated_lift`: a reading of the machine, COP_r [1] at L_r [K].
    - `scale`: lift that divides the COP by e, L_0 [K].
    """
    return jnp.exp((rated_lift - jnp.asarray(lift)) / scale) * rated_cop


def part_load_power(load: Numeric, half: Numeric, quarter: Numeric) -> Values:
    """Power of a chiller over that at full load, `p = c_0 + (1 - c_0 - c_2) x + c_2 x^2` [definition].

    The parabola has the power of the machine at half and at a quarter of its capacity. Machines differ so much that
    their median predicts another one no better than power in proportion to the load does (experiments/14_cooling).

    **Arguments:**

    - `load`: heat removed over capacity, x [1], 0.25 to 1.
    - `half`, `quarter`: power at half and at a quarter of the capacity [1].

    **Returns:** share [1], 1 at full load.
    """
    load, half, quarter = jnp.asarray(load), jnp.asarray(half), jnp.asarray(quarter)
    fixed = (8.0 * quarter + 1.0) / 3.0 - 2.0 * half
    quadratic = 2.0 * (1.0 + fixed) - 4.0 * half
    return load * (load * quadratic + (1.0 - fixed - quadratic)) + fixed


def plant_load(heat: Numeric, capacity: Numeric) -> Values:
    """Load of all machines of a plant, `x = Q / Q_plant` [definition].

    **Returns:** load [1]; above 1 the plant is too small.
    """
    return jnp.asarray(heat) / capacity


def plant_price(heat: Numeric, capacity: Numeric, price: Numeric) -> Values:
    """Price of a plant beyond one for all heat, which comes with the building, `C = c (Q_plant - Q)` [definition].

    **Returns:** price [USD], negative for a smaller plant.
    """
    return (jnp.asarray(capacity) - heat) * price


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

    rated_cop: Real = real("1", doc="heat over work at full load and the rated lift", within=ABOVE_ZERO)
    rated_lift: Real = degrees(doc="condenser coolant above supply at the rated COP")
    lift_scale: Real = real("K", doc="lift that divides the COP by e", difference=True, within=ABOVE_ZERO)
    minimum_lift: Real = degrees(doc="condenser coolant above supply, at least")
    maximum_temperature: Real = real("K", doc="warmest supply that the machine makes", within=ABSOLUTE)
    load: Real = real("1", doc="least heat over capacity of the machines that run", within=SHARE_ABOVE_ZERO)
    half_load_power: Real = share(doc="power at half of the capacity over power at full load")
    quarter_load_power: Real = share(doc="power at a quarter of the capacity over power at full load")

    def performance(self, supply_temperature: Numeric, condenser_temperature: Numeric, load: Numeric = 0.0) -> Values:
        """COP [1] at temperatures of supply and condenser coolant [K] and a load of all machines [1]."""
        supply = jnp.minimum(jnp.asarray(supply_temperature), self.maximum_temperature)
        lift = jnp.maximum(jnp.asarray(condenser_temperature) - supply, self.minimum_lift)
        full = lift_cop(lift, self.rated_cop, self.rated_lift, self.lift_scale)
        running = jnp.maximum(jnp.asarray(load), self.load)
        return full * running / part_load_power(running, self.half_load_power, self.quarter_load_power)
