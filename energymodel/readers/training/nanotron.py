"""What does a nanotron configuration say?"""

from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.config import Shape, TrainingConfig, settle
from energymodel.readers.training.keys import Keys

PRECISION = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8": "fp8"}
ENGINES = {"1f1b": "1f1b", "afab": "gpipe"}


def read_nanotron(table: dict[str, Any], where: str) -> TrainingConfig:
    """The run of a configuration; its accelerators are the product of its degrees."""
    keys = Keys(table, where)
    parallel, tokens, model = keys.table("parallelism"), keys.table("tokens"), keys.table("model")
    optimizer = keys.table("optimizer")
    notes: list[str] = []
    shape = _shape(model.table("model_config"), model, notes)
    tensor, pipeline = parallel.whole("tp", default=1) or 1, parallel.whole("pp", default=1) or 1
    context, data = parallel.whole("context_parallel_size", default=1), parallel.whole("dp", default=1)
    dtype = model.word("dtype", default="bfloat16")
    if dtype not in PRECISION:
        raise model.refuse("dtype", dtype, f"one of {', '.join(PRECISION)}")
    engine = parallel.word("pp_engine", known=ENGINES, default="1f1b")
    mode = parallel.word("tp_mode", default="REDUCE_SCATTER")
    recomputed = parallel.on("recompute_layer")
    moe_recomputed = parallel.on("moe_layer_recompute")
    overlapped = parallel.on("tp_linear_async_communication")
    if recomputed:
        notes.append("every layer is recomputed in full")
    stage = optimizer.whole("zero_stage", lowest=0, default=0)
    if stage is not None and stage > 1:
        raise optimizer.refuse("zero_stage", stage, "0 or 1, the stages that nanotron has")
    factory = optimizer.table("optimizer_factory")
    keys.skip("general", "logging", "checkpoints", "data_stages", "tokenizer", "lighteval", "s3_upload", "profiler")
    keys.skip("metrics_logging", "optimizer.accumulate_grad_in_fp32", "optimizer.optimizer_factory.torch_adam_is_fused")
    tokens.skip("limit_test_batches", "limit_val_batches", "val_check_interval")
    parallel.skip("tp_recompute_allgather")
    model.skip("ddp_bucket_cap_mb", "init_method", "make_vocab_size_divisible_by")
    config = TrainingConfig(
        kind="nanotron",
        model=shape,
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        interleave=1,
        context=context,
        context_collective="ring" if context and context > 1 else None,
        expert=parallel.whole("expert_parallel_size", default=1),
        expert_tensor=parallel.whole("expert_tensor_parallel_size", default=1),
        micro_batch=tokens.whole("micro_batch_size"),
        accumulation=tokens.whole("batch_accumulation_per_replica", default=1),
        sequence=tokens.whole("sequence_length"),
        precision=PRECISION[dtype or "bfloat16"],
        recomputation="full" if recomputed else "selective" if moe_recomputed else "none",
        sharding=stage,
        sequence_parallel=tensor > 1 and mode is not None and "REDUCE_SCATTER" in mode.upper(),
        optimizer=(factory.word("name", default="adamW") or "").lower(),
        schedule=ENGINES[engine or "1f1b"],
        overlaps=("data", "tensor") if overlapped and tensor > 1 else ("data",),
        steps=tokens.whole("train_steps"),
        notes=tuple(notes),
        ignored=keys.unread(),
    )
    return settle(config)


def _shape(keys: Keys, model: Keys, notes: list[str]) -> Shape:
    """The words of the model; a qwen2 configuration has biases of the queries only if it says so."""
    if keys.on("is_mamba_config") or "ssm_cfg" in keys:
        key = "is_mamba_config" if keys.values.get("is_mamba_config") else "ssm_cfg"
        raise keys.refuse(key, "mamba", "left out: a model with state-space layers cannot be described")
    starcoder = keys.on("is_starcoder2_config")
    qwen, llama = keys.on("is_qwen2_config"), keys.on("is_llama_config")
    if not (starcoder or qwen or llama) and "num_hidden_layers" not in keys:
        return {}
    layers, hidden = keys.whole("num_hidden_layers"), keys.whole("hidden_size")
    heads, inner = keys.whole("num_attention_heads"), keys.whole("intermediate_size")
    if layers is None or hidden is None or heads is None or inner is None:
        raise InputError(
            f"{keys.path('num_hidden_layers')}, hidden_size, num_attention_heads and intermediate_size are needed "
            "together; write the missing ones."
        )
    bias = keys.on("attention_bias")
    window, plain = keys.whole("sliding_window_size", lowest=0), keys.whole("no_rope_layer", lowest=0)
    keys.skip("hidden_act", "_attn_implementation", "_fused_rms_norm", "_fused_rotary_emb", "_use_doc_masking")
    keys.skip("_use_qkv_packed", "use_cache", "pretraining_tp", "max_position_embeddings", "initializer_range")
    keys.skip(
        "is_qwen2_config", "is_llama_config", "pad_token_id", "bos_token_id", "eos_token_id", "z_loss_coefficient"
    )
    if plain:
        notes.append("layers without rotary positions have the same products as the others")
    found: Shape = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": keys.whole("num_key_value_heads", default=heads) or heads,
        "head_size": keys.whole("head_dim") or max(hidden // heads, 1),
        "feed_forward": inner,
        "gated": 0.0 if starcoder else 1.0,
        "tied": float(keys.on("tie_word_embeddings")),
        "norm": "layer" if starcoder else "rms",
        "norms_per_layer": 2.0,
        "linear_bias": float(starcoder),
        "qkv_bias": float(bias or starcoder),
        "qk_norm": "none",
        "experts": 1.0,
    }
    if (vocabulary := keys.whole("vocab_size")) is not None:
        divisor = (model.whole("make_vocab_size_divisible_by", default=1)) or 1
        found["vocabulary"] = -(-vocabulary // divisor) * divisor
    if window:
        found |= {"window": window, "local_layers": 1.0}
    experts = keys.table("moe_config")
    if (count := experts.whole("num_experts")) is not None:
        shared = experts.on("enable_shared_expert")
        width = experts.whole("moe_intermediate_size", default=inner) or inner
        common = experts.whole("shared_expert_intermediate_size", default=width) or width
        active = experts.whole("top_k", "num_experts_per_tok", default=1) or 1
        if active > count:
            raise experts.refuse("top_k", active, f"at most the {count} experts")
        found |= {"experts": count, "active_experts": active, "feed_forward": width}
        found |= {"shared_experts": common / width if shared else 0.0, "shared_feed_forward": common if shared else 0.0}
        experts.skip("token_dispatcher_type", "use_torch_permute", "use_haiku", "enable_shared_expert")
    return found
