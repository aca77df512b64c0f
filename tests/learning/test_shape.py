import jax
import numpy as np

from energymodel.learning.shape import shape_penalty


def test_best_shape_costs_nothing_and_both_sides_cost_the_same():
    assert shape_penalty(8000.0, 80.0, 100.0, 0.005) == 0.0
    assert jax.grad(shape_penalty)(8000.0, 80.0, 100.0, 0.005) == 0.0
    wide, deep = shape_penalty(16000.0, 80.0, 100.0, 0.005), shape_penalty(8000.0, 160.0, 100.0, 0.005)
    np.testing.assert_allclose(wide, deep, rtol=1e-12)


def test_penalty_stays_within_what_was_seen():
    # Kaplan et al. 2020, fig. 5: about 3 % over a factor of 40; of a loss of 3 nat/token, sqrt(40) to either side.
    assert shape_penalty(100.0 * 40**0.5, 1.0, 100.0, 0.005) < 0.03 * 3.0
