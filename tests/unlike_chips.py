"""Chips whose power and rate have closed forms, made from a preset by taking away what those lack."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from energymodel.scenarios.scenario import load_scenario
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_load import ChipLoad

TINY = 1e-3


def bare_chip(
    static: float, dynamic: float, minimum_clock: float, *, floor: float, knee: float, width: float
) -> Accelerator:
    """Chip of power `static + dynamic phi v(phi)^2` at any temperature."""
    chip = load_scenario("test-1b-h100").system.accelerator
    values = {
        "fixed_power": static,
        "leakage.power": 0.0,
        "memory_energy": 0.0,
        "busy_power": static + dynamic,
        "minimum_clock": minimum_clock,
        "voltage.floor": floor,
        "voltage.knee": knee,
        "voltage.width": width,
        "idle_power": 0.0,
    }

    def places(chip):
        return [chip.leakage.power if name == "leakage.power" else _at(chip, name) for name in values]

    return eqx.tree_at(places, chip, [np.asarray(value) for value in values.values()])


def _at(chip, name):
    for part in name.split("."):
        chip = getattr(chip, part)
    return chip


def cubic_chip(static: float, dynamic: float, minimum_clock: float = 0.05) -> Accelerator:
    """Chip whose voltage is proportional to its clock, `P = static + dynamic phi^3`."""
    return bare_chip(static, dynamic, minimum_clock, floor=TINY, knee=TINY, width=TINY / 10.0)


def linear_chip(dynamic: float, minimum_clock: float = 0.05) -> Accelerator:
    """Chip of constant voltage without static power, `P = dynamic phi`."""
    return bare_chip(0.0, dynamic, minimum_clock, floor=1.0, knee=0.5, width=0.03)


def arithmetic_load(seconds, power) -> ChipLoad:
    """Work that takes so many seconds at clock 1 and draws so much switching power there, and no memory."""
    seconds = jnp.asarray(seconds, float)
    none = jnp.zeros_like(seconds)
    return ChipLoad(seconds, none, none, none, seconds * power, none)
