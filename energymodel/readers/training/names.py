"""Presets by the names of models, and names of models that no shape describes."""

import re
import tomllib
from functools import cache
from pathlib import Path


@cache
def patterns(table: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Patterns of names, and the preset (`presets`) or the reason (`refused`) of each."""
    tables = tomllib.loads(Path(__file__).with_name("model_names.toml").read_text(encoding="utf-8"))
    return tuple((re.compile(pattern, re.IGNORECASE), meaning) for meaning, pattern in tables[table].items())


def reason_of_name(name: str | None) -> str | None:
    """Why a named model cannot be described; None if its name says nothing."""
    return next((why for pattern, why in patterns("refused") if pattern.search((name or "")[:200])), None)


def preset_of(name: str | None) -> str | None:
    """The preset of `energymodel presets models` with the same shape as a named model; None if there is none.

    **Arguments:**

    - `name`: as on Hugging Face (`meta-llama/Llama-3.1-8B`), in torchtitan (`llama3 8B`) or MaxText (`llama3-8b`).
    """
    plain = (name or "").rsplit("/", 1)[-1].strip()[:200]
    return next((preset for pattern, preset in patterns("presets") if pattern.fullmatch(plain)), None)
