"""How is a person told what is wrong with an input, and what was probably meant?"""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """What a person wrote cannot be used; the message is one line that names thing, value, unit and next step."""


def suggest(word: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest known word, or lists what is known."""
    known = sorted(set(known))
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return f'Did you mean "{near[0]}"?' if near else f"Known: {', '.join(known)}."
