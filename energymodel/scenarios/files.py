"""Preset files, files of a person, and the `config.json` of a model, as tables."""

import copy
import dataclasses
import tomllib
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.performance.workload import Transformer
from energymodel.readers import text_file
from energymodel.readers.expressions import data_file
from energymodel.readers.model_config import read_model_config
from energymodel.readers.text_file import is_file, is_folder, read_text

ROOT = Path(__file__).parents[1] / "presets"
CATEGORIES: dict[str, str] = data_file(__file__, "categories.toml")
"""Folders of presets, and what they hold."""
COMPANIONS = "companions"
OWN_ACCELERATOR = 'Any other: energymodel presets new mine.toml --peak "400 TFLOP/s" --memory "64 GB"; give the file.'
MODEL_FILE, SCENARIO_FILE = ".json", ".toml"
MACHINE = ("accelerator", "node", "network")
CONFIG = "config.json"
_ASSUMED_FIELDS = ("flash", "expert_imbalance", "sequence", "state_rate", "state_chunk")
_ASSUMED = {"kind": "prior", "source": "config.json does not say; as in most training software"}


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
    return {**base, **{key: value if key == "goal" else merge(base.get(key), value) for key, value in change.items()}}


@cache
def _read(category: str, name: str) -> dict[str, Any]:
    """Tables of a file over those of its base; its `kind` and `source` hold for each number that names none."""
    tables = tomllib.loads((ROOT / category / f"{name}.toml").read_text(encoding="utf-8"))
    if origin := {key: tables.pop(key) for key in ("kind", "source") if key in tables}:
        for key, value in tables.items():
            if isinstance(value, int | float):
                value = {"value": value, "unit": "1"}
            tables[key] = {"value": 0, "unit": "1", **origin, **value} if is_quantity(value) else value
    if category == "scenarios" or "base" not in tables:
        return tables
    return merge(_read(category, tables.pop("base")), tables)


def read_preset(category: str, name: str) -> dict[str, Any]:
    """Tables of a preset; those of a component are laid over the `base` that its file names.

    The name of a model may also be the path of a `config.json`, that of an accelerator the path of a scenario file,
    such as `benchmark` and `calibrate power` write.

    **Raises:** `InputError` that suggests the nearest name if there is none.
    """
    if category == "models" and name.endswith(MODEL_FILE):
        return _model_tables(Path(name))
    if category == "hardware" and name.endswith(SCENARIO_FILE):
        chip = machine_of(name)["accelerator"]
        below = read_preset(category, chip.pop("preset")) if "preset" in chip else {"title": Path(name).stem}
        return merge(below, chip)
    if name not in _stems(category):
        raise InputError(f'Unknown preset "{name}" among {category}. {nearest(name, category)}')
    return copy.deepcopy({key: value for key, value in _read(category, name).items() if key != COMPANIONS})


def nearest(name: str, category: str) -> str:
    """What to do about an unknown preset: the nearest name, and how an accelerator that is none is described."""
    own = f" {OWN_ACCELERATOR}" if category == "hardware" else ""
    return suggest(name, names(category)) + own


def companions(accelerator: str) -> dict[str, Any]:
    """The node, network and power supplies that belong to an accelerator, as a part of `system`.

    **Raises:** `InputError` as `read_preset`.
    """
    if accelerator.endswith(SCENARIO_FILE):
        machine = machine_of(accelerator)
        chip = machine.pop("accelerator").get("preset")
        return merge(companions(chip) if chip else {}, machine)
    read_preset("hardware", accelerator)
    return copy.deepcopy(_read("hardware", accelerator).get(COMPANIONS, {}))


def inlet_class(temperature: float, lowest: float, highest: float) -> str:
    """The class of supply air or water that takes a temperature, of the medium of the class with these ends [K].

    The coldest one that does; the warmest where none takes it. A class that is no preset has air.
    """
    presets = {name: read_preset("inlets", name) for name in names("inlets")}
    ends = {name: (preset["lowest"]["value"], preset["highest"]["value"]) for name, preset in presets.items()}
    of_water = {name: "water" in preset["title"].lower() for name, preset in presets.items()}
    own = any(of_water[name] for name in ends if ends[name] == (lowest, highest))
    same = sorted((name for name in ends if of_water[name] == own), key=lambda name: ends[name][1])
    return next((name for name in same if ends[name][0] <= temperature <= ends[name][1]), same[-1])


def machine_of(path: str) -> dict[str, Any]:
    """The accelerator of a scenario file, its own or that of its base, as a table; and the node and network it states.

    **Raises:** `InputError` for a file that has none.
    """
    tables = read_toml(Path(path))
    system, base, below = tables.get("system", {}), tables.get("base"), {}
    if base is not None:
        category = next((category for category in ("scenarios", "clusters") if base in _stems(category)), None)
        named = _read(category, base).get("system", {}) if category else machine_of(str(base))
        below = {"accelerator": named.get("accelerator", {})}
    machine = merge(below, {part: system[part] for part in MACHINE if part in system})
    chip = machine.get("accelerator")
    if not chip:
        raise InputError(
            f"{path}: holds no [system.accelerator]. Give a file that `energymodel benchmark -o` wrote, or a preset; "
            "`energymodel presets hardware` lists them."
        )
    return {**machine, "accelerator": {"preset": chip} if isinstance(chip, str) else chip}


def read_toml(path: Path) -> dict[str, Any]:
    """Tables of a TOML file that a person wrote.

    **Raises:** `InputError` for a missing, empty, binary or malformed file.
    """
    if not is_file(path):
        raise InputError(f"{path}: no such file. Give a file or a preset name; `energymodel presets` lists them.")
    if not read_text(path).strip():
        raise InputError(f'{path}: empty file. Start with `base = "llama-3.1-405b-h100"` and change some numbers.')
    return text_file.read_toml(path)


def model_source(model: str) -> str:
    """The preset or `config.json` that a person means: of a folder, the one in it.

    **Raises:** `InputError` for another file.
    """
    path = Path(model)
    if is_file(path / CONFIG):
        return str(path / CONFIG)
    if is_folder(path):
        raise InputError(f'"{model}" is a folder without {CONFIG}. Give a preset of models or a {CONFIG}.')
    if is_file(path) and path.suffix != MODEL_FILE:
        raise InputError(
            f'"{model}" is no {CONFIG}. Give a preset of models or a {CONFIG}; a training configuration goes with '
            "--training."
        )
    return model


def _model_tables(path: Path) -> dict[str, Any]:
    """The table of a workload as a `config.json` states it; what was assumed is warned of."""
    model = read_model_config(path)
    for note in model.notes:
        warnings.warn(f"{path}: {note}", stacklevel=2)
    specified = {"kind": "specification", "source": f"{model.name}: config.json"}
    numbers = {
        field.name: {
            "value": float(getattr(model.transformer, field.name)),
            "unit": field.metadata["unit"],
            **(_ASSUMED if field.name in _ASSUMED_FIELDS else specified),
        }
        for field in dataclasses.fields(Transformer)
    }
    return {"component": Transformer.__name__, "title": f"{model.name} ({model.model_type})", **numbers}
