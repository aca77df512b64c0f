"""Models, headers and converters of torchtitan's configurations."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from energymodel.readers.frameworks.torchtitan_saved import saved_adapters, saved_recomputation, saved_shape
from energymodel.readers.training.config import Shape
from energymodel.readers.training.interpreter import Hook, Prepared, Run
from energymodel.readers.training.keys import Keys

PRESET_LINE = re.compile(r"preset for (\d{1,6}) ?x? ?([A-Za-z]{0,3}\d{1,4}[A-Za-z]{0,2})? ?GPUs", re.IGNORECASE)
VARIANT = re.compile(r"_(flex|varlen|sdpa)(_attn)?$")
DEGREES = ("data_parallel_replicate_degree", "data_parallel_shard_degree")


@cache
def flavors() -> dict[str, dict[str, dict[str, Any]]]:
    """Shapes by name and flavor."""
    return tomllib.loads(Path(__file__).with_name("_torchtitan_models.toml").read_text(encoding="utf-8"))


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
    lines = []
    for line in text.splitlines()[:40]:
        if line.strip() and not line.lstrip().startswith("#"):
            break
        lines.append(line)
    return "\n".join(lines)


def prepare(table: dict[str, Any], where: str) -> Prepared:
    """The table with the degrees that files before v0.1 have in `training` where later ones have them."""
    match = PRESET_LINE.search(str(table.pop("#", "")))
    training, spec = table.get("training"), table.get("model_spec", table.get("model"))
    if isinstance(training, dict) and table.get("parallelism") is None:
        moved = {key: value for key, value in training.items() if key.endswith("_parallel_degree") or key in DEGREES}
        if moved:
            left = {key: value for key, value in training.items() if key not in moved}
            table |= {"training": left, "parallelism": moved}
    saved = spec.get("model") if isinstance(spec, Mapping) else None
    recipe, adapters = _converters(table, where)
    words: dict[str, Any] = {
        "model": _shape(Keys(table, where), saved),
        "accelerators": int(match[1]) if match and int(match[1]) else None,
        "accelerator": match[2] if match and int(match[1]) else None,
        "precision_recipe": recipe,
        "adapters": adapters or saved_adapters(saved),
        "first_optimizer": _first_optimizer(table),
        "saved_policy": None,
    }
    if "activation_checkpoint" in table:
        words["saved_policy"] = saved_recomputation(table["activation_checkpoint"])
    return Prepared(table, words)


def _shape(keys: Keys, saved: Any) -> Shape:
    """The shape of the flavor, unless the layers that are saved with the run say another."""
    section = "model_spec" if keys.has("model_spec") else "model"
    shape = flavor_shape(keys.word(f"{section}.name") or "llama3", keys.word(f"{section}.flavor") or "debugmodel")
    layers = saved_shape(saved)
    if layers and any(layers[word] != (shape or {}).get(word) for word in ("layers", "hidden", "vocabulary")):
        return layers
    return shape or {}


def _converters(table: dict[str, Any], where: str) -> tuple[str | None, str | None]:
    """Recipe of fp8, and adapters, that the model is converted to."""
    model, later = table.get("model"), table.get("model_converters")
    names = Keys(model, where, "model.").words("converters") if isinstance(model, Mapping) else ()
    items = later.get("converters") if isinstance(later, Mapping) else None
    recipe, adapters = None, None
    for item in items if isinstance(items, list) else []:
        if isinstance(item, Mapping) and "rank" in item:
            adapters = f"lora, rank {str(item['rank'])[:10]}"
        elif isinstance(item, Mapping):
            names = (*names, "mx" if str(item.get("recipe_name", "")).startswith("mx") else "float8")
            recipe = str(item["recipe_name"])[:40] if item.get("recipe_name") else None
    if any("lora" in name for name in names):
        adapters = "lora"
    if any("mx" in name for name in names):
        return recipe or "mxfp8", adapters
    if any("float8" in name for name in names):
        return recipe or _float8_recipe(table), adapters
    return None, adapters


def _float8_recipe(table: Mapping[str, Any]) -> str:
    """The recipe of `[float8]` in v0.1 or `[quantize.linear.float8]` in v0.2."""
    section: Any = table.get("float8")
    if section is None:
        section = table
        for key in ("quantize", "linear", "float8"):
            section = section.get(key) if isinstance(section, Mapping) else None
    recipe = section.get("recipe_name") if isinstance(section, Mapping) else None
    return str(recipe)[:40] if recipe else "tensorwise"


def _first_optimizer(table: Mapping[str, Any]) -> str | None:
    """The optimizer of the first group of parameters, in files that have groups."""
    section = table.get("optimizer")
    groups = section.get("param_groups") if isinstance(section, Mapping) else None
    first = groups[0] if isinstance(groups, list) and groups and isinstance(groups[0], Mapping) else {}
    name = first.get("optimizer_name")
    return name[:40] if isinstance(name, str) else None


def count_of(_: Run, items: Any) -> int:
    """Items of a list; 0 for what is none."""
    return len(items) if isinstance(items, list) else 0


HOOK = Hook(prepare, (count_of,))
