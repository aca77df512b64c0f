"""Parts of models by the `model_type` of their config.json, and models that no shape of this package describes."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LINEAR = "its linear attention keeps a state instead of keys"
INSTEAD = (
    "Take the nearest model of `energymodel presets list models` as --model, or describe the nearest shape in "
    "[system.workload] of a scenario."
)
ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention", "global", "local")


@cache
def _read(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def same_as() -> Mapping[str, str]:
    """Types whose text model is that of another type, and older names of types."""
    return _read("model_families.toml")["same_as"]


@cache
def families() -> Mapping[str, SimpleNamespace]:
    """Parts by `model_type`, with the fields of `[family]`, and `experts` where there are any; "*" for other types."""
    tables = _read("model_families.toml")
    return {
        name: SimpleNamespace(
            **tables["family"] | table | {"experts": experts_of(table["experts"]) if "experts" in table else None}
        )
        for name, table in tables.items()
        if name not in ("same_as", "family", "experts")
    }


def experts_of(table: Mapping[str, Any]) -> SimpleNamespace:
    """A mixture of experts with the fields of `[experts]`."""
    return SimpleNamespace(**_read("model_families.toml")["experts"] | dict(table))


def class_defaults() -> Mapping[str, Mapping[str, int]]:
    """Sizes of each `model_type` that its configuration class takes where the file leaves them out."""
    return _read("model_defaults.toml")


@cache
def reasons() -> Mapping[str, str]:
    """Why a model cannot be described, by its `model_type`."""
    return {name: why for why, row in _read("model_refusals.toml").items() for name in row["types"].split()}


def _matching(column: str, text: str) -> str | None:
    rows = _read("model_refusals.toml").items()
    return next((why for why, row in rows if column in row and re.fullmatch(row[column], text)), None)


def reason_of(config: Mapping[str, Any], layers: list[str]) -> str:
    """Why the keys or kinds of layers of a file cannot be described, with the key; "" if they can.

    What is off or empty says nothing.
    """
    for key, value in config.items():
        if value in (None, False, 0, [], {}) or not isinstance(key, str):
            continue
        # In attn_type_list 1 is attention with softmax.
        kinds = key == "attn_type_list" and isinstance(value, list) and any(kind != 1 for kind in value)
        is_linear = kinds or (key == "linear_attn_config" and isinstance(value, Mapping))
        if why := LINEAR if is_linear else _matching("keys", key):
            return f"{why} ({key})"
    if config.get("is_encoder_decoder") is True:
        return "it has an encoder (is_encoder_decoder)"
    other = next((kind for kind in layers if kind not in ATTENTION), None)
    if other is None:
        return ""
    why = _matching("layers", other) or f'its layers of kind "{other[:40]}" are not described'
    return f"{why} (layer_types)"
