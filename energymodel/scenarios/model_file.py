"""Workloads of scenarios from the `config.json` of Hugging Face."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

from energymodel.errors import InputError
from energymodel.performance.workload import Transformer
from energymodel.readers.model_config import read_model_config
from energymodel.readers.text_file import is_file, is_folder

EXTENSION = ".json"
CONFIG = "config.json"
_ASSUMED_FIELDS = ("flash", "expert_imbalance", "sequence")
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
    model = read_model_config(path)
    for note in model.notes:
        warnings.warn(f"{path}: {note}", stacklevel=2)
    origin = {"kind": "specification", "source": f"{model.name}: config.json"}
    numbers = {
        field.name: {
            "value": float(getattr(model.transformer, field.name)),
            "unit": field.metadata["unit"],
            **({"kind": "prior", "source": _ASSUMED} if field.name in _ASSUMED_FIELDS else origin),
        }
        for field in dataclasses.fields(Transformer)
    }
    return {"component": Transformer.__name__, "title": f"{model.name} ({model.model_type})", **numbers}
