"""Which cluster does a person mean: a preset, a file, or a chip and a framework that nobody has fitted?"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from energymodel.calibration.model_words import plain_word
from energymodel.errors import InputError, suggest
from energymodel.scenarios.cluster_parts import cluster_parts
from energymodel.scenarios.files import companions, names
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.scenarios.unseen_cluster import UNFITTED
from energymodel.system.training_system import TrainingSystem

PLACEHOLDER = "test-1b-h100"
"""Scenario with a model and a plan that run on most accelerators and clusters."""
FRAMEWORK = "megatron"
"""Of rows that name no framework."""
FRAMEWORKS = {
    "megatrondeepspeed": "megatron-deepspeed",
    "deepspeed": "deepspeed",
    "torchtitan": "torchtitan",
    "fsdp": "fsdp",
    "llmfoundry": "llm-foundry",
    "mosaicml": "llm-foundry",
    "pytorch": "fsdp",
    "maxtext": "maxtext",
    "nanotron": "nanotron",
    "megatron": "megatron",
    "nemo": "megatron",
    "mcore": "megatron",
}
"""Software presets by a part of the usual names of frameworks, the first that fits."""
ACCELERATORS = {
    "a10040gb": "a100-sxm4-40gb",
    "a100sxm440gb": "a100-sxm4-40gb",
    "h100pcie": "h100-pcie",
    "a100": "a100-sxm4-80gb",
    "h100": "h100-sxm",
    "h200": "h200-sxm",
    "h800": "h800-sxm",
    "gb300": "gb300",
    "gb200": "gb200",
    "b300": "b300-sxm",
    "b200": "b200-sxm",
    "v100": "v100-sxm2-32gb",
}
"""Accelerator presets by a part of the usual names, the first that fits."""


def cluster_word(words: Mapping[str, str], folder: Path, option: str, where: str, assumed: Counter[str]) -> str:
    """The cluster of a row: the option's, the column's, or the accelerator and framework of the row.

    **Arguments:**

    - `words`: of the row by column.
    - `folder`: of the table, from which files are found.
    - `option`: cluster of all rows, which comes first; files are found from the working folder.
    - `assumed`: counts what rows do not state.

    **Raises:** `InputError` that begins with `where`.
    """
    if option:
        return option
    word = words.get("cluster", "")
    if word:
        return str(folder / word) if word.endswith(".toml") else _known(word, "clusters", where, "cluster")
    chip = words.get("accelerator", "")
    if not chip:
        raise InputError(
            f"{where}: cluster is missing. Give it in a column or with --cluster: a preset "
            f"({', '.join(names('clusters')[:3])} ...) or a file that `calibrate step-time -o` wrote; or give "
            "accelerator and framework, in columns or with --column accelerator=h100-sxm."
        )
    accelerator = _preset_of(chip, "hardware", ACCELERATORS, where, "accelerator")
    framework = words.get("framework", "")
    if not framework:
        assumed[f"framework is not stated: {FRAMEWORK} (--column framework=NAME for another)."] += 1
        framework = FRAMEWORK
    parts = [accelerator, _preset_of(framework, "software", FRAMEWORKS, where, "framework")]
    node, network = words.get("node", ""), words.get("network", "")
    if node or network:
        usual = companions(accelerator)
        parts.append(_known(node or str(usual.get("node", "")), "nodes", where, "node"))
        parts.append(_known(network or str(usual.get("network", "infiniband-400g")), "networks", where, "network"))
    return UNFITTED.join(parts)


def measured_cluster(words: Mapping[str, str], folder: Path, default: str) -> str:
    """The cluster on which a row was measured: any word that identifies it, and one that is known if there is one."""
    word = words.get("cluster", "")
    if word:
        return str(folder / word) if word.endswith(".toml") else word
    try:
        return cluster_word({**words, "cluster": ""}, folder, "", "", Counter())
    except InputError:
        return default


def chip_preset(word: str, where: str) -> str:
    """The accelerator preset that a word means, such as "NVIDIA H100-SXM5-80GB".

    **Raises:** `InputError` that begins with `where`.
    """
    return _preset_of(word, "hardware", ACCELERATORS, where, "accelerator")


def is_known(cluster: str) -> bool:
    """Whether a word names a cluster: a preset, a file, or the parts of one that nobody has fitted."""
    return UNFITTED in cluster or cluster in names("clusters") or Path(cluster).suffix == ".toml"


def _known(word: str, category: str, where: str, what: str) -> str:
    if word not in names(category):
        raise InputError(f'{where}: unknown {what} "{word}". {suggest(word, names(category))}')
    return word


def _preset_of(word: str, category: str, usual: Mapping[str, str], where: str, what: str) -> str:
    known = names(category)
    if word in known:
        return word
    by_plain = {plain_word(name): name for name in known}
    contained = max((one for one in by_plain if _contains(word, one)), key=len, default="")
    found = by_plain.get(contained) or next((name for part, name in usual.items() if _contains(word, part)), None)
    if found is None:
        raise InputError(f'{where}: unknown {what} "{word}". {suggest(word.lower(), known)}')
    return found


def _contains(word: str, part: str) -> bool:
    """Whether a word holds the letters and digits of a part, whatever stands between; a number must end there."""
    ends = r"(?!\d)" if part[-1].isdigit() else ""
    return re.search(r"[^a-z0-9]*".join(map(re.escape, part)) + ends, word.lower()) is not None


def cluster_tables(name: str) -> dict[str, Any]:
    """The tables of a scenario on a cluster, with a model and a plan that only fill the form.

    **Arguments:**

    - `name`: preset, file, or the parts of a cluster that nobody has fitted (`cluster_word`).

    **Raises:** `InputError` that suggests the nearest name.
    """
    return {"base": PLACEHOLDER, **cluster_parts(name)}


def cluster_scenario(name: str, changes: Sequence[str] = ()) -> Scenario:
    """A scenario on a cluster, with some numbers changed, such as `system.network.link.efficiency=0.5`."""
    if not changes and not name.endswith(".toml"):
        return _preset_scenario(name)
    return load_scenario({**cluster_tables(name), "name": name}, changes)


@cache
def _preset_scenario(name: str) -> Scenario:
    return load_scenario({**cluster_tables(name), "name": name})


def cluster_system(name: str, changes: Sequence[str] = ()) -> TrainingSystem:
    """The system of a cluster, with some numbers changed."""
    return cluster_scenario(name, changes).system
