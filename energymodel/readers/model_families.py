"""Parts of models by the `model_type` of their config.json, and models that no shape of this package describes."""

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

Flag = bool | tuple[str, bool]  # a part that a model has, or the key of its switch and what holds without it
LINEAR = "its linear attention keeps a state instead of keys"
INSTEAD = (
    "Take the nearest model of `energymodel presets list models` as --model, or describe the nearest shape in "
    "[system.workload] of a scenario."
)
ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention", "global", "local")


@dataclasses.dataclass(frozen=True)
class Experts:
    """Keys and parts of a mixture of experts.

    - `count`, `active`, `width`: keys of routed experts, those that act on a token, and the width of one.
    - `shared`: key of the number of shared experts, each as wide as a routed one; or that number.
    - `shared_width`: key of the width of one shared expert of its own; `shared_gate`: whether a gate scales it.
    - `layers`: how the file says which layers have experts.
    - `dense_width`: key of the width of a dense layer.
    - `router_bias`: whether each expert has a number besides its row in the router; `bias` of the experts' products.
    """

    count: str = "num_local_experts"
    active: str = "num_experts_per_tok"
    width: str = "intermediate_size"
    shared: str | int = 0
    shared_width: str = ""
    shared_gate: bool = True
    layers: Literal["all", "after-first", "sparse-step", "interleaved"] = "all"
    dense_width: str = "intermediate_size"
    router_bias: Flag = False
    bias: Flag = False


@dataclasses.dataclass(frozen=True)
class Family:
    """Parts of a model of one `model_type`.

    - `defaults`: what keys are when the file leaves them out, besides those of `class_defaults`.
    - `names`: keys that other families call otherwise.
    - `norm_vectors`: vectors of a norm, 2 with a bias, 0 where it has no weights; `norms` of a layer; `extra_norms`
      before the first layer.
    - `query_bias` of query, key and value, `output_bias`, `feed_forward_bias`, `head_bias`.
    - `query_norm`: norms of queries and keys, of one head for all ("head"), of each ("heads"), or of all together
      ("width").
    - `positions`: key of learned positions; `more_positions` than it says.
    - `window`: layers with a sliding window where no `layer_types` say so: all from `max_window_layers` on if
      `use_sliding_window`, every layer, or all but each n-th.
    - `words`, `parts`, `sizes`: expressions for words, for fields of this class and for keys of the file, worked out in
      this order from `get`, `has`, `flag`, `count` and `size` (None where it is missing) of a key; `refused`: sentences
      with which a file is refused, and their conditions.
    """

    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    norm_vectors: int = 1
    norms: int = 2
    extra_norms: int = 0
    query_bias: Flag = ("attention_bias", False)
    output_bias: Flag = ("attention_bias", False)
    feed_forward_bias: Flag = ("mlp_bias", False)
    head_bias: Flag = False
    gated: bool = True
    query_norm: Literal["none", "head", "heads", "width"] = "none"
    query_norm_if: Flag = True
    tied: bool = False
    positions: str = ""
    more_positions: int = 0
    experts: Experts | None = None
    latent: bool = False
    sinks: bool = False
    parallel: Flag = False
    window: Literal["none", "switched", "all"] | int = "none"
    words: Mapping[str, str] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)


@cache
def _read(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def same_as() -> Mapping[str, str]:
    """Types whose text model is that of another type, and older names of types."""
    return _read("model_families.toml")["same_as"]


@cache
def families() -> Mapping[str, Family]:
    """Parts by `model_type`; those of a type that is not known by "*"."""

    def fields(table: Mapping[str, Any]) -> dict[str, Any]:
        return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}

    made = {}
    for name, table in _read("model_families.toml").items():
        if name != "same_as":
            experts = {"experts": Experts(**fields(table["experts"]))} if "experts" in table else {}
            made[name] = Family(**{**fields(table), **experts})
    return made


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
