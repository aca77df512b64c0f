"""The physics that a kernel evaluates in float32: values, gradients, lowering for a GPU."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from busy_chip import BusyPower, busy_power_at
from energymodel.physics.chiller import LiftChiller
from energymodel.physics.cooling import Cooling, InletClass, TwoPhaseLoop
from energymodel.physics.delivery import Distribution, Regulator
from energymodel.physics.heat_rejection import EvaporativeAir
from energymodel.physics.leakage import Leakage, PowerGate
from energymodel.physics.limits import landauer_operation_energy, landauer_source_energy
from energymodel.physics.switching import clock_at_power_cap
from energymodel.physics.thermal import leakage_temperature
from energymodel.physics.voltage import VoltageCurve
from energymodel.physics.weather import Weather

PRECISION = 32
SYSTEM = (
    BusyPower(VoltageCurve(0.70, 0.60, 0.03), 140.0, 660.0),
    Leakage(70.0, 3.0, 0.015, 338.15),
    Cooling(
        TwoPhaseLoop(0.015, 0.01, 2.0, 88e3, 13.4, 1602.0, 0.0083, 0.7, 9.0, 0.7),
        LiftChiller(5.44, 23.0, 39.1, 6.0, 293.15, 0.6, 0.46, 0.27),
        EvaporativeAir(2.0, 0.8, 0.01, 1.33),
        Weather(287.1, 11.9, 4.15, 283.3, 10.6, 1.85, 3.5),
        InletClass(283.15, 308.15, 291.15, 300.15),
        4.0,
    ),
    Regulator(1000.0, 0.02, 0.03, 0.05),
    Distribution(48.0, 1e-3),
    PowerGate(0.5, 0.1, 50e-6, 5e-6, 1e-6),
)


def chain(system, cap):
    chip, leakage, cooling, regulator, line, gate = system
    clock = clock_at_power_cap(busy_power_at, cap, 0.2, 1.0, chip)
    sensitivity, reference = leakage.temperature_sensitivity, leakage.reference_temperature
    resistance = cooling.at(298.15).resistance
    temperature = leakage_temperature(chip(clock), leakage.power, 300.0, resistance, sensitivity, reference)
    leak = leakage(chip.curve(clock), temperature)
    power = chip(clock) + leak - gate.saved_power(leak, 40e-6, 100e-6)
    wall = regulator.input_power(power + line.loss(power))
    return wall + cooling.demand(wall, cooling.at(298.15)).power + 1e-5 * cooling.loop.heat_flux_limit()


@pytest.mark.slow
def test_chain_of_components_agrees_with_float64():
    value_and_slopes = jax.jit(jax.value_and_grad(chain))
    for cap in (100.0, 500.0, 900.0):
        single, single_slopes = value_and_slopes(SYSTEM, cap)
        assert single.dtype == jnp.float32
        with jax.enable_x64(True):
            double, double_slopes = value_and_slopes(SYSTEM, cap)
        np.testing.assert_allclose(single, double, rtol=1e-5)
        # Of the logarithms of the numbers, in W: a blend of 1e-6 s has a slope per second of no meaning in float32.
        trees = [jax.tree.leaves(jax.tree.map(np.multiply, SYSTEM, tree)) for tree in (single_slopes, double_slopes)]
        for (path, _), a, b in zip(jax.tree_util.tree_leaves_with_path(SYSTEM), *trees, strict=True):
            np.testing.assert_allclose(a, b, rtol=5e-3, atol=1e-4, err_msg=str(path))


def test_runaway_and_large_counts_stay_finite():
    slopes = jax.jit(jax.grad(leakage_temperature, argnums=range(6)))(600.0, 70.0, 308.15, 0.2, 0.015, 338.15)
    assert np.all(np.isfinite(slopes))
    np.testing.assert_allclose(
        landauer_operation_energy(3.8e25, 32.0, 300.0), 3.491e6, rtol=1e-3
    )  # 1.216e27 x 2.871e-21
    np.testing.assert_allclose(
        landauer_source_energy(405e9, 4.09e13, 300.0), 4.756e4, rtol=1e-3
    )  # 1.65645e25 x 2.871e-21


def test_components_are_pytrees_of_floats():
    assert all(
        leaf.dtype == np.float64 and leaf.shape == () for leaf in jax.tree.leaves(eqx.filter(SYSTEM, eqx.is_array_like))
    )


def test_chain_of_components_lowers_in_a_kernel():
    leaves, structure = jax.tree.flatten(SYSTEM)

    def kernel(parameters, cap, out):
        system = jax.tree.unflatten(structure, [parameters[i] for i in range(len(leaves))])
        out[...] = jax.vmap(lambda cap: chain(system, cap))(cap[...])

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((64,), jnp.float32),
        compiler_params=plgpu.CompilerParams(),
        name="physics_chain",
    )
    parameters, caps = jnp.array(leaves, jnp.float32), jnp.full((64,), 500.0, jnp.float32)
    lowered = jax.jit(call).trace(parameters, caps).lower(lowering_platforms=("cuda",))
    assert "physics_chain" in lowered.as_text()
