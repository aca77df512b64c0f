"""Which model preset does a word of a public table mean?"""

import re

from energymodel.scenarios.files import names

ALIKE = {"llama3": "llama31"}
"""Families of one shape: Llama 3 has that of Llama 3.1."""


def model_preset(word: str) -> str | None:
    """The preset of a model under one of its usual names, such as `LLAMA3_70B`; `None` if there is none."""
    presets = names("models")
    if word in presets:
        return word
    plain = plain_word(word)
    by_plain = {plain_word(name): name for name in presets}
    if plain in by_plain:
        return by_plain[plain]
    for family, shape in ALIKE.items():
        if plain.startswith(family) and (name := by_plain.get(shape + plain.removeprefix(family))):
            return name
    return None


def plain_word(word: str) -> str:
    """Letters and digits only, in lower case."""
    return re.sub(r"[^a-z0-9]", "", word.lower())
