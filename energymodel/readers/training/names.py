"""Presets by the names of models, and names of models that no shape describes."""

import re
import tomllib
from functools import cache
from pathlib import Path

OTHER_MODELS = (
    (
        r"mamba|jamba|bamba|zamba|lfm-?[23]|falcon-?h1|recurrentgemma|hymba|nemotron-?(h|nano|[35])(-|_|$)|granite-?4.*-h-",
        "its state-space layers are no attention",
    ),
    (
        r"qwen-?3[-_.]?(next|5)|kimi[-_]?(linear|k3)|minimax-(text|m1)|rwkv|gated[-_]?delta|retnet",
        "its linear attention keeps a state instead of keys",
    ),
    (r"(^|[-_/ ])(flux|t5|bert|vit|clip|whisper|wan2)([-_. ]|$)", "it is no decoder of text"),
)
"""Names of models that no shape describes, and why."""


def reason_of_name(name: str | None) -> str | None:
    """Why a named model cannot be described; None if its name says nothing."""
    for pattern, why in OTHER_MODELS:
        if name and re.search(pattern, name[:200], re.IGNORECASE):
            return why
    return None


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    table = tomllib.loads(Path(__file__).with_name("model_names.toml").read_text(encoding="utf-8"))
    return tuple((re.compile(pattern, re.IGNORECASE), preset) for preset, pattern in table.items())


def preset_of(name: str | None) -> str | None:
    """The preset of `energymodel presets models` with the same shape as a named model; None if there is none.

    **Arguments:**

    - `name`: as on Hugging Face (`meta-llama/Llama-3.1-8B`), in torchtitan (`llama3 8B`) or MaxText (`llama3-8b`).
    """
    if not name:
        return None
    plain = name.rsplit("/", 1)[-1].strip()[:200]
    return next((preset for pattern, preset in _patterns() if pattern.fullmatch(plain)), None)
