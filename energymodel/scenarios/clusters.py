"""Clusters as parts of a system: measured ones, those of a file, and those that nobody has fitted."""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from energymodel.errors import InputError, suggest
from energymodel.scenarios.components import quantity, resolve
from energymodel.scenarios.document import parse_document
from energymodel.scenarios.files import SCENARIO_FILE, companions, merge, names, nearest, read_preset, read_toml
from energymodel.scenarios.layers import nested, with_bases
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS, Coordinates, StepConstant, step_population
from energymodel.system.cluster import Software

MACHINE = ("accelerator", "node", "network", "software")
"""Parts that a file has from the scenario that it is based on."""
PARTS = (*MACHINE, "reliability", "production_slowdown")
"""Parts that a file may state itself."""
SHARDED = {"shard_gradients": 2.0, "shard_parameters": 3.0}
"""Lowest ZeRO stage that shards these."""
KIND = "step-time"
UNFITTED = " + "
"""Between the parts of a cluster that nobody has fitted: accelerator, framework, and node and network if given."""
USUAL_NETWORK = "infiniband-400g"
SAME = 1e-4  # relative difference of a number that was not changed
OPEN = 0.7  # standard deviation of the coordinate of what was not measured: its interval spans a factor of ten
ALIKE = {
    "automodel": "torchtitan",
    "deepspeed": "megatron-deepspeed",
    "fsdp": "torchtitan",
    "fsdp-no-sync": "torchtitan",
    "hugging-face": "torchtitan",
}
"""Frameworks without effects of their own, and the one whose effects they have."""


def cluster_parts(source: str | Path) -> dict[str, Any]:
    """Tables of a cluster: its title, its parts of `system`, and its `calibration`, if it has one.

    **Arguments:**

    - `source`: name of a preset among clusters; accelerator and framework of one that nobody has fitted, such as
      "h100-sxm + megatron"; or path of a TOML file: a scenario, such as `calibrate step-time -o` writes it, or tables
      like those of a preset.

    **Raises:** `InputError` that suggests the nearest name, or says what a file lacks.
    """
    text = str(source)
    if not isinstance(source, Path) and not text.endswith(".toml"):
        if UNFITTED in text:
            return unseen_cluster(*text.split(UNFITTED))
        if text not in names("clusters"):
            raise InputError(
                f'Unknown cluster "{text}". {suggest(text, names("clusters"))} A file ends with .toml; a cluster that '
                'nobody has fitted has an accelerator and a framework, as in "h100-sxm + megatron".'
            )
        preset = read_preset("clusters", text)
        return {"title": text, **{key: preset[key] for key in ("title", "system", "calibration") if key in preset}}
    path = Path(text)
    tables = parse_document(read_toml(path), path.stem)
    if "system" not in tables:
        raise InputError(
            f"{path}: holds no [system], so it describes no cluster. Give a file that `energymodel calibrate step-time "
            "-o` wrote, or a preset."
        )
    base, below = tables.get("base"), {}
    if base in names("clusters"):
        below = read_preset("clusters", base)["system"]
    elif base is not None:
        scenario = with_bases({"base": base}, path.stem).get("system", {})
        below = {key: value for key, value in scenario.items() if key in MACHINE}
    system = merge(below, {key: value for key, value in tables["system"].items() if key in PARTS})
    if missing := [part for part in ("accelerator", "software") if part not in system]:
        raise InputError(f"{path}: [system.{missing[0]}] is missing, so it describes no cluster. Add it, or a base.")
    calibration = {"calibration": tables["calibration"]} if "calibration" in tables else {}
    return {"title": tables.get("title", path.stem), "system": system, **calibration}


def sharding_it_runs(tables: Mapping[str, Any], cluster: str | Path) -> dict[str, Any]:
    """The layer that lowers a plan's ZeRO stage to what the framework of a cluster runs with pipelines; warns if so.

    Without it, a scenario of a framework that shards more could not be put on the cluster at all.
    """
    layout = tables.get("plan", {}).get("layout", {})

    def number(name: str, otherwise: float) -> float:
        return quantity(layout.get(name, otherwise), "1", f"plan.layout.{name}")["value"]

    if number("pipeline", 1.0) <= 1.0:
        return {}
    software = resolve(tables["system"]["software"], Software, "system.software", defaults=True)
    highest = max(1.0, software["zero_with_pipeline"]["value"])
    unsharded = [name for name, stage in SHARDED.items() if stage > highest and number(name, 0.0) > 0.0]
    if not unsharded:
        return {}
    warnings.warn(
        f"{cluster}: its framework runs ZeRO {highest:g} with pipeline parallelism: plan.layout.zero = {highest:g} is "
        "taken. Set it, or plan.layout.pipeline=1, to choose.",
        stacklevel=2,
    )
    return {"plan": {"layout": dict.fromkeys(unsharded, 0.0)}}


def unseen_cluster(accelerator: str, framework: str, node: str = "", network: str = "") -> dict[str, Any]:
    """The tables of a cluster that nobody has fitted, by default with the usual node and network of its accelerator.

    Constants are those of the population for the accelerator and the framework; those of either that the population
    does not know are as wide as accelerators or frameworks differ.

    **Raises:** `InputError` for an unknown accelerator or framework.
    """
    own = accelerator.endswith(SCENARIO_FILE)
    usual = companions(accelerator) if own or accelerator in names("hardware") else {}
    parts = {
        "accelerator": ("hardware", accelerator),
        "node": ("nodes", node or usual.get("node", "")),
        "network": ("networks", network or usual.get("network", USUAL_NETWORK)),
        "software": ("software", framework),
    }
    system = {part: choice if isinstance(choice, dict) else {"preset": choice} for part, (_, choice) in parts.items()}
    for part, (category, choice) in parts.items():
        if isinstance(choice, str) and choice not in names(category) and not (own and choice == accelerator):
            noun = "framework" if part == "software" else part
            raise InputError(f'Unknown {noun} "{choice}". {nearest(choice, category)}')
    chip = labels_of({"system": {"accelerator": read_preset("hardware", accelerator)}})["chip"] if own else accelerator
    population = step_population()
    coordinates = population.of({"framework": ALIKE.get(framework, framework), "chip": chip})
    source = "population of clusters fitted in experiments/21_unseen_clusters"
    return {
        "title": f"{framework} on {accelerator}, not fitted",
        **with_coordinates({"system": system}, coordinates, population.scatter, source, "derived"),
    }


def with_coordinates(
    tables: Mapping[str, Any], coordinates: Coordinates, scatter: float, source: str, kind: str
) -> dict[str, Any]:
    """Tables with the fitted constants at their coordinates, their distributions, and their joint distribution.

    **Arguments:**

    - `scatter`: standard deviation of the logarithm of a step time whose constants are known [1].
    - `source`, `kind`: of the numbers.
    """
    constants = list(STEP_CONSTANTS.items())
    points = coordinates.mean.tolist()
    deviations = np.sqrt(np.diag(coordinates.covariance)).tolist()
    result = {**tables}
    for (path, constant), point, deviation in zip(constants, points, deviations, strict=True):
        number = constant_table(constant, point, deviation, source, kind)
        result = merge(result, nested(f"system.{path}", number))
    joint = {
        "names": list(NAMES),
        "values": [rounded(constant.value(point)) for (_, constant), point in zip(constants, points, strict=True)],
        "slopes": [constant.slope(point) for (_, constant), point in zip(constants, points, strict=True)],
        "coordinates": points,
        "covariance": coordinates.covariance.tolist(),
    }
    return {**result, "calibration": {KIND: {"source": source, **joint, "scatter": scatter}}}


def as_fitted(table: Mapping[str, Any], values: Mapping[str, float]) -> Bool[np.ndarray, " names"]:
    """Which numbers of a calibration are still those of its fit; those changed by `--set` or in Python are exact.

    `values` are those of a run, by path.
    """
    return np.isclose([values[f"system.{name}"] for name in table["names"]], table["values"], rtol=SAME, atol=0.0)


def constant_table(constant: StepConstant, point: float, deviation: float, source: str, kind: str) -> dict[str, Any]:
    """A constant as presets state it, with the distribution that a standard deviation of its coordinate makes.

    It is lognormal, or for a share the beta distribution of the same mean and variance, to first order. What the rows
    leave open within a factor of ten stays a prior.
    """
    value = constant.value(point)
    if math.isinf(constant.upper):
        distribution = f"lognormal {deviation:.3g}"
    else:
        share = value / constant.upper
        # No wider than a beta distribution with a maximum can be.
        count = max(1.0 / (share * (1.0 - share) * deviation**2) - 1.0, 1.01 / min(share, 1.0 - share))
        distribution = f"beta {share * count:.3g} {(1.0 - share) * count:.3g}"
    return {
        "value": rounded(value),
        "unit": constant.unit,
        "kind": kind if deviation < OPEN else "prior",
        "distribution": distribution,
        "source": source,
    }


def rounded(value: float) -> float:
    """As a preset states it."""
    return float(f"{value:.5g}")


def labels_of(tables: Mapping[str, Any]) -> dict[str, str]:
    """Framework and chip of the population by the titles of software and accelerator in the tables of a scenario."""
    labels = {}
    for level, category, part in (("framework", "software", "software"), ("chip", "hardware", "accelerator")):
        title = tables.get("system", {}).get(part, {}).get("title", "")
        name = next((name for name in names(category) if read_preset(category, name).get("title") == title), "")
        labels[level] = ALIKE.get(name, name)
    return labels
