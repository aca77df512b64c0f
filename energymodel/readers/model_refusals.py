"""Which models does no shape of this package describe, and why: by type, by key, or by kind of layer?"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

STATE_SPACE = "its state-space layers are no attention"
LINEAR = "its linear attention keeps a state instead of keys"
SEARCHED = "its layers have unlike blocks"
CHOSEN = "its attention reads a part of the keys that an indexer or a compression chooses"
ENCODER = "it has an encoder"
INSTEAD = (
    "Take the nearest model of `energymodel presets list models` as --model, or describe the nearest shape in "
    "[system.workload] of a scenario."
)
BY_KEY = (
    (r"block_configs", SEARCHED),
    (
        r"hybrid_override_pattern|layers_block_type|ssm_\w+|mamba_\w+|state_size|attn_layer_period|time_mix_\w+",
        STATE_SPACE,
    ),
    (r"linear_(key|value|num|conv|attn|attention)_\w+|full_attention_interval|gdn_\w+|kda_\w+|lightning_\w+", LINEAR),
    (r"index_(topk|n_heads|head_dim)|compress_ratios|sparse_attention_config", CHOSEN),
    (r"hc_mult|altup_num_inputs|hidden_size_per_layer_input|hybrid_layer_pattern", SEARCHED),
)
"""Keys of a model that cannot be described; each matches as a whole."""
ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention", "global", "local")
BY_LAYER = ((r"linear\w*|\w*delta\w*|kda|lightning\w*", LINEAR), (r"\w*mamba\w*|conv|recurrent|ssm", STATE_SPACE))
_PATTERNS = tuple((re.compile(pattern), why) for pattern, why in BY_KEY)


@cache
def reasons() -> Mapping[str, str]:
    """Why a model cannot be described, by its `model_type`."""
    table = tomllib.loads(Path(__file__).with_name("model_refusals.toml").read_text(encoding="utf-8"))
    return {name: why for why, given in table.items() for name in given["types"].split()}


def reason_of_keys(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """The key that no shape describes, and why; None if there is none. What is off or empty says nothing."""
    for key, value in config.items():
        if value in (None, False, 0, [], {}) or not isinstance(key, str):
            continue
        if key == "attn_type_list":
            if isinstance(value, list) and any(one != 1 for one in value):
                return key, LINEAR  # 1 is attention with softmax
            continue
        if key == "linear_attn_config" and isinstance(value, Mapping):
            return key, LINEAR
        for pattern, why in _PATTERNS:
            if pattern.fullmatch(key):
                return key, why
    return None


def reason_of_layer(kind: str) -> str | None:
    """Why a kind of layer in `layer_types` cannot be described; None for attention."""
    if kind in ATTENTION:
        return None
    found = next((why for pattern, why in BY_LAYER if re.fullmatch(pattern, kind)), None)
    return found or f'its layers of kind "{kind[:40]}" are not described'
