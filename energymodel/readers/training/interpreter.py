"""The interpreter of the framework files: from the keys of a user's file to one `TrainingConfig`.

A framework is a TOML file of `readers/frameworks`: how to recognize it, an entry for each field of the run and word of
the model, and what is assumed or refused. `docs/readers_training.md` describes its form. Entries are worked out in
order; a text is an expression of the words before it, a list holds a value for each condition, a table with `key` reads
a key, one with `refuse` refuses the file. A `Hook` is Python for what data cannot say: `prepare` changes the table
before it is read, and `functions` are called from expressions with the run as first argument.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from energymodel.errors import InputError
from energymodel.readers.expressions import data_file, evaluate
from energymodel.readers.training.config import MODEL_WORDS, TrainingConfig, settle
from energymodel.readers.training.keys import Keys, is_harmless, quoted

FOLDER = Path(__file__).parents[1] / "frameworks"
NEAREST = "Describe the nearest transformer with --model, or by its shape in a scenario."
SECTIONS = ("words", "model", "run")
KINDS_OF_FIELDS = (("int", "count"), ("float", "number"), ("bool", "flag"), ("str", "word"))
FIELDS = {
    field.name: next((kind for text, kind in KINDS_OF_FIELDS if text in str(field.type)), "raw")
    for field in dataclasses.fields(TrainingConfig)
}
"""Fields of a run, and the method of `Keys` that reads a key for them."""


class Prepared(NamedTuple):
    """A user's table made ready for a framework.

    - `table`: what is read; `prefix`: its path in the file, with a dot at its end.
    - `words`: words that are settled; entries of the framework do not change them.
    - `framework`: the one that reads on, if another.
    """

    table: Mapping[str, Any]
    words: Mapping[str, Any] = {}
    notes: tuple[str, ...] = ()
    prefix: str = ""
    framework: str | None = None


class Hook(NamedTuple):
    """Python of a framework: `prepare(table, where)`, functions for its expressions, and further words to write."""

    prepare: Callable[[dict[str, Any], str], Prepared] | None = None
    functions: tuple[Callable[..., Any], ...] = ()
    words: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None


@cache
def framework(name: str) -> dict[str, Any]:
    """The file of a framework with those that it extends."""
    table = data_file(str(next(FOLDER.rglob(f"{name}.toml"))), f"{name}.toml")
    merged: dict[str, Any] = {}
    for part in (*(framework(base) for base in table.get("base", ())), table):
        for key, value in part.items():
            if isinstance(value, dict) and key != "signs":
                # What a file adds to the words of another may be needed by the words that it changes.
                old = merged.get(key, {})
                new = {name: entry for name, entry in value.items() if key == "words" and name not in old}
                merged[key] = {**new, **old, **value}
            else:
                merged[key] = f"{merged.get(key, '')} {value}" if key == "understood" else value
    return merged


@cache
def frameworks() -> tuple[str, ...]:
    """Names of all frameworks."""
    return tuple(sorted(path.stem for path in FOLDER.rglob("[a-z]*.toml")))


def recognized(table: Mapping[Any, Any], among: tuple[str, ...] = ()) -> str | None:
    """The framework, perhaps one `among` several, whose files hold such keys together: strong signs first."""
    paths = paths_of(table)
    for strength in ("strong", "usual", "weak"):
        for name in among or frameworks():
            if any(paths.issuperset(sign.split()) for sign in framework(name)["signs"].get(strength, ())):
                return name
    return None


def in_common(table: Mapping[Any, Any], name: str) -> list[str]:
    """Keys of a file that a framework reads or understands, by their paths."""
    rules = framework(name)
    entries = [entry for section in SECTIONS for entry in rules.get(section, {}).values() if isinstance(entry, Mapping)]
    keys = {key for entry in entries for key in entry["key"].split()}.union(rules.get("understood", "").split())
    within = {f"{rules['within']}.{key}" for key in keys} if rules.get("within") else keys
    return sorted(paths_of(table) & (keys | within))


@cache
def started_by(way: str) -> tuple[str, ...]:
    """Frameworks whose settings are `arguments` of a command, or literals of `scripts`."""
    return tuple(name for name in frameworks() if framework(name).get(way))


def kind_of(table: Mapping[Any, Any], where: str, kind: str | None = None, otherwise: str | None = None) -> str:
    """The framework of a file: the one that is named, the one that is recognized, or `otherwise`.

    **Raises:** `InputError` if no framework is recognized, or the file holds nothing of the one that is named.
    """
    found = recognized(table)
    name = kind or found or otherwise
    if name is None:
        shared, nearest = max(((in_common(table, name), name) for name in frameworks()), key=lambda pair: len(pair[0]))
        way = f"if it is one, give --framework {nearest}" if _is_alike(table, shared) else "too little to be one"
        near = f"It has {_listed(shared)} in common with {nearest}: {way}. " if shared else ""
        raise InputError(
            f'"{where}" is no training configuration that is recognized. {near}Describe the run by --model, --batch '
            f"and --sequence, or give a file of {', '.join(frameworks())}."
        )
    shared = in_common(table, name)
    is_below = found is not None and name in framework(found).get("base", ())
    is_as_clear = found is not None and not is_below and recognized(table, (name, found)) == name
    if name == found or is_as_clear or (found is None and _is_alike(table, shared)):
        return name
    what = f"it is recognized as {found}" if found else f"too few of its keys are those of {name} ({_listed(shared)})"
    raise InputError(f'"{where}" is no file of {name}: {what}. Leave out --framework, or name another one.')


def _is_alike(table: Mapping[Any, Any], shared: list[str]) -> bool:
    """Whether shared keys are at least half of those of a file that matter, and more than one."""
    own = [path for path in paths_of(table, deepest=0) if not is_harmless(path)]
    return len(shared) > 1 and 2 * len(shared) >= len(own)


def _listed(names: list[str]) -> str:
    return (", ".join(names[:6]) or "none") + (f" and {len(names) - 6} other keys" if len(names) > 6 else "")


def paths_of(table: Mapping[Any, Any], prefix: str = "", deepest: int = 4) -> set[str]:
    """Paths of the keys of a table and of the tables in it, with underscores, to a depth."""
    paths: set[str] = set()
    for key, value in table.items():
        path = f"{prefix}{str(key).lstrip('-').replace('-', '_')}"
        below = paths_of(value, f"{path}.", deepest - 1) if isinstance(value, Mapping) and deepest > 0 else set()
        paths |= {path} | below
    return paths


@cache
def names_of_models(table: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Patterns of names of models, and the preset (`presets`) or the reason (`refused`) of each."""
    patterns = data_file(__file__, "model_names.toml")[table].items()
    return tuple((re.compile(pattern, re.IGNORECASE), meaning) for meaning, pattern in patterns)


def preset_of(name: str | None) -> str | None:
    """The preset of `energymodel presets models` with the same shape as a named model; None if there is none.

    **Arguments:**

    - `name`: as on Hugging Face (`meta-llama/Llama-3.1-8B`), in torchtitan (`llama3 8B`) or MaxText (`llama3-8b`).
    """
    plain = (name or "").rsplit("/", 1)[-1].strip()[:200]
    return next((preset for pattern, preset in names_of_models("presets") if pattern.fullmatch(plain)), None)


def vocabulary_of(tokenizer: str | None) -> int | None:
    """Tokens of a tokenizer by its name on Hugging Face; None for others."""
    plain = (tokenizer or "").rsplit("/", 1)[-1].strip()[:200]
    return next((int(rows) for pattern, rows in names_of_models("tokenizers") if pattern.fullmatch(plain)), None)


def interpret(table: dict[str, Any], where: str, kind: str, hooks: Mapping[str, Hook]) -> TrainingConfig:
    """The run that the table of a user's file describes, as a framework of a kind writes it.

    **Raises:** `InputError` for a value that cannot be used, a model that cannot be described, and as `settle`.
    """
    prepared, name = Prepared(table), kind
    words: dict[str, Any] = {"kind": kind}
    notes: tuple[str, ...] = ()
    while (hook := hooks.get(name) or hooks.get(framework(name).get("hook", name), Hook())).prepare is not None:
        prepared = hook.prepare(dict(prepared.table), where)
        words, notes = {**prepared.words, **words}, (*notes, *prepared.notes)
        if prepared.framework is None:
            break
        name = prepared.framework
    rules = framework(name)
    hook = hooks.get(rules.get("hook", name), Hook())
    return Run(rules, Keys(prepared.table, where, prepared.prefix), words, hook).config(notes)


class Run:
    """One file under one framework: its keys, and the words that are worked out so far."""

    def __init__(self, rules: Mapping[str, Any], keys: Keys, settled: Mapping[str, Any], hook: Hook):
        self.rules, self.keys, self.settled = rules, keys, settled
        self.words: dict[str, Any] = dict(settled)
        self.functions = {
            **{name: getattr(keys, name) for name in ("has", "on", "flag", "raw")},
            **{function.__name__: function for function in (min, max, int, float, str, len, sum, any, preset_of)},
            "isinstance": isinstance,
            "dict": dict,
            "list": list,
            "bool": bool,
            "is_stated": keys.is_stated,
            "count_of": keys.count,
            "vocabulary_of": vocabulary_of,
            **{function.__name__: partial(function, self) for function in hook.functions},
            "text": lambda names: value if isinstance(value := keys.raw(names), str) else "",
            "texts": lambda: [value for value in keys.values.values() if isinstance(value, str)],
            "match": _match,
            "those": lambda **conditions: tuple(name for name, holds in conditions.items() if holds),
            "portions": lambda **parts: {name: float(share) for name, share in parts.items() if share},
            "padded": lambda count, multiple: multiple * math.ceil(count / multiple),
            "ceil": math.ceil,
        }

    def config(self, notes: tuple[str, ...]) -> TrainingConfig:
        """The run of the words."""
        self.keys.read.update(self.rules.get("understood", "").split())
        for what, names in self.rules.get("other_models", {}).items():
            for key in names.split():
                if (value := self.keys.raw(key)) not in (None, False, 0, 0.0, "", "0", "0.0", {}, []):
                    raise InputError(
                        f"{self.keys.path(key)} is {quoted(value)}: a model with {what} cannot be described. {NEAREST}"
                    )
        holds_model = {section: self._work_out(section) for section in SECTIONS}["model"]
        words = self.words
        model = {
            name: float(words[name]) if isinstance(words[name], bool) else words[name]
            for name in self.rules.get("model", {})
            if holds_model and name in MODEL_WORDS and words.get(name) is not None
        }
        values = {name: words[name] for name in FIELDS if words.get(name) is not None}
        values.setdefault("preset", words["preset"] if "preset" in words else preset_of(words.get("model_name")))
        sentences = [text for text, when in self.rules.get("notes", {}).items() if self.value(when)]
        values["notes"] = (*notes, *values.get("notes", ()), *(text.format_map(words) for text in sentences))
        values["optimizer"] = values["optimizer"].lower() if "optimizer" in values else None
        values.setdefault("model", model)
        config = settle(TrainingConfig(ignored=self.keys.unread(), **values))
        return dataclasses.replace(config, chips=None) if self.rules.get("asks_chips") else config

    def _work_out(self, section: str) -> bool:
        """Work the entries of a section out; whether it was not stopped."""
        entries = self.rules.get(section, {})
        for name, entry in entries.items():
            if name == "stop_unless":
                if not self.value(entry):
                    self.words = dict.fromkeys(entries) | self.words
                    return False
            elif isinstance(entry, Mapping) and "refuse" in entry:
                if self.value(entry["refuse"]):
                    raise self._refusal(entry, self.keys.get(entry["key"]))
            else:
                if isinstance(entry, Mapping):
                    value = self._read(name, entry)
                elif isinstance(entry, list):
                    value = next((value for value, when in entry if self.value(when)), None)
                else:
                    value = self.value(entry) if isinstance(entry, str) else entry
                self.words[name] = self.settled.get(name, value)
        self.keys.read.update(self.rules.get(f"understood_of_{section}", "").split())
        return True

    def _read(self, name: str, entry: Mapping[str, Any]) -> Any:
        """The value of a key, as its entry asks."""
        self.keys.read.update(entry["key"].split())
        if "when" in entry and not self.value(entry["when"]):
            return None
        bounds = {bound: entry[bound] for bound in ("lowest", "highest", "choices") if bound in entry}
        value = getattr(self.keys, entry.get("as", FIELDS.get(name, "count")))(entry["key"], **bounds)
        if isinstance(value, bool | int | float | str) and value in entry.get("unset", ()):
            value = None
        if value is None:
            value = self.value(entry["otherwise"]) if "otherwise" in entry else entry.get("default")
        if value is None:
            return None
        if "values" in entry:
            if value not in entry["values"]:
                raise self.keys.refuse(entry["key"], value, entry.get("needs", f"one of {', '.join(entry['values'])}"))
            value = entry["values"][value]
        if "check" in entry and not self.value(entry["check"], value=value):
            raise self._refusal(entry, value)
        return value

    def _refusal(self, entry: Mapping[str, Any], value: Any) -> InputError:
        if "text" in entry:
            return InputError(f"{self.keys.present(entry['key'])} {entry['text'].format_map(self.words)}")
        return self.keys.refuse(entry["key"], value, entry["needs"].format_map(self.words))

    def value(self, expression: str, **more: Any) -> Any:
        """The value of an expression of a framework file."""
        return evaluate(expression, self.functions | self.words | more)


def _match(pattern: str, text: Any) -> str | None:
    """The first group of a pattern, or what it matches; None without a match or a text."""
    match = re.search(pattern, text[:2000], re.IGNORECASE) if isinstance(text, str) else None
    return None if match is None else match[1] if match.re.groups else match[0]
