"""How does a person read the chip of a design: what it is beside its reference?"""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report.json_tree import optimum_json
from energymodel.report.plan_report import optimum_report
from energymodel.search.chip_search import DesignedOptimum
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.units import format_quantity

ROWS = {
    "peak_flops": ("peak rate, 16 bits", "FLOP/s"),
    "energy_per_flop": ("switching energy of an operation", "J/FLOP"),
    "reference_clock": ("clock 1", "Hz"),
    "reference_voltage": ("supply at clock 1", "V"),
    "die_area": ("die area", "m^2"),
    "cache_size": ("last cache", "B"),
    "memory_capacity": ("memory", "B"),
    "memory_bandwidth": ("memory bandwidth", "B/s"),
    "rated_power": ("rated power", "W"),
    "idle_power": ("idle power", "W"),
    "price": ("price", "USD"),
    "embodied_carbon": ("embodied carbon", "kg"),
}
"""What is told of a chip: the name of the field, what it is called, and its unit."""


def _values(designed: DesignedOptimum, name: str) -> tuple[float, float]:
    return float(getattr(designed.reference, name)), float(getattr(designed.chip, name))


def chip_table(designed: DesignedOptimum) -> Table:
    """The chip beside its reference."""
    table = Table(title="Chip", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("")
    for name in ("reference", "design", "change"):
        table.add_column(name, justify="right")
    for name, (title, unit) in ROWS.items():
        own, new = _values(designed, name)
        change = f"{100.0 * (new / own - 1.0):+.1f} %" if own else ""
        table.add_row(title, format_quantity(own, unit), format_quantity(new, unit), change)
    return table


def chip_report(designed: DesignedOptimum, risk: SavingAtRisk | None = None) -> RenderableType:
    """The chip, then the plan for it and what its limits cost, as `optimize` tells them."""
    lowest, balance, registers = (format_quantity(size, "B") for size in designed.caches)
    caches = Text(
        f"Closed forms for large products alone: operands take the lowest energy with a cache of {lowest}; below "
        f"{balance} memory limits them. Registers of {registers} a core move them at the lowest energy."
    )
    return Group(chip_table(designed), "", caches, "", optimum_report(designed.optimum, risk))


def chip_json(designed: DesignedOptimum, risk: SavingAtRisk | None = None) -> dict[str, Any]:
    """What `optimize` writes, and the chip beside its reference in SI."""
    chips = {
        name: dict(zip(("reference", "design"), _values(designed, name), strict=True)) | {"unit": unit}
        for name, (_, unit) in ROWS.items()
    }
    caches = {f"{name}_B": size for name, size in designed.caches._asdict().items()}
    return {**optimum_json(designed.optimum, risk), "chip": chips, "cache_by_closed_form": caches}
