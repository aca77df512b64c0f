"""Models that no shape of this package describes: by type, by key, and by kind of layer."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

LINEAR = "its linear attention keeps a state instead of keys"
ENCODER = "it has an encoder"
INSTEAD = (
    "Take the nearest model of `energymodel presets list models` as --model, or describe the nearest shape in "
    "[system.workload] of a scenario."
)
ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention", "global", "local")


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(Path(__file__).with_name("model_refusals.toml").read_text(encoding="utf-8"))


@cache
def reasons() -> Mapping[str, str]:
    """Why a model cannot be described, by its `model_type`."""
    return {name: why for why, row in _table().items() for name in row["types"].split()}


def _matching(column: str, text: str) -> str | None:
    return next((why for why, row in _table().items() if column in row and re.fullmatch(row[column], text)), None)


def reason_of_keys(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """The key that no shape describes, and why; None if there is none. What is off or empty says nothing."""
    for key, value in config.items():
        if value in (None, False, 0, [], {}) or not isinstance(key, str):
            continue
        if key == "attn_type_list" and isinstance(value, list) and any(kind != 1 for kind in value):
            return key, LINEAR  # 1 is attention with softmax
        if key == "linear_attn_config" and isinstance(value, Mapping):
            return key, LINEAR
        if why := _matching("keys", key):
            return key, why
    return None


def reason_of_layer(kind: str) -> str | None:
    """Why a kind of layer in `layer_types` cannot be described; None for attention."""
    if kind in ATTENTION:
        return None
    return _matching("layers", kind) or f'its layers of kind "{kind[:40]}" are not described'
