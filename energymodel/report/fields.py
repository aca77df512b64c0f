"""Numbers of a plan and of an outcome, with key, title and unit."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from energymodel.system.outcome import DERIVED, TrainingOutcome
from energymodel.system.plan import TrainingPlan

HOUR = 3600.0
"""Seconds."""
_KEY_SUFFIX = {"1": "", "W": "_w", "K": "_k", "token": "_tokens", "nat/token": "_nat_per_token"}
PERCENT = {"mfu", "hfu", "availability", "euf", "clock"}
"""Outputs that are read in percent."""
OF_LIFE = ("serving_chip_time", "lifetime_energy", "lifetime_money", "lifetime_carbon")
"""Outputs that say more than those of the run only where the model serves tokens."""


class Field(NamedTuple):
    """One number of an outcome or a plan, in SI; hours where the key says so."""

    name: str
    key: str
    title: str
    unit: str
    value: float


def outcome_fields(component: eqx.Module) -> list[Field]:
    """Scalar outputs of a component, in the order in which it declares them, then products of them."""
    declared: dict[str, Mapping[str, Any]] = {
        field.name: field.metadata for field in dataclasses.fields(component) if "title" in field.metadata
    }
    if isinstance(component, TrainingOutcome):
        declared.update(DERIVED)
    return [
        Field(name, about["key"], about["title"], about["unit"], _value(getattr(component, name), about["key"]))
        for name, about in declared.items()
    ]


def _value(value: Any, key: str) -> float:
    return float(value) / HOUR if key.endswith("hours") else float(value)


def total(parts: eqx.Module) -> float:
    """Sum of the parts, also of an outcome that holds NumPy numbers."""
    return sum(field.value for field in outcome_fields(parts))


def plan_fields(plan: TrainingPlan) -> list[Field]:
    """Numbers of a plan by dotted path; a batch schedule gives one for each knot."""
    return _plan_fields(plan, "plan")


def _plan_fields(component: eqx.Module, path: str) -> list[Field]:
    found = []
    for field in dataclasses.fields(component):
        value, where = getattr(component, field.name), f"{path}.{field.name}"
        if isinstance(value, eqx.Module):
            found += _plan_fields(value, where)
            continue
        unit = field.metadata["unit"]
        numbers = np.ravel(np.asarray(value, dtype=np.float64))
        for index, number in enumerate(numbers):
            name = where if len(numbers) == 1 else f"{where}[{index}]"
            found.append(Field(name, plan_key(field.name, unit), field.name.replace("_", " "), unit, float(number)))
    return found


def plan_key(name: str, unit: str) -> str:
    """JSON key of a plan's number: its name with its unit, once."""
    suffix = _KEY_SUFFIX[unit]
    return name if name.endswith(suffix.lstrip("_")) and suffix else name + suffix
