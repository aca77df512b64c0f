"""The answer of `design-chip`: the chip beside its reference, and the plan for it as `optimize` has it."""

import dataclasses

from energymodel.report.answer import CHANGE, DATA, Answer, Cell, Column, Quantity, Sentence, Table
from energymodel.report.answers.optimize import optimize_answer
from energymodel.search.compare import DesignedOptimum
from energymodel.sweeps.first_order import SavingAtRisk

_COLUMNS = (
    Column("peak_flops", "peak rate, 16 bits", "FLOP/s"),
    Column("energy_per_flop", "switching energy of an operation", "J/FLOP"),
    Column("reference_clock", "clock 1", "Hz"),
    Column("reference_voltage", "supply at clock 1", "V"),
    Column("die_area", "die area", "m^2"),
    Column("cache_size", "last cache", "B"),
    Column("memory_capacity", "memory", "B"),
    Column("memory_bandwidth", "memory bandwidth", "B/s"),
    Column("rated_power", "rated power", "W"),
    Column("idle_power", "idle power", "W"),
    Column("price", "price", "USD"),
    Column("embodied_carbon", "embodied carbon", "kg"),
)
_BYTES = Column("", "", "B")


def design_chip_answer(designed: DesignedOptimum, risk: SavingAtRisk | None = None) -> Answer:
    """The chip, then the plan for it and what its limits cost."""
    answer = optimize_answer(designed.optimum, risk)
    sizes = {name: (_BYTES, Quantity(float(size))) for name, size in designed.caches._asdict().items()}
    caches = Sentence(
        "Closed forms for large products alone: operands take the lowest energy with a cache of {lowest_energy}; below "
        "{balance} memory limits them. Registers of {registers} a core move them at the lowest energy.",
        sizes,
    )
    return dataclasses.replace(
        answer,
        command="design-chip",
        sentences=[*answer.sentences, caches],
        tables=[chip_table(designed), *answer.tables, caches_table(designed)],
    )


def chip_table(designed: DesignedOptimum) -> Table:
    """The chip beside its reference."""
    reference, design = (
        [float(getattr(chip, column.name)) for column in _COLUMNS] for chip in (designed.reference, designed.chip)
    )
    changes: list[Cell] = [
        Quantity(after / before - 1.0) if before else None for before, after in zip(reference, design, strict=True)
    ]
    rows = [[*map(Quantity, reference)], [*map(Quantity, design)], changes]
    labels = ("reference", "design", "change")
    return Table("chip", "Chip", _COLUMNS, rows, tall=True, labels=labels, kinds=("", "", CHANGE))


def caches_table(designed: DesignedOptimum) -> Table:
    """Sizes of the caches by closed forms."""
    columns = [Column(name, name.replace("_", " "), "B", level=DATA) for name in designed.caches._fields]
    rows = [[Quantity(float(size)) for size in designed.caches]]
    return Table("cache_by_closed_form", "Caches by closed form", columns, rows, tall=True, level=DATA)
