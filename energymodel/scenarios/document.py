"""Which tables may a scenario hold? Whatever a person wrote becomes typed here, and nothing else sees it before.

The forms of `[system]` and `[plan]` follow from the fields of their classes, those of the other sections stand below.
Which keys a component has depends on its class, which may come from a preset below: unknown ones are refused where
components are built, by which time every value is text, a finite number, a list or a table of these.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float

from energymodel.errors import InputError, suggest
from energymodel.scenarios.components import QUANTITY_KEYS, component_fields, field_class, final_classes
from energymodel.scenarios.files import is_quantity
from energymodel.scenarios.forms import (
    Form,
    at_least_zero,
    flat,
    listed,
    number,
    plain,
    positive,
    record,
    shown,
    table,
    text,
    word,
)
from energymodel.scenarios.question import asked
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

FLEET = "fleet"
CALIBRATIONS = ("power", "step-time", "loss", "batch", "node")
"""Kinds of measurements that `energymodel calibrate` fits, and whose results a scenario may hold."""
SYMMETRIC = 1e-6  # relative difference of a covariance and its transpose, that rounding to six digits leaves
SMALLEST = -1e-6  # eigenvalue of a covariance over its largest one


def scalar(given: Any, where: str) -> Any:
    """A number, or a text that is read where its unit is known."""
    return text(given, where) if isinstance(given, str) else number(given, where)


def quantity_form(given: Any, where: str) -> Any:
    """A number: bare, as text with a unit, or as a table with its origin."""
    if not isinstance(given, Mapping):
        return scalar(given, where)
    for key in given:
        if key not in QUANTITY_KEYS:
            raise InputError(f'{where}: unknown key "{key}" of a quantity. {suggest(key, QUANTITY_KEYS)}')
    if "value" not in given:
        raise InputError(f'{where}: value is missing. Write for example {{ value = 700, unit = "W" }}.')
    if isinstance(given["value"], str):
        raise InputError(f"{where}: value must be a number, not {shown(given['value'])}.")
    number(given["value"], f"{where}.value")
    for key in QUANTITY_KEYS - {"value"} & given.keys():
        (text if key == "source" else word)(given[key], f"{where}.{key}")
    return given


def quantities_form(given: Any, where: str) -> Any:
    """A number, or numbers along something."""
    if given == []:
        raise InputError(f"{where}: the list is empty. Give at least one number.")
    return listed(quantity_form)(given, where) if isinstance(given, list) else quantity_form(given, where)


@cache
def _fields(kinds: tuple[type, ...]) -> tuple[Mapping[str, tuple[type, ...]], Mapping[str, Form]]:
    """Of all classes that a component may have: those of each field that holds a component, and forms of the others."""
    below: dict[str, tuple[type, ...]] = {}
    numbers: dict[str, Form] = {}
    for final in dict.fromkeys(one for kind in kinds for one in final_classes(kind).values()):
        for field in dataclasses.fields(final):
            if field.name in component_fields(final):
                below[field.name] = (*below.get(field.name, ()), field_class(final, field.name))
            elif field.metadata.get("array") or numbers.get(field.name) is quantities_form:
                numbers[field.name] = quantities_form
            else:
                numbers[field.name] = quantity_form
    return {name: tuple(dict.fromkeys(ones)) for name, ones in below.items()}, numbers


WORDS: Mapping[str, Form] = {"component": word, "preset": word, "title": text, "source": text, "note": text}
"""Keys of every component."""
SHORT: Mapping[str, Form] = {
    "plan.layout.recomputation": word,
    "plan.layout.schedule": word,
    "plan.layout.zero": quantity_form,
    "plan.clock": quantities_form,
}
"""Forms of what a plan may say otherwise than its fields do."""


def component(given: Any, where: str, *kinds: type) -> Any:
    """A component: the name of a preset, or a table."""
    if isinstance(given, str):
        return word(given, where)
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: a table or a preset name is needed, not {shown(given)}.")
    below, numbers = _fields(kinds)
    for key, value in given.items():
        path = f"{where}.{key}"
        if form := SHORT.get(path) or WORDS.get(key):
            form(value, path)
        elif key in below:
            component(value, path, *below[key])
        elif key in numbers:
            numbers[key](value, path)
        elif is_quantity(value):
            quantity_form(value, path)
    return given


def _system(given: Any, where: str) -> Any:
    return component(table(given, f"section [{where}]"), where, TrainingSystem)


def _plan(given: Any, where: str) -> Any:
    return component(table(given, f"section [{where}]"), where, TrainingPlan)


def _uncertainty(given: Any, where: str) -> dict[str, str]:
    return {path: text(one, f"{where} of {path}") for path, one in flat(given, where).items()}


_CALIBRATION = record(
    {
        "source": text,
        "gpu": text,
        "rated_power": positive,
        "lowest_power_cap": positive,
        "scatter": at_least_zero,
        "names": listed(word),
        **dict.fromkeys(("values", "slopes", "coordinates"), listed(number)),
        "covariance": listed(listed(number)),
    }
)
_TOGETHER = ("names", "coordinates", "covariance", "values", "slopes", "scatter")
"""Keys that need those before them."""


def _calibration(given: Any, where: str) -> dict[str, Any]:
    """What measurements say of numbers together, by kind."""
    found = {}
    for kind, one in table(given, where).items():
        path = f"{where}.{kind}"
        if kind not in CALIBRATIONS:
            raise InputError(f'{where}: unknown kind "{kind}". {suggest(kind, CALIBRATIONS)}')
        found[kind] = _CALIBRATION(one, path)
        _check_calibration(found[kind], path)
    return found


def _check_calibration(one: Mapping[str, Any], where: str) -> None:
    """Check that the lists of a calibration belong together.

    **Raises:** `InputError` for the first key that is missing, has another length, or is no covariance.
    """
    if "lowest_power_cap" in one and "rated_power" not in one:
        raise InputError(f"{where}: rated_power is missing beside lowest_power_cap. Calibrate again, or give it.")
    needed: Sequence[str] = _TOGETHER if {"values", "slopes", "scatter"} & one.keys() else _TOGETHER[:3]
    if not set(needed) & one.keys():
        return
    for key in needed:
        if key not in one:
            raise InputError(
                f"{where}: {key} is missing beside {', '.join(set(needed) & one.keys())}. Calibrate again."
            )
    count = len(one["names"])
    for key in needed[1:]:
        if key != "scatter" and len(one[key]) != count:
            raise InputError(f"{where}.{key}: {len(one[key])} numbers for {count} names. Calibrate again.")
    if any(len(row) != count for row in one["covariance"]):
        raise InputError(f"{where}.covariance: it is not square, {count} by {count}. Calibrate again.")
    if count == 0:
        raise InputError(f"{where}.names: no name. Leave the table out, or calibrate again.")
    if not _is_covariance(np.array(one["covariance"], np.float64), definite="slopes" in one):
        raise InputError(
            f"{where}.covariance: no covariance is like this: it must be symmetric and positive. Calibrate again."
        )


def _is_covariance(matrix: Float[np.ndarray, "rows rows"], *, definite: bool) -> bool:
    """Whether a matrix is symmetric and positive, for draws definite."""
    scale = float(np.max(np.abs(matrix)))
    if scale == 0.0:
        return not definite
    scaled = matrix / scale
    try:
        lowest = float(np.min(np.linalg.eigvalsh(scaled)))
        if definite:
            np.linalg.cholesky(scaled)
    except np.linalg.LinAlgError:
        return False
    return lowest >= SMALLEST and float(np.max(np.abs(scaled - scaled.T))) <= SYMMETRIC


def _fleet(given: Any, where: str) -> Any:
    group = record(
        {
            **{key: lambda one, path, kind=kind: component(one, path, kind) for key, kind in _DEVICES.items()},
            **dict.fromkeys(("clock", "power_cap", "chips"), quantity_form),
        }
    )
    return {name: group(one, f"{where}.{name}") for name, one in table(given, where).items()}


_DEVICES = {name: field_class(TrainingSystem, name) for name in ("accelerator", "node", "network")}
SECTIONS: Mapping[str, Form] = {
    "title": text,
    "base": word,
    "note": text,
    "abstract": text,
    "system": _system,
    "plan": _plan,
    "optimize": lambda given, _: asked(given),
    "uncertainty": _uncertainty,
    "calibration": _calibration,
    FLEET: _fleet,
}


def parse_document(given: Any, name: str) -> dict[str, Any]:
    """The tables of a scenario, with every value of its type.

    **Raises:** `InputError` for an unknown section, and for the first value that is not what its place needs.
    """
    tables = {key: value for key, value in plain(table(given, name), "").items() if key != "name"}
    for section in tables:
        if section not in SECTIONS:
            raise InputError(f'{name}: unknown key "{section}". {suggest(section, SECTIONS)}')
    return {section: SECTIONS[section](one, section) for section, one in tables.items()}
