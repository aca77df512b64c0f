import re

import jax
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.sweeps.axes import Axis, check_axes, parse_axis
from energymodel.system.plan import ParallelLayout, TokenBudget


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("8..64 Mi token log 4", "token", [8 * 2**20, 16 * 2**20, 32 * 2**20, 64 * 2**20]),
        ("0.5..1 linear 3", "1", [0.5, 0.75, 1.0]),
        ("0.5..1 3", "1", [0.5, 0.75, 1.0]),
        ("0.5:1:3", "1", [0.5, 0.75, 1.0]),
        ("1:100:3:log", "1", [1.0, 10.0, 100.0]),
        ("500 W..1 kW 2", "W", [500.0, 1000.0]),
        ("20..30 °C linear 2", "K", [293.15, 303.15]),
        ("1, 2, 4 Mi token", "token", [2**20, 2 * 2**20, 4 * 2**20]),
        ("1e3, 2e3 W", "W", [1000.0, 2000.0]),
        ("7", "1", [7.0]),
    ],
)
def test_axis_from_text(text, unit, expected):
    axis = parse_axis("x", text, unit)
    np.testing.assert_allclose(axis.values, expected, rtol=1e-12)
    assert len(axis) == len(expected)


@pytest.mark.parametrize(
    ("text", "unit", "words"),
    [
        ("8..64 token cubic 3", "token", 'unknown scale "cubic".*"8..64 token 3"'),
        ("0:1:4:log", "1", "no logarithm"),
        ("0.5:1:x", "1", '"x" is not a number of values'),
        ("0.5:1:0", "1", '0 values: give 1 to.*"0.5:1:20"'),
        ("0.5:1:3:cubic", "1", 'unknown scale "cubic"'),
        ("0.5:1:11:lgo", "1", 'unknown scale "lgo". Did you mean "log".*"0.5:1:11:log"'),
        ("0.5:1", "1", 'number of values is missing.*"0.5:1:20"'),
        ("0.5:1:log:11", "1", 'number of values, 11, comes before "log".*"0.5:1:11:log"'),
        ("0.5::3", "1", "is not LOW:HIGH:COUNT"),
        ("1,,2", "1", "a value is missing"),
        ("1..2 apples 3", "W", "apples"),
        ("2e5..4e6 32 log", "token", 'number of values, 32, comes last.*"2e5..4e6 token log 32"'),
        ("2e5..4e6 log 32", "token", '"4e6" has no unit.*"2e5..4e6 token log 32"'),
        ("2e5:4e6:32", "token", '"4e6" has no unit.*"2e5:4e6 token:32"'),
        ("8 Mi token..64 20", "token", '"64" has no unit.*"8 Mi token..64 Mi token 20"'),
        ("8..64 Mi token log", "token", 'number of values is missing.*"8..64 Mi token log 20"'),
        ("8..64 Mi token", "token", 'number of values is missing.*"8..64 Mi token 20"'),
        ("8..64 Mi token log 0", "token", "0 values: give 1 to"),
        ("8..64 Mi token log 3.5", "token", '"3.5" is not a number of values.*"8..64 Mi token log 20"'),
        ("8..64 Mi token lgo 20", "token", 'unknown scale "lgo". Did you mean "log".*"8..64 Mi token log 20"'),
        ("64..8 Mi token log 9", "token", '64 is above 8 Mi token.*"8 Mi token..64 Mi token log 9"'),
        ("1 kW..500 W 3", "W", '"500 W..1 kW 3"'),
        ("..64 Mi token 3", "token", "no low end"),
        ("8.. ", "token", "no high end"),
        ("0.5..1, 11", "1", 'spaces separate.*"0.5..1 11"'),
        ("0.5..1:11", "1", 'spaces separate.*"0.5..1 11"'),
        ("0.5..x", "1", '"x" is not a number. A range is LOW..HIGH COUNT. Write .*"0.5:1:11"'),
        ("x..1 3", "1", '"x" is not a number. A range'),
        ("0.5:x:3", "1", '"x" is not a number. A range'),
        ("0.5..x log 9", "token", '"x" is not a number. A range'),
        ("8 to 64 Mi token over 20", "token", 'no ".." between'),
        ("8-64 Mi token 3", "token", 'no ".." between'),
    ],
)
def test_bad_axis_names_the_part_that_is_wrong(text, unit, words):
    with pytest.raises(InputError, match=f"^axis plan.x: .*{words}"):
        parse_axis("plan.x", text, unit)


@pytest.mark.parametrize(
    "text", ["2e5..4e6 32 log", "2e5:4e6:32", "8 Mi token..64 9", "8..64 Mi token", "64..8 Mi token lgo 9", "8..64, 3"]
)
def test_the_advice_of_a_bad_axis_is_accepted(text):
    for _ in range(3):  # one mistake at a time
        with pytest.raises(InputError) as refused:
            parse_axis("plan.x", text, "token")
        text = str(refused.value).split('Write for example "')[1].split('"')[0]
        try:
            axis = parse_axis("plan.x", text, "token")
        except InputError:
            continue
        assert axis.values[0] < axis.values[-1]
        return
    pytest.fail(text)


def test_choices_are_stacked_by_structure():
    axis = Axis.choice("plan.layout", {"a": ParallelLayout(tensor=2.0), "b": ParallelLayout(tensor=8.0)})
    assert len(axis) == 2
    assert axis.label(1) == "b"
    assert float(axis.at(1).tensor) == 8.0
    assert jax.tree.structure(axis.at(0)) == jax.tree.structure(ParallelLayout())
    with pytest.raises(InputError, match="different components"):
        Axis.choice("x", {"a": ParallelLayout(), "b": TokenBudget(tokens=1.0)})


def test_axes_have_names_of_their_own():
    with pytest.raises(InputError, match="given twice"):
        check_axes([Axis.of("x", [1.0]), Axis.of("x", [2.0])])
    with pytest.raises(InputError, match="at least one axis"):
        check_axes([])
    with pytest.raises(InputError, match="not a finite number"):
        Axis.of("x", [np.nan])


@pytest.mark.parametrize("value", ["fast", b"x", None, 2**70, 1j, object()])
def test_axes_are_of_numbers(value):
    with pytest.raises(InputError, match=r"^axis x: .*(is not a real number|no values)"):
        Axis.choice("x", {"a": value})
    with pytest.raises(InputError, match=f"^axis x: {re.escape(repr(value))} is not a real number"):
        Axis("x", np.array([value]))


def test_arrays_of_choices_have_one_shape():
    with pytest.raises(InputError, match=r'^axis x: arrays of "b" and "a" differ in shape'):
        Axis.choice("x", {"a": np.ones(3), "b": np.ones(2)})
