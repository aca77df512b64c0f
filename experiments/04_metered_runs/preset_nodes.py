"""Power of the nodes of presets, idle and in a run, against meters."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from energymodel.calibration.node_power import chip_power
from energymodel.numerics import Numeric
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.training_system import TrainingSystem


class Metered(NamedTuple):
    """A kind of node: a scenario that holds it, and its power at a meter, lowest and highest [W].

    `busy` is the mean over a run of one node, `idle` that of the node at rest; `None` where no meter is known.
    """

    scenario: str
    changes: dict[str, Any]
    idle: tuple[float, float] | None
    busy: tuple[float, float] | None
    source: str


NOTES = "notes to mlperf_power_runs.csv"
KINDS = {
    "8 x H100, immersed": Metered(
        "gpt3-175b-h100", {}, (2055.0, 2280.0), (6848.0, 7203.0), "mlperf_power_nodes.csv: single nodes, AC meter"
    ),
    "8 x H100, in air": Metered("test-1b-h100", {}, (2850.0, 2950.0), None, NOTES),
    "8 x B200, liquid-cooled": Metered("llama-3.1-70b-b200", {}, None, (9600.0, 10000.0), NOTES),
    "8 x B200, in air": Metered("llama-3.1-70b-b200", {"system.facility": "air-cooled"}, None, None, ""),
}


def meter_power(system: TrainingSystem, coolant: float, chip: float, efficiency: Numeric) -> float:
    """Power of a node at the meter [W] while each of its chips draws `chip` [W], with host and fans of its presets."""
    return float(
        jnp.asarray(
            system.node.chips * (chip + system.host_power(chip, system.facility.cooling.at(coolant))) / efficiency
        )
    )


def compute(constants: Mapping[str, Numeric]) -> list[dict[str, Any]]:
    """Idle and busy power of each kind of node, with the busy share and the waiting power of the H100 nodes.

    **Arguments:**

    - `constants`: `waiting_power`, `busy_share`, `supply_efficiency`, fitted to the H100 nodes.
    """
    rows = []
    with jax.enable_x64(True):
        for name, kind in KINDS.items():
            scenario = load_scenario(kind.scenario, kind.changes)
            system, coolant = scenario.system, float(scenario.plan.coolant_temperature)
            chip, rated = system.accelerator, float(system.accelerator.rated_power)
            share = chip_power(constants["busy_share"], chip.busy_power / rated, constants["waiting_power"])
            row: dict[str, Any] = {"node": name}
            powers = {"idle": float(chip.idle_power), "busy": float(share) * rated}
            for state, metered in (("idle", kind.idle), ("busy", kind.busy)):
                power = meter_power(system, coolant, powers[state], constants["supply_efficiency"])
                low, high = metered or (None, None)
                row |= {f"{state}_w": power, f"{state}_metered_low_w": low, f"{state}_metered_high_w": high}
                row[f"{state}_error"] = None if metered is None else power / (0.5 * sum(metered)) - 1.0
            rows.append(row | {"metered": kind.source})
    return rows
