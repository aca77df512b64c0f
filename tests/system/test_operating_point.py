"""Does a power cap hold for the mean of work and short waits, and does a waiting chip draw what was metered?"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.scenarios.scenario import load_scenario
from energymodel.system.operating_point import operating_point
from energymodel.system.step import step_work, training_step

SCENARIO = load_scenario("gpt3-175b-h100")
SYSTEM, CHIP = SCENARIO.system, SCENARIO.system.accelerator
BATCH = SCENARIO.plan.batch[0]


@jax.jit
def settled(cap, waiting):
    """Load and operating point of bf16 products, which draw more than the cap, beside waits of a layer [s]."""
    layout = dataclasses.replace(SCENARIO.plan.layout, fp8=np.asarray(0.0))
    plan = dataclasses.replace(SCENARIO.plan, power_cap=cap, layout=layout)
    work = step_work(SYSTEM, plan, BATCH)
    return work.load, operating_point(SYSTEM, plan, work.coolant, work.load, waiting)


def test_a_waiting_h100_draws_what_was_metered():
    # 70 W of leakage, 70 W fixed, 0.123 x 618 W of switching [experiments/04_metered_runs: 216 W]
    static = CHIP.static_power(1.0, CHIP.leakage.reference_temperature)
    np.testing.assert_allclose(static + CHIP.spin_power(1.0, 1.0), 216.0, rtol=1e-3)


def test_spinning_goes_as_switching():
    ratio = CHIP.spin_power(0.8, 0.9) / CHIP.spin_power(1.0, 1.0)
    np.testing.assert_allclose(ratio, 0.8 * 0.9**2, rtol=1e-12)


@settings(deadline=None)  # the first call compiles
@given(st.floats(0.0, 2e-3), st.floats(0.0, 2e-3))
def test_waits_leave_power_for_a_higher_clock(one, other):
    short, long = (settled(500.0, wait)[1] for wait in sorted((one, other)))
    assert float(long.clock) >= float(short.clock) - 1e-12
    for point in (short, long):
        assert float(point.busy_power) <= 500.0 * (1.0 + 1e-9)


def test_a_cap_that_binds_is_the_mean_power():
    np.testing.assert_allclose(settled(500.0, 1e-4)[1].busy_power, 500.0, rtol=1e-6)


@pytest.mark.parametrize("waiting", [0.0, 1e-3])
def test_mean_power_is_energy_over_time(waiting):
    load, point = settled(1e4, waiting)
    busy = load.busy_time(CHIP, point.clock)
    energy = load.switching_energy * point.voltage**2 + load.memory_energy + point.spin_power * waiting
    np.testing.assert_allclose(point.busy_power - point.static_power, energy / (busy + waiting), rtol=1e-12)


def test_steps_settle_beside_their_exposed_communication():
    @jax.jit
    def both(batch):
        work = step_work(SYSTEM, SCENARIO.plan, batch)
        expected = operating_point(SYSTEM, SCENARIO.plan, work.coolant, work.load, sum(work.exposed))
        return training_step(SYSTEM, SCENARIO.plan, batch).point, expected, work

    point, expected, work = both(BATCH)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), point, expected)
    assert float(jnp.asarray(sum(work.exposed))) > 0.0
