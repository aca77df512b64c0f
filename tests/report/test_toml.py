"""Written TOML reads back to the same tables."""

import math
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.report.toml_text import dumps, number

_SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.text(st.characters(codec="utf-8"))
)
_KEYS = st.text(st.characters(codec="utf-8"), min_size=1)
_TABLES = st.recursive(
    st.dictionaries(_KEYS, st.one_of(_SCALARS, st.lists(_SCALARS, max_size=3)), max_size=4),
    lambda tables: st.dictionaries(_KEYS, st.one_of(_SCALARS, tables), max_size=4),
    max_leaves=12,
)


@given(tables=_TABLES)
@settings(max_examples=60, deadline=None)
def test_round_trip(tables):
    assert tomllib.loads(dumps(tables)) == tables


@given(value=st.floats(allow_nan=False))
def test_numbers_are_exact(value):
    read = tomllib.loads(f"x = {number(value)}")["x"]
    assert isinstance(read, float)
    assert read == value
    assert math.copysign(1.0, read) == math.copysign(1.0, value)


def test_a_quantity_stands_on_one_line():
    table = {"system": {"power": {"value": 7e11, "unit": "W", "source": 'said "so"'}}}
    assert dumps(table) == '[system]\npower = { value = 7e11, unit = "W", source = "said \\"so\\"" }\n'


def test_what_toml_cannot_hold():
    with pytest.raises(TypeError, match="NoneType"):
        dumps({"x": None})
