"""Bandwidth of links between chips, contention, and energy of a transfer.

Shared arguments of a link: `payload` of a packet, positive, and its `overhead` of headers, checks and gaps [B];
`coding`, data bits per line bit, 64/66 for 64b/66b, `lanes` w and `protocol_efficiency` eta_p [1]; `lane_bandwidth` r,
line rate of a lane in one direction [B/s]; `collective_efficiency` eta_c, share of that rate that a collective library
reaches, 0.65 to 0.9 measured [1]. Of a transfer: `interface_energy` e_nic at each end, `switch_energy` e_switch of a
switch and `energy_per_bit` e [J/bit]; `mean_switches` S that it passes, one less than the links [1]; `volume` V [B].
"""

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Scalar, Values, p_norm, real
from energymodel.ranges import ABOVE_ZERO, SHARE_ABOVE_ZERO

BITS_PER_BYTE = 8.0


def protocol_efficiency(payload: Numeric, overhead: Numeric, coding: Numeric) -> Values:
    """Useful share of the line rate [1], `eta = payload / (payload + overhead) coding` [definition]."""
    data = jnp.asarray(payload)
    return data / (data + overhead) * jnp.asarray(coding)


def link_bandwidth(
    lanes: Numeric, lane_bandwidth: Numeric, protocol_efficiency: Numeric, collective_efficiency: Numeric
) -> Values:
    """Bandwidth of a chip's link in one direction [B/s], `bw = w r eta_p eta_c` [definition]."""
    return jnp.asarray(lanes) * lane_bandwidth * protocol_efficiency * collective_efficiency


def contended_bandwidth(
    injection: Numeric,
    bisection_links: Numeric,
    link_bandwidth: Numeric,
    nodes: Numeric,
    exponent: Numeric,
    crossing: Numeric = 1.0,
) -> Values:
    """Bandwidth per node across the bisection [B/s], `bw = [i^-p + (2 b l / (n x))^-p]^(-1/p)`.

    Half of the nodes send over the `b` links of the cut [Dally & Towles 2004, sec. 3.3]. The law itself is the minimum
    of both limits; the p-norm falls below it by at most `1 - 2^(-1/p)`.

    **Arguments:**

    - `injection`: i, bandwidth of a node into the network [B/s], positive.
    - `bisection_links`: b, links of the narrowest cut into halves [1], positive.
    - `link_bandwidth`: l, bandwidth of each of these in one direction [B/s], positive.
    - `nodes`: n [1].
    - `exponent`: p [1]; p -> infinity is the minimum.
    - `crossing`: x, share of the messages that cross the cut [1]: 1 is the worst case, 0.5 uniform random traffic.
    """
    i, b, line, n = map(jnp.asarray, (injection, bisection_links, link_bandwidth, nodes))
    return 1.0 / p_norm(exponent, 1.0 / i, 0.5 * n * crossing / (b * line))


def network_energy_per_bit(interface_energy: Numeric, mean_switches: Numeric, switch_energy: Numeric) -> Values:
    """Energy of a bit from chip to chip [J/bit], `e = 2 e_nic + S e_switch` [definition]."""
    return 2.0 * jnp.asarray(interface_energy) + jnp.asarray(mean_switches) * switch_energy


def network_energy(volume: Numeric, energy_per_bit: Numeric) -> Values:
    """Energy of a transfer [J], `E = 8 V e` [definition]."""
    return BITS_PER_BYTE * jnp.asarray(volume) * energy_per_bit


class Link(eqx.Module):
    """Link from one chip into a network, per direction.

    Power and price of `included_lanes` are in those of chip and node, as these are metered and sold with their links;
    other lanes add theirs, or save it.
    """

    lanes: Real = real("1", within=ABOVE_ZERO, integer=True)
    lane_bandwidth: Real = real("B/s", doc="line rate of a lane in one direction", within=ABOVE_ZERO)
    payload: Real = real("B", doc="data in a packet", within=ABOVE_ZERO)
    overhead: Real = real("B", doc="headers, checks and gaps of a packet")
    coding: Real = real("1", doc="data bits per line bit", within=SHARE_ABOVE_ZERO)
    efficiency: Real = real(
        "1", doc="share of the protocol's rate that a collective library reaches", within=SHARE_ABOVE_ZERO
    )
    latency: Real = real("s", doc="of one message, or of one step of a collective")
    energy: Real = real("J/bit", doc="from chip to chip, interfaces and switches included")
    lane_power: Real = real("W", doc="of a lane at rest or in use, on the side of the chip")
    included_lanes: Real = real("1", 0.0, doc="lanes whose power and price are in those of chip and node")
    lane_price: Real = real("USD", 0.0, doc="of a lane, on the side of the chip")

    def bandwidth(self) -> Scalar:
        """Bandwidth available to a collective [B/s]."""
        efficiency = protocol_efficiency(self.payload, self.overhead, self.coding)
        return link_bandwidth(self.lanes, self.lane_bandwidth, efficiency, self.efficiency)

    def power(self) -> Scalar:
        """Power of the lanes that chip and node do not include, idle or busy [W]."""
        return (jnp.asarray(self.lanes) - self.included_lanes) * self.lane_power

    def price(self) -> Scalar:
        """Price of the lanes that chip and node do not include [USD]."""
        return (jnp.asarray(self.lanes) - self.included_lanes) * self.lane_price

    def transfer_energy(self, volume: Numeric) -> Values:
        """Energy of sending a volume [J]."""
        return network_energy(volume, self.energy)
