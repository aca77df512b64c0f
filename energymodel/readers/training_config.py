"""Training runs from the configuration files of training frameworks.

The frameworks are the files of `readers/frameworks`; which one wrote a file is recognized from what it holds.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.readers.frameworks import deepspeed, maxtext, megatron, nemo, primus, torchtitan
from energymodel.readers.text_file import read_json, read_text, read_toml, read_yaml
from energymodel.readers.training import scripts
from energymodel.readers.training.commands import check_command, read_arguments, read_command, read_overrides
from energymodel.readers.training.config import TrainingConfig, settle
from energymodel.readers.training.interpreter import (
    Hook,
    frameworks,
    interpret,
    kind_of,
    names_of_models,
    recognized,
    started_by,
)
from energymodel.readers.training.keys import quoted

__all__ = ["KINDS", "TrainingConfig", "read_training_config", "settle"]

KINDS = frameworks()  # frameworks whose configurations are read
HOOKS: Mapping[str, Hook] = {
    "deepspeed": deepspeed.HOOK,
    "hf-trainer": scripts.TRAINER_HOOK,
    "gpt-neox": deepspeed.HOOK,
    "maxtext": maxtext.HOOK,
    "megatron-lm": megatron.HOOK,
    "megatron-bridge": megatron.BRIDGE_HOOK,
    "llm-foundry": nemo.FOUNDRY_HOOK,
    "nemo": nemo.HOOK,
    "olmo-core": scripts.OLMO_HOOK,
    "primus": primus.HOOK,
    "torchtitan": torchtitan.HOOK,
    "torchtune": nemo.INTERPOLATED_HOOK,
}
"""What data cannot say of a framework."""
ARGUMENTS = (
    "--tensor-model-parallel-size", "--num-layers", "--micro-batch-size", "--hidden-size", "_batch_size ..",
)  # fmt: skip
"""What a script or a printed list for Megatron-LM holds."""


def read_training_config(
    path: str | Path,
    kind: str | None = None,
    automatic: Mapping[str, int | None] | None = None,
    otherwise: str | None = None,
) -> TrainingConfig:
    """The run that a configuration file describes.

    **Arguments:**

    - `path`: a file of JSON, TOML or YAML, a shell script or command line, or a Python script, whose literals are read.
    - `kind`: its framework, one of `KINDS`; recognized from the content by default.
    - `automatic`: what a trainer fills in where a DeepSpeed file says "auto", by key: `train_batch_size`,
      `train_micro_batch_size_per_gpu` and `gradient_accumulation_steps` [1], None for what follows from the others.
    - `otherwise`: the framework of a file that is not recognized.

    **Raises:** `InputError` if the file cannot be read, its framework is not recognized, a value cannot be used or
    is filled in only at launch, the model is no decoder-only transformer, or its numbers contradict each other.
    """
    path = Path(path)
    if kind is not None and kind not in KINDS:
        raise InputError(f'Unknown kind of training configuration "{kind}". {suggest(kind, KINDS)}')
    table, where = _table(path, kind), path.name
    if table is None:
        return interpret(read_arguments(read_text(path), where), where, "megatron-lm", HOOKS)
    nodes, each = (table.pop(name, None) for name in ("#nodes", "#per_node"))
    if {"model_type", "architectures"} & table.keys() and recognized(table) is None:
        raise InputError(
            f'"{where}" describes a model, not a training run. Give it as --model, with --accelerator, --chips and '
            "--tokens."
        )
    kind = kind_of(table, where, kind, otherwise)
    if kind == "torchtitan" and path.suffix.lower() == ".toml":
        table["#"] = torchtitan.header_of(read_text(path))
    if kind == "deepspeed" and automatic is not None:
        table = deepspeed.answered(table, automatic)
    config = interpret(table, where, kind, HOOKS)
    name = (config.model_name or "")[:200]
    for pattern, why in names_of_models("refused"):
        if pattern.search(name):
            raise InputError(
                f'"{where}": the model {quoted(config.model_name)} cannot be described: {why}. '
                "Describe the nearest transformer by its shape in a scenario."
            )
    return config.on(nodes * each) if nodes and each and config.chips is None else config


def _table(path: Path, kind: str | None) -> dict[str, Any] | None:
    """The table of a file by its suffix, else by what it looks like; None for a script or command line."""
    suffix = path.suffix.lower()
    if suffix == ".toml":
        return read_toml(path)
    text = read_text(path)
    if suffix == ".json" or (text.lstrip()[:1] == "{" and suffix not in (".yml", ".yaml")):
        deepspeed.refuse_placeholders(text, path.name)
        return read_json(path)
    if suffix in (".yml", ".yaml"):
        return read_yaml(path)
    if suffix == ".py":
        table, known = scripts.read_script(text, path.name), started_by("scripts")
        if (kind or recognized(table, known)) not in known:
            raise InputError(
                f'"{path.name}" hands no literals to a trainer whose scripts are read ({", ".join(known)}). Give the '
                "arguments of its command, or --model with --batch, --sequence and --tokens."
            )
        return table
    table = read_command(text, path.name)
    if kind in started_by("arguments") or recognized(table, started_by("arguments")):
        check_command(text, path.name)
        return table
    is_yaml = re.search(r"(?m)^\s*--[\w-]+: ", text) is not None
    if kind in (None, "megatron-lm") and not is_yaml and any(word in text for word in ARGUMENTS):
        return None
    if (overrides := read_overrides(text, path.name)) is not None:
        return overrides
    if suffix in (".sh", ".bash", ".slurm", ".sbatch", ".log") or kind == "megatron-lm":
        raise InputError(
            f'"{path.name}" hands no settings to a command; give the file with the arguments, '
            "or the configuration of the framework."
        )
    return read_yaml(path)
