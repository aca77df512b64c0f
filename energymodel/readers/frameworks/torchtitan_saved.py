"""Models and recomputation in the JSON that torchtitan 0.3 saves, layer by layer."""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from energymodel.readers.expressions import evaluate
from energymodel.readers.training.config import Shape

MOST_LAYERS = 1000
RECOMPUTED = ("memory_budget", "force_recompute_mm_shapes_by_fqns", "per_op_sac_force_recompute_mm_shapes_by_fqns")
"""Keys that only policies of selective recomputation have."""


@cache
def _rules() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(Path(__file__).with_name("_torchtitan_layers.toml").read_text(encoding="utf-8"))


def saved_recomputation(section: Any) -> str | None:
    """Kind of recomputation of a policy that is saved without its name; None if the section has a name."""
    if section is None:
        return "none"
    if not isinstance(section, Mapping) or "mode" in section or not section:
        return None
    return "selective" if any(key in section for key in RECOMPUTED) else "full"


def saved_adapters(model: Any) -> str | None:
    """Rank of the adapters that the saved layers have, if any."""
    rank = next((item["rank"] for item in _linears(_layers(model)[:1]) if isinstance(item.get("rank"), int)), None)
    return None if rank is None else f"lora, rank {rank}"


def saved_shape(model: Any) -> Shape:
    """The words of the model; empty if a layer has parts that these words do not describe, or unlike layers."""
    layers = _layers(model)
    try:
        return _shape(model, layers) if layers and not any(_has_others(layer) for layer in layers) else {}
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return {}


def _layers(model: Any) -> list[Mapping[str, Any]]:
    layers = model.get("layers") if isinstance(model, Mapping) else None
    if not isinstance(layers, list) or not 0 < len(layers) <= MOST_LAYERS:
        return []
    return layers if all(isinstance(layer, Mapping) for layer in layers) else []


def _shape(model: Mapping[str, Any], layers: list[Mapping[str, Any]]) -> Shape:
    heads = [_words(layer, "latent" if _at(layer, "attention.kv_lora_rank") else "grouped") for layer in layers]
    blocks = [_words(layer, "mixture" if layer.get("moe") is not None else "dense") for layer in layers]
    mixed, dense = ([block for block in blocks if ("experts" in block) is holds] for holds in (True, False))
    if any(item != group[0] for group in (heads, mixed, dense) for item in group):
        return {}
    shape: Shape = {
        "layers": len(layers),
        "hidden": _count(model["dim"]),
        "vocabulary": _count(model["vocab_size"]),
        "tied": float(bool(model.get("enable_weight_tying"))),
        "norm": "rms",
        "norms_per_layer": 2.0,
        "experts": 1.0,
        **heads[0],
        **(mixed or dense)[0],
    }
    if mixed and dense:
        shape |= {"dense_layers": len(dense), "dense_feed_forward": dense[0]["feed_forward"]}
        if blocks != dense + mixed:
            shape["alternating_dense"] = 1.0
    return shape


def _words(layer: Mapping[str, Any], section: str) -> Shape:
    """The words of a part of a layer, by the expressions of its section."""
    words: dict[str, Any] = {
        "get": lambda path: _at(layer, path),
        "count": lambda *paths: _count(next((value for path in paths if (value := _at(layer, path))), None)),
        "has_bias": lambda path: float(any(item.get("bias") for item in _linears(dict(_at(layer, path))))),
        "int": int,
        "float": float,
        "bool": bool,
    }
    rules = _rules()[section]
    for word, expression in rules.items():
        words[word] = evaluate(expression, words)
    return {word: words[word] for word in rules}


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _has_others(layer: Mapping[str, Any]) -> bool:
    """Whether a layer has parts that are not described."""
    rules = _rules()["understood"]
    return any(
        value is not None and key not in f"{rules[part]} {rules['harmless']}".split()
        for part in ("", "attention", "moe")
        for key, value in ((_at(layer, part) if part else layer) or {}).items()
    )


def _linears(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Products with weights in a part of a model."""
    if isinstance(value, Mapping) and "in_features" in value:
        yield value
    elif isinstance(value, Mapping | list) and depth < 8:
        for item in value.values() if isinstance(value, Mapping) else value[:MOST_LAYERS]:
            yield from _linears(item, depth + 1)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
        raise ValueError("no count")
    return value
