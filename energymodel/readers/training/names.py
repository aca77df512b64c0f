"""Which preset has the shape of a model that a file only names?"""

import re
import tomllib
from functools import cache
from pathlib import Path


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
