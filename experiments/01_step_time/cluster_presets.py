"""How are fitted clusters kept as presets of energymodel?"""

import tomllib
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from cluster_fit import ClusterFit
from clusters import Cluster, unit_of

from energymodel.presets.files import read_preset

BASE = "_held-fixed"
PRESETS = Path(__file__).parents[2] / "energymodel" / "presets" / "clusters"


def write_presets(
    clusters: Mapping[str, Cluster], fits: Mapping[str, ClusterFit], memory: Mapping[str, dict[str, float]]
) -> None:
    """Cluster presets with fitted constants, their 95 % intervals and their origin."""
    for name, cluster in clusters.items():
        found = fits.get(cluster.timed_as or name)
        if found is None:
            continue
        lines = [f'title = "{cluster.title}"', f'base = "{BASE}"']
        blocks: dict[str, list[str]] = {}
        for path, (value, unit) in cluster.fixed.items():
            blocks[path] = quantity(value, unit, "prior", "held fixed in experiments/01_step_time; assumed")
        fitted = zip(found.constants, found.values, found.low, found.high, found.spread, strict=True)
        for one, value, low, high, spread in fitted:
            origin = f"fitted to {cluster.source}, 95 % interval {low:.4g} to {high:.4g} (experiments/01_step_time)"
            blocks[one.path] = quantity(value, unit_of(one.path), "derived", origin, f"lognormal {spread:.2g}")
        for path, value in memory.get(name, {}).items():
            origin = "fitted to reserved memory and out-of-memory labels (experiments/01_step_time)"
            blocks[path] = quantity(value, unit_of(path), "derived", origin)
        for kind, preset in cluster.presets.items():
            lines += ["", f"[system.{kind}]", f'preset = "{preset}"']
        for path, block in blocks.items():
            if tomllib.loads("\n".join(block)) != in_base(path):
                lines += ["", f"[system.{path}]", *block]
        (PRESETS / f"{name}.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def in_base(path: str) -> dict[str, Any]:
    """What the base of all clusters says of a number."""
    return reduce(lambda table, part: table.get(part, {}), path.split("."), read_preset("clusters", BASE)["system"])


def quantity(value: float, unit: str, kind: str, source: str, distribution: str = "") -> list[str]:
    """Lines of one number of a preset."""
    lines = [f"value = {float(f'{value:.5g}')!r}", f'unit = "{unit}"', f'kind = "{kind}"']
    return lines + ([f'distribution = "{distribution}"'] if distribution else []) + [f'source = "{source}"']
