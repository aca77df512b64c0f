"""Errors of inputs: what is wrong, and what was probably meant.

Whatever an input holds, a terminal shows it and does not obey it: characters that do not print are written as escapes.
"""

import difflib
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

LONGEST = 2000  # characters of a line; of a longer one the middle is left out
_TAIL = 400  # of these, at the end, where a message says what to do next
LAYOUT = "\n\t"
"""What text of several lines may hold beside printable characters."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class InputError(ValueError):
    """What a person wrote cannot be used; the message is one line that names thing, value, unit and next step.

    Further lines list what the first one speaks of. Each is one printable line, whatever it quotes. `about` is what
    `described` says of it beyond its words: thing, value, unit.
    """

    def __init__(self, message: str, *listed: str, **about: Any) -> None:
        super().__init__(*map(one_line, (message, *listed)))
        self.about = about

    def __str__(self) -> str:
        return "\n".join(self.args)


def printable(text: str, keep: str = "") -> str:
    """Text whose controls, line separators and marks of direction, but those to `keep`, are escapes as in JSON."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep or unicodedata.category(each) == "Zs" else escape(each)
        for each in text
    )


def one_line(text: str) -> str:
    """The same as one line of limited length, to quote it."""
    if len(text) > LONGEST:
        left_out = len(text) - LONGEST
        text = f"{text[: LONGEST - _TAIL]} [... {left_out:,} characters ...] {text[-_TAIL:]}"
    return printable(text)


def described(message: str, **about: Any) -> dict[str, Any]:
    """Message, thing, value, unit and next step of a refusal, each as far as its words or `about` say it.

    Messages are 'THING: what is wrong. Next step.', 'THING: what is wrong; next step.' or 'Unknown THING "VALUE". ...'.
    """
    first, *following = _SENTENCE.split(message.partition("\n")[0], maxsplit=1)
    named = _NAMED.match(first) or _UNKNOWN.search(first)
    thing = named["thing"] if named else None
    quoted = _QUOTED.search(first)
    tree = {"message": message, "thing": thing, "value": quoted[2] if quoted else None, "unit": None}
    return {**tree, "next_step": following[0] if following else None, **about}


_SENTENCE = re.compile(r"(?<=[.?!]) (?=[A-Z`\"-])|; ")
_NAMED = re.compile(r"(?P<thing>[^:\"']*[^:\"' ]): ")
_UNKNOWN = re.compile(r"[Uu]nknown (?P<thing>[\w ]+) \"")
_QUOTED = re.compile(r"([\"'])(.+?)\1")
_PART = 4  # letters of a word that may be part of the one that was meant


def suggest(word: str, words: Iterable[str]) -> str:
    """A sentence that names the nearest known word, or lists what is known."""
    words = sorted(set(words))
    near = [other for other in words if other.startswith(f"{word}-")][:3]
    near = near or difflib.get_close_matches(word, words, n=1, cutoff=0.6)  # below, "fp8" would be "fp32"
    near = near or [other for other in words if len(word) >= _PART and word in other][:1]
    quoted = [f'"{other}"' for other in near]
    return f"Did you mean {' or '.join(quoted)}?" if near else f"Known: {', '.join(words)}."


def escape(character: str) -> str:
    """A character as an escape of JSON."""
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    units = [code] if code < 0x10000 else [0xD800 + (code - 0x10000 >> 10), 0xDC00 + (code & 0x3FF)]
    return "".join(f"\\u{unit:04x}" for unit in units)
