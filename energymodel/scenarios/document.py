"""Tables of a scenario with every value of its type; nothing behind them sees what a person wrote.

Which keys a component has depends on its class, which may come from a preset: unknown ones are refused where components
are built, by which time every value is text, a finite number, a list or a table of these.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from energymodel.errors import InputError, suggest
from energymodel.scenarios.forms import Form, flat, listed, number, plain, record, table, text, word
from energymodel.scenarios.question import asked

FLEET = "fleet"
CALIBRATIONS = ("power", "kernels", "step-time", "loss", "batch", "node")
"""Kinds of measurements that `energymodel calibrate` fits, and whose results a scenario may hold."""
SYMMETRIC = 1e-6  # relative difference of a covariance and its transpose, that rounding to six digits leaves
SMALLEST = -1e-6  # eigenvalue of a covariance over its largest element


def _component(value: Any, where: str) -> Any:
    """Names, numbers, lists and tables of a component and of those below it."""
    if isinstance(value, Mapping):
        texts = _ORIGIN if "value" in value else _TEXTS
        return {key: texts.get(key, _component)(part, f"{where}.{key}") for key, part in value.items()}
    if value == []:
        raise InputError(f"{where}: the list is empty. Give at least one number.")
    return word(value, where) if isinstance(value, str) else value


_ORIGIN: Mapping[str, Form] = {"source": text, "unit": word, "kind": word, "distribution": word}
_TEXTS: Mapping[str, Form] = {"title": text, "source": text, "note": text, "component": word, "preset": word}


def _positive(value: Any, where: str, *, zero: bool = False) -> float:
    if number(value, where) < 0.0 or (value == 0.0 and not zero):
        raise InputError(f"{where}: {value:g} {'is negative' if zero else 'is not above zero'}. Calibrate again.")
    return float(value)


_CALIBRATION = record(
    {
        "source": text,
        "gpu": text,
        "rated_power": _positive,
        "lowest_power_cap": _positive,
        "scatter": partial(_positive, zero=True),
        "names": listed(word),
        **dict.fromkeys(("values", "slopes", "coordinates"), listed(number)),
        "covariance": listed(listed(number)),
    }
)
_TOGETHER = ("names", "coordinates", "covariance", "values", "slopes", "scatter")
"""Keys of a calibration that need those before them."""


def _calibration(value: Any, where: str) -> dict[str, Any]:
    """Measurements by kind, each with the numbers that they fit together."""
    for kind in table(value, where):
        if kind not in CALIBRATIONS:
            raise InputError(f'{where}: unknown kind "{kind}". {suggest(kind, CALIBRATIONS)}')
    fits = {kind: _CALIBRATION(fit, f"{where}.{kind}") for kind, fit in value.items()}
    for kind, fit in fits.items():
        _check_calibration(fit, f"{where}.{kind}")
    return fits


def _check_calibration(fit: Mapping[str, Any], where: str) -> None:
    """Refuse a calibration whose keys are incomplete, or whose lists do not belong together."""
    if "lowest_power_cap" in fit and "rated_power" not in fit:
        raise InputError(f"{where}: rated_power is missing beside lowest_power_cap. Calibrate again, or give it.")
    needed = _TOGETHER if {"values", "slopes", "scatter"} & fit.keys() else _TOGETHER[:3]
    if not (present := set(needed) & fit.keys()):
        return
    if missing := [key for key in needed if key not in fit]:
        raise InputError(f"{where}: {missing[0]} is missing beside {', '.join(sorted(present))}. Calibrate again.")
    count = len(fit["names"])
    for key in needed[1:]:
        if key != "scatter" and len(fit[key]) != count:
            raise InputError(f"{where}.{key}: {len(fit[key])} numbers for {count} names. Calibrate again.")
    if any(len(row) != count for row in fit["covariance"]):
        raise InputError(f"{where}.covariance: it is not square, {count} by {count}. Calibrate again.")
    if count == 0:
        raise InputError(f"{where}.names: no name. Leave the table out, or calibrate again.")
    if not _is_covariance(np.array(fit["covariance"], np.float64), definite="slopes" in fit):
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


_GROUP = record(dict.fromkeys(("accelerator", "node", "network", "clock", "power_cap", "chips"), _component))


SECTIONS: Mapping[str, Form] = {
    "title": text,
    "base": word,
    "note": text,
    "abstract": text,
    **dict.fromkeys(("system", "plan"), lambda value, where: _component(table(value, f"section [{where}]"), where)),
    "optimize": lambda section, _: asked(section),
    "uncertainty": lambda value, where: {
        path: text(distribution, f"{where} of {path}") for path, distribution in flat(value, where).items()
    },
    "calibration": _calibration,
    FLEET: lambda value, where: {name: _GROUP(group, f"{where}.{name}") for name, group in table(value, where).items()},
}


def parse_document(document: Any, name: str) -> dict[str, Any]:
    """The tables of a scenario, with every value of its type.

    **Raises:** `InputError` for an unknown section, and for the first value that is not what its section needs.
    """
    tables = {key: value for key, value in plain(table(document, name), "").items() if key != "name"}
    for section in tables:
        if section not in SECTIONS:
            raise InputError(f'{name}: unknown key "{section}". {suggest(section, SECTIONS)}')
    return {section: SECTIONS[section](value, section) for section, value in tables.items()}
