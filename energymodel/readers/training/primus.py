"""What does a Primus experiment say: overrides over a model and a trainer of Primus, for one of three frameworks?"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.readers.training.config import TrainingConfig
from energymodel.readers.training.keys import shown
from energymodel.readers.training.maxtext import read_maxtext
from energymodel.readers.training.megatron import from_arguments
from energymodel.readers.training.names import preset_of
from energymodel.readers.training.torchtitan import flavor_shape, read_torchtitan

DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*)(?::([^${}]*))?\}")
PRIMUS = {"biases": False, "tied": False, "layer_norm": False, "groups_alone": False}
LAID_BELOW: dict[str, Any] = {
    "bf16": True,
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "context_parallel_size": 1,
    "sequence_parallel": True,
    "optimizer": "adam",
}
"""What Primus's own files (trainer_base.yaml, language_model.yaml in primus/configs) say where overrides are silent."""
FRAMEWORKS = ("megatron", "torchtitan", "maxtext", "megatron_bridge")
TRAINERS = ("pre_trainer", "post_trainer", "sft_trainer", "trainer")
LONGEST = 1000
TITAN_NAME = re.compile(r"(llama3|llama3\.1|llama4|deepseek_v3|qwen3|gpt_oss)_([\w.\-]+?)(-fp8|-bf16)?$", re.IGNORECASE)


def read_primus(table: dict[str, Any], where: str) -> TrainingConfig:
    """The run of an experiment; its model is a file of Primus that is only named."""
    modules = table.get("modules")
    if isinstance(modules, list):
        modules = {str(one.get("name")): one for one in modules if isinstance(one, Mapping)}
    if not isinstance(modules, Mapping):
        raise InputError(f'"{where}": modules is {shown(modules)}; it must be a table of modules.')
    chosen = next((name for name in TRAINERS if isinstance(modules.get(name), Mapping)), None)
    if chosen is None:
        raise InputError(f'"{where}": modules has no trainer; one of {", ".join(TRAINERS)} is read.')
    notes: list[str] = []
    module = _filled(modules[chosen], notes)
    framework, named = str(module.get("framework", "megatron")), module.get("model")
    if framework not in FRAMEWORKS:
        raise InputError(
            f'"{where}": modules.{chosen}.framework is {shown(framework)}. {suggest(framework[:40], FRAMEWORKS)}'
        )
    overrides = module.get("overrides") or module.get("params") or {}
    if not isinstance(overrides, Mapping):
        raise InputError(f'"{where}": modules.{chosen}.overrides is {shown(overrides)}; it must be a table of keys.')
    name = re.sub(r"\.ya?ml$", "", named)[:200] if isinstance(named, str) else None
    if framework == "torchtitan" and isinstance(named, Mapping):
        overrides = {"model": named, **overrides}
    if framework == "torchtitan":
        config = _titan(dict(overrides), name, where)
    elif framework == "maxtext":
        config = read_maxtext({"model_name": "default", **overrides, "base_config": "base.yml"}, where, "primus")
    else:
        arguments = LAID_BELOW | {str(key): value for key, value in overrides.items()}
        config = from_arguments(arguments, where, "primus", PRIMUS, recipe=True)
        notes.append(
            "what the overrides leave out is in Primus's own files: bf16, Adam and degrees of 1 are taken from there"
        )
    known = {"model_name": name, "preset": preset_of(_plain(name))} if name else {}
    return dataclasses.replace(config, **known, notes=(*notes, *config.notes))


def _titan(overrides: dict[str, Any], name: str | None, where: str) -> TrainingConfig:
    """A run of torchtitan, whose model Primus names in one word."""
    match = TITAN_NAME.match(name or "")
    family = match[1].lower().replace("llama3.1", "llama3") if match else "llama3"
    flavor = match[2] if match else ""
    model = overrides.get("model")
    model = dict(model) if isinstance(model, Mapping) else {}
    for known in (flavor, flavor.replace("_", "-")):
        if flavor_shape(family, known) is not None:
            flavor = known
    converters = ["float8"] if name and name.lower().endswith("fp8") else []
    told = {"name": family, "flavor": flavor or "unknown", "converters": converters}
    return read_torchtitan(overrides | {"model": told | model}, where, "primus")


def _plain(name: str | None) -> str | None:
    """The name with hyphens, as other frameworks write it."""
    return name.replace("_", "-") if name else None


def _filled(value: Any, notes: list[str]) -> Any:
    """A copy in which `${NAME:default}` is its default; one without default stays, and is refused where it matters."""
    if isinstance(value, Mapping):
        return {str(key): _filled(one, notes) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, notes) for one in value]
    if not isinstance(value, str) or "${" not in value or len(value) > LONGEST:
        return value

    def put(match: re.Match[str]) -> str:
        if match[2] is None:
            return match[0]
        note = "variables of the environment are taken at the defaults that the file gives them"
        if note not in notes:
            notes.append(note)
        return match[2].strip("\"' ")

    text = DEFAULT.sub(put, value)
    return None if text in ("null", "") else text
