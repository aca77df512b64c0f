import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.heterogeneous import proportional_split
from gradients import check_grads

few = settings(max_examples=25, deadline=None)
throughputs = st.lists(st.floats(0.1, 100.0), min_size=4, max_size=4)


@few
@given(throughputs=throughputs, exponent=st.floats(-2.0, 3.0))
def test_the_parts_are_the_whole(throughputs, exponent):
    parts = proportional_split(7.0, jnp.asarray(throughputs), exponent)
    np.testing.assert_allclose(jnp.sum(parts), 7.0, rtol=1e-12)
    assert np.all(parts > 0)


@few
@given(throughputs=throughputs, exponent=st.floats(-1.0, 3.0))
def test_no_exponent_beats_the_proportional_split(throughputs, exponent):
    s = jnp.asarray(throughputs)
    best = 7.0 / jnp.sum(s)
    np.testing.assert_allclose(proportional_split(7.0, s) / s, best, rtol=1e-12)
    assert jnp.max(proportional_split(7.0, s, exponent) / s) >= best * (1 - 1e-12)


def test_exponent_zero_divides_evenly():
    np.testing.assert_allclose(proportional_split(9.0, jnp.asarray([1.0, 5.0, 30.0]), 0.0), 3.0)


def test_batches_keep_their_shape_and_large_throughputs_stay_finite_in_float32():
    with jax.enable_x64(False):
        s = jnp.asarray([[1e15, 2e15], [3e15, 1e15]], dtype=jnp.float32)
        parts = proportional_split(jnp.asarray([3.0, 4.0]), s, 3.0)
    assert parts.shape == (2, 2)
    # 1 : 8 and 27 : 1
    np.testing.assert_allclose(parts, [[3 / 9, 24 / 9], [108 / 28, 4 / 28]], rtol=1e-5)


def test_gradients():
    s = jnp.asarray([1.0, 2.0, 3.0])
    check_grads(jax.jit(proportional_split), (jnp.asarray(7.0), s, jnp.asarray(0.5)), order=1)
