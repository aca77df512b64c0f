"""Can the network of a system be built, and does its chip have the formats in which the framework stores and sends?"""

from collections.abc import Sequence

from energymodel.errors import InputError
from energymodel.performance.switch_topologies import AbstractSwitchTree, Dragonfly, RailOnly
from energymodel.system.cluster import Link
from energymodel.system.plan_rules import formats_of, torus_chips, torus_fault
from energymodel.system.training_system import TrainingSystem
from energymodel.units import format_quantity

WHOLE = 1e-6
LARGEST_RADIX = 1024.0  # ports of 100 Gbit/s of a 102.4 Tbit/s switch: none has more
BYTES_OF = {"fp8": 1.0, "fp4": 0.5}
WIDEST = 2.0  # [B] of a number that is stored or sent, on a chip with no narrower format than bf16
STORED = ("weight_bytes", "gradient_bytes", "communicated_bytes")
FEWEST_OPTIMIZER_BYTES = 1.0  # one moment in 8 bits


def check_network(system: TrainingSystem, chips: float) -> None:
    """Check that a network can be built: a fat tree has ports enough for the chips, a torus has whole blocks.

    **Raises:** `InputError` that names the number and its range.
    """
    for path, link in ("system.node.scale_up", system.node.scale_up), ("system.network.link", system.network.link):
        check_lanes(link, path)
    if fault := torus_fault(system, chips):
        near = " or ".join(f"{one:g}" for one in torus_chips(system, chips, 2.0 * chips))
        raise InputError(f"plan.chips: {fault}. Take {near} chips.")
    check_ports(system, chips)


def check_ports(system: TrainingSystem, chips: float) -> None:
    """Check that a fat tree, rails or a dragonfly are of switches that exist, and have ports enough for the chips.

    **Raises:** `InputError` that names the number and its range.
    """
    tree = system.network.topology
    if isinstance(tree, Dragonfly):
        _check_groups(tree, float(system.network_nodes(chips)), chips)
    if not isinstance(tree, AbstractSwitchTree):
        return
    path = "system.network.topology"
    if isinstance(tree, RailOnly) and float(system.node.chips) <= 1.0:
        raise InputError(f"{path}: nodes of one chip have one rail, a fat tree. Take system.network.topology=fat-tree.")
    for name, least in ("radix", 2.0), ("pod", 1.0), ("oversubscription", 1.0):
        if (value := float(getattr(tree, name))) < least:
            raise InputError(f"{path}.{name}: {value:g} is less than {least:g}. Raise it.")
    if (radix := float(tree.radix)) > LARGEST_RADIX or abs(radix - round(radix)) > WHOLE:
        raise InputError(
            f"{path}.radix: no switch has {radix:g} ports. Give a whole number of at most {LARGEST_RADIX:g}."
        )
    if float(tree.port_lanes) <= 0.0:
        raise InputError(f"{path}.port_lanes: {float(tree.port_lanes):g} is not positive. Give the lanes of a port.")
    ports, of_rail = float(system.network_nodes(chips)), " of each rail" if isinstance(tree, RailOnly) else ""
    if ports > float(tree.most_nodes) * (1.0 + WHOLE):
        raise InputError(
            f"{path}: {chips:g} chips take {ports:g} ports{of_rail}, and three tiers of {float(tree.radix):g}-port "
            f"switches have {float(tree.most_nodes):g}. Take fewer chips or lanes, a larger radix or a larger pod."
        )
    if (pod := float(tree.pod)) > radix**2 * (1.0 + WHOLE):
        raise InputError(
            f"{path}.pod: two tiers of {radix:g}-port switches join {0.5 * radix**2:g} nodes, or {radix**2:g} if those "
            f"of the upper tier are twice as large, not {pod:g}. Lower it, or raise the radix."
        )


def check_pod(system: TrainingSystem, field: str, values: Sequence[float], where: str) -> None:
    """Check that a pod which shall vary stays within two tiers of switches, or within its own size.

    **Raises:** `InputError` that names the largest pod.
    """
    tree = system.network.topology
    if field != "network.topology.pod" or not isinstance(tree, AbstractSwitchTree):
        return
    most = max(float(tree.pod), 0.5 * float(tree.radix) ** 2)
    if max(values) > most * (1.0 + WHOLE):
        raise InputError(
            f"{where}: {max(values):g} nodes are more than {most:g}, which two tiers of {float(tree.radix):g}-port "
            "switches join. Lower the end of the range."
        )


def _check_groups(dragonfly: Dragonfly, ports: float, chips: float) -> None:
    """Check that a dragonfly has groups enough, and routers no more ports than switches have.

    **Raises:** `InputError` that names the number and its range.
    """
    path = "system.network.topology"
    if (radix := float(dragonfly.radix)) > LARGEST_RADIX:
        raise InputError(
            f"{path}: routers of {float(dragonfly.hosts_per_router):g} hosts, {float(dragonfly.routers_per_group):g} "
            f"routers per group and {float(dragonfly.global_links):g} global links have {radix:g} ports, and no switch "
            f"has more than {LARGEST_RADIX:g}. Lower one of them."
        )
    if ports > (most := float(dragonfly.most_nodes)) * (1.0 + WHOLE):
        raise InputError(
            f"{path}: {chips:g} chips take {ports:g} ports, and the largest dragonfly of these routers has {most:g}. "
            "Take fewer chips or lanes, or raise global_links, routers_per_group or hosts_per_router."
        )


def check_lanes(link: Link, path: str) -> None:
    """Check that a link has the lanes at least that chip and node were metered and sold with.

    **Raises:** `InputError` that names both numbers.
    """
    lanes, included = float(link.lanes), float(link.included_lanes)
    if lanes <= 0.0:
        raise InputError(f"{path}.lanes: {lanes:g} lanes carry nothing. Give a positive number.")
    if lanes < included * (1.0 - WHOLE):
        raise InputError(
            f"{path}.lanes: {lanes:g} is less than the {included:g} lanes whose power and price are in those of chip "
            f"and node ({path}.included_lanes). Raise it; or, if the node was metered with fewer, lower both."
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
