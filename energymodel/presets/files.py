"""Which presets exist, and what do their files say?"""

import copy
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from energymodel.errors import InputError, suggest

ROOT = Path(__file__).parent
CATEGORIES = {
    "scenarios": "training runs",
    "models": "models to train",
    "clusters": "measured clusters",
    "hardware": "accelerators",
    "nodes": "nodes",
    "networks": "networks between nodes",
    "software": "training frameworks",
    "facilities": "data centers",
    "regions": "prices and carbon of places",
    "prices": "kinds of price",
    "carbon": "carbon accounting",
    "learning": "laws of learning",
    "laws": "loss laws and critical-batch laws",
    "reliability": "failures and checkpoints",
}


def names(category: str) -> list[str]:
    """Names of the presets of a category, sorted."""
    return sorted(path.stem for path in (ROOT / category).glob("*.toml") if not path.stem.startswith("_"))


def all_names() -> list[str]:
    """Names of all presets as `category/name`, and alone where that is unambiguous."""
    return [name for category in CATEGORIES for name in names(category)]


@cache
def _read(category: str, name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / category / f"{name}.toml").read_text(encoding="utf-8"))


def read_preset(category: str, name: str) -> dict[str, Any]:
    """Tables of a preset.

    **Raises:** `InputError` that suggests the nearest name if there is none.
    """
    if not (ROOT / category / f"{name}.toml").is_file():
        raise InputError(f'Unknown preset "{name}" among {category}. {suggest(name, names(category))}')
    return copy.deepcopy(_read(category, name))


def read_toml(path: Path) -> dict[str, Any]:
    """Tables of a TOML file that a person wrote.

    **Raises:** `InputError` for a missing, empty, binary or malformed file.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file. Give a file or a preset name; `energymodel presets` lists them.")
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file. A scenario is TOML in UTF-8.") from None
    if not text.strip():
        raise InputError(f'{path}: empty file. Start with `base = "llama-3.1-405b-h100"` and change some numbers.')
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}.") from None
