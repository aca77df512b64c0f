"""Settings that a command hands to a framework as `section.name=value`.

Hydra, Megatron-Bridge, NeMo, torchtitan and MaxText take them so. Nothing is run: variables that the script sets are
put in, and each setting goes into the table that its name draws.
"""

import re
from typing import Any

import yaml

from energymodel.errors import InputError
from energymodel.readers.training.script_text import bare_text, filled, launched, prepared

DOTTED = re.compile(r"(?:--|\+{0,2})([A-Za-z_]\w*(?:\.\w+){1,8})(?:=(.*))?", re.S)
PLAIN = re.compile(r"([a-z]\w*)=(.*)", re.S)
WHOLE = re.compile(r"\+{0,2}(mixed_precision|peft|comm_overlap)=(.*)", re.S)
"""Sections that a command may set to a name."""
RECIPE = re.compile(r"--recipe(?:[-_]name)?[= ]+([\w.\-/]+)")
PROCESSES = re.compile(r"--(nproc[-_]per[-_]node|nnodes)[= ]+(\S{1,200})")
BASE_FILE = re.compile(r"(?:--job\.config[-_]file[= ]|\bCONFIG_FILE=)[\"']?([^\s\"']+)")
MAXTEXT = re.compile(r"\bmaxtext\b[\w./]*train|train\.py[^\n]{0,200}\bbase\.yml", re.IGNORECASE)
MAXTEXT_FILE = re.compile(r"[\w./${}\-]*?([\w.\-]+)\.ya?ml")
WORD = re.compile(r"(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+")
FEWEST, MOST = 2, 5000
"""Settings of a command: fewer are a word with a dot by chance."""


def read_overrides(text: str, where: str) -> dict[str, Any] | None:
    """The table that the settings of a command draw; None if there are none.

    Keys that begin with `#` say what the launcher does: `#nodes`, `#per_node`.

    **Raises:** `InputError` if the command takes its settings from another file, which is not followed.
    """
    body, variables = prepared(text)
    maxtext = MAXTEXT.search(body) is not None
    table: dict[str, Any] = {}
    count, waiting = 0, ""
    for word in WORD.findall(body)[:200_000]:
        word = bare_text(word)
        match = DOTTED.fullmatch(word) or (PLAIN if maxtext else WHOLE).fullmatch(word)
        if match is None:
            if waiting and not word.startswith("-"):
                _put(table, waiting, filled(word, variables))
            waiting = ""
            continue
        count += 1
        if count > MOST:
            raise InputError(f'"{where}" sets more than {MOST} values; is it the right file?')
        if match[2] is not None:
            _put(table, match[1], filled(match[2], variables))
        waiting = match[1] if match[2] is None and word.startswith("--") else ""
    if count < FEWEST:
        return None
    _refuse_base(body, maxtext, where)
    if recipe := RECIPE.search(body):
        table["recipe"] = recipe[1]
    table |= launched(text)
    for name, value in PROCESSES.findall(body[:100_000]):
        if re.fullmatch(r"[1-9]\d{0,5}", number := bare_text(filled(value, variables))):
            table["#nodes" if name == "nnodes" else "#per_node"] = int(number)
    if "#per_node" in table:
        table.setdefault("#nodes", 1)
    return {"base_config": "base.yml", **table} if maxtext else table


def _refuse_base(body: str, maxtext: bool, where: str) -> None:
    """Refuse a command whose settings stand in another file, other than the defaults that are known."""
    match = BASE_FILE.search(body)
    file = match[1] if match else None
    command = MAXTEXT.search(body) if maxtext else None
    if command and (match := MAXTEXT_FILE.search(body[command.start() :])) and match[1] != "base":
        file = f"{match[1]}.yml"
    if file is not None:
        raise InputError(
            f'"{where}" takes most settings from "{file[-100:]}", which is not followed. Give that file instead, with '
            "the settings of the command written into it."
        )


def _put(table: dict[str, Any], name: str, text: str) -> None:
    """Set a value of the table, under its path of names."""
    *path, last = name.split(".")
    for key in path:
        inner = table.get(key)
        if not isinstance(inner, dict):
            inner = table[key] = {}
        table = inner
    bare = bare_text(text)
    try:
        value = yaml.safe_load(bare) if len(bare) <= 400 and not re.search(r"[&*]\w", bare) else bare
    except (yaml.YAMLError, ValueError, RecursionError):
        value = bare
    table[last] = value
