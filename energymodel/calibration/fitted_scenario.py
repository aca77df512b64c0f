"""The scenario before a calibration, and the one that it writes."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.calibration.calibration_case import BASE, CHIP, NORMAL_90, CalibrationCase
from energymodel.calibration.cluster_source import PLACEHOLDER, cluster_scenario
from energymodel.calibration.constant_priors import flat_values
from energymodel.calibration.least_squares import FitResult
from energymodel.errors import InputError, suggest
from energymodel.scenarios.clusters import KIND, UNFITTED, cluster_parts
from energymodel.scenarios.files import names, read_preset, read_toml
from energymodel.scenarios.scenario import Scenario, load_scenario

CALIBRATED = "calibrated from "
"""Begins the title of a scenario that was written: a file of measurements, and what they are of."""
STEP = 1e-4  # of a coordinate, for a slope
FAR = 3.0  # standard deviations: beyond it hardly a sample lies


class PriorScenario(NamedTuple):
    """What was known before the measurements."""

    name: str  # as the user wrote it, or the default's
    scenario: Scenario  # medians of the priors, which new numbers are laid over
    tables: Mapping[str, Any]  # the beginning of the scenario that is written
    title: str  # of the machine or the run that the measurements are of


def prior_scenario(prior: str | Path | None) -> PriorScenario:
    """The scenario that a prior names: a scenario, a file, or a default run on an accelerator or a cluster."""
    text = BASE if prior is None else str(prior)
    if text in names("hardware"):
        tables = {"base": PLACEHOLDER, "system": {"accelerator": {"preset": text}}}
        scenario = load_scenario(PLACEHOLDER, {"system.accelerator": text})
        return PriorScenario(text, scenario, tables, str(read_preset("hardware", text)["title"]))
    own = read_toml(Path(text)) if text.endswith(".toml") else {}
    is_run = "plan" in own or own.get("base") in names("scenarios")
    if text in names("clusters") or UNFITTED in text or (text.endswith(".toml") and not is_run):
        tables = {"base": PLACEHOLDER, **cluster_parts(text)}
        return PriorScenario(text, cluster_scenario(text), tables, str(tables["title"]))
    if not own and text not in names("scenarios"):
        presets = [name for category in ("scenarios", "hardware", "clusters") for name in names(category)]
        raise InputError(f'Unknown prior "{text}". {suggest(text, presets)}')
    scenario = load_scenario(Path(text) if own else text)
    # Of a file its own tables, not the file as a base, so that it may be written over.
    return PriorScenario(text, scenario, {"system": {}, **(own or {"base": text})}, scenario.title)


class FittedConstant(NamedTuple):
    """A constant with its 90 % intervals; one that is not determined has `ends` alone.

    It is updated if its interval is narrower than that of the prior by a tenth or more, in its coordinate.
    """

    name: str
    value: float
    unit: str
    prior: float  # the median
    laplace: tuple[float, float] | None  # by `outer_intervals`
    bootstrap: tuple[float, float] | None  # by resampling groups, of which there are three or more
    determined: bool
    ends: tuple[float, float]  # of measurements and prior together
    before: tuple[float, float]  # of the prior
    updated: bool


def scenario_tables(
    kind: str,
    source: str,
    prior: PriorScenario,
    case: CalibrationCase,
    fitted: FitResult,
    constants: tuple[FittedConstant, ...],
) -> dict[str, Any]:
    """A scenario: the prior's, and over it all constants at their values in the fit, with their intervals.

    Constants that the measurements do not determine are written as well, as priors: the others were fitted beside
    these values, and predict what was measured only with them.
    """
    what = f"calibrate {kind} {Path(source).name}"
    title = prior.title.partition(" on ")[2] if prior.title.startswith(CALIBRATED) else prior.title
    title = case.words.get(f"{CHIP}.title", title)
    tables: dict[str, Any] = {"title": "", **copy.deepcopy(dict(prior.tables))}
    tables["title"] = f"{CALIBRATED}{Path(source).name} on {title}"
    for path, word in case.words.items():
        _lay(tables, path, word)
    by_name = {constant.name: constant for constant in constants}
    values = {constant.name: constant.value for constant in constants}
    for path, number in {**case.numbers, **({} if case.law is None else case.law(values))}.items():
        if not number.constant:
            kind_of, source_of = ("prior", f"{what}: {number.assumed}") if number.assumed else ("measured", what)
            _lay(tables, path, {"value": number.value, "unit": number.unit, "kind": kind_of, "source": source_of})
            continue
        constant = by_name[number.constant]
        factor = number.factor(values) if callable(number.factor) else number.factor
        low, high = sorted(max(number.value + end * factor, 1e-300) for end in constant.ends)
        sure = "90 % interval" if constant.determined else "not determined; with its prior, 90 % interval"
        own = fitted.problem.constants.get(number.constant.partition("[")[0])
        is_plain = (number.factor, number.value) == (1.0, 0.0)
        share = is_plain and own is not None and own.unit == "1" and own.upper == 1.0
        quantity = {
            "value": number.value + constant.value * factor,
            "unit": number.unit,
            "kind": "measured" if constant.determined else "prior",
            "source": f"{what}: {sure} {low:.4g} to {high:.4g} {number.unit}",
            "distribution": _distribution(constant.value, low, high, share=share),
        }
        _lay(tables, path, quantity)
    rows = [row for row, name in enumerate(fitted.names) if name not in case.not_kept]
    if not rows:
        return tables
    posterior = {
        "source": what,
        **case.range,
        "names": [fitted.names[row] for row in rows],
        "coordinates": fitted.coordinates[rows].tolist(),
        "covariance": fitted.covariance[np.ix_(rows, rows)].tolist(),
    }
    if kind == KIND:
        # Values of constants of a step, their slopes by coordinate, and the scatter about the fit.
        z = fitted.coordinates
        middle, above, below = flat_values(fitted.problem.constants, np.stack([z, z + STEP, z - STEP]))
        slopes = ((above - below) / (2.0 * STEP)).tolist()
        posterior |= {"values": middle.tolist(), "slopes": slopes, "scatter": float(fitted.noise[0])}
    tables["calibration"] = {**tables.get("calibration", {}), kind: posterior}
    return tables


def _distribution(value: float, low: float, high: float, *, share: bool) -> str:
    """Lognormal by the ends of a 90 % interval; beta, of that width about the value, for a share that lies near 1."""
    deviation = np.log(high / low) / (2.0 * NORMAL_90)
    if not share or value * np.exp(FAR * deviation) < 1.0:
        return f"lognormal {deviation:.3g}"
    width = (high - low) / (2.0 * NORMAL_90)
    # No wider than a beta distribution with a maximum inside can be.
    count = max(value * (1.0 - value) / width**2 - 1.0, 1.01 / min(value, 1.0 - value))
    return f"beta {value * count:.3g} {(1.0 - value) * count:.3g}"


def _lay(tables: dict[str, Any], path: str, quantity: Mapping[str, Any] | str) -> None:
    *parts, last = path.split(".")
    for part in parts:
        if isinstance(below := tables.get(part), str):
            tables[part] = {"preset": below}
        tables = tables.setdefault(part, {})
    tables[last] = quantity
