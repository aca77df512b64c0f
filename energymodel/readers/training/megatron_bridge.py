"""What does a YAML file of Megatron-Bridge say: overrides of a named recipe, or the whole configuration?"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.config import TrainingConfig
from energymodel.readers.training.keys import flat, shown
from energymodel.readers.training.megatron import from_arguments
from energymodel.readers.training.names import preset_of

BRIDGE = {"biases": False, "tied": False, "layer_norm": False, "groups_alone": True}
SECTIONS = (
    "dataset", "rng", "dist", "comm_overlap", "ddp", "optimizer", "mixed_precision", "train", "scheduler", "model"
)  # fmt: skip
"""Sections that have arguments; where two have one name, the later counts."""


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
            if name == "dataset":
                part = {key: value for key, value in part.items() if key in ("seq_length", "sequence_length")}
            if name == "optimizer":
                part = {key: value for key, value in part.items() if not key.startswith(("bf16", "fp16", "params"))}
            arguments |= {key: value for key, value in part.items() if value is not None or key not in arguments}
    for old, new in (("sequence_length", "seq_length"),):
        if arguments.get(new) is None and old in arguments:
            arguments[new] = arguments.pop(old)
        arguments.pop(old, None)
    arguments.pop("is_hybrid_model", None) if arguments.get("is_hybrid_model") is False else None
    model = inner.get("model")
    named = model.get("hf_model_id") if isinstance(model, Mapping) else None
    named = named if isinstance(named, str) else None
    arguments.pop("hf_model_id", None)
    whole = "num_layers" in arguments
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
    if "perf_matrix" in table:
        notes.append("the layouts of perf_matrix are not read: one file, many runs")
    return dataclasses.replace(config, model_name=named, preset=preset_of(named), notes=(*notes, *config.notes))
