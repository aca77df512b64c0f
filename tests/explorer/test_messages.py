import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from energymodel.errors import InputError
from energymodel.explorer.messages import LONGEST, MOST_PINS, RefusedPartError, read_message, request_of
from explorer_page import small_space

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("kind", "number", "values", "layout", "moved", "width", "front", "minimize", "pins", "path")


def read(text):
    return read_message(text, small_space().knobs)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 20_000, "not JSON"),
        ("[]", "not a table"),
        ('{"kind": "eval"}', "not a request"),
        ('{"kind": "state", "values": {"__class__": 1}}', "not a number of this scenario"),
        ('{"kind": "state", "values": {"plan.clock": "0.5"}}', "not a finite number"),
        ('{"kind": "state", "values": {"plan.clock": true}}', "not a finite number"),
        ('{"kind": "state", "values": {"plan.clock": NaN}}', "not JSON"),
        ('{"kind": "state", "values": {"plan.clock": 1e999}}', "not a finite number"),
        ('{"kind": "state", "values": {"plan.clock": -1}}', "outside the range"),
        (f'{{"kind": "state", "number": {10**400}}}', "not a finite number"),
        ('{"kind": "state", "layout": {"shape": "1"}}', "not a field"),
        ('{"kind": "state", "layout": {"tensor": 8}}', "not a value of this field"),
        ('{"kind": "state", "layout": {"tensor": "0"}}', "not a value of this field"),
        ('{"kind": "state", "layout": {"zero": "9"}}', "not a value of this field"),
        ('{"kind": "state", "layout": {"recomputation": "1"}}', "not a value of this field"),
        ('{"kind": "state", "layout": {"fp8": "nan %"}}', "not a value of this field"),
        (json.dumps({"kind": "pins", "pins": [{"name": 1}]}), "not a text"),
        ('{"kind": "state", "width": 1e6}', "width"),
        ('{"kind": "state", "front": "eval"}', "unknown"),
        ('{"kind": "optimize", "minimize": "__import__"}', "unknown"),
        ('{"kind": "knob", "path": "../../etc/passwd"}', "not a number of this scenario"),
        (json.dumps({"kind": "pins", "pins": [{}] * (MOST_PINS + 1)}), "at most"),
    ],
)
def test_what_is_no_message_is_refused_with_one_sentence(content, told):
    with pytest.raises(InputError, match=told) as caught:
        read(content)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"kind": "state", "values": {"plan.clock": 90.0}}, "plan.clock"),
        ({"kind": "state", "values": {"nonsense": 3.0}}, "nonsense"),
        ({"kind": "state", "layout": {"shape": "1"}}, "shape"),
        ({"kind": "knob", "path": "nonsense"}, "nonsense"),
        ({"kind": "pins", "pins": [{"name": "mine", "values": {"nonsense": 3.0}}]}, "pins.mine"),
        ({"kind": "pins", "pins": [{"name": "n" * 61}]}, "pins." + "n" * 61),
        ({"kind": "state", "layout": {"tensor": "8" * 400}}, "tensor"),
        ({"kind": "state", "values": {"": 3.0}}, ""),
    ],
)
def test_refusal_names_the_part_and_the_number_of_its_message(content, path):
    text = json.dumps({**content, "number": 7})
    with pytest.raises(RefusedPartError) as caught:
        read(text)
    assert caught.value.path == path
    assert request_of(text) == (content["kind"], 7)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"number": "x"}', '{"number": -1}', '{"number": 1e999}'])
def test_messages_without_kind_or_number_are_answered_under_zero(text):
    assert request_of(text) == ("", 0)


def test_long_messages_are_not_parsed():
    with pytest.raises(InputError, match="longer than"):
        read('{"kind": "state", "number": 1' + " " * LONGEST + "}")


@given(st.dictionaries(st.sampled_from(FIELDS), JSON) | JSON)
def test_any_json_is_a_message_or_refused(content):
    try:
        message = read(json.dumps(content))
    except InputError:
        return
    assert message.kind in ("state", "settled", "pins", "optimize")
