"""The chip that trains a model best, at the area, power and price of the scenario's own."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.performance.hierarchy import balance_cache_size
from energymodel.performance.sram import optimal_cache_size
from energymodel.scenarios.scenario import Scenario
from energymodel.search.optimize import optimize
from energymodel.search.result import Optimum
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_design import ScaledChip, Technology
from energymodel.system.training_system import as_designed

ELEMENT = 2.0  # bytes of a number in 16 bits
FLOP_PER_PRODUCT = 2.0  # a multiply-add
DESIGN = "system.chip_design."
CHOICES = {
    "voltage": (0.7, 1.2),
    "area": (0.5, 2.0),
    "registers": (0.1, 4.0),
    "local_memory": (0.25, 8.0),
    "cache": (0.1, 4.0),
    "memory_stacks": (0.5, 2.0),
    "link_lanes": (0.25, 2.0),
}
"""What is varied unless the question says so, and its bounds."""
LIMITS = {"chip_area": ("die_area", "m^2"), "chip_power": ("rated_power", "W"), "chip_price": ("price", "USD")}
"""Limits on the chip, the field of the accelerator that each bounds, and its unit."""


class DesignedOptimum(NamedTuple):
    """The best chip with the plan for it, beside the scenario's own."""

    optimum: Optimum
    reference: Accelerator
    chip: Accelerator
    caches: "CacheSizes"


def chip_question(
    scenario: Scenario, minimize: str | None, limits: Sequence[str] = (), vary: Sequence[str] = ()
) -> Scenario:
    """The scenario with a question about its chip: the choices and limits that are not asked are those of this file.

    **Raises:** `InputError` where the accelerator of the scenario is taken as it is.
    """
    if scenario.system.chip_design.is_catalog:
        raise InputError(
            "system.chip_design: the accelerator is taken as it is. Set system.chip_design=scaled to design it."
        )
    chip = scenario.system.accelerator
    designed = any(text.strip().startswith(DESIGN) for text in vary)
    every = [*vary, *([] if designed else [f"{DESIGN}{name}={low}:{high}" for name, (low, high) in CHOICES.items()])]
    asked = {text.partition("=")[0].strip() for text in limits}
    if not any(text.strip().startswith(f"{DESIGN}area") for text in every):
        asked.add("chip_area")  # a limit on what does not vary leaves the search no room
    own = [
        f"{name}={float(getattr(chip, field))!r} {unit}" for name, (field, unit) in LIMITS.items() if name not in asked
    ]
    return scenario.with_question(minimize, [*limits, *own], every)


class CacheSizes(NamedTuple):
    """What closed forms say of last cache and registers of a chip, for large products with elements of two bytes [B].

    `lowest_energy` moves operands at the lowest energy; below `balance`, memory limits the products. `registers` of a
    core do the same as `lowest_energy` between local memory and units.
    """

    lowest_energy: float
    balance: float
    registers: float


def cache_sizes(chip: Accelerator, technology: Technology) -> CacheSizes:
    """Sizes by `optimal_cache_size` and `balance_cache_size` for a chip."""
    sram = technology.sram
    elements = optimal_cache_size(
        dram_energy=8.0 * ELEMENT * chip.memory_energy,
        sram_energy=ELEMENT * sram.reference_energy,
        reference_cache=sram.reference_size / ELEMENT,
        accesses=FLOP_PER_PRODUCT * technology.cache_accesses / ELEMENT,
    )
    balanced = balance_cache_size(chip.peak_flops, chip.memory_bandwidth, ELEMENT)
    return CacheSizes(float(ELEMENT * elements), float(ELEMENT * balanced), float(technology.core.best_registers(sram)))


def design_chip(asked: Scenario, progress: Callable[[str], None] | None = None) -> DesignedOptimum:
    """The best chip and plan for a question of `chip_question`. Runs in float64."""
    with jax.enable_x64(True):
        optimum = optimize(asked, progress=progress)
        numbers = {path.removeprefix(DESIGN): x for path, x in optimum.found.items() if path.startswith(DESIGN)}
        design = dataclasses.replace(asked.system.chip_design, **{name: np.asarray(x) for name, x in numbers.items()})
        system = dataclasses.replace(asked.system, chip_design=design)
        chip = as_designed(system, optimum.plan).system.accelerator
        if not isinstance(design, ScaledChip):
            raise TypeError(f"system.chip_design is {type(design).__name__}; use ScaledChip.")
        caches = cache_sizes(chip, design.technology)
    return DesignedOptimum(optimum, asked.system.accelerator, chip, caches)
