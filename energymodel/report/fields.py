"""Numbers of plans and outcomes with title and unit."""

import dataclasses
from typing import NamedTuple

import equinox as eqx

from energymodel.ranges import declared_numbers
from energymodel.report.cells import spaced

PERCENT = {"mfu", "hfu", "availability", "euf", "clock"}
"""Outputs that are read in percent."""
OF_LIFE = ("serving_chip_time", "lifetime_energy", "lifetime_money", "lifetime_carbon")
"""Outputs that say more than those of the run only where the model serves tokens."""
_KINDS = {"chip_time": "hours", "serving_chip_time": "hours", "steps": "count", "chips": "count"}


class Field(NamedTuple):
    """One number of an outcome or a plan, in SI."""

    name: str
    title: str
    unit: str
    value: float


def kind_of(path: str) -> str:
    """How a number of a plan or an outcome is read, where its unit does not say it."""
    name = path.rpartition(".")[2].partition("[")[0]
    return _KINDS.get(name, "share" if name in PERCENT or name == "waiting_clock" else "")


def part_fields(parts: eqx.Module) -> list[Field]:
    """Parts of energy, of the step time or of the slack, in the order in which they are declared."""
    return [
        Field(field.name, field.metadata["title"], field.metadata["unit"], float(getattr(parts, field.name)))
        for field in dataclasses.fields(parts)
    ]


def total(parts: eqx.Module) -> float:
    """Sum of the parts, also of an outcome that holds NumPy numbers."""
    return sum(field.value for field in part_fields(parts))


def plan_fields(plan: eqx.Module) -> list[Field]:
    """Numbers of a plan by dotted path; a batch schedule gives one for each knot."""
    return [
        Field(
            path if len(numbers) == 1 else f"{path}[{index}]", spaced(field.name), field.metadata["unit"], float(number)
        )
        for path, field, numbers in declared_numbers(plan, "plan")
        for index, number in enumerate(numbers)
    ]
