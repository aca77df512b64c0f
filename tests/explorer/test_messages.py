import json
from pathlib import Path

import pytest
import yaml
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
REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8"))
FIELDS = ("kind", "number", "values", "layout", "moved", "width", "front", "minimize", "pins", "path")


def read(text):
    return read_message(text, small_space().knobs)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        *REFUSED["messages"],
        ("", "not JSON"),
        ("[" * 20_000, "not JSON"),
        (f'{{"kind": "state", "number": {10**400}}}', "not a finite number"),
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
        *((json.loads(content), path) for content, path in REFUSED["parts"]),
        ({"kind": "pins", "pins": [{"name": "n" * 61}]}, "pins." + "n" * 61),
        ({"kind": "state", "layout": {"tensor": "8" * 400}}, "tensor"),
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
