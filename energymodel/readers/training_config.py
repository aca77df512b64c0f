"""What run does a configuration file of a training framework describe?

Ten frameworks are read, each by its module in `readers/training`; the kind is recognized from what a file holds.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.readers.text_file import read_json, read_text, read_toml, read_yaml
from energymodel.readers.training.axolotl import read_axolotl
from energymodel.readers.training.command_line import read_overrides
from energymodel.readers.training.config import MODEL_WORDS, TrainingConfig, settle
from energymodel.readers.training.deepspeed import read_deepspeed, refuse_placeholders
from energymodel.readers.training.gpt_neox import read_gpt_neox
from energymodel.readers.training.keys import shown
from energymodel.readers.training.maxtext import read_maxtext
from energymodel.readers.training.megatron import MEGATRON, from_arguments, read_megatron
from energymodel.readers.training.megatron_bridge import read_megatron_bridge
from energymodel.readers.training.megatron_text import read_arguments
from energymodel.readers.training.names import reason_of_name
from energymodel.readers.training.nanotron import read_nanotron
from energymodel.readers.training.nemo import read_nemo
from energymodel.readers.training.primus import read_primus
from energymodel.readers.training.torchtitan import header_of, read_torchtitan

__all__ = ["KINDS", "MODEL_WORDS", "TrainingConfig", "read_training_config", "settle"]

READERS: dict[str, Callable[[dict[str, Any], str], TrainingConfig]] = {
    "megatron-lm": read_megatron,
    "megatron-bridge": read_megatron_bridge,
    "torchtitan": read_torchtitan,
    "deepspeed": read_deepspeed,
    "axolotl": read_axolotl,
    "nanotron": read_nanotron,
    "maxtext": read_maxtext,
    "nemo": read_nemo,
    "gpt-neox": read_gpt_neox,
    "primus": read_primus,
}
DEEPEST = 40
"""Tables in tables; known configurations have seven."""
LARGEST_COUNT = 10**18
KINDS = tuple(READERS)
"""Frameworks whose configurations are read."""
SIGNS = (
    ("megatron-bridge", "framework training parallelism precision", "recipe model", "recipe train"),
    ("primus", "modules work_group", "modules workspace", "modules exp_name", "modules platform", "modules name"),
    ("megatron-lm", "MODEL_ARGS", "tensor_model_parallel_size num_layers", "language_model model_parallel"),
    ("nanotron", "parallelism tokens", "parallelism model data_stages"),
    ("torchtitan", "model_spec", "training parallelism", "job training", "training activation_checkpoint"),
    ("nemo", "trainer model"),
    ("megatron-bridge", "ConfigContainer", "model train", "train checkpoint", "mixed_precision model"),
    ("gpt-neox", "pipe_parallel_size", "model_parallel_size num_layers", "train_micro_batch_size_per_gpu num_layers"),
    ("deepspeed", "zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"),
    ("axolotl", "base_model", "base_model_config"),
    ("maxtext", "base_emb_dim", "base_config", "per_device_batch_size", "decoder_block", "ici_fsdp_parallelism"),
    ("megatron-lm", "num_layers hidden_size", "micro_batch_size global_batch_size", "tensor_model_parallel_size"),
)
"""Keys that a file of a kind holds together; the first kind with such keys is taken."""


def read_training_config(
    path: str | Path, kind: str | None = None, automatic: Mapping[str, int | None] | None = None
) -> TrainingConfig:
    """The run that a configuration file describes.

    **Arguments:**

    - `path`: a file of JSON, TOML or YAML, or a shell script or command line for Megatron-LM.
    - `kind`: its framework, one of `KINDS`; recognized from the content by default.
    - `automatic`: see `read_deepspeed`.

    **Raises:** `InputError` if the file cannot be read, its framework is not recognized, a value cannot be used or
    is filled in only at launch, the model is no decoder-only transformer, or its numbers contradict each other.
    """
    path = Path(path)
    if kind is not None and kind not in READERS:
        raise InputError(f'Unknown kind of training configuration "{kind}". {suggest(kind, KINDS)}')
    table = _table(path, kind)
    where = path.name
    if table is None:
        return from_arguments(read_arguments(read_text(path), where), where, "megatron-lm", MEGATRON)
    _tame(path, table)
    launched = [table.pop(name, None) for name in ("#nodes", "#per_node")]
    found = kind or _recognized(table)
    if found is None and {"model_type", "architectures"} & table.keys():
        raise InputError(
            f'"{where}" describes a model, not a training run. Give it as --model, with --accelerator, --chips and '
            "--tokens."
        )
    if found is None:
        raise InputError(
            f'"{where}" is no training configuration that is recognized. Name its framework, one of {", ".join(KINDS)}.'
        )
    if found == "torchtitan" and path.suffix.lower() == ".toml":
        table["#"] = header_of(read_text(path))
    config = read_deepspeed(table, where, automatic) if found == "deepspeed" else READERS[found](table, where)
    if why := reason_of_name(config.model_name):
        raise InputError(
            f'"{where}": the model {shown(config.model_name)} cannot be described: {why}. '
            "Describe the nearest transformer by its shape in a scenario."
        )
    nodes, each = launched
    if nodes and each and config.chips is None:
        return config.on(nodes * each)
    return config


def _table(path: Path, kind: str | None) -> dict[str, Any] | None:
    """The table of a file by its suffix, else by what it looks like; None for a script or command line."""
    suffix = path.suffix.lower()
    if suffix == ".toml":
        return read_toml(path)
    text = read_text(path)
    head = text.lstrip()[:1]
    if suffix == ".json" or (head == "{" and suffix not in (".yml", ".yaml")):
        refuse_placeholders(text, path.name)
        return read_json(path)
    if suffix in (".yml", ".yaml"):
        return read_yaml(path)
    arguments = (
        "--tensor-model-parallel-size",
        "--num-layers",
        "--micro-batch-size",
        "--hidden-size",
        "_batch_size ..",
    )
    if kind in (None, "megatron-lm") and any(word in text for word in arguments):
        return None
    if (overrides := read_overrides(text, path.name)) is not None:
        return overrides
    if suffix in (".sh", ".bash", ".slurm", ".sbatch", ".log") or kind == "megatron-lm":
        raise InputError(
            f'"{path.name}" hands no settings to a command; give the file with the arguments, '
            "or the configuration of the framework."
        )
    return read_yaml(path)


def _tame(path: Path, table: dict[str, Any]) -> None:
    """Refuse deep nests, and take numbers that no count reaches as infinite, in place."""
    waiting: list[tuple[Any, int]] = [(table, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > DEEPEST:
            raise InputError(f'"{path.name}" nests its tables more than {DEEPEST} deep; is it the right file?')
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, one in list(items):
            if isinstance(one, int) and not isinstance(one, bool) and abs(one) > LARGEST_COUNT:
                value[key] = math.inf if one > 0 else -math.inf
            elif isinstance(one, dict | list):
                waiting.append((one, depth + 1))


def _recognized(table: dict[str, Any]) -> str | None:
    """The framework that writes such keys."""
    keys = {str(key).lstrip("-").replace("-", "_") for key in table}
    for kind, *signs in SIGNS:
        if any(keys.issuperset(sign.split()) for sign in signs):
            return kind
    return None
