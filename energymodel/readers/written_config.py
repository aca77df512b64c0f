"""Configuration files of training frameworks for a run: the data of their readers, inverted.

An entry of a framework that reads a key is written into that key. The table `written` of the framework gives all other
keys, as expressions of the fields of `TrainingConfig` and of the words of the model. What is written is read again.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from energymodel.errors import InputError
from energymodel.readers.expressions import evaluate
from energymodel.readers.training.config import MODEL_WORDS, VECTOR_WORDS, TrainingConfig
from energymodel.readers.training.interpreter import FIELDS, SECTIONS, Hook, framework, interpret
from energymodel.readers.training_config import HOOKS, KINDS

USUAL = {"recomputation": "none", "schedule": "1f1b", "precision": "bf16"}
"""What the silence of a framework means; a degree of 1, ZeRO stage 0 and all that is off go without saying, too."""
ELSEWHERE = (
    *("kind", "notes", "ignored", "preset", "model_name", "model", "overlaps", "optimizer", "tokenizer"),
    *("accelerator", "precision_recipe", "tokens", "accumulation", "cuda_graphs"),
)
"""Fields that a file need not say as they are: names, what follows from others, and what frameworks choose."""
ASKED = ("chips", "data", "sequence", "batch_sequences", "steps")
"""Fields that the reader asks for where a framework's files say nothing of them."""
CALLED = {"sharding": "ZeRO stage", "interleave": "virtual stages"}
"""Fields by what messages call them."""
NAMES = {
    **{function.__name__: function for function in (int, math.ceil, round, str)},
    "flag": lambda value: None if value is None else bool(value),
}
"""Functions of the expressions."""


class Written(NamedTuple):
    """The table of a configuration, and the words of the run that it does not hold."""

    table: dict[str, Any]
    lacking: dict[str, Any]


def write_training_config(config: TrainingConfig, kind: str, node: int = 8) -> Written:
    """The configuration of a framework that reads as a run.

    Keys of the table that begin with `#` are those of the launcher: `#nodes`, `#per_node`.

    **Arguments:**

    - `config`: the run; what is None is left to the framework.
    - `kind`: the framework, one of `KINDS`.
    - `node`: most accelerators of a node [1].

    **Raises:** `InputError` that names what the framework cannot express, its value, and the frameworks that can.
    """
    written, wrong = _attempt(config, kind, node)
    if wrong:
        others = [other for other in KINDS if other != kind and not _attempt(config, other, node)[1]]
        what = ", ".join(f"{CALLED.get(name, name).replace('_', ' ')} {_whole(value)}" for name, value in wrong.items())
        instead = f"Choose {' or '.join(others)}, which can." if others else "No framework that is known here can."
        raise InputError(f"{kind} cannot express {what}. {instead}")
    return written


def _attempt(config: TrainingConfig, kind: str, node: int) -> tuple[Written, dict[str, Any]]:
    """The table of a run, and the words of it that come out otherwise when it is read."""
    rules = framework(kind)
    try:
        table = _table(rules, _words(config, rules, kind, node))
        again = interpret(copy.deepcopy(table), f"a file of {kind}", kind, HOOKS)
    except InputError as error:
        return Written({}, {}), {"this run:": str(error).rstrip(".")}
    lacking, wrong = _differences(config, again)
    if not wrong and again.chips is None and config.chips is not None:
        lacking = {"chips": config.chips, **_differences(config, again.on(config.chips))[0]}
    return Written(table, lacking), wrong


def _words(config: TrainingConfig, rules: Mapping[str, Any], kind: str, node: int) -> dict[str, Any]:
    """The words of a run for expressions, None where it has none; whole numbers as such."""
    words = dict.fromkeys(MODEL_WORDS) | {name: getattr(config, name) for name in FIELDS} | dict(config.model)
    words = {name: _whole(value) for name, value in words.items()}
    chips = config.chips or 0
    words["per_node"] = next((size for size in range(min(node, chips), 0, -1) if chips % size == 0), None)
    add = HOOKS.get(rules.get("hook", kind), Hook()).words
    return words if add is None else words | add(words)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _table(rules: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a framework with the values that they have for a run, in the tables that hold them."""
    keys: dict[str, Any] = {}
    for name, entry in [item for section in SECTIONS for item in rules.get(section, {}).items()]:
        is_word = name in FIELDS or name in MODEL_WORDS
        if is_word and isinstance(entry, Mapping) and "refuse" not in entry and words[name] is not None:
            values = {ours: theirs for theirs, ours in reversed(entry.get("values", {}).items())}
            keys[entry["key"].split()[0]] = values.get(words[name]) if values else words[name]
    keys |= {key: evaluate(expression, {**NAMES, **words}) for key, expression in rules.get("written", {}).items()}
    place = {key: section for section, names in rules.get("placed", {}).items() for key in names.split()}
    table: dict[str, Any] = {}
    for key, value in keys.items():
        if value is not None:
            section = place.get(key, rules.get("within", ""))
            *path, last = f"{section}.{key}".lstrip(".").split(".") if not key.startswith("#") else [key]
            inner = table
            for name in path:
                inner = inner.setdefault(name, {})
            inner[last] = value
    return table


def _differences(config: TrainingConfig, again: TrainingConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Words of a run that its file does not hold, and those that it holds otherwise."""
    lacking, wrong = dict[str, Any](), dict[str, Any]()
    for name in FIELDS:
        value, other = getattr(config, name), getattr(again, name)
        is_same = value == other or (isinstance(other, float) and value is not None and math.isclose(value, other))
        if name in ELSEWHERE or value is None or is_same or _goes_without_saying(name, value, other, config):
            continue
        (lacking if name in ASKED and other is None else wrong)[name] = value
    if ("tensor" in config.overlaps) != ("tensor" in again.overlaps):
        wrong["overlaps"] = ", ".join(config.overlaps)
    if config.preset is None or again.preset != config.preset:
        for name, value in config.model.items():
            other = again.model.get(name)
            if other == value or (value == 0 and other is None):
                continue
            padded = name == "vocabulary" and other and value < other < value + 1024 * (config.tensor or 1)
            (lacking if not again.model or name in VECTOR_WORDS or padded else wrong)[name] = value
    return lacking, wrong


def _goes_without_saying(name: str, value: Any, other: Any, config: TrainingConfig) -> bool:
    """Whether a value is what silence means, or has no effect in this run."""
    without = {"sequence_parallel": config.tensor, "schedule": config.pipeline, "interleave": config.pipeline}
    without |= {"context_collective": config.context, "expert_tensor": config.expert}
    if (name in without and without[name] in (None, 1)) or (name == "recomputation" and config.recomputed_layers):
        return True
    return other in (None, ()) and value in (USUAL.get(name), False, (), 0 if name == "sharding" else 1)
