import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.batching import energy_optimal_batch, time_optimal_batch
from gradients import check_grads

few = settings(max_examples=25, deadline=None)
critical = st.floats(1e5, 1e8)
half = st.floats(1e3, 1e7)


def cost(batch, critical, half, share):
    """Energy to a loss over the ideal; time at a share of 1."""
    return (1 + batch / critical) * (1 + share * half / batch)


@few
@given(critical=critical, half=half, share=st.floats(0.05, 0.95))
def test_slopes_of_energy_and_time_vanish_at_their_optimal_batches(critical, half, share):
    energy, time = energy_optimal_batch(critical, half, share, 1 - share), time_optimal_batch(critical, half)
    assert energy <= time
    slope = jax.grad(lambda batch, share: jnp.log(cost(batch, critical, half, share)))
    np.testing.assert_allclose([slope(energy, share) * energy, slope(time, 1.0) * time], 0.0, atol=1e-12)


def test_least_energy_and_time_in_closed_form():
    # (1 + sqrt(s B_h / B_c))^2 with s B_h / B_c = 0.3 / 16, and (1 + 1/4)^2
    best = energy_optimal_batch(4e6, 2.5e5, 0.3, 0.7)
    np.testing.assert_allclose(cost(best, 4e6, 2.5e5, 0.3), (1 + np.sqrt(0.3 / 16)) ** 2, rtol=1e-12)
    np.testing.assert_allclose(cost(time_optimal_batch(4e6, 2.5e5), 4e6, 2.5e5, 1.0), 1.5625, rtol=1e-12)


def test_gradients():
    x = jnp.asarray(1.5)
    check_grads(time_optimal_batch, (x, x), order=1)
    check_grads(energy_optimal_batch, (x, x, x, x), order=1)
