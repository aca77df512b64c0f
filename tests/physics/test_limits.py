"""Lower bounds: order of the ladder, limits, gradients."""

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.physics import limits


def test_ladder_rises():
    # docs/physics.md A0.7: Chinchilla, 70e9 parameters, 5.88e23 FLOP, about 1e5 steps of 16 bits a parameter.
    ladder = [
        limits.landauer_model_energy(8.759e10, 70e9, 2.0, 300.0),
        limits.landauer_overwrite_energy(70e9, 1e5, 16.0, 300.0),
        limits.landauer_operation_energy(5.88e23, 32.0, 300.0),
        limits.cmos_wall_energy(5.88e23, 4.7e15),
        limits.roofline_energy(5.88e23, 0.45e-12, 0.0, 0.0, 1.0),
    ]
    assert np.all(np.diff(np.array(ladder)) > 0)


def test_model_and_source_bounds_agree_with_landauer():
    # N H = F h / 6 with F = 6 N D, H = D h.
    parameters, tokens, entropy = 70e9, 1.4e12, 1.8172
    bits = limits.source_bits_per_operation(entropy)
    np.testing.assert_allclose(
        limits.landauer_source_energy(parameters, tokens * entropy / np.log(2), 300.0),
        limits.landauer_operation_energy(6 * parameters * tokens, bits, 300.0),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        limits.finite_time_landauer_energy(1.0, 300.0, 1e9, 1.0), limits.landauer_energy(1.0, 300.0)
    )
    assert limits.finite_time_landauer_energy(1.0, 300.0, 1.0, 1.0) == 2 * limits.landauer_energy(1.0, 300.0)
    information = jnp.array([1e9, 1.4e11, 1e15])
    expected = limits.landauer_energy(jnp.array([1e9, 1.4e11, 1.4e11]), 300.0)
    np.testing.assert_allclose(limits.landauer_model_energy(information, 70e9, 2.0, 300.0), expected)
    assert np.isfinite(jax.grad(limits.landauer_model_energy)(1.4e11, 70e9, 2.0, 300.0))
