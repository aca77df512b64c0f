"""Operations without repetitions: the same values from fewer of them."""

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.runtime.operations import Operation, evaluate_operations, list_operations, without_repeats

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
