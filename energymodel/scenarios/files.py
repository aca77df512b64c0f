"""Which presets exist, and what do their files say?"""

import copy
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.readers import text_file
from energymodel.readers.text_file import is_file, read_text
from energymodel.scenarios.model_file import EXTENSION as MODEL_FILE
from energymodel.scenarios.model_file import model_tables

ROOT = Path(__file__).parents[1] / "presets"
CATEGORIES = {
    "scenarios": "training runs",
    "models": "models to train",
    "clusters": "measured clusters",
    "hardware": "accelerators",
    "designs": "designs of accelerators",
    "cores": "memories in the cores of accelerators",
    "access": "patterns of access to memory",
    "nodes": "nodes",
    "networks": "networks between nodes",
    "topologies": "topologies of networks between nodes",
    "software": "training frameworks",
    "facilities": "data centers",
    "regulators": "converters of power",
    "weather": "weather of places",
    "inlets": "classes of coolant temperature",
    "regions": "prices and carbon of places",
    "prices": "kinds of price",
    "carbon": "carbon accounting",
    "learning": "laws of learning",
    "recipes": "training recipes",
    "optimizers": "optimizers",
    "schedules": "schedules of the learning rate",
    "laws": "loss laws and critical-batch laws",
    "courses": "courses of loss and power of runs",
    "reliability": "failures and checkpoints",
}
COMPANIONS = "companions"


def names(category: str) -> list[str]:
    """Names of the presets of a category, sorted; a file that begins with `_` is only a base of others."""
    return [name for name in _stems(category) if not name.startswith("_")]


@cache
def _stems(category: str) -> tuple[str, ...]:
    """Names of all files of a category; only these are opened, whatever a person calls a preset."""
    return tuple(sorted(path.stem for path in (ROOT / category).glob("*.toml")))


def all_names() -> list[str]:
    """Names of the presets of all categories."""
    return [name for category in CATEGORIES for name in names(category)]


def is_quantity(table: Any) -> bool:
    """Whether a table is one number with unit and source."""
    return isinstance(table, dict) and "value" in table


def merge(base: Any, change: Any) -> Any:
    """Lay `change` over `base`: tables merge key by key; text, numbers, arrays and preset names replace.

    The table of another component replaces too: the numbers below mean nothing to it. Tokens and loss are two ways
    to say when a run ends, so that a goal replaces the goal below.
    """
    if not isinstance(change, dict) or is_quantity(change):
        return change
    if isinstance(base, str):
        base = {"preset": base}
    if not isinstance(base, dict) or is_quantity(base):
        return change
    if "preset" in change and ("preset" in base or "component" in base):
        return change
    if "component" in base and change.get("component", base["component"]) != base["component"]:
        return change
    replaced = {key: value if key == "goal" else merge(base.get(key), value) for key, value in change.items()}
    return {**base, **replaced}


def _with_origins(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of a file with its `kind` and `source` in each number that names none; a bare number has unit 1."""
    origin = {key: tables[key] for key in ("kind", "source") if key in tables}
    if not origin:
        return tables

    def with_origin(given: Any) -> Any:
        if isinstance(given, int | float):
            given = {"value": given, "unit": "1"}
        if not is_quantity(given):
            return given
        return {"value": given["value"], "unit": given["unit"], **origin, **given}

    return {key: with_origin(value) for key, value in tables.items() if key not in origin}


@cache
def _read(category: str, name: str) -> dict[str, Any]:
    tables = _with_origins(tomllib.loads((ROOT / category / f"{name}.toml").read_text(encoding="utf-8")))
    if category == "scenarios" or "base" not in tables:
        return tables
    return merge(_read(category, tables.pop("base")), tables)


def read_preset(category: str, name: str) -> dict[str, Any]:
    """Tables of a preset; those of a component are laid over the `base` that its file names.

    The name of a model may also be the path of a `config.json`.

    **Raises:** `InputError` that suggests the nearest name if there is none.
    """
    if category == "models" and name.endswith(MODEL_FILE):
        return model_tables(Path(name))
    if name not in _stems(category):
        raise InputError(f'Unknown preset "{name}" among {category}. {suggest(name, names(category))}')
    return copy.deepcopy({key: value for key, value in _read(category, name).items() if key != COMPANIONS})


def companions(accelerator: str) -> dict[str, Any]:
    """The node, network and power supplies that belong to an accelerator preset, as a part of `system`."""
    read_preset("hardware", accelerator)  # refuses an unknown name
    return copy.deepcopy(_read("hardware", accelerator).get(COMPANIONS, {}))


def read_toml(path: Path) -> dict[str, Any]:
    """Tables of a TOML file that a person wrote.

    **Raises:** `InputError` for a missing, empty, binary or malformed file.
    """
    if not is_file(path):
        raise InputError(f"{path}: no such file. Give a file or a preset name; `energymodel presets` lists them.")
    if not read_text(path).strip():
        raise InputError(f'{path}: empty file. Start with `base = "llama-3.1-405b-h100"` and change some numbers.')
    return text_file.read_toml(path)
