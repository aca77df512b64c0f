"""Models, headers and converters of torchtitan, and the layers that version 0.3 saves with a run."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.expressions import data_file, work_out
from energymodel.readers.training.config import SIZES, Shape
from energymodel.readers.training.interpreter import Hook, Prepared
from energymodel.readers.training.keys import Keys, at

PRESET_LINE = re.compile(r"preset for (\d{1,6}) ?x? ?([A-Za-z]{0,3}\d{1,4}[A-Za-z]{0,2})? ?GPUs", re.IGNORECASE)
VARIANT = re.compile(r"_(flex|varlen|sdpa)(_attn)?$")
MOST_LAYERS = 1000


def flavors() -> dict[str, dict[str, dict[str, Any]]]:
    """Shapes by name and flavor."""
    return data_file(__file__, "_torchtitan_models.toml")


def flavor_shape(name: str, flavor: str) -> Shape | None:
    """The shape of a model that torchtitan knows by name and flavor; None for others."""
    family = flavors().get(name, {})
    key = {key.lower(): key for key in family if key != "all"}.get(VARIANT.sub("", flavor).lower())
    if key is None:
        return None
    words = family["all"] | family[key]
    return {word: value if isinstance(value, str) else float(value) for word, value in words.items()}


def header_of(text: str) -> str:
    """Comments before the first key, one of which says for how many accelerators the file is meant."""
    return re.match(r"(?:[ \t]*(?:#.*)?\n){0,40}", text)[0]  # pyright: ignore[reportOptionalSubscript]


def prepare(table: dict[str, Any], where: str) -> Prepared:
    """The table, and what its header, its converters and the layers that are saved with it say."""
    match = PRESET_LINE.search(str(table.pop("#", "")))
    section = "model_spec" if table.get("model_spec") is not None else "model"
    keys, saved = Keys(table, where), at(table, f"{section}.model")
    shape = flavor_shape(keys.word(f"{section}.name") or "llama3", keys.word(f"{section}.flavor") or "debugmodel") or {}
    layers = saved_shape(saved)  # unless the layers that are saved with the run say another
    if layers and any(layers[word] != shape.get(word) for word in ("layers", "hidden", "vocabulary")):
        shape = layers
    recipe, adapters = _converters(table, where)
    rank = next((item["rank"] for item in _linears(_layers(saved)[:1]) if isinstance(item.get("rank"), int)), None)
    words: dict[str, Any] = {
        "model": shape,
        "accelerators": int(match[1]) if match and int(match[1]) else None,
        "accelerator": match[2] if match and int(match[1]) else None,
        "precision_recipe": recipe,
        "adapters": adapters or (None if rank is None else f"lora, rank {rank}"),
    }
    return Prepared(table, words)


def _converters(table: dict[str, Any], where: str) -> tuple[str | None, str | None]:
    """Recipe of fp8, and adapters, that the model is converted to."""
    model, items = table.get("model"), at(table, "model_converters.converters")
    names = Keys(model, where, "model.").words("converters") if isinstance(model, Mapping) else ()
    recipe, adapters = None, None
    for item in items if isinstance(items, list) else []:
        if isinstance(item, Mapping) and "rank" in item:
            adapters = f"lora, rank {str(item['rank'])[:10]}"
        elif isinstance(item, Mapping):
            names = (*names, "mx" if str(item.get("recipe_name", "")).startswith("mx") else "float8")
            recipe = str(item["recipe_name"])[:40] if item.get("recipe_name") else None
    adapters = "lora" if any("lora" in name for name in names) else adapters
    if any("mx" in name for name in names):
        return recipe or "mxfp8", adapters
    if not any("float8" in name for name in names):
        return None, adapters
    # `[float8]` in v0.1, `[quantize.linear.float8]` in v0.2
    path = "quantize.linear.float8" if table.get("float8") is None else "float8"
    return recipe or str(at(table, f"{path}.recipe_name") or "tensorwise")[:40], adapters


def saved_shape(model: Any) -> Shape:
    """The words of the saved layers; empty if one has parts that these words do not describe, or for unlike layers."""
    layers = _layers(model)
    rules = data_file(__file__, "_torchtitan_layers.toml")
    understood = {part: f"{rules['understood'][part]} {rules['understood']['harmless']}" for part in PARTS}
    for layer in layers:
        for part, names in understood.items():
            keys = ((at(layer, part) if part else layer) or {}).items()
            if any(value is not None and key not in names.split() for key, value in keys):
                return {}
    try:
        heads = [_words(layer, "latent" if at(layer, "attention.kv_lora_rank") else "grouped") for layer in layers]
        blocks = [_words(layer, "mixture" if layer.get("moe") is not None else "dense") for layer in layers]
        mixed, dense = ([block for block in blocks if ("experts" in block) is holds] for holds in (True, False))
        if not layers or any(item != group[0] for group in (heads, mixed, dense) for item in group):
            return {}
        shape = _words(model, "whole") | heads[0] | (mixed or dense)[0]
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return {}
    if mixed and dense:
        shape |= {"dense_layers": len(dense), "dense_feed_forward": dense[0]["feed_forward"]}
        shape |= {"alternating_dense": 1.0} if blocks != dense + mixed else {}
    return shape


PARTS = ("", "attention", "moe")


def _layers(model: Any) -> list[Mapping[str, Any]]:
    layers = model.get("layers") if isinstance(model, Mapping) else None
    if not isinstance(layers, list) or len(layers) > MOST_LAYERS:
        return []
    return layers if all(isinstance(layer, Mapping) for layer in layers) else []


def _words(layer: Mapping[str, Any], section: str) -> Shape:
    """The words of a part of a layer, by the expressions of its section."""
    words: dict[str, Any] = {
        "get": lambda path: at(layer, path),
        "len": len,
        "count": lambda *paths: _count(next((value for path in paths if (value := at(layer, path))), None)),
        "has_bias": lambda path: float(any(item.get("bias") for item in _linears(dict(at(layer, path))))),
        **{function.__name__: function for function in (int, float, bool)},
    }
    rules = data_file(__file__, "_torchtitan_layers.toml")[section]
    work_out(rules, words)
    return {word: words[word] for word in rules}


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


def named(words: Mapping[str, Any]) -> dict[str, str]:
    """Name and flavor of a run's model: as it is called, or of the flavor that has its shape.

    **Raises:** `InputError` where torchtitan has no such flavor.
    """
    name, _, flavor = (words["model_name"] or "").partition(" ")
    if name in flavors() and flavor:
        return {"name": name, "flavor": flavor}
    for name, flavor in [(name, flavor) for name, family in flavors().items() for flavor in family.keys() - {"all"}]:
        sizes = [(words[word], value) for word, value in (flavor_shape(name, flavor) or {}).items() if word in SIZES]
        if all(own == value or (own is None and value in (0, 1)) for own, value in sizes):
            return {"name": name, "flavor": flavor}
    raise InputError("it knows models by name and flavor, and no flavor has this shape")


HOOK = Hook(prepare, words=named)
