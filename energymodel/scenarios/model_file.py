"""How does a `config.json` of Hugging Face become the workload of a scenario?"""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

from energymodel.errors import InputError
from energymodel.performance.workload import Transformer
from energymodel.readers.model_config import ModelConfig, read_model_config
from energymodel.readers.text_file import is_file, is_folder

EXTENSION = ".json"
CONFIG = "config.json"
_NOT_STATED = ("flash", "expert_imbalance")
_ASSUMED = "config.json does not say; as in most training software"


def model_source(model: str) -> str:
    """The preset or `config.json` that a person means: of a folder, the one in it.

    **Raises:** `InputError` for another file.
    """
    path = Path(model)
    if is_file(path / CONFIG):
        return str(path / CONFIG)
    if is_folder(path):
        raise InputError(f'"{model}" is a folder without {CONFIG}. Give a preset of models or a {CONFIG}.')
    if is_file(path) and path.suffix != EXTENSION:
        raise InputError(
            f'"{model}" is no {CONFIG}. Give a preset of models or a {CONFIG}; a training configuration goes with '
            "--training."
        )
    return model


def model_tables(path: Path) -> dict[str, Any]:
    """The table of a workload as a file states it, each number with its origin; what was assumed is warned of.

    **Raises:** `InputError` as `read_model_config`.
    """
    found = read_model_config(path)
    for note in found.notes:
        warnings.warn(f"{path}: {note}", stacklevel=2)
    return tables_of(found)


def tables_of(found: ModelConfig) -> dict[str, Any]:
    """The table of a workload."""
    numbers = {field.name: _number(found, field) for field in dataclasses.fields(Transformer)}
    return {"component": Transformer.__name__, "title": f"{found.name} ({found.model_type})", **numbers}


def _number(found: ModelConfig, field: "dataclasses.Field[Any]") -> dict[str, Any]:
    """A number with its origin."""
    value, unit = float(getattr(found.transformer, field.name)), field.metadata["unit"]
    stated = field.name not in _NOT_STATED and field.name != "sequence"
    kind, source = ("specification", f"{found.name}: config.json") if stated else ("prior", _ASSUMED)
    return {"value": value, "unit": unit, "kind": kind, "source": source}
