"""Checks of a system: numbers that exclude each other, networks that can be built, formats that the chip has."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.numerics import Numeric
from energymodel.performance.switch_topologies import AbstractSwitchTree, Dragonfly, RailOnly
from energymodel.physics.cooling import Cooling
from energymodel.physics.limits import landauer_energy
from energymodel.system.plan import TrainingPlan
from energymodel.system.plan_rules import formats_of, torus_chips, torus_fault
from energymodel.system.training_system import TrainingSystem
from energymodel.units import format_quantity

WHOLE = 1e-6  # relative difference that rounding leaves
ATTENTION_SHAPE = ("head_size", "kv_rank", "query_rank", "rope_head_size", "value_head_size", "window", "local_layers")
LARGEST_RISE = 200.0  # [K] of any coolant from supply to return
FITTED_RATE = 1.1  # share of the peak rate up to which constants are believed that were fitted to times with errors
LARGEST_RADIX = 1024.0  # ports of 100 Gbit/s of a 102.4 Tbit/s switch: none has more
BYTES_OF = {"fp8": 1.0, "fp4": 0.5}
WIDEST = 2.0  # [B] of a number that is stored or sent, on a chip with no narrower format than bf16
STORED = ("weight_bytes", "gradient_bytes", "communicated_bytes")
FEWEST_OPTIMIZER_BYTES = 1.0  # one moment in 8 bits
TOPOLOGY = "system.network.topology"


@jax.jit
def _derived(system: TrainingSystem, coolant_temperature: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Power left for switching [W], its energy and Landauer's bound [J/FLOP]; rise of the coolant [K] and power of a
    chip's share of the host [W] at the warmest recommended inlet: by one program, not one for each operation.
    """
    chip, cooling = system.accelerator, system.facility.cooling
    coolant = cooling.at(cooling.inlet.recommended_highest)
    return (
        chip.dynamic_power,
        chip.energy_per_flop,
        landauer_energy(chip.bits_per_flop, coolant_temperature),
        coolant.return_rise,
        system.host_power(chip.rated_power, coolant),
    )


def check_system(system: TrainingSystem, plan: TrainingPlan) -> None:
    """Check what the numbers of a system must be together: no negative remainders, coolant that carries the heat.

    **Raises:** `InputError` that names the numbers.
    """
    chip, workload = system.accelerator, system.workload
    switching, energy, bound, rise, _ = map(float, _derived(system, plan.coolant_temperature))
    parts = {"leakage.power": float(chip.leakage.power), "fixed_power": float(chip.fixed_power)}
    parts["memory traffic"] = float(chip.busy_power) - switching - sum(parts.values())
    if switching <= 0.0:
        taken = ", ".join(f"{name} {format_quantity(power, 'W')}" for name, power in parts.items())
        raise InputError(
            f"system.accelerator: {taken} leave {format_quantity(switching, 'W')} of busy_power "
            f"{format_quantity(float(chip.busy_power), 'W')} for switching. Lower one of them, or raise busy_power."
        )
    if energy < bound:
        raise InputError(
            f"system.accelerator: {format_quantity(energy, 'J/FLOP')} for switching is below "
            f"Landauer's bound, {format_quantity(bound, 'J/FLOP')} for {float(chip.bits_per_flop):g} bits at the "
            "temperature of the coolant. Lower peak_flops, or raise busy_power."
        )
    if float(chip.idle_power) > float(chip.busy_power):
        idle, busy = (format_quantity(float(power), "W") for power in (chip.idle_power, chip.busy_power))
        raise InputError(f"system.accelerator.idle_power: {idle} is more than busy_power, {busy}. Lower it.")
    for name, total in ("kv_heads", "heads"), ("active_experts", "experts"), ("dense_layers", "layers"):
        part, most = float(getattr(workload, name)), float(getattr(workload, total))
        if part > most:
            raise InputError(f"system.workload.{name}: {part:g} is more than {total}, {most:g}. Lower it.")
    _check_rates(system)
    _check_cooling(system.facility.cooling, rise)
    check_attention_shape({name: float(getattr(workload, name)) for name in ATTENTION_SHAPE}, "system.workload.")


def check_attention_shape(shape: Mapping[str, float], prefix: str) -> None:
    """Check that the numbers of latent attention and of sliding windows are given together.

    **Arguments:**

    - `shape`: at least the numbers named by `ATTENTION_SHAPE`.
    - `prefix`: what messages put before a name.

    **Raises:** `InputError` for the first number that is missing or impossible beside the others.
    """
    latent, head, rope = shape["kv_rank"], shape["head_size"], shape["rope_head_size"]
    for name in ("query_rank", "rope_head_size", "value_head_size"):
        if shape[name] > 0.0 and latent == 0.0:
            raise InputError(
                f"{prefix}{name}: {shape[name]:g} belongs to latent attention, but kv_rank is 0. Set kv_rank, or "
                f"leave {name} out."
            )
    if latent > 0.0 and shape["value_head_size"] == 0.0:
        raise InputError(
            f"{prefix}value_head_size: missing beside kv_rank = {latent:g}. Give the width of a value head, v_head_dim "
            "in a config.json."
        )
    if rope > head:
        raise InputError(
            f"{prefix}rope_head_size: {rope:g} is more than head_size, {head:g}, of which it is a part. Set head_size "
            "to qk_nope_head_dim + qk_rope_head_dim."
        )
    if shape["local_layers"] > 0.0 and shape["window"] < 1.0:
        raise InputError(
            f"{prefix}window: {shape['window']:g} token, but local_layers = {shape['local_layers']:g} of the layers "
            "have a sliding window. Give its length of at least 1 token."
        )


def _check_rates(system: TrainingSystem) -> None:
    """Refuse products that run faster than the peak rate of their format."""
    chip, software = system.accelerator, system.software
    for prefix in ("", "fp8_", "fp4_"):
        names = ["product_efficiency", *([f"{prefix}efficiency"] if prefix else [])]
        alone = float(getattr(chip, f"{prefix}gemm_efficiency"))
        share = alone * float(np.prod([float(getattr(software, name)) for name in names]))
        if share > FITTED_RATE:
            factors = " x ".join(f"software.{name} {float(getattr(software, name)):g}" for name in names)
            raise InputError(
                f"system.software.{names[-1]}: accelerator.{prefix}gemm_efficiency {alone:g} x {factors} = "
                f"{share:.4g} of the peak rate; above {FITTED_RATE:g} it cannot be an error of a fit. Lower one."
            )


def _check_cooling(cooling: Cooling, rise: float) -> None:
    """Refuse coolant that does not carry the heat, and temperatures out of order."""
    path = "system.facility.cooling"
    if not 0.0 < rise < LARGEST_RISE:
        raise InputError(f"{path}.loop: coolant that warms by {rise:g} K carries no heat. Check coolant_rise and flow.")
    ordered = (
        ("weather", cooling.weather, ("wet_bulb", "dry_bulb")),
        ("inlet", cooling.inlet, ("lowest", "recommended_lowest", "recommended_highest", "highest")),
    )
    for part, owner, names in ordered:
        for low, high in pairwise(names):
            below, above = float(getattr(owner, low)), float(getattr(owner, high))
            if below > above:
                raise InputError(
                    f"{path}.{part}.{low}: {format_quantity(below, 'K')} is above {high}, "
                    f"{format_quantity(above, 'K')}. Lower the one or raise the other."
                )


def check_supplies(system: TrainingSystem, plan: TrainingPlan) -> None:
    """Warn where a chip and its share of the host draw more than their power supplies are rated for."""
    need = float(system.accelerator.rated_power) + float(_derived(system, plan.coolant_temperature)[-1])
    for name in ("power_supply", "uninterruptible"):
        rating = float(getattr(system.facility, name).rated_power)
        if need > rating:
            warnings.warn(
                f"system.facility.{name}.rated_power: {format_quantity(rating, 'W')} is less than the "
                f"{format_quantity(need, 'W')} of a chip and its share of the host. Set it to about twice that.",
                UserWarning,
                stacklevel=1,
            )


def check_network(system: TrainingSystem, chips: float) -> None:
    """Check that a network can be built: links have lanes, a fat tree ports enough, a torus whole blocks.

    **Raises:** `InputError` that names the number and its range.
    """
    for path, link in ("system.node.scale_up", system.node.scale_up), ("system.network.link", system.network.link):
        lanes, included = float(link.lanes), float(link.included_lanes)
        if lanes <= 0.0:
            raise InputError(f"{path}.lanes: {lanes:g} lanes carry nothing. Give a positive number.")
        if lanes < included * (1.0 - WHOLE):
            raise InputError(
                f"{path}.lanes: {lanes:g} is less than the {included:g} lanes whose power and price are in those of "
                f"chip and node ({path}.included_lanes). Raise it; or, if the node was metered with fewer, lower both."
            )
    if fault := torus_fault(system, chips):
        near = " or ".join(f"{count:g}" for count in torus_chips(system, chips, 2.0 * chips))
        raise InputError(f"plan.chips: {fault}. Take {near} chips.")
    check_ports(system, chips)


@jax.jit
def _ports(system: TrainingSystem, chips: Numeric) -> tuple[Any, Any]:
    """Ports of a tree of switches that so many chips take, and those that it has [1]."""
    tree: Any = system.network.topology
    return system.network_nodes(chips), tree.most_nodes


def check_ports(system: TrainingSystem, chips: float) -> None:
    """Check that a fat tree, rails or a dragonfly are of switches that exist, and have ports enough for the chips.

    **Raises:** `InputError` that names the number and its range.
    """
    tree = system.network.topology
    if isinstance(tree, Dragonfly):
        _check_groups(tree, float(system.network_nodes(chips)), chips)
    if not isinstance(tree, AbstractSwitchTree):
        return
    if isinstance(tree, RailOnly) and float(system.node.chips) <= 1.0:
        raise InputError(f"{TOPOLOGY}: nodes of one chip have one rail, a fat tree. Take {TOPOLOGY}=fat-tree.")
    for name, lowest in ("radix", 2.0), ("pod", 1.0), ("oversubscription", 1.0):
        if (value := float(getattr(tree, name))) < lowest:
            raise InputError(f"{TOPOLOGY}.{name}: {value:g} is less than {lowest:g}. Raise it.")
    if (radix := float(tree.radix)) > LARGEST_RADIX or abs(radix - round(radix)) > WHOLE:
        raise InputError(
            f"{TOPOLOGY}.radix: no switch has {radix:g} ports. Give a whole number of at most {LARGEST_RADIX:g}."
        )
    if (lanes := float(tree.port_lanes)) <= 0.0:
        raise InputError(f"{TOPOLOGY}.port_lanes: {lanes:g} is not positive. Give the lanes of a port.")
    (ports, most), of_rail = map(float, _ports(system, chips)), " of each rail" if isinstance(tree, RailOnly) else ""
    if ports > most * (1.0 + WHOLE):
        raise InputError(
            f"{TOPOLOGY}: {chips:g} chips take {ports:g} ports{of_rail}, and three tiers of {radix:g}-port switches "
            f"have {most:g}. Take fewer chips or lanes, a larger radix or a larger pod."
        )
    if (pod := float(tree.pod)) > radix**2 * (1.0 + WHOLE):
        raise InputError(
            f"{TOPOLOGY}.pod: two tiers of {radix:g}-port switches join {0.5 * radix**2:g} nodes, or {radix**2:g} if "
            f"those of the upper tier are twice as large, not {pod:g}. Lower it, or raise the radix."
        )


def check_pod(system: TrainingSystem, values: Sequence[float], where: str) -> None:
    """Check that a pod which shall vary stays within two tiers of switches, or within its own size.

    **Raises:** `InputError` that names the largest pod.
    """
    tree = system.network.topology
    if not isinstance(tree, AbstractSwitchTree):
        return
    most = max(float(tree.pod), 0.5 * float(tree.radix) ** 2)
    if max(values) > most * (1.0 + WHOLE):
        raise InputError(
            f"{where}: {max(values):g} nodes are more than {most:g}, which two tiers of {float(tree.radix):g}-port "
            "switches join. Lower the end of the range."
        )


def _check_groups(dragonfly: Dragonfly, ports: float, chips: float) -> None:
    """Refuse a dragonfly of too few groups, or of routers with more ports than switches have."""
    if (radix := float(dragonfly.radix)) > LARGEST_RADIX:
        raise InputError(
            f"{TOPOLOGY}: routers of {float(dragonfly.hosts_per_router):g} hosts, "
            f"{float(dragonfly.routers_per_group):g} routers per group and {float(dragonfly.global_links):g} global "
            f"links have {radix:g} ports, and no switch has more than {LARGEST_RADIX:g}. Lower one of them."
        )
    if ports > (most := float(dragonfly.most_nodes)) * (1.0 + WHOLE):
        raise InputError(
            f"{TOPOLOGY}: {chips:g} chips take {ports:g} ports, and the largest dragonfly of these routers has "
            f"{most:g}. Take fewer chips or lanes, or raise global_links, routers_per_group or hosts_per_router."
        )


def check_bytes(system: TrainingSystem) -> None:
    """Check that numbers are stored and sent in formats that the chip has: the loss law knows no narrower ones.

    **Raises:** `InputError` that names the number and the formats.
    """
    has = formats_of(system.accelerator)
    narrowest = min([WIDEST, *(size for name, size in BYTES_OF.items() if name in has)])
    for name in STORED:
        size = float(getattr(system.software, name))
        if size < narrowest * (1.0 - WHOLE):
            raise InputError(
                f"system.software.{name}: {format_quantity(size, 'B')} a number is less than the "
                f"{format_quantity(narrowest, 'B')} of the narrowest format of the accelerator, which has: "
                f"{', '.join(has)}. Raise it, or choose another accelerator."
            )
    size = float(system.software.optimizer_bytes)
    if size < FEWEST_OPTIMIZER_BYTES:
        raise InputError(
            f"system.software.optimizer_bytes: {format_quantity(size, 'B')} a parameter hold no optimizer state. Give "
            f"at least {FEWEST_OPTIMIZER_BYTES:g} B, one moment in 8 bits; Adam with fp32 master weights has 12 B."
        )
