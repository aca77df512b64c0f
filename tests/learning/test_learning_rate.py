import jax
import numpy as np

from energymodel.learning.learning_rate import mismatch_loss
from gradients import check_grads


def test_right_learning_rate_costs_nothing():
    assert mismatch_loss(3e-4, 3e-4, 0.02) == 0.0
    assert jax.grad(mismatch_loss)(3e-4, 3e-4, 0.02) == 0.0
    np.testing.assert_allclose(mismatch_loss(6e-4, 3e-4, 0.02), mismatch_loss(1.5e-4, 3e-4, 0.02), rtol=1e-12)


def test_gradients():
    check_grads(mismatch_loss, (2.0, 3.0, 0.02), order=1)
