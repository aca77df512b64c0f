"""What does the JSON that torchtitan 0.3 saves say of the model, layer by layer, and of its recomputation?"""

from collections.abc import Iterator, Mapping
from typing import Any

from energymodel.readers.training.config import Shape

HARMLESS = {"param_init", "sharding_config", "rope", "inner_attention", "mscale", "use_rope", "fuse_qkv", "dim"}
ATTENTION = HARMLESS | {
    "n_heads", "n_kv_heads", "head_dim", "qkv_linear", "wo", "qk_norm", "wq", "wkv", "wq_a", "wq_b", "wkv_a", "wkv_b",
    "q_lora_rank", "kv_lora_rank", "q_norm", "kv_norm", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
}  # fmt: skip
LAYER = HARMLESS | {"attention", "feed_forward", "moe", "attention_norm", "ffn_norm"}
MIXTURE = HARMLESS | {"num_experts", "routed_experts", "router", "load_balance_coeff", "shared_experts"}
MOST_LAYERS = 1000
RECOMPUTED = ("memory_budget", "force_recompute_mm_shapes_by_fqns", "per_op_sac_force_recompute_mm_shapes_by_fqns")
"""Keys that only policies of selective recomputation have."""


def saved_recomputation(section: Any) -> str | None:
    """Kind of recomputation of a policy that is saved without its name; None if the section has a name."""
    if section is None:
        return "none"
    if not isinstance(section, Mapping) or "mode" in section or not section:
        return None
    return "selective" if any(key in section for key in RECOMPUTED) else "full"


def saved_adapters(model: Any) -> str | None:
    """Rank of the adapters that the saved layers have, if any."""
    rank = next((one["rank"] for one in _linears(_layers(model)[:1]) if isinstance(one.get("rank"), int)), None)
    return None if rank is None else f"lora, rank {rank}"


def saved_shape(model: Any) -> Shape:
    """The words of the model; empty if a layer has parts that these words do not tell, or unlike layers."""
    layers = _layers(model)
    try:
        return _shape(model, layers) if layers else {}
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return {}


def _layers(model: Any) -> list[Mapping[str, Any]]:
    layers = model.get("layers") if isinstance(model, Mapping) else None
    if not isinstance(layers, list) or not 0 < len(layers) <= MOST_LAYERS:
        return []
    return layers if all(isinstance(one, Mapping) for one in layers) else []


def _shape(model: Mapping[str, Any], layers: list[Mapping[str, Any]]) -> Shape:
    if any(_unknown(layer) for layer in layers):
        return {}
    kinds = [(_heads(layer["attention"]), _block(layer)) for layer in layers]
    mixed = [block for _, block in kinds if "experts" in block]
    dense = [block for _, block in kinds if "experts" not in block]
    if len({str(heads) for heads, _ in kinds}) > 1 or len({str(one) for one in mixed}) > 1 or _unlike(dense):
        return {}
    found: Shape = {
        "layers": len(layers),
        "hidden": _count(model["dim"]),
        "vocabulary": _count(model["vocab_size"]),
        "tied": float(bool(model.get("enable_weight_tying"))),
        "norm": "rms",
        "norms_per_layer": 2.0,
        **kinds[0][0],
        **(mixed or dense)[0],
    }
    if mixed and dense:
        found |= {"dense_layers": len(dense), "dense_feed_forward": dense[0]["feed_forward"]}
        if ["experts" in block for _, block in kinds] != [False] * len(dense) + [True] * len(mixed):
            found["alternating_dense"] = 1.0
    return {"experts": 1.0, **found}


def _unlike(blocks: list[Shape]) -> bool:
    return len({str(one) for one in blocks}) > 1


def _unknown(layer: Mapping[str, Any]) -> bool:
    """Whether a layer has parts that are not described."""
    parts = [(layer, LAYER), (layer["attention"], ATTENTION), (layer.get("moe") or {}, MIXTURE)]
    return any(value is not None and key not in known for part, known in parts for key, value in part.items())


def _heads(attention: Mapping[str, Any]) -> Shape:
    heads, bias = _count(attention["n_heads"]), float(bool(attention["wo"].get("bias")))
    if attention.get("kv_lora_rank") is not None:
        rotated = _count(attention["qk_rope_head_dim"])
        return {
            "heads": heads,
            "kv_heads": heads,
            "head_size": _count(attention["qk_nope_head_dim"]) + rotated,
            "rope_head_size": rotated,
            "value_head_size": _count(attention["v_head_dim"]),
            "kv_rank": _count(attention["kv_lora_rank"]),
            "query_rank": int(attention.get("q_lora_rank") or 0),
            "qk_norm": "latent",
            "linear_bias": bias,
            "qkv_bias": bias,
        }
    fused = attention["qkv_linear"]
    biased = any(bool(one.get("bias")) for one in _linears(fused))
    return {
        "heads": heads,
        "kv_heads": _count(attention.get("n_kv_heads") or fused.get("n_kv_heads") or heads),
        "head_size": _count(attention.get("head_dim") or fused["head_dim"]),
        "qk_norm": "none" if attention.get("qk_norm") is None else "head",
        "linear_bias": bias,
        "qkv_bias": float(biased),
    }


def _block(layer: Mapping[str, Any]) -> Shape:
    mixture = layer.get("moe")
    if mixture is None:
        block = layer["feed_forward"]
        return {"feed_forward": _count(block["w1"]["out_features"]), "gated": float(block.get("w3") is not None)}
    inner = mixture["routed_experts"]["inner_experts"]
    width, shared = _count(inner["hidden_dim"]), mixture.get("shared_experts")
    wide = 0 if shared is None else _count(shared["w1"]["out_features"])
    return {
        "experts": _count(mixture["num_experts"]),
        "active_experts": _count(mixture["router"]["top_k"]),
        "feed_forward": width,
        "gated": 1.0,
        "shared_feed_forward": wide,
        "shared_experts": wide / width,
        "router_bias": float(mixture.get("load_balance_coeff") is not None),
    }


def _linears(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Products with weights in a part of a model."""
    if isinstance(value, Mapping):
        if "in_features" in value:
            yield value
        elif depth < 8:
            for one in value.values():
                yield from _linears(one, depth + 1)
    elif isinstance(value, list) and depth < 8:
        for one in value[:MOST_LAYERS]:
            yield from _linears(one, depth + 1)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
        raise ValueError("no count")
    return value
