"""Messages quote whatever an input holds as one printable line that a terminal shows and does not obey."""

import copy
import json
import pickle
import unicodedata

import pytest
from hypothesis import given
from hypothesis.strategies import characters, text

from energymodel.errors import LONGEST, InputError, one_line, printable


@pytest.mark.parametrize(
    ("case", "printed"),
    [
        ("\x1b[31mred", "\\u001b[31mred"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b2J", "\\u009b2J"),
        ("one\u2028two", "one\\u2028two"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("27 °C, Größe, 10\u00a0000, 光", "27 °C, Größe, 10\u00a0000, 光"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(case, printed):
    assert printable(case) == printed
    assert str(InputError(case)) == printed


@given(text(characters(codec=None)))
def test_every_other_character_prints(case):
    printed = printable(case)
    assert all(
        unicodedata.category(entry)[0] != "C" and unicodedata.category(entry) not in ("Zl", "Zp") for entry in printed
    )
    assert printable(printed) == printed
    if '"' not in case and "\\" not in case:
        # As JSON reads it: surrogates are what an invalid file name holds, and pairs of them are one character.
        back = json.loads(f'"{printed}"').encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        assert back == case.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def test_long_lines_keep_their_ends_and_layout_may_stay():
    assert printable("a\tb\n\x07", "\n\t") == "a\tb\n\\u0007"
    printed = one_line("unknown " + "x" * 100_000 + " Give another.")
    assert len(printed) < LONGEST + 50
    assert printed.startswith("unknown xxx")
    assert printed.endswith("xxx Give another.")
    assert "[... 98,022 characters ...]" in printed
    error = InputError("two of\nthem:", "one", "an\x1bother")
    assert str(error) == "two of\\nthem:\none\nan\\u001bother"
    assert str(pickle.loads(pickle.dumps(error))) == str(copy.copy(error)) == str(error)
