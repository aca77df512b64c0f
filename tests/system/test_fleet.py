"""Groups of unlike devices: limits in which they are one job, the division of the work, derivatives."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.performance.saturation import proportional_split
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.fleet import load_fleet
from energymodel.system import fleet as model
from energymodel.system.fleet import ADDED, COMMON, HIGHEST, evaluate_fleet
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.run_outcome import LOWEST_TEMPERATURES
from energymodel.system.step import training_step
from outcomes import outcome_of, replaced

SMALL = "test-1b-h100"
OTHERS = "a100-sxm4-80gb 8"
JOINED = {
    *("step_time", "energy", "mfu", "hfu", "pue", "energy_per_bit", "eei", "ppw", "euf"),
    *("landauer_multiple", "slack"),
}


@pytest.fixture(scope="module")
def fleet():
    return load_fleet(SMALL, [OTHERS])


@pytest.fixture(scope="module")
def result(fleet):
    return fleet.evaluate()


def test_every_output_is_joined_in_one_way():
    ways = [*COMMON, *ADDED, *HIGHEST, *LOWEST_TEMPERATURES, *JOINED]
    assert sorted(ways) == sorted(field.name for field in dataclasses.fields(TrainingOutcome))


@pytest.mark.parametrize("parts", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_equal_groups_are_one_job(parts):
    scenario = load_scenario(SMALL)
    with jax.enable_x64(True):
        plan = replaced(scenario.plan, {"chips": float(scenario.plan.chips) / parts})
        total = jax.device_get(evaluate_fleet([(scenario.system, plan)] * parts)).job
    for left, other in zip(jax.tree.leaves(total), jax.tree.leaves(outcome_of(SMALL)), strict=True):
        np.testing.assert_allclose(left, other, rtol=1e-10)


def test_all_end_their_work_together_and_even_shares_cost_more(result, fleet):
    np.testing.assert_allclose(result.work_time, np.max(result.work_time), rtol=1e-9)
    np.testing.assert_allclose(np.sum(result.share), 1.0, rtol=1e-12)
    assert result.share[0] > 0.6
    np.testing.assert_allclose(result.job.step_time.total, np.max(result.work_time) + result.job.step_time.data)
    even = fleet.evaluate(np.ones(2))
    assert even.work_time[0] < even.work_time[1]
    assert float(even.job.time) > float(result.job.time)
    assert float(even.job.energy.total) > float(result.job.energy.total)
    np.testing.assert_allclose(even.job.step_time.total, even.work_time[1] + even.job.step_time.data, rtol=1e-12)


@pytest.mark.parametrize("least", [1.0, 0.9, 0.3])
@pytest.mark.parametrize("times", [(1.0, 3.0, 2.0), (3.0, 1.0, 1.0)])
def test_no_token_is_lost_where_a_group_takes_the_least_it_can(least, times):
    # Times in proportion to the work would be equal at work as 1 / t; where all take at least the mean, all take it.
    times, shares = jnp.asarray(times), jnp.asarray([0.5, 0.3, 0.2])
    work = model._equal_times(jnp.ones(3), times, times, shares, least)
    np.testing.assert_allclose(shares @ work, 1.0, rtol=1e-12)
    assert np.all(work >= least * (1.0 - 1e-12))
    if least == 1.0:
        np.testing.assert_allclose(work, 1.0, rtol=1e-12)


def test_work_follows_throughput_and_no_group_takes_less_than_its_schedule_needs():
    # With straight lines through zero, `W_i = W P_i / sum P_j` and the makespan is `max_i W_i / P_i`.
    throughputs, shares = jnp.array([3.0, 1.0, 2.0]), jnp.array([0.25, 0.25, 0.5])
    work = jnp.ones(3)
    result = model._equal_times(work, work / throughputs, 1.0 / throughputs, shares, 0.01)
    tokens = proportional_split(1.0, shares * throughputs)
    np.testing.assert_allclose(shares * result, tokens, rtol=1e-6)
    np.testing.assert_allclose(result / throughputs, jnp.max(tokens / (shares * throughputs)), rtol=1e-6)
    throughputs, shares = jnp.array([3.0, 0.01, 2.0]), jnp.array([0.25, 0.25, 0.5])
    result = model._equal_times(work, work / throughputs, 1.0 / throughputs, shares, 0.4)
    np.testing.assert_allclose(result[1], 0.4)
    np.testing.assert_allclose(jnp.sum(shares * result), 1.0, rtol=1e-6)
    np.testing.assert_allclose(result[0] / 3.0, result[2] / 2.0, rtol=1e-6)


def test_energy_counts_the_power_of_those_who_wait(fleet):
    """Money, energy and power of the building are those of the groups, each in proportion to its chips."""
    even = fleet.evaluate(np.ones(2))
    shares = np.array([0.5, 0.5])
    energy = [float(tree.energy.total) for tree in even.groups]
    np.testing.assert_allclose(float(even.job.energy.total), shares @ energy, rtol=1e-12)
    system, plan = fleet.pairs[0]
    with jax.enable_x64(True):
        both = replaced(plan, {"chips": 16.0})
        step = jax.device_get(jax.jit(training_step)(system, both, float(np.reshape(plan.batch, ()))))
    waited = float(even.job.step_time.total) - float(step.time.total)
    grown = float(even.groups[0].energy.idle_wait) / float(even.job.steps) / 16.0
    alone = float(step.power.idle_wait) * float(step.time.total)
    assert grown > alone + 0.9 * waited * float(step.levels.waiting)


@pytest.mark.slow
def test_derivative_by_a_clock_is_that_of_differences(fleet):
    def energy(clock):
        groups = list(fleet.pairs)
        groups[1] = groups[1][0], eqx.tree_at(lambda tree: tree.clock, groups[1][1], clock)
        return evaluate_fleet(groups).job.energy.total

    with jax.enable_x64(True):
        value = jax.jit(energy)
        slope = jax.jit(lambda clock: jax.jvp(energy, (clock,), (1.0,))[1])(0.9)
        differences = (value(0.9 + 1e-5) - value(0.9 - 1e-5)) / 2e-5
        np.testing.assert_allclose(slope, differences, rtol=1e-5)
