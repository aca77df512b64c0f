"""Power gating: break-even, limits of the smooth controller."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics import gating

# docs/physics.md B5: 5 W of leakage, 0.5 W when off, 50 uJ to wake
GATE = gating.PowerGate(1.0, 0.1, 50e-6, 5e-6, 1e-9)


@given(leakage=st.floats(0.1, 100.0), residual=st.floats(0.0, 0.9), wake=st.floats(1e-6, 1e-3))
@settings(max_examples=25, deadline=None)
def test_saving_is_nothing_at_break_even(leakage, residual, wake):
    with jax.enable_x64(True):
        idle = gating.gating_break_even(wake, leakage, residual * leakage)
        saving = gating.gating_saving(leakage, residual * leakage, idle, wake, 1.0)
        np.testing.assert_allclose(saving, 0.0, atol=1e-15)
        assert gating.gating_saving(leakage, residual * leakage, 2 * idle, wake, 1.0) > 0


def test_sharp_controller_gates_above_break_even_only():
    np.testing.assert_allclose(GATE.saved_power(5.0, 40e-6, 100e-6), 1.3)
    np.testing.assert_allclose(GATE.wake_delay(5.0, 40e-6), 5e-6)
    assert GATE.saved_power(5.0, 5e-6, 100e-6) == 0.0
    assert GATE.wake_delay(5.0, 5e-6) == 0.0


def test_fraction_zero_is_off():
    off = gating.PowerGate(0.0, 0.1, 50e-6, 5e-6, 1e-6)
    assert off.saved_power(5.0, 40e-6, 100e-6) == 0.0
    assert off.wake_delay(5.0, 40e-6) == 0.0


def test_circuit_without_leakage_is_never_gated():
    assert gating.gating_break_even(50e-6, 0.0, 0.0) == gating.NEVER
    assert GATE.saved_power(0.0, 40e-6, 100e-6) == 0.0


def test_gradients_are_finite_everywhere():
    gate = gating.PowerGate(0.5, 0.1, 50e-6, 5e-6, 1e-6)
    for leakage in (0.0, 5.0, 500.0):
        for idle in (0.0, 11.1e-6, 1.0):
            slopes = jax.grad(lambda g, p, t: g.saved_power(p, t, 1.0), argnums=(0, 1, 2))(gate, leakage, idle)
            assert np.all(np.isfinite(jax.tree.leaves(slopes)))
