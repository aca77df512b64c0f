"""Which parts of a system does a cluster state, in a preset or in a file?"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.scenarios.bases import with_bases
from energymodel.scenarios.components import expand_presets
from energymodel.scenarios.document import parse_document
from energymodel.scenarios.files import is_quantity, merge, names, read_preset, read_toml
from energymodel.scenarios.unseen_cluster import UNFITTED, unseen_cluster
from energymodel.system.cluster import Software
from energymodel.units import parse_quantity

MACHINE = ("accelerator", "node", "network", "software")
"""Parts that a file has from the scenario that it is based on."""
PARTS = (*MACHINE, "reliability", "production_slowdown")
"""Parts that a file may state itself."""
KEPT = ("title", "system", "calibration")
"""Tables of a preset that a scenario takes over."""
SHARDED = {"shard_gradients": 2.0, "shard_parameters": 3.0}
"""Lowest ZeRO stage that shards these."""


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
        return {"title": text, **{key: preset[key] for key in KEPT if key in preset}}
    path = Path(text)
    tables = parse_document(read_toml(path), path.stem)
    if "system" not in tables:
        raise InputError(
            f"{path}: holds no [system], so it describes no cluster. Give a file that `energymodel calibrate step-time "
            "-o` wrote, or a preset."
        )
    title = tables.get("title", path.stem)
    own = {key: value for key, value in tables["system"].items() if key in PARTS}
    found = merge(_below(tables.get("base"), path), own)
    missing = [part for part in ("accelerator", "software") if part not in found]
    if missing:
        raise InputError(f"{path}: [system.{missing[0]}] is missing, so it describes no cluster. Add it, or a base.")
    return {"title": title, "system": found, **{key: tables[key] for key in ("calibration",) if key in tables}}


def _below(base: Any, path: Path) -> dict[str, Any]:
    """The parts of a base: a cluster preset, or the scenarios below a scenario."""
    if base is None:
        return {}
    if base in names("clusters"):
        return read_preset("clusters", base)["system"]
    system = with_bases({"base": base}, path.stem).get("system", {})
    return {key: value for key, value in system.items() if key in MACHINE}


def sharding_it_runs(tables: Mapping[str, Any], cluster: str | Path) -> dict[str, Any]:
    """The layer that lowers a plan's ZeRO stage to what the framework of a cluster runs with pipelines; warns if so.

    Without it, a scenario of a framework that shards more could not be put on the cluster at all.
    """
    layout = tables.get("plan", {}).get("layout", {})
    if _number(layout.get("pipeline", 1.0)) <= 1.0:
        return {}
    software = expand_presets(
        {"preset": one} if isinstance(one := tables["system"]["software"], str) else one, Software, "system.software"
    )
    highest = max(1.0, _number(software.get("zero_with_pipeline", 1.0)))
    whole = [name for name, stage in SHARDED.items() if stage > highest and _number(layout.get(name, 0.0)) > 0.0]
    if not whole:
        return {}
    warnings.warn(
        f"{cluster}: its framework runs ZeRO {highest:g} with pipeline parallelism: plan.layout.zero = {highest:g} is "
        "taken. Set it, or plan.layout.pipeline=1, to choose.",
        stacklevel=2,
    )
    return {"plan": {"layout": dict.fromkeys(whole, 0.0)}}


def _number(given: Any) -> float:
    return parse_quantity(given["value"] if is_quantity(given) else given, "1", "plan.layout")
