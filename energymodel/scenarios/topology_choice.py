"""What must a scenario state so that its network has another topology, of the same switches?"""

from collections.abc import Sequence

from energymodel.errors import InputError, suggest
from energymodel.performance.switch_topologies import AbstractSwitchTree
from energymodel.performance.topology import AbstractTopology
from energymodel.scenarios.files import names, read_preset

PATH = "system.network.topology"
SWITCH = ("radix", "pod", "port_lanes", "switch_lanes")
"""Numbers of the switches, which a topology takes over."""


def topology_changes(name: str, own: AbstractTopology, changes: Sequence[str]) -> list[str]:
    """Changes of a scenario that give its network a topology by name, of the switches that its own has.

    Pods are of full two tiers, `k^2 / 4`; a dragonfly is balanced, `a = 2 p = 2 h` routers of `4 p - 1` ports
    [Kim et al. 2008, sec. 3.1]. Other changes of the topology, such as oversubscription, hold for the new one, too.

    **Arguments:**

    - `own`: topology of the scenario.
    - `changes`: of the scenario, as texts "PATH=VALUE".

    **Raises:** `InputError` that suggests the nearest name if there is none.
    """
    if name not in (known := names("topologies")):
        raise InputError(f'topology: unknown "{name}". {suggest(name, known)}')
    found, kind = [f"{PATH}={name}"], read_preset("topologies", name)["component"]
    if isinstance(own, AbstractSwitchTree):
        radix = float(own.radix)
        lanes = {"port_lanes": float(own.port_lanes), "switch_lanes": float(own.switch_lanes)}
        hosts = float((radix + 1.0) // 4.0)
        stated = {
            "FatTree": {"radix": radix, "pod": radix**2 / 4.0, **lanes},
            "RailOnly": {"radix": radix, "pod": radix**2 / 4.0, **lanes},
            "Dragonfly": {"hosts_per_router": hosts, "global_links": hosts, "routers_per_group": 2.0 * hosts, **lanes},
        }
        found += [f"{PATH}.{field}={value!r}" for field, value in stated.get(kind, {}).items()]
    asked = [text for text in changes if text.startswith(f"{PATH}.")]
    return found + [text for text in asked if text.partition("=")[0].removeprefix(f"{PATH}.").strip() not in SWITCH]
