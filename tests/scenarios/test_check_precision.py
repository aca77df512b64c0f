"""Scenarios are checked in float64, where the caller works in float32."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import energymodel as em
from energymodel.runtime.compilation import Compiled

PRECISION = 32
SMALL = "test-1b-h100"


def test_numbers_of_float64_are_checked():
    scenario = em.load_scenario(SMALL)
    with jax.enable_x64(True):
        accelerator = jax.tree.map(jnp.asarray, scenario.system.accelerator)
        assert float(accelerator.dynamic_power) > 0.0  # compiles the operations in float64
    system = eqx.tree_at(lambda tree: tree.accelerator, scenario.system, accelerator)
    dataclasses.replace(scenario, system=system).check()


def energy(scenario: Any, clock: Any) -> Any:
    return em.evaluate(scenario.system, eqx.tree_at(lambda plan: plan.clock, scenario.plan, clock)).energy.total


def voltage(scenario: Any, clock: Any) -> Any:
    chip = scenario.system.accelerator
    return chip.dynamic_power * chip.voltage(clock)


@pytest.mark.parametrize("compiled", [pytest.param(energy, marks=pytest.mark.slow), voltage])
def test_a_trace_in_float32_leaves_the_scenario_in_float64(compiled: Callable[[Any, Any], Any]):
    scenario = em.load_scenario(SMALL)
    em.evaluate(scenario.system, scenario.plan)
    program = jax.jit(lambda clock: compiled(scenario, clock))
    assert program(0.9).dtype == np.float32
    scenario.check()
    with jax.enable_x64(True):
        assert em.evaluate(scenario.system, scenario.plan).time.dtype == np.float64
    assert program(0.8) > 0.0  # the trace lived as long


def test_a_trace_in_float32_leaves_the_numbers_of_a_compiled_program_in_float64():
    number = np.array(3.0)
    program = jax.jit(lambda factor: factor * number)
    assert program(2.0).dtype == np.float32
    with jax.enable_x64(True):
        assert Compiled(lambda x: x + 0.1)(number) == 3.1
    assert program(1.0) == 3.0  # the trace lived as long
