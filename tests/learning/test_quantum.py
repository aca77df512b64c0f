import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.learning.quantum import QuantumGradient, break_even_error, gradient_samples, quantum_energy_ratio
from energymodel.numerics import as_real
from gradients import check_grads


def test_off_by_default():
    off = QuantumGradient()
    assert off.energy_factor() == 1.0
    assert off.speedup == 0.0


def test_without_speedup_only_the_overhead_remains():
    np.testing.assert_allclose(quantum_energy_ratio(1e-3, 0.0, 1e6), 1e6, rtol=1e-14)
    np.testing.assert_allclose(gradient_samples(1e-3, 0.0), 1e6, rtol=1e-12)
    assert break_even_error(0.0, 1e6) == 0.0
    assert jax.grad(break_even_error)(0.0, 1e6) == 0.0


@settings(max_examples=20, deadline=None)
@given(speedup=st.floats(0.1, 1.0), overhead=st.floats(1.0, 1e9))
def test_break_even(speedup, overhead):
    error = break_even_error(speedup, overhead)
    np.testing.assert_allclose(quantum_energy_ratio(error, speedup, overhead), 1.0, rtol=1e-9)


def test_full_share_is_the_ratio():
    component = QuantumGradient(*map(as_real, (1.0, 0.5, 100.0, 0.01)))
    np.testing.assert_allclose(component.energy_factor(), 10.0, rtol=1e-12)


def test_gradients():
    check_grads(gradient_samples, (0.5, 0.3), order=1)
    check_grads(quantum_energy_ratio, (0.5, 0.3, 3.0), order=1)
    check_grads(break_even_error, (0.5, 3.0), order=1)
    component = jax.tree.map(jnp.asarray, QuantumGradient(*map(as_real, (0.4, 0.5, 100.0, 0.01))))
    check_grads(lambda c: c.energy_factor(), (component,), order=1, eps=1e-6, rtol=1e-4)
