"""Clocks of pipeline stages: the cube law on a chain, an independent search over start times, a real model."""

from itertools import pairwise

import casadi
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from energymodel.errors import InputError
from energymodel.performance.pipeline_schedule import pipeline_schedule
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.pipeline_clocks import PipelineLoad, operation_kinds, pipeline_load, stage_clocks, stage_front
from energymodel.solver import RESULTS
from energymodel.system.step import training_step
from energymodel.system.timeline import layers_per_stage
from unlike_chips import arithmetic_load, cubic_chip

WAITING = 10.0
SMALL = "test-1b-h100"
FOUR = ["plan.layout.pipeline=4", "plan.layout.microbatch=2"]


# Seconds and switching power of a chain of four passes at clock 1.
A, K = np.asarray([[1.0, 2.0], [2.0, 4.0]]), np.asarray([[30.0, 64.0], [64.0, 64.0]])


def chain(seconds, power, hop=0.0, chips=1.0):
    """Passes of so many seconds and so much switching power at clock 1; a chip draws 10 W, at work or waiting."""
    chip = cubic_chip(WAITING, 64.0, 0.05)
    return PipelineLoad(chip, arithmetic_load(seconds, np.asarray(power)), 300.0, WAITING, 1.0, hop, chips)


def ended(front):
    return bool(np.all(front.result == RESULTS.successful))


def test_layers_are_even_and_the_ends_go_short():
    np.testing.assert_array_equal(layers_per_stage(10, 4), [2.0, 3.0, 3.0, 2.0])
    np.testing.assert_array_equal(layers_per_stage(9, 4), [2.0, 3.0, 2.0, 2.0])
    np.testing.assert_array_equal(layers_per_stage(12, 4), 3.0)
    # Llama 3.1 405B, 126 layers: the first and the last of 128 stages hold none.
    np.testing.assert_array_equal(np.flatnonzero(layers_per_stage(126, 128) == 0.0), [0, 127])


@pytest.mark.slow
def test_a_chain_of_passes_obeys_the_cube_law():
    # One micro-batch on two ranks is a chain of four passes. Switching energies e_i phi_i^2 in times a_i / phi_i that
    # add up to T: phi_i = c (a_i / e_i)^(1/3), and with e_i = k_i a_i, c = sum(a_i k_i^(1/3)) / T: energy ~ T^-2.
    a, k = A.ravel(), K.ravel()
    pipeline, schedule = chain(A, K, chips=3.0), pipeline_schedule(2, 1)
    # At 9.5 s the first pass would need phi = 1.18; it stays at 1 and leaves 8.5 s to the others.
    times = np.asarray([15.0, 12.0, 9.5])
    front = stage_clocks(pipeline, schedule, times)
    assert ended(front)
    np.testing.assert_allclose(front.step_time, times, rtol=1e-8)
    for number, time in enumerate(times):
        full = np.zeros(4, bool)
        while True:
            left = time - np.sum(a[full])
            c = np.sum((a * np.cbrt(k))[~full]) / left
            clock = np.where(full, 1.0, c / np.cbrt(k))
            if np.all(clock <= 1.0):
                break
            full |= clock > 1.0
        assert full[0] == (time == 9.5)
        np.testing.assert_allclose(front.clock[number].ravel(), clock, rtol=1e-6)
        switching = np.sum(k * a * clock**2)
        np.testing.assert_allclose(front.energy[number], 3.0 * (switching + 2.0 * WAITING * time), rtol=1e-8)
        # Only the passes that are free give: -dE/dT = 2 E_free / T_free, less what waiting costs.
        free = np.sum((k * a * clock**2)[~full])
        np.testing.assert_allclose(front.price[number], 3.0 * (2.0 * free / left - 2.0 * WAITING), rtol=1e-6)


@pytest.mark.slow
def test_no_later_deadline_is_used_than_pays():
    # Waiting costs 2 x 10 W, so the chain stops slowing down where 2 E / T = 20 W: T^3 = (sum a k^(1/3))^3 / 10.
    front = stage_clocks(chain(A, K), pipeline_schedule(2, 1), [20.0, 12.0, 30.0])
    assert ended(front)
    best = np.sum(A * np.cbrt(K)) / np.cbrt(10.0)
    assert 12.0 < best < 20.0
    np.testing.assert_allclose(front.step_time[[0, 2]], best, rtol=1e-6)
    np.testing.assert_allclose(front.price[[0, 2]], 0.0, atol=1e-4)
    np.testing.assert_allclose(front.step_time[1], 12.0, rtol=1e-8)


def start_times_search(a, k, hop, deadline):
    """Least energy with a clock and a start for every operation of two ranks and three micro-batches."""
    orders = [
        [(0, 0, 0), (0, 0, 1), (1, 0, 0), (0, 0, 2), (1, 0, 1), (1, 0, 2)],
        [(0, 1, 0), (1, 1, 0), (0, 1, 1), (1, 1, 1), (0, 1, 2), (1, 1, 2)],
    ]
    problem = casadi.Opti()
    log_clock = {operation: problem.variable() for order in orders for operation in order}
    start = {operation: problem.variable() for operation in log_clock}
    time = problem.variable()
    took = {o: a[o[:2]] * casadi.exp(-log_clock[o]) for o in log_clock}

    def follows(late, early, gap):
        problem.subject_to(start[late] >= start[early] + took[early] + gap)

    for order in orders:
        problem.subject_to(start[order[0]] >= 0.0)
        for early, late in pairwise(order):
            follows(late, early, 0.0)
    for microbatch in range(3):
        follows((0, 1, microbatch), (0, 0, microbatch), hop)
        follows((1, 0, microbatch), (1, 1, microbatch), hop)
    energy = 2.0 * WAITING * time
    for operation in log_clock:
        problem.subject_to(start[operation] + took[operation] <= time)
        problem.subject_to(problem.bounded(np.log(0.05), log_clock[operation], 0.0))
        energy += k[operation[:2]] * a[operation[:2]] * casadi.exp(2.0 * log_clock[operation])
    problem.subject_to(time <= deadline)
    problem.set_initial(time, deadline)
    problem.minimize(energy)
    problem.solver("ipopt", {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.tol": 1e-11})
    return float(problem.solve().value(energy))


@pytest.mark.slow
def test_critical_paths_find_what_a_search_over_all_start_times_finds():
    a, k = np.asarray([[1.0, 1.4], [1.9, 2.6]]), np.asarray([[64.0, 50.0], [40.0, 64.0]])
    pipeline, schedule = chain(a, k, hop=0.2), pipeline_schedule(2, 3)
    # By hand, at full clock: 1 + 0.2 + 3 x (1.4 + 2.6) + 0.2 + 1.9, the way through the second rank.
    fastest = 15.3
    deadlines = fastest * np.asarray([1.0 + 1e-6, 1.1, 1.4])
    front = stage_clocks(pipeline, schedule, deadlines, per="operation")
    assert ended(front)
    assert np.all(front.step_time / deadlines < 1.0 + 1e-8)
    expected = [start_times_search(a, k, 0.2, deadline) for deadline in deadlines]
    np.testing.assert_allclose(front.energy, expected, rtol=1e-6)
    # The clocks of the slack of the first rank went down although no time was lost.
    full = np.sum(3.0 * k * a) + 2.0 * WAITING * fastest
    assert front.energy[0] < 0.95 * full
    with pytest.raises(ValueError, match=r"a deadline of 15 s is shorter than 15\.3 s"):
        stage_clocks(pipeline, schedule, 15.0)


def test_phases_are_beside_the_bubble():
    kinds = operation_kinds(pipeline_schedule(3, 4), "phase")
    # First rank: forward passes 2 and 3 before its first backward pass; backward passes 2 and 3 after its last forward.
    np.testing.assert_array_equal(kinds[:, 0], [[0, 1, 1, 0], [0, 1, 1, 0]])
    np.testing.assert_array_equal(kinds[:, 2], 0)
    np.testing.assert_array_equal(operation_kinds(pipeline_schedule(3, 4), "rank"), np.zeros((2, 3, 4)))


@pytest.mark.slow
def test_slack_of_a_real_pipeline_is_energy():
    changes = ["plan.layout.virtual_stages=1", "plan.layout.pipeline=4", "plan.batch=33554432 token"]
    scenario = load_scenario("llama-3.1-405b-h100", changes)
    pipeline, schedule = pipeline_load(scenario.system, scenario.plan)
    assert (schedule.ranks, schedule.microbatches) == (4, 8)
    kinds = operation_kinds(schedule, "rank")
    clocks = np.full((2, 4, 1), float(pipeline.maximum_clock))
    time = float(pipeline.makespan(clocks, schedule, kinds))
    energy = float(pipeline.energy(clocks, kinds, time))
    front = stage_clocks(pipeline, schedule, time * np.asarray([1.0, 1.05, 1.2]), per="phase")
    assert ended(front)
    # The same makespan to a millionth, with less energy; then a convex front whose slope is the price.
    assert abs(front.step_time[0] / time - 1.0) < 2e-6
    assert front.energy[0] < 0.95 * energy
    assert np.all(np.diff(front.energy) < 0)
    assert np.all(np.diff(front.price) < 0)
    slopes = -np.diff(front.energy) / np.diff(front.step_time)
    assert np.all((slopes <= front.price[:-1]) & (slopes >= front.price[1:]))


def test_stages_add_up_to_the_work_of_evaluate():
    scenario = load_scenario("llama-3.1-405b-h100", ["plan.layout.virtual_stages=1", "plan.layout.pipeline=4"])
    system, plan = scenario.system, scenario.plan
    pipeline, schedule = pipeline_load(system, plan)
    batch = jnp.asarray(plan.batch[0])
    step = training_step(system, plan, batch)
    time, power, chip = step.time, step.power, system.accelerator
    clocks = jnp.full((2, 4, 1), step.point.clock)
    passes = schedule.microbatches / 4.0 * float(jnp.sum(pipeline.passes(clocks)[0]))
    kernels = time.compute + time.memory + time.tensor + time.context + time.expert
    # The head shares the roofline of its stage with the traffic of the layers, which evaluate counts apart.
    np.testing.assert_allclose(passes, kernels, rtol=1e-6)
    busy = schedule.microbatches / 4.0 * float(jnp.sum(pipeline.passes(clocks)[1]))
    optimizer = 8.0 * chip.memory_energy * chip.sustained_bandwidth * time.optimizer
    work = (power.dynamic + power.memory) * time.total - optimizer
    spinning = step.point.spin_power * (time.tensor + time.context + time.expert)
    np.testing.assert_allclose(busy, work + spinning + step.point.static_power * passes, rtol=1e-9)


def test_passes_take_the_layers_that_the_layout_cuts():
    cut = load_scenario(SMALL, [*FOUR, "plan.layout.first_stage_layers=6", "plan.layout.last_stage_layers=2"])
    even, uneven = (pipeline_load(of.system, of.plan)[0] for of in (load_scenario(SMALL, FOUR), cut))
    # 16 layers: 4 each, or 6, 4, 4, 2. The last rank has the head as well, which shares the roofline with its layers.
    times = [np.asarray(of.passes(np.ones((2, 4, 1)))[0])[..., 0] for of in (even, uneven)]
    np.testing.assert_allclose(times[1][:, :3] / times[0][:, :3], [[1.5, 1.0, 1.0]] * 2, rtol=1e-9)
    np.testing.assert_allclose(times[0][:, 3] - times[1][:, 3], times[0][:, 0] / 2.0, rtol=1e-3)


@pytest.fixture(scope="module")
def scenario():
    return load_scenario(SMALL, FOUR)


@pytest.mark.slow
def test_clocks_by_rank_beat_one_clock_at_the_same_time(scenario):
    front = stage_front(scenario.system, scenario.plan, points=3, slowdown=0.1)
    np.testing.assert_allclose(front.step_time / front.step_time[0], [1.0, 1.05, 1.1], rtol=4e-6)
    assert front.saved[0] == pytest.approx(0.0, abs=1e-3)
    assert np.all(front.saved[1:] > 0.01)
    # With the output head beside as many layers the last rank takes longest; the others may be slower for it.
    clocks = front.clock[-1, :, :, 0]
    assert np.all(clocks[:, 1] < clocks[:, -1])


def test_one_clock_is_the_same_pipeline_at_that_clock(scenario):
    pipeline, schedule = pipeline_load(scenario.system, scenario.plan)
    front = stage_front(scenario.system, scenario.plan, points=2, slowdown=0.3)
    kinds = operation_kinds(schedule, "rank")

    def step(clock):
        clocks = jnp.full((2, 4, 1), clock)
        time = pipeline.makespan(clocks, schedule, kinds)
        return float(time), float(pipeline.energy(clocks, kinds, time))

    time, energy = step(pipeline.maximum_clock)
    np.testing.assert_allclose(front.step_time[0], time, rtol=2e-6)
    np.testing.assert_allclose(front.one_clock_energy[0], energy, rtol=1e-5)
    clock = brentq(lambda clock: step(clock)[0] - front.step_time[1], pipeline.chip.minimum_clock, 1.0)
    np.testing.assert_allclose(front.one_clock_energy[1], step(clock)[1], rtol=3e-4)


@pytest.mark.parametrize(
    ("changes", "asked", "message"),
    [
        ([], {}, "1 stage has nothing to wait for"),
        ([*FOUR, "plan.layout.schedule=zb-h1"], {}, "planned for 1F1B alone"),
        ([*FOUR, "plan.power.last_stage=400 W"], {}, "Leave out plan.power"),
        (FOUR, {"points": 1}, "1 make no front"),
        (FOUR, {"slowdown": 0.0}, "slowdown: 0 is not above 0"),
        (FOUR, {"slowdown": float("nan")}, "slowdown: nan is not above 0"),
        (FOUR, {"per": "operation"}, "are more than 128"),
    ],
)
def test_what_has_no_front_is_refused(changes, asked, message):
    scenario = load_scenario(SMALL, changes)
    with pytest.raises(InputError, match=message):
        stage_front(scenario.system, scenario.plan, **asked)
