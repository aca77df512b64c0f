import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.learning.factorization import (
    Factorization,
    break_even_rank,
    factorized_parameters,
    low_rank_ratio,
    tensor_train_ratio,
)
from energymodel.numerics import as_real
from gradients import check_grads


def test_off_by_default():
    off = Factorization()
    assert off.stored_parameters(7e10) == off.effective_parameters(7e10) == 7e10


@settings(max_examples=20, deadline=None)
@given(rows=st.floats(64, 65536), columns=st.floats(64, 65536), rank=st.integers(1, 64))
def test_low_rank_counts_parameters(rows, columns, rank):
    stored = rank * rows + rank * columns
    np.testing.assert_allclose(low_rank_ratio(float(rank), rows, columns) * rows * columns, stored, rtol=1e-12)
    np.testing.assert_allclose(low_rank_ratio(break_even_rank(rows, columns), rows, columns), 1.0, rtol=1e-12)


def test_tensor_train_counts_the_entries_of_its_cores():
    # 4 cores for 4096 x 256: modes 8 x 4, bonds 1-5-5-5-1.
    entries = 8 * 4 * (1 * 5 + 5 * 5 + 5 * 5 + 5 * 1)
    np.testing.assert_allclose(tensor_train_ratio(5.0, 4096.0, 256.0, 4.0) * 4096 * 256, entries, rtol=1e-12)


def test_quality_lies_between_stored_and_dense_size():
    some = Factorization(as_real(0.25), as_real(0.5))
    assert some.stored_parameters(8e9) < some.effective_parameters(8e9) < 8e9
    np.testing.assert_allclose(factorized_parameters(8e9, 0.25, 1.0), 2e9, rtol=1e-14)
    np.testing.assert_allclose(factorized_parameters(8e9, 0.25, 0.0), 8e9, rtol=1e-14)


def test_gradients():
    check_grads(low_rank_ratio, (2.0, 3.0, 4.0), order=1)
    check_grads(break_even_rank, (3.0, 4.0), order=1)
    check_grads(tensor_train_ratio, (2.0, 3.0, 4.0, 3.0), order=1)
    check_grads(factorized_parameters, (2.0, 0.25, 0.5), order=1)
    component = jax.tree.map(jnp.asarray, Factorization(as_real(0.25), as_real(0.5)))
    check_grads(lambda c, n: c.effective_parameters(n) + c.stored_parameters(n), (component, 3.0), order=1)
