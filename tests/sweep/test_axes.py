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
        ("8..64 token cubic 3", "token", "token cubic"),
        ("0:1:4:log", "1", "no logarithm"),
        ("0.5:1:x", "1", '"x" is not a number of values'),
        ("0.5:1:0", "1", "0 values"),
        ("0.5:1:3:cubic", "1", 'unknown scale "cubic"'),
        ("1,,2", "1", "a value is missing"),
        ("1..2 apples 3", "W", "apples"),
    ],
)
def test_bad_axis_names_the_value(text, unit, words):
    with pytest.raises(InputError, match=words):
        parse_axis("plan.x", text, unit)


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
