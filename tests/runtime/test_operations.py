"""Operations without repetitions: the same values and derivatives from fewer of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.runtime.operations import list_operations, simplified, without_repeats

POINTS = np.array([0.3, 1.7, 2.2])


def repetitive(x, y):
    """Computes two things twice, in functions of their own, and one in vain."""
    ramp = jax.jit(lambda z: jnp.log1p(jnp.exp(z)))
    jnp.cos(x)
    first = ramp(x) * jnp.where(x > 1.0, x, 2.0 * y)
    return first + ramp(x), ramp(y) - jnp.where(x > 1.0, x, 2.0 * y)


@jax.custom_jvp
def published(x):
    return x**2


published.defjvp(lambda primals, tangents: (published(*primals), 7.0 * tangents[0]))


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
    def function(x):
        return jnp.sum(x, axis=0), jnp.sum(x, axis=1), x + 1.0, x + 2.0

    x = np.arange(4.0).reshape(2, 2)
    for ours, plain in zip(simplified(function)(x), function(x), strict=True):
        np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize(
    "transformed", [jax.vmap, lambda f: jax.vmap(jax.jacfwd(f)), lambda f: jax.vmap(jax.jacrev(f))]
)
def test_values_and_derivatives_are_the_same(transformed):
    ours, plain = (transformed(function)(POINTS, POINTS[::-1]) for function in (simplified(repetitive), repetitive))
    for left, other in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(left, other, rtol=1e-14)


def test_one_within_another_is_listed_with_it():
    inner = simplified(repetitive)
    outer = simplified(lambda x, y: (*inner(x, y), jnp.log1p(jnp.exp(x))))
    traced = list_operations(jax.make_jaxpr(outer)(0.3, 0.4))
    assert names(traced).count("exp") == 2
    np.testing.assert_array_equal(outer(0.3, 0.4)[:2], inner(0.3, 0.4))


def test_a_function_that_cannot_be_listed_leaves_others_listed():
    with pytest.raises(ZeroDivisionError):
        simplified(lambda x: x / (1 // 0))(0.3)
    assert names(list_operations(jax.make_jaxpr(simplified(repetitive))(0.3, 0.4))).count("exp") == 2


def test_a_stated_derivative_stays():
    assert float(jax.grad(simplified(lambda x: published(x) + x))(2.0)) == 8.0


def test_loops_stay():
    def function(x):
        return jax.lax.fori_loop(0, 3, lambda _, total: total + x, x), jax.lax.cond(x > 1.0, jnp.sin, jnp.cos, x)

    np.testing.assert_allclose(simplified(function)(2.0), function(2.0))
