"""Clusters, chips and models by the words of a person or a public table."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from energymodel.errors import InputError, suggest
from energymodel.readers.expressions import data_file
from energymodel.scenarios.clusters import UNFITTED, cluster_parts
from energymodel.scenarios.files import companions, names, nearest
from energymodel.scenarios.scenario import Scenario, load_scenario

PLACEHOLDER = "test-1b-h100"  # scenario with a model and a plan that run on most accelerators and clusters
ALIKE = {"llama3": "llama31"}  # families of models of one shape: Llama 3 has that of Llama 3.1
NOUNS = {"hardware": "accelerator", "software": "framework"}
FRAMEWORK = "megatron"  # of rows that name no framework
USUAL_WORDS: dict[str, dict[str, str]] = data_file(__file__, "cluster_words.toml")


def cluster_word(words: Mapping[str, str], folder: Path, option: str, where: str, assumed: Counter[str]) -> str:
    """The cluster of a row: the option's, that of the words of its columns, or their accelerator and framework.

    Files are found from the folder of the table, that of the option from the working folder; `assumed` counts what
    rows do not state.

    **Raises:** `InputError` that begins with `where`.
    """
    if option:
        return option
    if word := words.get("cluster", ""):
        if word.endswith(".toml"):
            return str(folder / word)
        return word if UNFITTED in word else _known(word, "clusters", where, "cluster")
    chip = words.get("accelerator", "")
    if not chip:
        raise InputError(
            f"{where}: cluster is missing. Give it in a column or with --cluster: a preset "
            f"({', '.join(names('clusters')[:3])} ...) or a file that `calibrate step-time -o` wrote; or give "
            "accelerator and framework, in columns or with --column accelerator=h100-sxm."
        )
    accelerator = named_preset(chip, "hardware", where)
    framework = words.get("framework", "")
    if not framework:
        assumed[f"framework is not stated: {FRAMEWORK} (--column framework=NAME for another)."] += 1
        framework = FRAMEWORK
    parts = [accelerator, named_preset(framework, "software", where)]
    node, network = words.get("node", ""), words.get("network", "")
    if node or network:
        usual = companions(accelerator)
        parts.append(_known(node or str(usual.get("node", "")), "nodes", where, "node"))
        parts.append(_known(network or str(usual.get("network", "infiniband-400g")), "networks", where, "network"))
    return UNFITTED.join(parts)


def measured_cluster(words: Mapping[str, str], folder: Path, default: str) -> str:
    """The cluster on which a row was measured: any word that identifies it, and one that is known if there is one."""
    if word := words.get("cluster", ""):
        return str(folder / word) if word.endswith(".toml") else word
    try:
        return cluster_word({**words, "cluster": ""}, folder, "", "", Counter())
    except InputError:
        return default


def is_known(cluster: str) -> bool:
    """Whether a word names a cluster: a preset, a file, or the parts of one that nobody has fitted."""
    return UNFITTED in cluster or cluster in names("clusters") or Path(cluster).suffix == ".toml"


def _known(word: str, category: str, where: str, what: str) -> str:
    if word not in names(category):
        raise InputError(f'{where}: unknown {what} "{word}". {suggest(word, names(category))}')
    return word


def named_preset(word: str, category: str, where: str) -> str:
    """The preset of a category that a word means, such as "NVIDIA H100-SXM5-80GB" among `hardware`.

    **Raises:** `InputError` that begins with `where`.
    """

    def is_in(part: str) -> bool:
        """Whether the word holds the letters and digits of a part, whatever is between; a number must end there."""
        ends = r"(?!\d)" if part[-1].isdigit() else ""
        return re.search(r"[^a-z0-9]*".join(map(re.escape, part)) + ends, word.lower()) is not None

    presets = names(category)
    by_plain = {plain_word(name): name for name in presets}
    contained = [by_plain[plain] for plain in sorted(filter(is_in, by_plain), key=len, reverse=True)]
    usual = (name for part, name in USUAL_WORDS[category].items() if is_in(part))
    if preset := word if word in presets else next(iter(contained), next(usual, "")):
        return preset
    raise InputError(f'{where}: unknown {NOUNS[category]} "{word}". {nearest(word.lower(), category)}')


def cluster_scenario(name: str, changes: Sequence[str] = ()) -> Scenario:
    """A scenario on a cluster, with a model and a plan that only fill the form.

    **Arguments:**

    - `name`: preset, file, or the parts of a cluster that nobody has fitted (`cluster_word`).
    - `changes`: of its numbers, such as `system.network.link.efficiency=0.5`.

    **Raises:** `InputError` that suggests the nearest name.
    """
    load = _scenario.__wrapped__ if name.endswith(".toml") else _scenario
    return load(name, tuple(changes))


@lru_cache(maxsize=32)
def _scenario(name: str, changes: tuple[str, ...]) -> Scenario:
    return load_scenario({"base": PLACEHOLDER, **cluster_parts(name), "name": name}, changes)


def model_preset(word: str) -> str | None:
    """The preset of a model under one of its usual names, such as `LLAMA3_70B`; `None` if there is none."""
    by_plain, plain = {plain_word(name): name for name in names("models")}, plain_word(word)
    alike = (shape + plain.removeprefix(family) for family, shape in ALIKE.items() if plain.startswith(family))
    return next((by_plain[name] for name in (plain, *alike) if name in by_plain), None)


def plain_word(word: str) -> str:
    """Letters and digits only, in lower case."""
    return re.sub(r"[^a-z0-9]", "", word.lower())
