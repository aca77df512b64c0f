"""Operations without repetitions and with barriers: the same values from fewer of them, compiled sooner."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from energymodel.runtime.compilation import compiler_options
from energymodel.runtime.operations import (
    Operation,
    evaluate_operations,
    list_operations,
    with_barriers,
    without_repeats,
)

SQUARE = np.arange(4.0).reshape(2, 2)


def repetitive(x, y):
    """Computes two things twice, in functions of their own, and one in vain."""
    ramp = jax.jit(lambda z: jnp.log1p(jnp.exp(z)))
    jnp.cos(x)
    first = ramp(x) * jnp.where(x > 1.0, x, 2.0 * y)
    return first + ramp(x), ramp(y) - jnp.where(x > 1.0, x, 2.0 * y)


def names(listing):
    return [operation.equation.primitive.name for operation in listing.operations]


def test_repeats_and_what_nobody_needs_are_left_out():
    total = list_operations(jax.make_jaxpr(repetitive)(0.3, 0.4))
    short = without_repeats(total)
    assert names(total).count("exp") == 3
    assert names(short).count("exp") == names(short).count("log1p") == 2
    assert names(short).count("select_n") == 1
    assert "cos" in names(total)
    assert "cos" not in names(short)


def test_operations_that_differ_in_a_parameter_or_a_number_stay():
    traced = list_operations(
        jax.make_jaxpr(lambda x: (jnp.sum(x, axis=0), jnp.sum(x, axis=1), x + 1.0, x + 2.0))(SQUARE)
    )
    assert len(without_repeats(traced).operations) == len(traced.operations) == 4


def test_results_are_the_same():
    short = without_repeats(list_operations(jax.make_jaxpr(repetitive)(0.3, 0.4)))
    np.testing.assert_allclose(evaluate_operations(short, (0.3, 0.4), Operation.bind), repetitive(0.3, 0.4), rtol=1e-6)


STEPS = 12


def branching(x: Array, y: Array, steps: int = STEPS) -> Array:
    """Each step reads the last one several times, and its exponential is read twice: a kernel of all steps before."""
    results = []
    for count in range(steps):
        product, total = 1.1 * x + y, x + 2.0 * count
        x = jnp.where(product > total, product - 0.5 * total, product + total)
        power = jnp.exp(-0.01 * x)
        results += [power, power + 1.0]
    return jnp.stack(results)


def instructions(function, *arguments: Array) -> int:
    compiled = jax.jit(function, compiler_options=compiler_options(once=True)).lower(*arguments).compile()
    text = compiled.as_text()
    assert text is not None
    return text.count(" = ")


def gradient(x: Array, y: Array) -> Array:
    return jax.grad(lambda x: jnp.sum(branching(x, y)[-1]))(x)


@pytest.fixture
def arguments() -> tuple[Array, Array]:
    return jnp.linspace(-2.0, 3.0, 8), jnp.linspace(1.0, 0.5, 8)


def test_barriers_keep_the_values(arguments: tuple[Array, Array]):
    options = compiler_options(once=True)
    for function in (branching, gradient):
        result = jax.jit(with_barriers(function), compiler_options=options)(*arguments)
        np.testing.assert_allclose(result, function(*arguments), rtol=1e-12)


def test_barriers_stand_in_the_compiled_program_and_shorten_it(arguments: tuple[Array, Array]):
    barred = jax.jit(with_barriers(branching), compiler_options=compiler_options(once=True)).lower(*arguments).compile()
    assert " opt-barrier(" in (barred.as_text() or "")
    assert instructions(with_barriers(branching), *arguments) < 0.5 * instructions(branching, *arguments)


def test_a_formula_that_repeats_nothing_gets_no_barrier():
    def chain(x: Array) -> Array:
        for count in range(30):
            x = 1.1 * x + count
        return x

    assert "barrier" not in jax.jit(with_barriers(chain)).lower(jnp.ones(3)).as_text()


def test_loops_have_barriers(arguments: tuple[Array, Array]):
    def looped(x: Array, y: Array) -> Array:
        return jax.lax.fori_loop(0, 3, lambda _, x: 0.5 * jnp.tanh(branching(x, y)[-1]), x)

    lowered = jax.jit(with_barriers(looped), compiler_options=compiler_options(once=True)).lower(*arguments)
    assert "barrier" in lowered.as_text()
    np.testing.assert_allclose(lowered.compile()(*arguments), looped(*arguments), rtol=1e-12)


def test_trees_constants_calls_and_arguments_that_are_returned():
    held = jnp.arange(3.0)

    @jax.jit
    def called(x: Array) -> Array:
        return jax.nn.relu(x) + held

    def function(tree: dict[str, Array]) -> dict[str, Array]:
        return {"own": tree["x"], "twice": called(called(tree["x"])), "one": jnp.ones(())}

    tree = {"x": jnp.array([-1.0, 2.0, 3.0])}
    result = jax.jit(with_barriers(function), compiler_options=compiler_options())(tree)
    jax.tree.map(np.testing.assert_array_equal, result, function(tree))
