"""Chips whose power and rate have closed forms, made from a preset by taking away what those lack."""

import jax.numpy as jnp

from energymodel.scenarios.scenario import load_scenario
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_load import ChipLoad
from outcomes import replaced

TINY = 1e-3


def bare_chip(
    static: float, dynamic: float, minimum_clock: float, *, floor: float, knee: float, width: float
) -> Accelerator:
    """Chip of power `static + dynamic phi v(phi)^2` at any temperature."""
    numbers = {"fixed_power": static, "busy_power": static + dynamic, "minimum_clock": minimum_clock}
    numbers |= {"voltage.floor": floor, "voltage.knee": knee, "voltage.width": width}
    numbers |= dict.fromkeys(("leakage.power", "memory_energy", "idle_power"), 0.0)
    return replaced(load_scenario("test-1b-h100").system.accelerator, numbers)


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
