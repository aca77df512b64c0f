"""Configuration files of training frameworks for a run: the data of their readers, inverted.

An entry of a framework that reads a key is written into that key. The table `written` of the framework gives all other
keys, as expressions of the fields of `TrainingConfig` and of the words of the model. What is written is read again.
"""

import copy
import dataclasses
import math
from collections.abc import Mapping
from functools import reduce
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.expressions import data_file, evaluate
from energymodel.readers.training.config import MODEL_WORDS, SIZES, TrainingConfig
from energymodel.readers.training.interpreter import FIELDS, SECTIONS, Hook, framework, interpret, recognized
from energymodel.readers.training_config import HOOKS, KINDS

Table = dict[str, Any]
RULES = data_file(__file__, "written_config.toml")
WRITTEN = tuple(kind for kind in KINDS if framework(kind).get("suffix"))
"""Frameworks for which configurations are written; of the others they are only read."""
NAMES = {
    **{function.__name__: function for function in (int, list, math.ceil, max, round, str)},
    "flag": lambda value: None if value is None else bool(value),
}
"""Functions of the expressions."""


def write_training_config(config: TrainingConfig, kind: str, node: int = 8) -> tuple[Table, Table]:
    """The configuration of a framework that reads as a run.

    **Arguments:**

    - `config`: the run; what is None is left to the framework.
    - `kind`: the framework, one of `WRITTEN`.
    - `node`: most accelerators of a node [1].

    **Returns:** its table, in which keys of the launcher begin with `#`, and the words of the run that it lacks.

    **Raises:** `InputError` that names what the framework cannot express, its value, and the frameworks that can.
    """
    table, lacking, wrong = _attempt(config, kind, node)
    if wrong:
        others = [other for other in WRITTEN if other != kind and not _attempt(config, other, node)[-1]]
        called = {name: RULES["called"].get(name, name).replace("_", " ") for name in wrong}
        what = ", ".join(f"{called[name]} {_whole(value)}" for name, value in wrong.items())
        instead = f"Choose {' or '.join(others)}, which can." if others else "No framework that is known here can."
        raise InputError(f"{kind} cannot express {what}. {instead}")
    return table, lacking


def _attempt(config: TrainingConfig, kind: str, node: int) -> tuple[Table, Table, Table]:
    """The table of a run, the words of it that it does not hold, and those that come out otherwise when it is read."""
    rules, chips = framework(kind), config.chips or 0
    words = {**dict.fromkeys(MODEL_WORDS), **{name: getattr(config, name) for name in FIELDS}, **config.model}
    words = {name: _whole(value) for name, value in words.items()}
    words["per_node"] = next((size for size in range(min(node, chips), 0, -1) if chips % size == 0), None)
    hook = HOOKS.get(rules.get("hook", kind), Hook())
    try:
        table = _table(rules, words if hook.words is None else {**words, **hook.words(words)})
        again = interpret(copy.deepcopy(table), f"a file of {kind}", kind, HOOKS)
    except InputError as error:
        return {}, {}, {"this run:": str(error).rstrip(".")}
    lacking, wrong = _differences(config, again)
    if not wrong and recognized(table) != kind:
        wrong = {"this run:": "too little of it is stated for its files to be recognized"}
    if not wrong and again.chips is None and chips:
        lacking = {"chips": chips, **_differences(config, again.on(chips))[0]}
    return table, lacking, wrong


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _table(rules: Mapping[str, Any], words: Mapping[str, Any]) -> Table:
    """The keys of a framework with the values that they have for a run, in the tables that hold them."""
    keys: Table = {}
    for name, entry in [item for section in SECTIONS for item in rules.get(section, {}).items()]:
        is_word = name in FIELDS or name in MODEL_WORDS
        if is_word and isinstance(entry, Mapping) and "refuse" not in entry and words[name] is not None:
            values = {ours: theirs for theirs, ours in reversed(entry.get("values", {}).items())}
            keys[entry["key"].split()[0]] = values.get(words[name]) if values else words[name]
    keys |= {key: evaluate(expression, {**NAMES, **words}) for key, expression in rules.get("written", {}).items()}
    section_of = {key: section for section, names in rules.get("placed", {}).items() for key in names.split()}
    table: Table = {}
    for key, value in keys.items():
        section = "" if key.startswith("#") else section_of.get(key, rules.get("within", ""))
        *path, last = f"{section}.{key}".lstrip(".").split(".")
        if value is not None:
            reduce(lambda inner, name: inner.setdefault(name, {}), path, table)[last] = value
    return table


def _differences(config: TrainingConfig, again: TrainingConfig) -> tuple[Table, Table]:
    """Words of a run that its file does not hold, and those that it holds otherwise."""
    lacking, wrong = Table(), Table()
    again = dataclasses.replace(again, expert_tensor=again.expert_tensor or again.tensor)
    free, asked = RULES["free"]["fields"].split(), RULES["asked"]["fields"].split()
    for name in [name for name in FIELDS if name not in free]:
        value, other = getattr(config, name), getattr(again, name)
        is_same = value == other or (isinstance(value, float | int) and other and math.isclose(value, other))
        is_silent = other in (None, ()) and value in (RULES["usual"].get(name, 1), False, ())
        is_idle = name in RULES["of"] and getattr(config, RULES["of"][name]) in (None, 1)
        is_part = name == "recomputation" and config.recomputed_layers  # which says it
        is_gathered = name == "sharding" and (value, other) == (1, 2) and (config.pipeline or 1) > 1
        if not (value is None or is_same or is_silent or is_idle or is_part or is_gathered):
            (lacking if name in asked and other is None else wrong)[name] = value
    if ("tensor" in config.overlaps) != ("tensor" in again.overlaps):
        wrong["overlaps"] = ", ".join(config.overlaps)
    for name, value in config.model.items() if again.preset is None or again.preset != config.preset else ():
        other = again.model.get(name)
        padded = name == "vocabulary" and 0 < float(other or 0) - float(value) < 1024 * (config.tensor or 1)
        if other != value and (value or other is not None):
            (lacking if not again.model or name not in SIZES or padded else wrong)[name] = value
    return lacking, wrong
