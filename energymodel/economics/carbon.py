"""Carbon emitted by a run: operational, and embodied in its hardware.

Shared arguments: `energy` E of the facility [J]; `intensity` CI of the grid [kg/J] and `chip_carbon` e_emb, embodied in
one chip [kg], CO2 equivalents; `chips` n [1]; `time` t of the run and service `life` of chips [s]; `utilization` u,
share of the life in use, above 0 [1].
"""

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, real
from energymodel.ranges import ABOVE_ZERO, SHARE_ABOVE_ZERO, Range


def operational_carbon(energy: Numeric, intensity: Numeric) -> Values:
    """Operational carbon [kg], `m = CI E` [Patterson et al. 2021]."""
    return jnp.asarray(intensity) * energy


def embodied_carbon(chip_carbon: Numeric, chips: Numeric, time: Numeric, life: Numeric, utilization: Numeric) -> Values:
    """A run's share of the embodied carbon of its chips [kg], `m = n e_emb t / (life u)` [Faiz et al. 2024]."""
    return jnp.asarray(chip_carbon) * chips * (time / (jnp.asarray(life) * utilization))


class Carbon(eqx.Module):
    """Carbon accounting: grid carbon intensity, and the life over which embodied carbon is written off."""

    intensity: Real = real("kg/J", doc="carbon intensity of the grid, CO2 equivalents")
    chip_life: Real = real("s", doc="service life", within=ABOVE_ZERO)
    utilization: Real = real("1", doc="share of the life in use", within=SHARE_ABOVE_ZERO)
    embodied_multiplier: Real = real(
        "1", doc="server and network with the chip, per carbon of the chip", within=Range(0.0, 1e3)
    )

    def operational(self, energy: Numeric) -> Values:
        """Carbon [kg] of an energy [J]."""
        return operational_carbon(energy, self.intensity)

    def embodied(self, chip_carbon: Numeric, chips: Numeric, time: Numeric) -> Values:
        """Embodied carbon [kg] of a run of `time` [s] on `chips` chips of `chip_carbon` [kg] each."""
        with_server = jnp.asarray(chip_carbon) * self.embodied_multiplier
        return embodied_carbon(with_server, chips, time, self.chip_life, self.utilization)
