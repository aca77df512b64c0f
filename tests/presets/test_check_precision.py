"""Is a scenario checked whose numbers were computed in float64, where the caller works in float32?"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

import energymodel as em

PRECISION = 32


def test_numbers_of_float64_are_checked():
    scenario = em.load_scenario("test-1b-h100")
    with jax.enable_x64(True):
        accelerator = jax.tree.map(jnp.asarray, scenario.system.accelerator)
        assert float(accelerator.dynamic_power) > 0.0  # compiles the operations in float64
    system = eqx.tree_at(lambda one: one.accelerator, scenario.system, accelerator)
    dataclasses.replace(scenario, system=system).check()
