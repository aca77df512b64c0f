"""Over which scenario are constants fitted, and how do they become a scenario of their own?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.calibration.calibration_case import BASE, CalibrationCase
from energymodel.calibration.cluster_source import PLACEHOLDER, cluster_tables
from energymodel.calibration.constant_priors import ConstantPriors, JointPrior, joint_prior, updated_prior
from energymodel.calibration.least_squares import FitResult
from energymodel.errors import InputError, suggest
from energymodel.presets.files import names
from energymodel.presets.renamed import current_name
from energymodel.presets.scenario import Scenario, load_scenario

NORMAL_90 = 1.645  # standard deviations to each end of a 90 % interval


class PriorScenario(NamedTuple):
    """What was known before the measurements.

    - `name`: as the user wrote it, or the default's.
    - `scenario`: medians of the priors, which new numbers are laid over.
    - `tables`: the beginning of the scenario that is written.
    """

    name: str
    scenario: Scenario
    tables: Mapping[str, Any]


def prior_scenario(prior: str | Path | None) -> PriorScenario:
    """The scenario that a prior names: a scenario, a file, or a default run on an accelerator or a cluster."""
    text = BASE if prior is None else current_name(str(prior))
    if text in names("hardware"):
        tables = {"base": PLACEHOLDER, "system": {"accelerator": {"preset": text}}}
        return PriorScenario(PLACEHOLDER, load_scenario(PLACEHOLDER, {"system.accelerator": text}), tables)
    if text in names("clusters"):
        return PriorScenario(PLACEHOLDER, load_scenario({**cluster_tables(text), "name": text}), cluster_tables(text))
    if text not in names("scenarios") and not text.endswith(".toml"):
        known = [*names("scenarios"), *names("hardware"), *names("clusters")]
        raise InputError(f'Unknown prior "{text}". {suggest(text, known)}')
    return PriorScenario(text, load_scenario(text), {"base": text, "system": {}})


def earlier_calibration(kind: str, constants: ConstantPriors, scenario: Scenario) -> tuple[JointPrior, str] | None:
    """The prior with what earlier measurements of a kind say, and their file, if the scenario has any.

    **Raises:** `InputError` if the scenario's `[calibration]` cannot be read.
    """
    earlier = scenario.tables.get("calibration", {}).get(kind)
    if earlier is None:
        return None
    try:
        mean, covariance = (np.asarray(earlier[name], np.float64) for name in ("coordinates", "covariance"))
        prior = updated_prior(joint_prior(constants), earlier["names"], mean, covariance)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise InputError(f"{scenario.name}: [calibration.{kind}] cannot be read: {error}. Calibrate anew.") from None
    return prior, str(earlier.get("source", scenario.name))


class FittedConstant(NamedTuple):
    """A constant: value, 90 % intervals by Laplace's method (`outer_intervals`) and by the bootstrap of groups,
    prior's median.

    The bootstrap is `None` with fewer than three groups; an undetermined constant has no interval but its prior's.
    """

    name: str
    value: float
    unit: str
    prior: float
    laplace: tuple[float, float] | None
    bootstrap: tuple[float, float] | None
    determined: bool


def undetermined_for_law(case: CalibrationCase, constants: tuple[FittedConstant, ...]) -> list[str]:
    """Constants that the law of a case needs and that are not determined."""
    if case.law is None:
        return []
    needed = [one for one in constants if case.law_needs is None or one.name in case.law_needs]
    return [one.name for one in needed if not one.determined]


def scenario_tables(
    kind: str,
    source: str,
    prior: PriorScenario,
    case: CalibrationCase,
    fitted: FitResult,
    constants: tuple[FittedConstant, ...],
) -> dict[str, Any]:
    """A scenario: the prior's, and over it every number that the measurements determine, with its interval."""
    what = f"calibrate {kind} {Path(source).name}"
    tables: dict[str, Any] = {"title": f"{prior.scenario.title}, calibrated ({kind})", **prior.tables}
    known = dict(case.known_numbers)
    if case.law is not None and not undetermined_for_law(case, constants):
        known |= case.law({one.name: one.value for one in constants})
    for path, number in known.items():
        _lay(tables, path, {"value": number.value, "unit": number.unit, "kind": "measured", "source": what})
    by_name = {one.name: one for one in constants}
    for path, number in case.fitted_numbers.items():
        one = by_name[number.constant]
        if not one.determined or one.laplace is None:
            continue
        low, high = (max(number.offset + end * number.factor, 1e-300) for end in one.laplace)
        parent = path.rpartition(".")[0]
        if parent in case.components:
            _lay(tables, f"{parent}.component", case.components[parent])
        quantity = {
            "value": number.offset + one.value * number.factor,
            "unit": number.unit,
            "kind": "measured",
            "source": f"{what}: 90 % interval {low:.4g} to {high:.4g} {number.unit}",
            "distribution": f"lognormal {np.log(high / low) / (2.0 * NORMAL_90):.3g}",
        }
        _lay(tables, path, quantity)
    numbers = {"coordinates": fitted.coordinates.tolist(), "covariance": fitted.covariance.tolist()}
    tables["calibration"] = {kind: {"source": what, **case.range, "names": list(fitted.names), **numbers}}
    return tables


def _lay(tables: dict[str, Any], path: str, quantity: dict[str, Any] | str) -> None:
    *parts, last = path.split(".")
    for part in parts:
        tables = tables.setdefault(part, {})
    tables[last] = quantity
