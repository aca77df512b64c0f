"""Over which other scenarios does a scenario lie?"""

from pathlib import Path
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.presets.files import names, read_preset, read_toml
from energymodel.presets.layers import lay
from energymodel.presets.renamed import current_names

FLEET = "fleet"
SECTIONS = ("title", "base", "note", "abstract", "system", "plan", "optimize", "uncertainty", "calibration", FLEET)


def read_scenario_tables(source: str | Path) -> tuple[str, dict[str, Any]]:
    """Name and tables of a preset or a file."""
    text = str(source)
    if isinstance(source, Path) or text.endswith(".toml") or "/" in text:
        path = Path(source)
        return path.stem, read_toml(path)
    if text not in names("scenarios"):
        raise InputError(f'Unknown scenario "{text}". {suggest(text, names("scenarios"))}')
    return text, read_preset("scenarios", text)


def with_bases(tables: dict[str, Any], name: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Tables of a scenario laid over those of its base, and of the base's base.

    **Raises:** `InputError` for an unknown section, and for a base that is none.
    """
    if unknown := sorted(set(tables) - set(SECTIONS) - {"name"}):
        raise InputError(f'{name}: unknown key "{unknown[0]}". {suggest(unknown[0], SECTIONS)}')
    base = tables.get("base")
    own = current_names({key: value for key, value in tables.items() if key != "base"})
    if base is None:
        return lay({}, own)
    if base in seen:
        raise InputError(f'{name}: base "{base}" refers to itself.')
    if not isinstance(base, str):
        raise InputError(f"{name}: base must be the name of a scenario, not {base!r}.")
    below = read_preset("scenarios", base) if base.startswith("_") else read_scenario_tables(base)[1]
    return lay(with_bases(below, base, (*seen, base)), own)
