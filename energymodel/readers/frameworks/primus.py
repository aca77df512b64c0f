"""Primus's experiments as files of the framework that they run."""

import re
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.readers.frameworks.torchtitan import flavor_shape
from energymodel.readers.training.interpreter import Hook, Prepared, preset_of
from energymodel.readers.training.interpreter import framework as rules
from energymodel.readers.training.keys import LONGEST_TEXT, quoted, table_of

DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*)(?::([^${}]*))?\}")
FRAMEWORKS = ("megatron", "torchtitan", "maxtext", "megatron_bridge")
TRAINERS = ("pre_trainer", "post_trainer", "sft_trainer", "trainer")
TITAN_NAME = re.compile(r"(llama3|llama3\.1|llama4|deepseek_v3|qwen3|gpt_oss)_([\w.\-]+?)(-fp8|-bf16)?$", re.IGNORECASE)


def prepare(table: dict[str, Any], where: str) -> Prepared:
    """The overrides of an experiment; its model is a file of Primus that is only named."""
    modules = table.get("modules")
    if isinstance(modules, list):
        modules = {str(item.get("name")): item for item in modules if isinstance(item, Mapping)}
    modules = table_of(modules, where, "modules", "a table of modules")
    trainer = next((name for name in TRAINERS if isinstance(modules.get(name), Mapping)), None)
    if trainer is None:
        raise InputError(f'"{where}": modules has no trainer; one of {", ".join(TRAINERS)} is read.')
    notes: list[str] = []
    module = _filled(modules[trainer], notes)
    framework, model = str(module.get("framework", "megatron")), module.get("model")
    if framework not in FRAMEWORKS:
        raise InputError(
            f'"{where}": modules.{trainer}.framework is {quoted(framework)}. {suggest(framework[:40], FRAMEWORKS)}'
        )
    overrides = module.get("overrides") or module.get("params") or {}
    overrides = table_of(overrides, where, f"modules.{trainer}.overrides")
    name = re.sub(r"\.ya?ml$", "", model)[:200] if isinstance(model, str) else None
    words = {"model_name": name, "preset": preset_of(name.replace("_", "-"))} if name else {}
    if framework == "torchtitan":
        match = TITAN_NAME.match(name or "")
        family, flavor = (match[1].lower().replace("llama3.1", "llama3"), match[2]) if match else ("llama3", "unknown")
        hyphened = flavor.replace("_", "-")
        titan = overrides.get("model", model)
        defaults = {
            "name": family,
            "flavor": hyphened if flavor_shape(family, hyphened) is not None else flavor,
            "converters": ["float8"] if name and name.lower().endswith("fp8") else [],
        }
        overrides = {**overrides, "model": defaults | dict(titan if isinstance(titan, Mapping) else {})}
        return Prepared(overrides, words, tuple(notes), framework="torchtitan")
    if framework == "maxtext":
        named = {"model_name": "default", **overrides, "base_config": "base.yml"}
        return Prepared(named, words, tuple(notes), framework="maxtext")
    return Prepared(
        rules("primus")["laid_below"] | {str(key): value for key, value in overrides.items()}, words, tuple(notes)
    )


def _filled(value: Any, notes: list[str]) -> Any:
    """A copy in which `${NAME:default}` is its default; one without default stays, and is refused where it matters."""
    if isinstance(value, Mapping):
        return {str(key): _filled(item, notes) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, notes) for item in value]
    if not isinstance(value, str) or "${" not in value or len(value) > LONGEST_TEXT:
        return value
    if any(match[2] is not None for match in DEFAULT.finditer(value)):
        notes[:] = ["variables of the environment are taken at the defaults that the file gives them"]
    text = DEFAULT.sub(lambda match: match[0] if match[2] is None else match[2].strip("\"' "), value)
    return None if text in ("null", "") else text


HOOK = Hook(prepare)
