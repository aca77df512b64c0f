"""Numbers of formulas as their sources print them, to the last printed digit, and derivatives at these points."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import worked_numbers
from gradients import check_grads

CASES = worked_numbers.cases()
DIFFERENTIATED = worked_numbers.differentiated(CASES)


def test_there_are_cases():
    assert CASES


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES])
def test_worked_number(case):
    """Values round to the digits as printed, and would not to others: too few or too many digits prove nothing."""
    assert not set(case) - worked_numbers.KEYS, f"unknown keys {set(case) - worked_numbers.KEYS}"
    assert case["where"].strip(), "say where the number is printed or how it was worked out"
    values, texts = worked_numbers.compute(case), worked_numbers.printed(case)
    assert all(isinstance(text, str) for text in texts), "expected: a string, digits as printed"
    assert len(values) == len(texts), f"{len(values)} results, {len(texts)} expected numbers"
    for value, text in zip(values, texts, strict=True):
        assert worked_numbers.agrees(value, text), f"{value!r} is not {text} [{case['where']}]"
        for shift in (-1, 1):
            assert not worked_numbers.agrees(value, text, shift), f"{value!r} also agrees with {text} moved by {shift}"


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_derivatives_are_those_of_differences(name):
    """By every float of the inputs at once, in both modes; each input moves by a share of itself, or by 1 from 0."""
    case = DIFFERENTIATED[name]
    function = worked_numbers.resolve(case["function"])
    numbers, fixed = eqx.partition(worked_numbers.build_inputs(function, case["inputs"]), eqx.is_inexact_array_like)
    size = jax.tree.map(lambda number: np.where(np.asarray(number) == 0.0, 1.0, np.abs(number)), numbers)

    def outputs(shift):
        inputs = jax.tree.map(lambda number, unit, by: jnp.asarray(number) + unit * by, numbers, size, shift)
        result = worked_numbers.call_with(function, eqx.combine(inputs, fixed))
        return jnp.concatenate([*map(jnp.ravel, jax.tree.leaves(worked_numbers.selected(case, result)))])

    none = jax.tree.map(lambda number: jnp.zeros(np.shape(number)), numbers)
    scale = np.max(np.abs(outputs(none)))
    check_grads(lambda shift: outputs(shift) / scale, (none,), order=1, rtol=1e-3, atol=1e-3, eps=1e-5)


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        (1.97388, "1.9739", True),
        (1.97388, "1.9738", False),
        (1.3294e12, "1.329e12", True),
        (1.3296e12, "1.329e12", False),
        (24.0, "24", True),
        (-0.5, "-0.50", True),
        (float("nan"), "1", False),
        (float("inf"), "1", False),
    ],
)
def test_agreement_is_half_a_unit_of_the_last_digit(value, text, expected):
    assert worked_numbers.agrees(value, text) is expected
