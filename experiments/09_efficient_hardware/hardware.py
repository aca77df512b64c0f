"""An accelerator whose operations cost a multiple of Landauer's bound, and its choices.

The multiple is that of a whole H100 of today, 6.163e8 `k_B T ln 2` per operation (docs/physics.md A0.8), divided by
the same factor as the energy of its logic. The laws are those of `energymodel/scenarios/near_limit.py` where it has
them: the balance of the H100 is kept, the leakage has the same exponent per volt. Here the voltage is a choice, so
that the speed of the transistors at a voltage comes in.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric
from energymodel.performance.caches import Sram, sram_access_energy
from energymodel.performance.network import Link
from energymodel.physics.limits import landauer_energy
from energymodel.scenarios.near_limit import thermal_voltage
from energymodel.system.accelerator import Accelerator
from energymodel.system.cluster import Network, Node, Software
from energymodel.system.training_system import TrainingSystem

TODAY = 6.163e8  # k_B T ln 2 per operation of a whole H100 at 700 W and 40 % of its peak, docs/physics.md A0.8
TEMPERATURE = 338.15  # K, of the junction at which energies are quoted, docs/physics.md B2
SLOPE_FACTOR = 1.2  # n of the transistors, as in the preset `near-limit`; assumed
THRESHOLD = 0.3  # V, of the transistors; assumed
SRAM = Sram(
    reference_size=8192.0,  # B
    reference_energy=1e-12 / 8.0,  # J/B: 10 pJ per 64 bit at 45 nm, a tenth of it at 5 nm, docs/physics.md B4
    reference_latency=1e-9,  # s, not used
    cell_area=0.021e-12,  # m^2, docs/physics.md B4
    array_efficiency=0.42,  # so that a megabyte takes 0.4 mm^2, docs/physics.md B4
    leakage_density=0.0,  # W/B: leakage goes with the area here
)
CACHE_ACCESSES = 1.0 / 64.0  # of the last cache per multiply-add: two elements, each used 128 times; assumed
ELEMENT = 2.0  # B
INNER_LANE_POWER = 1.3e-12 * 8.0 * 2.0 * 25e9  # W: NVLink 4 always on, 1.3 pJ/bit both ways, docs/physics.md B2.2
HOLDING_POWER = 10.0  # W of the fixed power: what the memory takes to keep its data; assumed
INNER_LATENCY, OUTER_LATENCY = 200e-9, 1e-6  # s, least: the presets `near-limit-node` and `near-limit-optical`


class Technology(eqx.Module):
    """How much better than today: logic (arithmetic, cache, control), and all the rest; 1 is today.

    `rest` divides the energy of a bit in memory and links and the power that keeps data, multiplies rates at the same
    power, and brings latencies towards the time of flight. `coupled` is 1 where rates and power of memory, links and
    host go with the size of the chip, 0 where they stay.
    """

    logic: Any
    rest: Any
    coupled: Any


class Choice(eqx.Module):
    """What a designer may choose: supply [V], units over an H100's [1], cache [B], lanes within and beyond nodes."""

    voltage: Any
    size: Any
    cache: Any
    inner_lanes: Any
    outer_lanes: Any


def current(voltage: Numeric) -> Float[Array, "..."]:
    """On-current up to a factor, `I = ln^2(1 + exp((V - V_t) / (2 n v_T)))` [Enz, Krummenacher & Vittoz 1995, EKV].

    Exponential below the threshold, with `n v_T` of gate voltage per factor e; the square law above.

    **Arguments:**

    - `voltage`: supply V [V].

    **Returns:** I [1].
    """
    slope = 2.0 * SLOPE_FACTOR * thermal_voltage(TEMPERATURE)
    return jax.nn.softplus((jnp.asarray(voltage) - THRESHOLD) / slope) ** 2


def speed(voltage: Numeric, reference: Numeric) -> Float[Array, "..."]:
    """Clock at a supply over that at the reference, `f / f_0 = (I(V) / V) / (I(V_0) / V_0)` [definition: t = C V / I].

    **Arguments:**

    - `voltage`, `reference`: V and V_0 [V].

    **Returns:** ratio [1].
    """
    return current(voltage) / voltage / (current(reference) / reference)


def cache_energy(cache: Numeric) -> Float[Array, "..."]:
    """Energy of the last cache per operation, `c e(S) w / 2`, two operations to a multiply-add [docs/physics.md B4].

    **Arguments:**

    - `cache`: capacity S [B].

    **Returns:** energy [J/FLOP], of today's technology at today's voltage.
    """
    access = sram_access_energy(cache, SRAM.reference_energy, SRAM.reference_size)
    return 0.5 * CACHE_ACCESSES * ELEMENT * access


def operation_energy(chip: Accelerator, technology: Technology, choice: Choice) -> Float[Array, "..."]:
    """Energy of an operation, `E = E_L + (E_0 / x - E_L) (V / V_0)^2`, E_L = n k_B T ln 2 [definition].

    What is above the bound of the n bits that an operation erases is `C V^2`; the bound does not fall with the voltage.

    **Arguments:**

    - `chip`: today's accelerator; its energy of an operation, with another cache, is E_0.
    - `technology`: the factor x of the logic.
    - `choice`: voltage and cache.

    **Returns:** E [J/FLOP].
    """
    today = chip.energy_per_flop - cache_energy(chip.cache_size) + cache_energy(choice.cache)
    bound = landauer_energy(chip.bits_per_flop, TEMPERATURE)
    return bound + (today / technology.logic - bound) * (choice.voltage / chip.reference_voltage) ** 2


def accelerator(chip: Accelerator, technology: Technology, choice: Choice, lanes: Numeric) -> Accelerator:
    """Today's accelerator with other technology and choices; `lanes` is today's number of lanes within a node."""
    ratio = choice.voltage / chip.reference_voltage
    rest_size = choice.size**technology.coupled
    # What a larger cache takes of the die, the units lack; leakage goes with the area.
    own_share, share = (SRAM.area(cache) / chip.die_area for cache in (chip.cache_size, choice.cache))
    units = choice.size * (1.0 - share) / (1.0 - own_share)
    area = choice.size * (1.0 - share) + share
    peak = chip.peak_flops * technology.logic * units * speed(choice.voltage, chip.reference_voltage)
    sensitivity = chip.leakage.voltage_sensitivity
    leakage = chip.leakage.power * area * ratio * jnp.exp(sensitivity * (ratio - 1.0))
    fixed = (chip.fixed_power - lanes * INNER_LANE_POWER - HOLDING_POWER) * rest_size
    fixed = fixed + HOLDING_POWER / technology.rest
    bandwidth = chip.memory_bandwidth * technology.rest * rest_size
    memory_energy = chip.memory_energy / technology.rest
    memory = 8.0 * memory_energy * chip.reference_memory_utilization * bandwidth
    dynamic = operation_energy(chip, technology, choice) * chip.gemm_efficiency * peak
    values = {
        "peak_flops": peak,
        "peak_flops_fp8": peak * chip.peak_flops_fp8 / chip.peak_flops,
        "peak_flops_fp4": peak * chip.peak_flops_fp4 / chip.peak_flops,
        "peak_flops_tf32": peak * chip.peak_flops_tf32 / chip.peak_flops,
        "peak_flops_fp32": peak * chip.peak_flops_fp32 / chip.peak_flops,
        "memory_bandwidth": bandwidth,
        "memory_energy": memory_energy,
        "cache_size": choice.cache,
        "fixed_power": fixed,
        "idle_power": chip.idle_power * (leakage + fixed) / (chip.leakage.power + chip.fixed_power),
        "busy_power": dynamic + leakage + fixed + memory,
        "product_latency": chip.product_latency / technology.logic,
        "launch_overhead": chip.launch_overhead / technology.logic,
        "overhead_time": chip.overhead_time / technology.logic,
    }
    chip = eqx.tree_at(lambda chip: chip.leakage.power, chip, leakage)
    return _replaced(chip, values)


def node(own: Node, cards: Link, technology: Technology, choice: Choice) -> Node:
    """Today's node with other links; the power of the host, less its network cards, goes with the rest."""
    rest_size = choice.size**technology.coupled
    host = own.overhead_power - own.chips * cards.included_lanes * cards.lane_power  # `network` counts all lanes
    link = _replaced(
        own.scale_up,
        {
            "lanes": choice.inner_lanes,
            "lane_bandwidth": own.scale_up.lane_bandwidth * technology.rest * rest_size,
            "lane_power": INNER_LANE_POWER * rest_size,
            "included_lanes": jnp.zeros(()),
            "energy": own.scale_up.energy / technology.rest,
            "latency": INNER_LATENCY + (own.scale_up.latency - INNER_LATENCY) / technology.rest,
        },
    )
    library = _replaced(
        own.collectives,
        {
            "start_latency": own.collectives.start_latency / technology.rest,
            "protocol_latency": own.collectives.protocol_latency / technology.rest,
        },
    )
    values = {
        "overhead_power": host * rest_size,
        "host_bandwidth": own.host_bandwidth * technology.rest * rest_size,
        "host_update_bandwidth": own.host_update_bandwidth * technology.rest * rest_size,
        "collectives": library,
    }
    return eqx.tree_at(lambda node: node.scale_up, _replaced(own, values), link)


def network(own: Network, technology: Technology, choice: Choice) -> Network:
    """Today's network with other links; the power of switches at rest goes with their lanes."""
    rest_size = choice.size**technology.coupled
    link = _replaced(
        own.link,
        {
            "lanes": choice.outer_lanes,
            "lane_bandwidth": own.link.lane_bandwidth * technology.rest * rest_size,
            "lane_power": own.link.lane_power * rest_size,
            "included_lanes": jnp.zeros(()),
            "energy": own.link.energy / technology.rest,
            "latency": OUTER_LATENCY + (own.link.latency - OUTER_LATENCY) / technology.rest,
        },
    )
    values = {
        "switch_lane_power": own.switch_lane_power * rest_size,
        "hop_energy": own.hop_energy / technology.rest,
        "bus_share": jnp.zeros(()),  # a new machine puts its links where no bus of today is in the way
    }
    return eqx.tree_at(lambda network: network.link, _replaced(own, values), link)


def software(own: Software, technology: Technology) -> Software:
    """Today's software, whose waits are control and keep pace with the logic."""
    waits = ("microbatch_time", "collective_latency")
    return _replaced(own, {name: getattr(own, name) / technology.logic for name in waits})


def build(system: TrainingSystem, technology: Technology, choice: Choice) -> TrainingSystem:
    """A system of today (H100) with other technology and choices; the choices of today give today's back."""
    return _replaced(
        system,
        {
            "accelerator": accelerator(system.accelerator, technology, choice, system.node.scale_up.lanes),
            "node": node(system.node, system.network.link, technology, choice),
            "network": network(system.network, technology, choice),
            "software": software(system.software, technology),
        },
    )


def todays_choice(system: TrainingSystem) -> Choice:
    """The choices that an H100 has made."""
    chip = system.accelerator
    lanes = (system.node.scale_up.lanes, system.network.link.lanes)
    return Choice(chip.reference_voltage, 1.0, chip.cache_size, *lanes)


def _replaced(component: Any, values: dict[str, Any]) -> Any:
    """The same component with other fields."""
    names = tuple(values)
    return eqx.tree_at(lambda node: tuple(getattr(node, name) for name in names), component, tuple(values.values()))
