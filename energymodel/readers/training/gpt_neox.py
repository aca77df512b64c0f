"""What does a GPT-NeoX configuration say? Its keys have hyphens or underscores; DeepSpeed's lie among them."""

import math
from typing import Any

from energymodel.readers.training.config import Shape, TrainingConfig, settle
from energymodel.readers.training.deepspeed import precision, zero
from energymodel.readers.training.keys import Keys, understood
from energymodel.readers.training.megatron_shape import refuse_other_models

KNOWN_TOKENIZERS = {"20B_tokenizer.json": 50277}
"""Tokens of tokenizers that are known by the name of their file: GPT-NeoX-20B's."""
SPARSE = ("mamba", "rwkv", "gmlp", "amlp")


def read_gpt_neox(table: dict[str, Any], where: str) -> TrainingConfig:
    """The run of a configuration; one of several files of a run may be silent of the others' keys."""
    keys = Keys({str(key).replace("-", "_"): value for key, value in table.items()}, where)
    notes: list[str] = []
    refuse_other_models(keys)
    tensor = keys.whole("model_parallel_size", default=1) or 1
    pipeline = max(keys.whole("pipe_parallel_size", lowest=0, default=1) or 1, 1)
    micro = keys.whole("train_micro_batch_size_per_gpu")
    accumulation, batch = keys.whole("gradient_accumulation_steps", "gas"), keys.whole("train_batch_size")
    if accumulation is None and batch is None and micro is not None:
        accumulation = 1
    states = zero(keys)
    data = None
    if batch is not None and micro is not None and accumulation is not None and batch % (micro * accumulation) == 0:
        data = batch // (micro * accumulation)
    section = keys.table("optimizer")
    kind = section.word("type", default="adam")
    checkpointed = keys.on("checkpoint_activations")
    word = keys.word("precision")
    number_format = {"bfloat16": "bf16", "fp16": "fp16", "fp32": "fp32"}.get(word or "") or precision(keys)
    keys.skip(*understood("gpt-neox"), "optimizer", "zero_optimization")
    shape = _shape(keys, tensor, notes)
    config = TrainingConfig(
        kind="gpt-neox",
        model=shape,
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        interleave=1,
        context=keys.whole("context_parallel_size", default=1),
        expert=keys.whole("moe_expert_parallel_size", "expert_parallel_size", default=1),
        micro_batch=micro,
        accumulation=accumulation,
        batch_sequences=batch,
        sequence=keys.whole("seq_length"),
        precision=number_format,
        recomputation="full" if checkpointed else "none",
        sequence_parallel=keys.on("sequence_parallel"),
        optimizer=kind.lower() if kind else None,
        schedule="1f1b",
        steps=keys.whole("train_iters"),
        notes=(*notes, *states.pop("notes")),
        ignored=keys.unread(),
        **states,
    )
    return settle(config)


def _shape(keys: Keys, tensor: int, notes: list[str]) -> Shape:
    """The words of the model."""
    _refuse_sparse(keys)
    layers, hidden = keys.whole("num_layers"), keys.whole("hidden_size")
    heads = keys.whole("num_attention_heads")
    if layers is None or hidden is None or heads is None:
        return {}
    activation = keys.word("activation", default="gelu")
    gated = keys.values.get("mlp_type") == "llama" or activation in ("swiglu", "geglu", "reglu", "bilinear", "glu")
    keys.skip("mlp_type")
    inner = keys.whole("intermediate_size", "ffn_hidden_size")
    if inner is None:
        inner = 256 * math.ceil(8 * hidden / 3 / 256) if gated else 4 * hidden
    norm = keys.word("norm", default="layernorm") or "layernorm"
    biases = keys.flag("use_bias_in_mlp", default=not gated)
    attention = keys.flag("use_bias_in_attn_linear", default=True)
    positions = keys.values.get("pos_emb", "learned")
    parallel = keys.on("gpt_j_residual")
    keys.skip("gpt_j_tied", "mlp_multiple_of")
    untied = keys.on("no_weight_tying")
    found: Shape = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": keys.whole("num_kv_heads", default=heads) or heads,
        "head_size": max(hidden // heads, 1),
        "feed_forward": inner,
        "gated": float(gated),
        "tied": float(not untied),
        "parallel_block": float(parallel),
        "norm": "rms" if "rms" in norm else "plain" if "non_parametric" in norm else "layer",
        "norms_per_layer": 2.0,
        "linear_bias": float(bool(biases and attention)),
        "qkv_bias": float(bool(attention)),
        "qk_norm": "head" if keys.on("use_qk_layernorm") else "none",
        "experts": 1.0,
    }
    length = keys.whole("max_position_embeddings")
    if positions == "learned" and length is not None:
        found["learned_positions"] = length
    if (window := keys.whole("sliding_window_width")) is not None:
        found |= {"window": window, "local_layers": 1.0}
    experts = keys.whole("moe_num_experts", "num_experts", default=1) or 1
    if experts > 1:
        active = keys.whole("moe_top_k", "moe_router_topk", default=1) or 1
        if active > experts:
            raise keys.refuse("moe_top_k", active, f"at most the {experts} experts")
        found |= {"experts": experts, "active_experts": active}
        # DeepSpeed's mixtures, which `num_experts` asks for, have experts in every second layer by default.
        every = keys.whole("expert_interval", default=1 if "moe_num_experts" in keys else 2) or 1
        if every > 1:
            found |= {"dense_layers": layers - math.ceil(layers / every), "dense_feed_forward": inner}
            found["alternating_dense"] = 1.0
    vocabulary = _vocabulary(keys, tensor, notes)
    if vocabulary is not None:
        found["vocabulary"] = vocabulary
    return found


def _vocabulary(keys: Keys, tensor: int, notes: list[str]) -> int | None:
    """Rows of the embedding: the tokens of a known tokenizer, padded as GPT-NeoX does."""
    divisor = (keys.whole("make_vocab_size_divisible_by", default=128) or 128) * tensor
    if (padded := keys.whole("padded_vocab_size")) is not None:
        return padded
    file = keys.values.get("vocab_file")
    name = file.rsplit("/", 1)[-1] if isinstance(file, str) else ""
    if name not in KNOWN_TOKENIZERS:
        return None
    rows = divisor * math.ceil(KNOWN_TOKENIZERS[name] / divisor)
    notes.append(f"vocabulary: {KNOWN_TOKENIZERS[name]} tokens of {name}, padded to {rows}")
    return rows


def _refuse_sparse(keys: Keys) -> None:
    """Refuse kinds of attention that are none; `[[["flash"], 16]]` is the usual value."""
    layout = keys.raw("attention_config")
    for name in SPARSE:
        if name in str(layout)[:2000]:
            raise keys.refuse("attention_config", name, "global or flash: layers without attention cannot be described")
