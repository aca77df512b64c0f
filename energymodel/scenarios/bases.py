"""Over which other scenarios does a scenario lie?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.scenarios.document import parse_document
from energymodel.scenarios.files import names, read_preset, read_toml
from energymodel.scenarios.forms import shown, word
from energymodel.scenarios.layers import lay

MOST_BASES = 32


def read_scenario_tables(source: str | Path) -> tuple[str, dict[str, Any]]:
    """Name and tables of a preset or a file."""
    text = str(source)
    if isinstance(source, Path) or text.endswith(".toml") or "/" in text:
        path = Path(source)
        return path.stem, read_toml(path)
    if text not in names("scenarios"):
        raise InputError(f'Unknown scenario "{text}". {suggest(text, names("scenarios"))}')
    return text, read_preset("scenarios", text)


def named_tables(source: str | Path | Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Name and tables of a preset, a file or tables that a program made, as they were written.

    **Raises:** `InputError` for an unknown preset, and for a file that cannot be read.
    """
    if isinstance(source, Mapping):
        return word(source.get("name", "scenario"), "name"), source
    if isinstance(source, str | Path):
        return read_scenario_tables(source)
    raise InputError(f"scenario: {shown(source)} is no preset, file or table. Give a name such as test-1b-h100.")


def with_bases(tables: Mapping[str, Any], name: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Tables of a scenario laid over those of its base, and of the base's base.

    **Raises:** `InputError` as `parse_document`, and for a base that is none.
    """
    own = parse_document(tables, name)
    base = own.pop("base", None)
    if base is None:
        return lay({}, own)
    if base in seen:
        raise InputError(f'{name}: base "{base}" refers to itself.')
    if len(seen) >= MOST_BASES:
        raise InputError(f"{name}: {MOST_BASES} scenarios are the base of each other. Merge some of them.")
    below = read_preset("scenarios", base) if base.startswith("_") else read_scenario_tables(base)[1]
    return lay(with_bases(below, base, (*seen, base)), own)
