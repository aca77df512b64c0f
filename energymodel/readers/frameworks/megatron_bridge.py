"""Sections of Megatron-Bridge as arguments of Megatron-LM."""

import re
from collections.abc import Mapping
from typing import Any

from energymodel.readers.training.interpreter import Hook, Prepared
from energymodel.readers.training.keys import flat, table_of

SECTIONS = (
    "dataset", "data", "rng", "dist", "optimizer", "train", "training", "scheduler", "model", "parallelism", "ddp",
    "precision", "mixed_precision", "comm_overlap",
)  # fmt: skip
"""Sections that have arguments; where two have one name, the later counts: mixed precision sets the model's."""
LEFT_OUT = {**dict.fromkeys(("dataset", "data"), "(?!(?:seq|sequence)_length$)"), "optimizer": "_|bf16|fp16|params"}
"""Beginnings of keys that are no arguments of the run: of data all but lengths, of the optimizer its precision."""
SHAPE = {"num_layers", "hidden_size", "num_attention_heads"}


def prepare(table: dict[str, Any], where: str) -> Prepared:
    """The arguments of all sections; what the file leaves out is in the recipe, which is not read."""
    inner = table_of(table.get("ConfigContainer", table), where, "ConfigContainer", "a table of sections")
    arguments: dict[str, Any] = {}
    for name in SECTIONS:
        section = inner.get(name)
        if name == "mixed_precision" and isinstance(section, str):
            section = {"mixed_precision": section}
        for key, value in flat(table_of({} if section is None else section, where, name)).items():
            if not re.match(LEFT_OUT.get(name, "_"), key) and (value is not None or key not in arguments):
                arguments[key] = value
    length = arguments.pop("sequence_length", None)
    if arguments.get("seq_length") is None and length is not None:
        arguments["seq_length"] = length
    if arguments.get("is_hybrid_model") is False:
        del arguments["is_hybrid_model"]
    arguments.pop("hf_model_id", None)
    is_recipe = not arguments.keys() >= SHAPE
    sentences = {
        "a named recipe lies below this file; what the file leaves out is in the recipe, which is not read": is_recipe,
        "the layouts of perf_matrix are not read: one file, many runs": "perf_matrix" in table,
    }
    words = {"is_recipe": is_recipe, "model_name": _model_name(inner), "adapters": _adapters(inner)}
    return Prepared(arguments, words, tuple(sentence for sentence, holds in sentences.items() if holds))


def _adapters(table: Mapping[str, Any]) -> str | None:
    adapter, lora = table.get("peft"), table.get("lora")
    if isinstance(adapter, Mapping) and adapter:
        kind, rank = str(adapter.get("_target_", "lora")).rsplit(".", 1)[-1][:40].lower(), adapter.get("dim")
    elif isinstance(adapter, str) and adapter not in ("none", ""):
        kind, rank = adapter[:40], None
    elif isinstance(lora, Mapping) and lora.get("use_lora", True):
        kind, rank = "lora", lora.get("lora_rank")
    else:
        return None
    return f"{kind}, rank {rank}" if isinstance(rank, int) else kind


def _model_name(table: Mapping[str, Any]) -> str | None:
    """The model that a file names: by its page on Hugging Face, or by its recipe."""
    model = table.get("model")
    page = model.get("hf_model_id") if isinstance(model, Mapping) else model
    for name in (page, table.get("hf_model_name_or_path"), table.get("hf_path"), table.get("recipe")):
        if isinstance(name, str) and name and "$" not in name:
            plain = name.rsplit(".", 1)[-1] if name.startswith("megatron.") else name
            return re.sub(r"_(pretrain|finetune|sft|peft|lora)(_config)?(_\w+)?$", "", plain)[:200]
    return None


HOOK = Hook(prepare)
