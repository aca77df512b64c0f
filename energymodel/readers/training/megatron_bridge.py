"""What does a YAML file of Megatron-Bridge say: overrides of a named recipe, or the whole configuration?"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.config import TrainingConfig
from energymodel.readers.training.keys import flat, shown
from energymodel.readers.training.megatron import from_arguments
from energymodel.readers.training.names import preset_of

BRIDGE = {"biases": False, "tied": False, "layer_norm": False, "groups_alone": True}
SECTIONS = (
    "dataset", "data", "rng", "dist", "optimizer", "train", "training", "scheduler", "model", "parallelism", "ddp",
    "precision", "mixed_precision", "comm_overlap",
)  # fmt: skip
"""Sections that have arguments; where two have one name, the later counts: mixed precision sets the model's."""
OF_DATA = ("seq_length", "sequence_length")
SHAPE = {"num_layers", "hidden_size", "num_attention_heads"}


def read_megatron_bridge(table: dict[str, Any], where: str) -> TrainingConfig:
    """The run of a file; what it leaves out is in the recipe, which is not read."""
    inner = table.get("ConfigContainer", table)
    if not isinstance(inner, Mapping):
        raise InputError(f'"{where}": ConfigContainer is {shown(inner)}; it must be a table of sections.')
    arguments: dict[str, Any] = {}
    notes: list[str] = []
    for name in SECTIONS:
        section = inner.get(name)
        if name == "mixed_precision" and isinstance(section, str):
            arguments["mixed_precision"] = section
        elif section is not None and not isinstance(section, Mapping):
            raise InputError(f'"{where}": {name} is {shown(section)}; it must be a table of keys.')
        elif section is not None:
            part = {key: value for key, value in flat(section).items() if not key.startswith("_")}
            if name in ("dataset", "data"):
                part = {key: value for key, value in part.items() if key in OF_DATA}
            if name == "optimizer":
                part = {key: value for key, value in part.items() if not key.startswith(("bf16", "fp16", "params"))}
            arguments |= {key: value for key, value in part.items() if value is not None or key not in arguments}
    for old, new in (("sequence_length", "seq_length"),):
        if arguments.get(new) is None and old in arguments:
            arguments[new] = arguments.pop(old)
        arguments.pop(old, None)
    arguments.pop("is_hybrid_model", None) if arguments.get("is_hybrid_model") is False else None
    named = _name(inner)
    arguments.pop("hf_model_id", None)
    whole = arguments.keys() >= SHAPE
    if not whole:
        notes.append(
            "a named recipe lies below this file; what the file leaves out is in the recipe, which is not read"
        )
    config = from_arguments(arguments, where, "megatron-bridge", BRIDGE, recipe=not whole)
    adapter = inner.get("peft")
    if isinstance(adapter, Mapping) and adapter:
        kind = str(adapter.get("_target_", "lora")).rsplit(".", 1)[-1][:40].lower()
        rank = adapter.get("dim")
        said = f"{kind}, rank {rank}" if isinstance(rank, int) else kind
        config = dataclasses.replace(config, adapters=said)
    elif isinstance(adapter, str) and adapter not in ("none", ""):
        config = dataclasses.replace(config, adapters=adapter[:40])
    elif isinstance(lora := inner.get("lora"), Mapping) and lora.get("use_lora", True):
        rank = lora.get("lora_rank")
        config = dataclasses.replace(config, adapters=f"lora, rank {rank}" if isinstance(rank, int) else "lora")
    if "perf_matrix" in table:
        notes.append("the layouts of perf_matrix are not read: one file, many runs")
    return dataclasses.replace(config, model_name=named, preset=preset_of(named), notes=(*notes, *config.notes))


def _name(table: Mapping[str, Any]) -> str | None:
    """The model that a file names: by its page on Hugging Face, or by its recipe."""
    model = table.get("model")
    given = model.get("hf_model_id") if isinstance(model, Mapping) else model
    for one in (given, table.get("hf_model_name_or_path"), table.get("hf_path"), table.get("recipe")):
        if isinstance(one, str) and one and "$" not in one:
            plain = one.rsplit(".", 1)[-1] if one.startswith("megatron.") else one
            return re.sub(r"_(pretrain|finetune|sft|peft|lora)(_config)?(_\w+)?$", "", plain)[:200]
    return None
