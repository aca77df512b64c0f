"""Many runs over time, beside the one that `run_trajectory` follows and the closed forms."""

import equinox as eqx
import jax
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.physics.thermal import transient_temperature
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.trajectory import run_trajectory
from energymodel_kernels.ode_ensemble import trajectories

SCENARIO = load_scenario("test-1b-h100")
BATCHES, CLOCKS = np.array([[65536.0], [524288.0], [2097152.0]]), np.array([0.6, 1.0, 0.8])


def at(batch, clock):
    return eqx.tree_at(lambda plan: (plan.batch, plan.clock), SCENARIO.plan, (batch, clock))


@pytest.fixture(scope="module")
def runs():
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, trajectories(SCENARIO.system, at(BATCHES, CLOCKS), 10))


def test_many_runs_end_at_their_outcomes(runs):
    assert runs.loss.shape == runs.start_temperature.shape == (3, 10)
    for column, whole in ((runs.loss, runs.outcome.loss), (runs.time, runs.outcome.time)):
        np.testing.assert_allclose(column[:, -1], whole, rtol=1e-7)
    np.testing.assert_allclose(runs.energy[:, -1], runs.outcome.energy.total, rtol=1e-12)
    # Runs of as many tokens: the largest batch learns least.
    assert np.all(runs.loss[2] > runs.loss[1])


def test_chips_warm_up_as_an_exponential(runs):
    # From idle to the temperature at busy power, with the time constant R C; it is followed for 5 of them.
    chip, heat = SCENARIO.system.accelerator, runs.start_temperature
    resistance, busy = runs.start_time[:, -1] / 5.0 / chip.heat_capacity, runs.outcome.power_busy
    idle = (heat[:, 0] - runs.outcome.temperature * -np.expm1(-0.5)) / np.exp(-0.5)
    coolant = runs.outcome.temperature - resistance * busy
    idle, busy, coolant, resistance = (of[:, None] for of in (idle, busy, coolant, resistance))
    told = transient_temperature(runs.start_time, idle, busy, coolant, resistance, chip.heat_capacity)
    np.testing.assert_allclose(heat, told, rtol=1e-6)


@pytest.mark.slow  # compiles the integration of one run
def test_each_run_is_the_one_that_is_followed_alone(runs):
    outcome, one = run_trajectory(SCENARIO.system, at(BATCHES[2], CLOCKS[2]), 1000)
    np.testing.assert_allclose(runs.outcome.energy.total[2], outcome.energy.total, rtol=1e-9)
    late = runs.time[2] > one.time[50]  # from where straight lines between its times are near enough
    for told, followed in ((runs.loss, one.loss), (runs.tokens, one.tokens), (runs.energy, one.energy)):
        np.testing.assert_allclose(told[2][late], np.interp(runs.time[2], one.time, followed)[late], rtol=1e-5)


def test_schedules_are_refused():
    plans = eqx.tree_at(lambda plan: plan.batch, SCENARIO.plan, np.full((2, 3), 262144.0))
    with pytest.raises(InputError, match="3 knots each"):
        trajectories(SCENARIO.system, plans)
