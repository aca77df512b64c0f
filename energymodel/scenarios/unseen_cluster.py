"""What is a cluster like that nobody has fitted, or that a fit describes by its coordinates?"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.scenarios.files import companions, names, read_preset
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS, Coordinates, StepConstant, step_population

KIND = "step-time"
UNFITTED = " + "
"""Between the parts of a cluster that nobody has fitted: accelerator, framework, and node and network if given."""
USUAL_NETWORK = "infiniband-400g"
ALIKE = {"deepspeed": "megatron-deepspeed", "fsdp": "torchtitan", "fsdp-no-sync": "torchtitan"}
"""Frameworks of which no cluster was measured, and the one whose effects they have."""


def unseen_cluster(accelerator: str, framework: str, node: str = "", network: str = "") -> dict[str, Any]:
    """The tables of a cluster that nobody has fitted, by default with the usual node and network of its accelerator.

    Constants are those of the population for the accelerator and the framework; those of either that the population
    does not know are as wide as accelerators or frameworks differ.

    **Raises:** `InputError` for an unknown accelerator or framework.
    """
    usual = companions(accelerator) if accelerator in names("hardware") else {}
    parts = {
        "accelerator": ("hardware", accelerator),
        "node": ("nodes", node or str(usual.get("node", ""))),
        "network": ("networks", network or str(usual.get("network", USUAL_NETWORK))),
        "software": ("software", framework),
    }
    for word, (category, name) in parts.items():
        if name not in names(category):
            word = {"software": "framework"}.get(word, word)
            raise InputError(f'Unknown {word} "{name}". {suggest(name, names(category))}')
    population = step_population()
    known = population.of({"framework": ALIKE.get(framework, framework), "chip": accelerator})
    system = {part: {"preset": name} for part, (_, name) in parts.items()}
    source = "population of clusters fitted in experiments/21_unseen_clusters"
    return {
        "title": f"{framework} on {accelerator}, not fitted",
        **with_coordinates({"system": system}, known, population.scatter, source, "derived"),
    }


def with_coordinates(
    tables: Mapping[str, Any], known: Coordinates, scatter: float, source: str, kind: str
) -> dict[str, Any]:
    """Tables with the fitted constants at their coordinates, their distributions, and what is known of them together.

    **Arguments:**

    - `scatter`: standard deviation of the logarithm of a step time whose constants are known [1].
    - `source`, `kind`: of the numbers.
    """
    spread = np.sqrt(np.diag(known.covariance))
    found = {**tables}
    for (path, one), z, deviation in zip(STEP_CONSTANTS.items(), known.mean.tolist(), spread.tolist(), strict=True):
        _lay(found, f"system.{path}", quantity(one, z, deviation, source, kind))
    found["calibration"] = {KIND: {"source": source, **calibration_table(known), "scatter": scatter}}
    return found


def quantity(one: StepConstant, coordinate: float, deviation: float, source: str, kind: str) -> dict[str, Any]:
    """A constant as presets state it, with the distribution that a standard deviation of its coordinate makes."""
    value = one.value(coordinate)
    distribution = _distribution(value, deviation, one.upper)
    return {"value": rounded(value), "unit": one.unit, "kind": kind, "distribution": distribution, "source": source}


def calibration_table(known: Coordinates) -> dict[str, Any]:
    """What is known of the constants together: coordinates with their covariance, values, and slopes of the values."""
    each = list(zip(STEP_CONSTANTS.values(), known.mean.tolist(), strict=True))
    return {
        "names": list(NAMES),
        "values": [rounded(one.value(z)) for one, z in each],
        "slopes": [one.slope(z) for one, z in each],
        "coordinates": known.mean.tolist(),
        "covariance": known.covariance.tolist(),
    }


def rounded(value: float) -> float:
    """As a preset states it."""
    return float(f"{value:.5g}")


def _distribution(value: float, deviation: float, upper: float) -> str:
    """Lognormal, or for a share the beta distribution of the same mean and variance, to first order."""
    if math.isinf(upper):
        return f"lognormal {deviation:.3g}"
    share = value / upper
    # No wider than a beta distribution with a maximum can be.
    count = max(1.0 / (share * (1.0 - share) * deviation**2) - 1.0, 1.01 / min(share, 1.0 - share))
    return f"beta {share * count:.3g} {(1.0 - share) * count:.3g}"


def _lay(tables: dict[str, Any], path: str, number: dict[str, Any]) -> None:
    *parts, last = path.split(".")
    for part in parts:
        tables[part] = dict(tables.get(part, {}))
        tables = tables[part]
    tables[last] = number


def labels_of(tables: Mapping[str, Any]) -> dict[str, str]:
    """Framework and chip of the population by the titles of software and accelerator in the tables of a scenario."""
    found = {}
    for level, category, part in (("framework", "software", "software"), ("chip", "hardware", "accelerator")):
        title = tables.get("system", {}).get(part, {}).get("title", "")
        name = next((one for one in names(category) if read_preset(category, one).get("title") == title), "")
        found[level] = ALIKE.get(name, name)
    return found
