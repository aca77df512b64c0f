"""Which model do the arguments of Megatron-LM and of what is built on it describe?"""

import itertools
import math
import re
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.config import Shape
from energymodel.readers.training.keys import Keys, shown

PATTERN_PART = re.compile(r"\[\s*([01])\s*\]\s*(?:\*\s*(\d{1,4}))?|\(([^()]*)\)\s*(?:\*\s*(\d{1,4}))?")
MOST_LAYERS = 10_000
REFUSED = {
    "hybrid_override_pattern": "layers of several kinds, state-space ones among them",
    "hybrid_layer_pattern": "layers of several kinds, state-space ones among them",
    "hybrid_attention_ratio": "state-space layers",
    "is_hybrid_model": "state-space layers",
    "heterogeneous_layers_config_path": "layers of different shapes",
    "heterogeneous_layers_config_encoded_json": "layers of different shapes",
    "linear_attention_freq": "linear attention",
    "linear_attention_type": "linear attention",
    "retro_add_retriever": "a retriever",
    "bert_head_embeddings": "an encoder",
    "bert_no_binary_head": "an encoder",
    "decoder_num_layers": "an encoder",
    "decoder_seq_length": "an encoder",
    "experimental_attention_variant": "other attention than that of all heads to all keys",
    "heterogeneous_block_specs": "layers of different shapes",
}
"""Arguments of models that `Transformer` cannot describe."""


def refuse_other_models(keys: Keys) -> None:
    """Refuse what is no decoder-only transformer, by the argument that says so."""
    for name, what in REFUSED.items():
        value = keys.raw(name)
        if value not in (None, False, 0, 0.0, "", "0", "0.0"):
            raise InputError(
                f"{keys.path(name)} is {shown(value)}: a model with {what} cannot be described. "
                "Describe the nearest transformer with --model, or by its shape in a scenario."
            )
    spec = str(keys.raw("spec") or "")[:400]
    if (match := re.search(r"mamba|hybrid|gated_delta|gdn|kda", spec, re.IGNORECASE)) is not None:
        raise InputError(
            f'{keys.path("spec")} names "{match[0]}": a model with state-space layers or linear attention cannot be '
            "described. Describe the nearest transformer with --model, or by its shape in a scenario."
        )


def shape(keys: Keys, tensor: int, notes: list[str], **says: bool) -> Shape:
    """The words of the model that the arguments give.

    **Arguments:**

    - `tensor`: tensor-parallel degree, to which the vocabulary is padded.
    - `notes`: takes what was assumed.
    - `says`: `biases`, `tied` and `layer_norm`, what the framework does where the file is silent; and `groups_alone`,
      true if a number of query groups counts without its switch.
    """
    refuse_other_models(keys)
    layers, hidden = keys.whole("num_layers", highest=MOST_LAYERS), keys.whole("hidden_size")
    heads = keys.whole("num_attention_heads")
    if layers is None or hidden is None or heads is None:
        keys.skip("ffn_hidden_size", "num_query_groups", "kv_channels")
        return {}
    model: Shape = {"layers": layers, "hidden": hidden, "heads": heads}
    gated = keys.any_on("swiglu", "gated_linear_unit", "geglu", "reglu", "quick_geglu")
    activation = keys.word("activation")
    gated = gated or (activation is not None and "glu" in activation)
    keys.skip("squared_relu", "openai_gelu", "activation_func", "activation_func_clamp_value", "glu_linear_offset")
    inner = keys.whole("ffn_hidden_size")
    if inner is None:
        inner = 64 * int(hidden * 4 * 2 / 3 / 64) if gated and keys.values.get("swiglu") else 4 * hidden
        inner = max(inner, 1)
    model |= {"gated": float(gated), "feed_forward": inner}
    _attention(keys, model, layers, hidden, heads, says["groups_alone"])
    _experts(keys, model, layers, inner, notes)
    _details(keys, model, says)
    vocabulary = _vocabulary(keys, tensor, notes)
    if vocabulary is not None:
        model["vocabulary"] = vocabulary
    mtp = keys.whole("mtp_num_layers", lowest=0)
    if mtp:
        notes.append(f"{mtp} layer(s) that predict further tokens are not counted")
    return model


def _attention(keys: Keys, model: Shape, layers: int, hidden: int, heads: int, groups_alone: bool) -> None:
    """Heads and their sizes, latents and windows."""
    grouped, groups = keys.flag("group_query_attention"), keys.whole("num_query_groups")
    kv_heads = heads
    if grouped or (groups_alone and groups is not None and grouped is None):
        kv_heads = groups or 1
    head_size = keys.whole("kv_channels") or max(hidden // heads, 1)
    model |= {"kv_heads": kv_heads, "head_size": head_size}
    latents = keys.on("multi_latent_attention")
    kv_rank = keys.whole("kv_lora_rank") or 32
    query_rank = keys.whole("q_lora_rank", lowest=0) or 0
    own, rotated = keys.whole("qk_head_dim") or 128, keys.whole("qk_pos_emb_head_dim") or 64
    values = keys.whole("v_head_dim") or 128
    if latents:
        model |= {"kv_heads": heads, "head_size": own + rotated, "rope_head_size": rotated, "value_head_size": values}
        model |= {"kv_rank": kv_rank, "query_rank": query_rank}
    normalized = keys.on("qk_layernorm") or keys.on("qk_l2_norm")
    model["qk_norm"] = ("latent" if latents else "head") if normalized else "none"
    window = keys.raw("window_size")
    every = keys.raw("window_attn_skip_freq")
    if window is not None and not (isinstance(window, str) and window in ("-1", "(-1,-1)", "None")):
        numbers = [int(one) for one in re.findall(r"-?\d{1,9}", str(window))[:2]]
        if not numbers or numbers[0] < 0:
            raise keys.refuse("window_size", window, "a pair of tokens before and after, as (127, 0)")
        model["window"] = numbers[0] + 1
        zeros = _pattern(keys, "window_attn_skip_freq", every, layers) if isinstance(every, str | list) else None
        if zeros is not None:
            model["local_layers"] = sum(zeros) / layers
        elif every is None:
            model["local_layers"] = 1.0
        else:
            step = keys.whole("window_attn_skip_freq") or 1
            model["local_layers"] = 1.0 - (layers // step) / layers
    sinks = keys.word("softmax_type")
    if sinks == "learnable":
        model["sinks"] = 1.0


def _experts(keys: Keys, model: Shape, layers: int, inner: int, notes: list[str]) -> None:
    """Routed and shared experts, and which layers have none."""
    experts = keys.whole("num_experts", "num_moe_experts", "moe_num_experts")
    # Megatron-DeepSpeed sends a token to one expert, and has experts in every second layer.
    forked = bool(keys.values.get("deepspeed")) and "moe_layer_freq" not in keys
    active = keys.whole("moe_router_topk", "moe_topk", "topk") or (1 if forked else 2)
    width = keys.whole("moe_ffn_hidden_size")
    shared = keys.whole("moe_shared_expert_intermediate_size", lowest=0)
    pattern = keys.raw("moe_layer_freq")
    bias = keys.on("moe_router_enable_expert_bias")
    keys.skip("moe_router_num_groups", "moe_router_group_topk", "moe_router_topk_scaling_factor", "moe_router_dtype")
    keys.skip("moe_router_score_function", "moe_router_pre_softmax", "moe_router_bias_update_rate", "moe_grouped_gemm")
    keys.skip("moe_router_load_balancing_type", "moe_permute_fusion", "moe_per_layer_logging", "moe_router_fusion")
    keys.skip("moe_router_force_load_balancing")
    every = keys.whole("expert_interval") or (2 if forked else 1)
    if experts is None:
        model["experts"] = 1.0
        return
    if active > experts:
        raise InputError(f"{keys.path('moe_router_topk')} is {active}, more than the {experts} experts; correct it.")
    width = width or inner
    model |= {"experts": experts, "active_experts": active, "feed_forward": width, "router_bias": float(bias)}
    model |= {"shared_experts": (shared or 0) / width, "shared_feed_forward": shared or 0}
    if shared and keys.on("moe_shared_expert_gate"):
        model["shared_gate"] = 1.0
    moe = _pattern(keys, "moe_layer_freq", every if every > 1 and pattern is None else pattern, layers)
    if moe is None:
        return
    dense = layers - sum(moe)
    model |= {"dense_layers": dense, "dense_feed_forward": inner}
    first = moe == [0] * dense + [1] * (layers - dense)
    if dense and not first:
        model["alternating_dense"] = 1.0
        if any(one == two for one, two in itertools.pairwise(moe)):
            notes.append(f"{dense} dense layers lie among those of experts; taken to alternate with them")


def _pattern(keys: Keys, key: str, value: Any, layers: int) -> list[int] | None:
    """1 for each layer of a pattern such as `([0]*3+[1]*11)`, or 1 for every n-th; None where it is missing."""
    if value is None:
        return None
    if isinstance(value, list):
        pattern = [one if isinstance(one, int) else -1 for one in value]
    else:
        text = str(value).replace(" ", "")
        if re.fullmatch(r"\d{1,4}", text) and int(text) > 0:
            return [1 if layer % int(text) == 0 else 0 for layer in range(layers)]
        pattern = _terms(text) if len(text) <= 400 else []
    if len(pattern) != layers or not set(pattern) <= {0, 1}:
        needed = f"a whole number, or a pattern of {layers} zeros and ones such as ([0]*1+[1]*{layers - 1})"
        raise keys.refuse(key, value, needed)
    return pattern


def _terms(text: str) -> list[int]:
    """The list that sums of lists and their multiples make; empty if the text is anything else."""
    while text.startswith("(") and text.endswith(")") and _closes_last(text):
        text = text[1:-1]
    found: list[int] = []
    for term in _summands(text):
        head, _, times = term.rpartition("*") if re.search(r"\*\d{1,4}$", term) else (term, "", "1")
        if head.startswith("(") and head.endswith(")"):
            inner = _terms(head)
        elif re.fullmatch(r"\[[01](,[01])*\]", head):
            inner = [int(one) for one in head[1:-1].split(",")]
        else:
            return []
        if not inner or len(found) + len(inner) * int(times) > 10_000:
            return []
        found += inner * int(times)
    return found


def _summands(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "+" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _closes_last(text: str) -> bool:
    """Whether the first parenthesis closes at the end of the text."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place == len(text) - 1
    return False


def _details(keys: Keys, model: Shape, says: dict[str, bool]) -> None:
    """Norms, biases, positions and tying, which matter to the count of parameters alone."""
    norm = keys.word("normalization")
    if norm is None:
        model["norm"] = "layer" if says["layer_norm"] else "rms"
    else:
        model["norm"] = "rms" if "rms" in norm.lower() else "layer"
    keys.skip("apply_layernorm_1p", "layernorm_zero_centered_gamma")
    biases = keys.flag("add_bias_linear", "bias", default=says["biases"])
    if keys.on("disable_bias_linear"):
        biases = False
    model["linear_bias"] = float(bool(biases))
    model["qkv_bias"] = float(keys.on("add_qkv_bias", "qkv_bias") or bool(biases))
    tied = says["tied"]
    if (shared := keys.flag("share_embeddings_and_output_weights")) is not None:
        tied = shared
    if (untied := keys.flag("untie_embeddings_and_output_weights")) is not None:
        tied = not untied
    model["tied"] = float(tied)
    positions = keys.word("position_embedding_type", default="learned_absolute" if says["layer_norm"] else "rope")
    length = keys.whole("max_position_embeddings")
    rotated = keys.on("use_rotary_position_embeddings")
    if positions == "learned_absolute" and length is not None and not rotated:
        model["learned_positions"] = length
    model["norms_per_layer"] = 2.0


def _vocabulary(keys: Keys, tensor: int, notes: list[str]) -> int | None:
    """Rows of the embedding, padded as Megatron-LM does; None where only the tokenizer knows."""
    padded = keys.whole("padded_vocab_size")
    given = keys.whole("vocab_size")
    divisor = keys.whole("make_vocab_size_divisible_by") or 128
    pad = keys.flag("should_pad_vocab", default=True)
    if padded is not None:
        return padded
    if given is None:
        return None
    if not pad:
        return given
    rows = divisor * tensor * math.ceil(given / (divisor * tensor))
    if rows != given:
        notes.append(f"vocabulary of {given} padded to {rows}, a multiple of {divisor} x tensor {tensor}")
    return rows
