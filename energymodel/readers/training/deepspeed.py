"""What does a DeepSpeed configuration say of batch, precision, ZeRO and offload?

It says nothing of model, sequence and other parallelism; these are asked for.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.config import TrainingConfig, settle
from energymodel.readers.training.keys import Keys

BARE = re.compile(r"\"([\w.]+)\"\s*:\s*([A-Z][A-Z0-9_]{2,})\s*[,}\n]")
WITH_EFFECT = (
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "bf16.enabled", "fp16.enabled",
    "zero_optimization.stage", "bfloat16.enabled",
)  # fmt: skip


BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
PRECISIONS = ("bf16", "bfloat16", "fp16")


def refuse_placeholders(text: str, where: str) -> None:
    """Refuse a template whose values a script still has to write.

    **Raises:** `InputError` that names the keys and their placeholders.
    """
    found = BARE.findall(text[:200_000])
    if found:
        named = ", ".join(f"{key} ({value})" for key, value in found[:6])
        raise InputError(
            f'"{where}" is a template with placeholders: {named}{", ..." if len(found) > 6 else ""}. '
            "Write their values, or give the file that the script made of it."
        )


def read_deepspeed(
    table: dict[str, Any], where: str, automatic: Mapping[str, int | None] | None = None
) -> TrainingConfig:
    """The run of a configuration file.

    **Arguments:**

    - `automatic`: what the trainer fills in where the file says "auto", by key: `train_batch_size`,
      `train_micro_batch_size_per_gpu` and `gradient_accumulation_steps` [1], None for what follows from the others.

    **Raises:** `InputError` if values that matter are "auto" and not given: all of them in one message.
    """
    notes: list[str] = []
    if automatic is not None:
        table = _answered(table, automatic, notes)
    left = [path for path in WITH_EFFECT if _is_automatic(table, path)]
    if left:
        verb = "are" if len(left) > 1 else "is"
        raise InputError(
            f'"{where}": {", ".join(left)} {verb} "auto", which the trainer fills in at launch; '
            "give --microbatch, --batch and --sequence, or write the values of the run in their place."
        )
    keys = Keys(table, where)
    states = zero(keys)
    micro, accumulation = keys.whole("train_micro_batch_size_per_gpu"), keys.whole("gradient_accumulation_steps")
    batch = keys.whole("train_batch_size")
    keys.skip("steps_per_print", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "scheduler")
    keys.skip("gradient_clipping", "prescale_gradients", "communication_data_type", "wall_clock_breakdown")
    if accumulation is None and (batch is None or micro is None):
        accumulation = 1
    data = None
    if batch is not None and micro is not None and accumulation is not None:
        if batch % (micro * accumulation):
            raise InputError(
                f"{keys.path('train_batch_size')} is {batch}, no multiple of train_micro_batch_size_per_gpu {micro} x "
                f"gradient_accumulation_steps {accumulation}; correct one of them."
            )
        data = batch // (micro * accumulation)
        notes.append(f"{data} replicas follow from the batch; with no other parallelism these are the chips")
    config = TrainingConfig(
        kind="deepspeed",
        data=data,
        micro_batch=micro,
        accumulation=accumulation,
        batch_sequences=batch,
        precision=precision(keys),
        recomputation="full" if keys.values.get("activation_checkpointing") else None,
        optimizer=_optimizer(keys),
        notes=(*notes, *states.pop("notes")),
        ignored=(),
        **states,
    )
    keys.skip("activation_checkpointing")
    filled = dataclasses.replace(config, ignored=keys.unread())
    if filled.data is not None:
        filled = dataclasses.replace(filled, tensor=None)
        return dataclasses.replace(settle(filled), chips=None)
    return settle(filled)


def zero(keys: Keys) -> dict[str, Any]:
    """ZeRO stage, sizes of its groups, offload and overlap of `zero_optimization`."""
    section = keys.table("zero_optimization") if not isinstance(keys.values.get("zero_optimization"), bool) else None
    if section is None:
        return {"sharding": int(keys.on("zero_optimization")), "overlaps": (), "notes": ()}
    stage = section.whole("stage", lowest=0, default=0)
    if stage is not None and stage > 3:
        raise section.refuse("stage", stage, "a stage from 0 to 3")
    offload = []
    for name, key, old in (
        ("optimizer", "offload_optimizer", "cpu_offload"),
        ("parameters", "offload_param", "cpu_offload_params"),
    ):
        inner = section.table(key)
        device = inner.word("device", default="none")
        inner.skip("pin_memory", "buffer_count", "fast_init", "nvme_path", "buffer_size", "max_in_cpu", "ratio")
        inner.skip("pipeline_read", "pipeline_write")
        if device in ("cpu", "nvme") or section.on(old):
            offload.append(name)
    group = section.whole("zero_hpz_partition_size")
    group = group if group and group > 1 else section.whole("mics_shard_size")
    notes = []
    if section.on("zero_quantized_weights") or section.on("zero_quantized_gradients"):
        notes.append("ZeRO++ sends weights or gradients in fewer bits; taken as sent in full width")
    section.skip(
        "allgather_partitions",
        "reduce_scatter",
        "contiguous_gradients",
        "allgather_bucket_size",
        "load_from_fp32_weights",
    )
    section.skip(
        "reduce_bucket_size",
        "sub_group_size",
        "round_robin_gradients",
        "ignore_unused_parameters",
        "elastic_checkpoint",
    )
    for word in ("prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters", "max_reuse_distance"):
        section.skip(word, f"stage3_{word}")
    section.skip("stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save")
    section.skip("stage3_gather_fp16_weights_on_model_save")
    return {
        "sharding": stage,
        "shard_size": group,
        "offload": tuple(offload),
        "overlaps": ("data",) if section.on("overlap_comm") else (),
        "notes": tuple(notes),
    }


def precision(keys: Keys) -> str:
    """Precision of `bf16` or `fp16`; fp32 where neither is enabled."""
    found = "fp32"
    for word, name in (("fp16", "fp16"), ("bfloat16", "bf16"), ("bf16", "bf16")):
        value = keys.values.get(word)
        inner = keys.table(word) if not isinstance(value, bool) else None
        enabled = keys.on(word) if inner is None else inner.on("enabled", word)
        if inner is not None:
            keys.skip(word)
        if word == "fp16" and inner is not None and not enabled and inner.values.get("type") == "bfloat16":
            enabled = False
        if enabled:
            found = "bf16" if inner is not None and inner.values.get("type") == "bfloat16" else name
    return found


def _optimizer(keys: Keys) -> str | None:
    section = keys.table("optimizer")
    name = section.word("type")
    keys.skip("optimizer")
    return name.lower() if name else None


def _is_automatic(table: Mapping[str, Any], path: str) -> bool:
    value: Any = table
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return isinstance(value, str) and value.strip().lower() == "auto"


def _answered(table: Mapping[str, Any], automatic: Mapping[str, int | None], notes: list[str]) -> dict[str, Any]:
    """A copy of the file with values in place of "auto"; what is None is left out."""
    filled = {key: value for key, value in table.items() if not (key in BATCHES and _is_automatic(table, key))}
    filled |= {key: automatic[key] for key in BATCHES if _is_automatic(table, key) and automatic.get(key) is not None}
    narrow = [key for key in ("bf16", "bfloat16", "fp16") if _is_automatic(table, f"{key}.enabled")]
    stated = any(isinstance(one := table.get(key), Mapping) and one.get("enabled") is True for key in PRECISIONS)
    for place, key in enumerate(narrow):
        on = place == 0 and not stated
        filled[key] = {**table[key], "enabled": on}
        if on:
            notes.append(f'{key}.enabled is "auto": taken as {"fp16" if key == "fp16" else "bf16"}')
    return filled
