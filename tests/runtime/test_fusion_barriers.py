import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from energymodel.runtime.compilation import compiler_options
from energymodel.runtime.fusion_barriers import with_barriers

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
