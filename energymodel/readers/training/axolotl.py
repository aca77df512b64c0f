"""What does an axolotl configuration say? The number of accelerators is the launcher's."""

import re
from typing import Any

from energymodel.readers.training.config import TrainingConfig, settle
from energymodel.readers.training.keys import Keys, understood
from energymodel.readers.training.names import preset_of

STAGE_IN_NAME = re.compile(r"zero[_-]?([0-3])", re.IGNORECASE)

RESHARD = ("reshard_after_forward", "fsdp_reshard_after_forward")


def read_axolotl(table: dict[str, Any], where: str) -> TrainingConfig:
    """The run of a configuration: fine-tuning or pretraining of a named model."""
    keys = Keys(table, where)
    notes: list[str] = []
    name = keys.word("base_model", "base_model_config")
    accumulation = keys.whole("gradient_accumulation_steps", default=1)
    tensor = keys.whole("tensor_parallel_size", default=1) or 1
    context = keys.whole("context_parallel_size", "sequence_parallel_degree", default=1) or 1
    shard, copies = keys.whole("dp_shard_size"), keys.whole("dp_replicate_size", default=1) or 1
    stage, offload = _sharding(keys, shard, copies, notes)
    data = shard * copies if shard is not None else None
    adapter = keys.word("adapter")
    adapters = None
    if adapter:
        rank = keys.whole("lora_r", default=8)
        adapters = f"{adapter}, rank {rank}"
        notes.append("adapters are trained, not the model: gradients and optimizer states of the adapters alone")
    precision, recipe = _precision(keys, notes)
    keys.skip(*understood("axolotl"), "lora_r")
    recomputed = keys.raw("gradient_checkpointing")
    activations = keys.raw("activation_offloading")
    if recomputed in ("offload", "offload_disk") or activations in (True, "true", "legacy", "disk"):
        offload = (*offload, "activations")
    if recomputed not in (None, True, False, "true", "false", "offload", "offload_disk", "unsloth"):
        raise keys.refuse("gradient_checkpointing", recomputed, "true, false or offload")
    checkpointed = keys.table("fsdp_config").on("activation_checkpointing", "fsdp_activation_checkpointing")
    full = recomputed not in (None, False, "false") or checkpointed
    steps = keys.whole("max_steps", lowest=-1)
    if steps is None or steps < 1:
        steps = None
        notes.append("the number of steps follows from epochs and data, which the file does not count")
    optimizer = keys.word("optimizer")
    if optimizer and "8bit" in optimizer:
        notes.append(
            f"optimizer {optimizer} keeps its states in 8 bits; taken as stated by the software's bytes a parameter"
        )
    keys.skip("fsdp_config", "fsdp", "fsdp_version", "deepspeed")
    config = TrainingConfig(
        kind="axolotl",
        model_name=name,
        preset=preset_of(name),
        data=data,
        tensor=tensor,
        pipeline=1,
        interleave=1,
        context=context,
        context_collective="ring" if context > 1 else None,
        expert=keys.whole("expert_parallel_size", default=1),
        micro_batch=keys.whole("micro_batch_size", default=1),
        accumulation=accumulation,
        batch_sequences=None,
        sequence=keys.whole("sequence_len", default=512),
        precision=precision,
        precision_recipe=recipe,
        recomputation="full" if full else "none",
        sharding=stage,
        shard_size=shard if copies > 1 else None,
        sequence_parallel=tensor > 1,
        optimizer=optimizer.lower() if optimizer else None,
        schedule="1f1b",
        steps=steps,
        offload=tuple(dict.fromkeys(offload)),
        adapters=adapters,
        notes=tuple(notes),
        ignored=keys.unread(),
    )
    return settle(config)


def _sharding(keys: Keys, shard: int | None, copies: int, notes: list[str]) -> tuple[int | None, tuple[str, ...]]:
    """ZeRO stage of FSDP or DeepSpeed, and what lies in host memory."""
    speed, switches, section = keys.raw("deepspeed"), keys.raw("fsdp"), keys.raw("fsdp_config")
    if isinstance(speed, str) and speed:
        match = STAGE_IN_NAME.search(speed.rsplit("/", 1)[-1])
        if match is None:
            notes.append("the DeepSpeed file is not followed; give it instead to read its ZeRO stage")
            return None, ()
        notes.append(f"ZeRO stage {match[1]}: from the name of the DeepSpeed file, which is not followed")
        offload = (
            ("optimizer", "parameters") if "offload_all" in speed else ("optimizer",) if "offload" in speed else ()
        )
        return int(match[1]), offload
    if isinstance(section, dict) or switches:
        inner = keys.table("fsdp_config") if isinstance(section, dict) else Keys({}, keys.where)
        names = (
            " ".join(switches)
            if isinstance(switches, list) and all(isinstance(one, str) for one in switches)
            else str(switches)
        )
        parameters = inner.on("offload_params", "fsdp_offload_params") or "offload" in names
        reshard = (
            inner.flag("reshard_after_forward", "fsdp_reshard_after_forward", default=True) if _switch(inner) else True
        )
        stage = (
            3
            if reshard
            and "shard_grad_op" not in names
            and inner.values.get("fsdp_sharding_strategy") != "SHARD_GRAD_OP"
            else 2
        )
        return stage, ("optimizer", "parameters") if parameters else ()
    if shard is not None and shard > 1:
        return 3, ()
    return None, ()


def _switch(inner: Keys) -> bool:
    """Whether resharding is a switch and not the name of a strategy."""
    return not any(
        isinstance(inner.values.get(key), str) for key in ("reshard_after_forward", "fsdp_reshard_after_forward")
    )


def _precision(keys: Keys, notes: list[str]) -> tuple[str, str | None]:
    """Precision; `auto` is bf16 on every accelerator that has it."""
    bf16, fp16 = False, False
    for key in ("bf16", "bfloat16", "fp16", "float16"):
        value = keys.raw(key)
        if value not in (None, True, False, "auto", "full", "true", "false", ""):
            raise keys.refuse(key, value, "true, false or auto")
        if value not in (None, False, "false", ""):
            bf16, fp16 = (value, fp16) if key.startswith("b") else (bf16, value)
    eight = keys.on("fp8")
    keys.skip("fp8_enable_fsdp_float8_all_gather")
    if keys.any_on("load_in_8bit", "load_in_4bit"):
        notes.append("the frozen weights are loaded in 8 or 4 bits; taken as 16")
    if eight:
        return "fp8", None
    if bf16 == "auto":
        notes.append("bf16 is auto: taken as bf16, which every accelerator since 2020 has")
    if bf16 in (True, "auto", "full", "true"):
        return "bf16", None
    return ("fp16" if fp16 in (True, "true") else "fp32"), None
