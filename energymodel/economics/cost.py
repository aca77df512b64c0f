"""Cost of a run and of silicon: hardware, facility, electricity, demand charge, delay, dies; the price of a pause.

Shared arguments: `life`, n times 365 days over which a price is recovered [s]; `interest_rate` r for one year, above
-1 [1/year]; `utilization` u, share of its life in which equipment runs, above 0 [1].
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from energymodel.numerics import Numeric, Real, Values, real
from energymodel.ranges import ABOVE_ZERO, SHARE_ABOVE_ZERO, Range

YEAR = 8760.0 * 3600.0
"""Accounting year of 365 days [s], the convention of hourly prices."""

_SERIES_BELOW = 1e-4
HOUR = 3600.0
"""Step of hourly series [s]."""


def capital_recovery_factor(interest_rate: Numeric, life: Numeric) -> Values:
    """Yearly payment per unit of capital [1/year], `CRF = r (1 + r)^n / ((1 + r)^n - 1)` [Sullivan et al. 2015, ch. 4].

    Payments at the end of each of n years. At zero interest it is straight-line depreciation, `1/n`; below a rate of
    1e-4 the series `1/n + (n+1)/(2n) r + (n^2-1)/(12n) r^2` replaces it.
    """
    rate, years = jnp.asarray(interest_rate), jnp.asarray(life) / YEAR
    small = jnp.abs(rate) < _SERIES_BELOW
    safe = jnp.where(small, 1.0, rate)
    series = 1.0 / years + (years + 1.0) / (2.0 * years) * rate + (years**2 - 1.0) / (12.0 * years) * rate**2
    return jnp.where(small, series, safe / -jnp.expm1(-years * jnp.log1p(safe)))


def capital_rate(price: Numeric, interest_rate: Numeric, life: Numeric, utilization: Numeric) -> Values:
    """Cost of holding equipment for a second of use [USD/s], `c = C_0 CRF / (year u)` [Barroso et al. 2018, ch. 6].

    Productive hours pay for idle ones.

    **Arguments:**

    - `price`: purchase price C_0 [USD].
    """
    return capital_recovery_factor(interest_rate, life) * price / (YEAR * jnp.asarray(utilization))


class Usage(NamedTuple):
    """What a run is charged for.

    - `chip_price`: purchase price of one chip [USD].
    - `chips`: number of chips [1].
    - `time`: calendar time [s].
    - `energy`: energy of the facility over that time [J].
    - `power`: peak power that the facility must provide [W].
    - `link_price`: purchase price per chip of the links and switch ports that the chip does not include [USD].
    - `plant_price`: purchase price per chip of what the building has beyond its price per watt [USD].
    """

    chip_price: Numeric
    chips: Numeric
    time: Numeric
    energy: Numeric
    power: Numeric
    link_price: Numeric = 0.0
    plant_price: Numeric = 0.0


class AbstractPrice(eqx.Module):
    """Price model of a run."""

    @abc.abstractmethod
    def cost(self, usage: Usage) -> Values:
        """Cost of a run [USD]."""


class OwnedPrice(AbstractPrice):
    """Owned chips in an owned facility: capital with interest, energy, demand charge, and the value of time.

    `C = t [n (C_chip m + C_link) (CRF + k)/(year u) + d P + (C_W P + n C_plant) CRF_f/(year u) + v_t] + p_e E`; chips,
    links and facility share the utilization u, and k keeps servers and links in repair.
    """

    server_multiplier: Real = real(
        "1", doc="price of the server with the chip, per price of the chip", within=Range(0.0, 1e3)
    )
    interest_rate: Real = real("1", doc="interest for one year", within=Range(0.0, 10.0))
    life: Real = real("s", doc="time over which chips and servers are recovered", within=ABOVE_ZERO)
    utilization: Real = real("1", doc="share of its life in which the equipment runs", within=SHARE_ABOVE_ZERO)
    electricity: Real = real("USD/J", doc="flat price of energy")
    demand_charge: Real = real("USD/(W s)", doc="charge on peak power")
    facility_price: Real = real("USD/W", doc="building, power and cooling plant per watt provided")
    facility_life: Real = real("s", doc="time over which the facility is recovered", within=ABOVE_ZERO)
    delay_cost: Real = real("USD/s", doc="value of finishing earlier")
    maintenance: Real = real(
        "1", 0.0, doc="repairs and spares for one year, per price of servers and links", within=Range(0.0, 10.0)
    )

    def cost(self, usage: Usage) -> Values:
        """See `AbstractPrice.cost`."""
        server_price = (jnp.asarray(usage.chip_price) * self.server_multiplier + usage.link_price) * usage.chips
        hardware = capital_rate(server_price, self.interest_rate, self.life, self.utilization)
        hardware += server_price * self.maintenance / (YEAR * jnp.asarray(self.utilization))
        building = jnp.asarray(self.facility_price) * usage.power + jnp.asarray(usage.plant_price) * usage.chips
        plant = capital_rate(building, self.interest_rate, self.facility_life, self.utilization)
        held = hardware + plant + self.demand_charge * jnp.asarray(usage.power) + self.delay_cost
        return held * usage.time + self.electricity * jnp.asarray(usage.energy)


class RentedPrice(AbstractPrice):
    """Rented chips, energy included, and the value of time: `C = t (p n + v_t)`."""

    chip_time: Real = real("USD/s", doc="price of one chip")
    delay_cost: Real = real("USD/s", doc="value of finishing earlier")

    def cost(self, usage: Usage) -> Values:
        """See `AbstractPrice.cost`; the rent covers chip price, links, plant, energy and power."""
        return (self.chip_time * jnp.asarray(usage.chips) + self.delay_cost) * usage.time


def pause_price(held: Numeric, price: Numeric, running_power: Numeric, paused_power: Numeric) -> Values:
    """Price of energy above which an hour's pause pays, `p* = (c + p P_r) / (P_r - P_0)` [derivation: one hour later].

    A pause saves `p* (P_r - P_0)` now and adds an hour at the end, which costs c to hold the equipment and `p P_r` to
    run it. The restart after a pause comes on top.

    **Arguments:**

    - `held`: cost of holding the equipment, c [USD/s].
    - `price`: of energy in the hour that a pause adds, p [USD/J].
    - `running_power`, `paused_power`: of the facility, P_r above P_0 [W].

    **Returns:** price [USD/J], above p wherever c is not negative.
    """
    power = jnp.asarray(running_power)
    return (jnp.asarray(held) + price * power) / (power - paused_power)


def die_yield(area: Numeric, defect_density: Numeric, clustering: Numeric) -> Values:
    """Share of dies without defects, `Y = (1 + A D / c)^-c` [Stapper, Armstrong & Saji 1983, negative binomial].

    Units that may be switched off raise it; then A is the area that must be whole.

    **Arguments:**

    - `area`: A of a die [m^2].
    - `defect_density`: D [1/m^2]; 0.1 per cm^2 for a mature process.
    - `clustering`: c, 2 to 3; large for defects that do not cluster [1].

    **Returns:** yield [1], in (0, 1].
    """
    defects = jnp.asarray(area) * defect_density / clustering
    return jnp.exp(-jnp.asarray(clustering) * jnp.log1p(defects))


def good_silicon(area: Numeric, largest_die: Numeric, defect_density: Numeric, clustering: Numeric) -> Array:
    """Area of wafer per chip [m^2], `A / Y(A / max(1, A / A_1))` [definition].

    A chip larger than what one exposure prints is made of several dies.

    **Arguments:**

    - `area`: A of all dies of the chip [m^2].
    - `largest_die`: A_1 [m^2]; 858 mm^2.
    - the others: as in `die_yield`.
    """
    silicon = jnp.asarray(area)
    each = silicon / jnp.maximum(1.0, silicon / largest_die)
    return silicon / die_yield(each, defect_density, clustering)


class SiliconCost(eqx.Module):
    """Prices and carbon of what a chip is made of. The price of a chip stays in proportion to the cost of its parts."""

    area_price: Real = real("USD/m^2", doc="of processed wafer", within=ABOVE_ZERO)
    memory_price: Real = real("USD/B")
    power_price: Real = real("USD/W", doc="of rated power: regulators, package, heat sink")
    package_price: Real = real("USD/m^2", doc="of interposer and assembly, per die area")
    largest_die: Real = real("m^2", doc="that one exposure prints", within=ABOVE_ZERO)
    defect_density: Real = real("1/m^2")
    clustering: Real = real("1", doc="of defects", within=ABOVE_ZERO)
    area_carbon: Real = real("kg/m^2", doc="of processed wafer, CO2 equivalents")
    memory_carbon: Real = real("kg/B", doc="CO2 equivalents")
    price_growth: Real = real("1", doc="price of wafer area, per generation", within=ABOVE_ZERO)
    carbon_growth: Real = real("1", doc="carbon of wafer area, per generation", within=ABOVE_ZERO)

    def wafer(self, area: Numeric) -> Values:
        """Area of wafer for a chip with so much die area, with the dies that fail [m^2]."""
        return good_silicon(area, self.largest_die, self.defect_density, self.clustering)

    def cost(self, area: Numeric, memory: Numeric, power: Numeric, generations: Numeric) -> Values:
        """Cost of the parts [USD] of a chip with a die area [m^2], a memory [B] and a rated power [W]."""
        wafer = self.area_price * self.price_growth ** jnp.asarray(generations) * self.wafer(area)
        parts = wafer + self.package_price * jnp.asarray(area)
        return parts + self.memory_price * jnp.asarray(memory) + self.power_price * jnp.asarray(power)

    def carbon(self, area: Numeric, memory: Numeric, generations: Numeric) -> Values:
        """Embodied carbon of dies and memory [kg]."""
        wafer = self.area_carbon * self.carbon_growth ** jnp.asarray(generations) * self.wafer(area)
        return wafer + self.memory_carbon * jnp.asarray(memory)
