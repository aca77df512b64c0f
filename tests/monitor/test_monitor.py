"""State, forecast and findings of a watched run."""

# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportAttributeAccessIssue=false

import dataclasses
import json
import math

import numpy as np
import pytest

import energymodel as em
from energymodel.monitor.expectation import LossCourse, course_prior, expectation_of, fit_course, rates_of
from energymodel.monitor.forecast import forecast
from energymodel.monitor.run_state import RunState, mean_spread
from energymodel.monitor.status import findings
from energymodel.readers.log_records import LogEvent, LoggedStep, PowerReading
from energymodel.readers.text_file import read_so_far
from energymodel.scenarios.scenario import load_scenario
from monitor.recorded_run import START, STEPS, changed, expected, in_order, plan, readings_until, steps_until


def watched(*parts, **options):
    monitor = em.Monitor(plan(), **{"every": 1.0, **options})  # each forecast takes seconds
    return monitor.watch(in_order(*parts))


def state_of(*records):
    """A run after these records."""
    state = RunState(expected())
    for record in records:
        state.add(record)
    return state


def findings_of(*parts):
    """What is wrong with a run, without a forecast of its end."""
    return findings(state_of(*in_order(*parts)))


def kinds(wrong):
    return [finding.kind for finding in wrong]


def test_a_run_that_goes_as_planned_ends_as_planned(tmp_path):
    output, metrics = tmp_path / "run.jsonl", tmp_path / "metrics.prom"
    status = watched(steps_until(0.3), readings_until(0.3), output=output, metrics=metrics, every=0.15)
    outcome = expected().outcome
    assert status.state.progress == pytest.approx(0.3)
    assert status.state.time == pytest.approx(0.3 * STEPS * expected().step_time)
    assert not status.findings
    totals = status.forecast.totals
    # pauses and failures of the plan have not come yet
    assert totals["time"].value == pytest.approx(float(outcome.time), rel=0.02)
    assert totals["energy"].value == pytest.approx(float(outcome.energy.total), rel=0.03)
    assert totals["money"].value == pytest.approx(float(outcome.money), rel=0.03)
    for name, entire in totals.items():
        assert entire.lower < entire.value < entire.upper, name
        assert entire.value > status.forecast.used.get(name, 0.0)
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["progress"] for line in lines] == sorted(line["progress"] for line in lines)
    assert len(lines) == 3  # at 1, 16 and 30 %
    assert em.MeasuredRun(**read_so_far(output, em.MeasuredRun._fields)) == status.forecast.measured
    rows = dict(line.rsplit(" ", 1) for line in metrics.read_text().splitlines() if not line.startswith("#"))
    assert float(rows["energymodel_progress_ratio"]) == pytest.approx(0.3)
    assert float(rows["energymodel_forecast_time_upper_seconds"]) == totals["time"].upper


def test_a_slower_and_hungrier_run_is_forecast_so():
    status = watched(steps_until(0.3, slower=1.2), readings_until(0.36, busier=1.15))
    outcome, totals = expected().outcome, status.forecast.totals
    assert totals["time"].value == pytest.approx(1.2 * float(outcome.time), rel=0.02)
    assert totals["energy"].value > 1.2 * float(outcome.energy.total)
    assert kinds(status.findings) == ["plan", "plan"]
    assert "20 % longer" in status.findings[0].message
    assert "15 % more" in status.findings[1].message


def test_the_pace_of_now_tells_the_rest():
    before = steps_until(0.3, every=2)
    expectation = expected()
    slow = 1.4 * expectation.step_time
    late = [LoggedStep(before[-1].step + step, before[-1].time + step * slow, slow, loss=3.0) for step in range(1, 101)]
    status = watched(before, late)
    so_far, entire = status.state.time, status.forecast.totals["time"]
    done = status.state.progress
    assert entire.value == pytest.approx(so_far + (1.0 - done) * STEPS * slow, rel=0.03)
    assert entire.lower < so_far / done < entire.value  # the mean pace may come back
    assert "straggler" in kinds(status.findings)
    assert "40 % longer than before" in status.findings[0].message


@pytest.mark.parametrize(
    ("numbers", "kind", "message"),
    [
        ({"clock": 1.5e9}, "straggler", "Device 3 runs at 1.5 GHz, the others at 1.755 GHz"),
        ({"throttled": 1.0}, "throttling", "Device 3 slows its clock for power or heat in 100 % of the readings"),
        ({"temperature": 400.0}, "throttling", "Device 3 has 127 °C"),
        ({"power_limit": 100.0}, "power-cap", "1 of 8 devices are at their power limit of 100 W"),
    ],
)
def test_a_device_that_differs_is_found(numbers, kind, message):
    wrong = findings_of(steps_until(0.2), changed(readings_until(0.2), "3", **numbers))
    assert kinds(wrong) == [kind]
    assert message in wrong[0].message


@pytest.mark.parametrize(
    ("readings", "message"),
    [
        ({"throttled": 1.0}, "8 of 8 devices slow their clocks for power or heat in 100 % of the readings."),
        ({"devices": 16}, "16 devices have meters, and the plan has 8 chips: its energy is forecast."),
    ],
)
def test_what_all_devices_have_is_said_once(readings, message):
    (wrong,) = findings_of(steps_until(0.2), readings_until(0.2, **readings))
    assert wrong.message == message


def test_a_device_that_the_run_does_not_use_is_no_straggler():
    idle = changed(readings_until(0.2), "3", clock=3.45e8, power=70.0)
    assert "straggler" not in kinds(findings_of(steps_until(0.2), idle))


def test_hosts_are_no_chips():
    hosts = [dataclasses.replace(step, device="cpu", power=100.0) for step in readings_until(0.2, devices=1)]
    state = state_of(*in_order(steps_until(0.2), readings_until(0.2), hosts))
    assert state.chip_power == pytest.approx(float(expected().outcome.power_busy))


def test_pauses_count_where_steps_have_no_times():
    pauses = LogEvent("checkpoint", duration=20.0), LogEvent("evaluation", duration=4.0)
    steps = [LoggedStep(step, step_time=2.0) for step in range(1, 11)]
    state = state_of(*steps[:5], *pauses, *steps[5:])
    assert (state.time, list(state.checkpoints)) == (44.0, [20.0])


def test_a_log_that_falls_back_before_its_first_step_ran_alike_before_it():
    # 30 steps of 2 s for the 20 from the 95th to the 114th; two for the 99th.
    for steps, time in (([*range(100, 110), *range(95, 115)], 114 * 3.0), ([100, 99], 99 * 4.0)):
        state = state_of(*(LoggedStep(step, step_time=2.0) for step in steps))
        assert state.time == pytest.approx(time)


def test_a_checkpoint_within_a_step_time_counts_once():
    # torchtitan: the time of a step follows from the clock and holds the checkpoint, whose length is said.
    steps = [
        LoggedStep(step, START + 2.0 * step + 30.0 * (step > 20), step_time=2.0 + 30.0 * (step == 21))
        for step in range(1, 31)
    ]
    state = state_of(*steps[:20], LogEvent("checkpoint", START + 70.0, duration=30.0), *steps[20:])
    assert list(state.checkpoints) == [30.0]
    assert state.mean_step_time == pytest.approx(2.0)


def test_slow_checkpoints_and_frequent_failures_are_found():
    pauses = [LogEvent("checkpoint", START + 100.0 * count, duration=200.0) for count in range(1, 4)]
    crashes = [LogEvent("restart", START + 150.0 * count) for count in range(1, 4)]
    wrong = findings_of(steps_until(0.4), pauses, crashes)
    assert kinds(wrong) == ["failures", "checkpoint"]
    assert "3 interruptions" in wrong[0].message
    assert "3.333 min, not for 30 s" in wrong[1].message


def test_a_pause_beside_a_step_is_no_step_time():
    usual, steps = expected().step_time, steps_until(0.2)
    last = steps[-1]
    paused = LoggedStep(last.step + 1, last.time + usual + 90.0, usual + 90.0)
    state = state_of(*steps, LogEvent("checkpoint", last.time), paused)
    assert state.usual_step_time == pytest.approx(usual)
    assert list(state.checkpoints) == [pytest.approx(90.0)]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_losses_that_are_no_numbers_are_told(bad):
    steps = steps_until(0.2)
    steps[-2] = LoggedStep(steps[-2].step, steps[-2].time, steps[-2].step_time, loss=bad)
    (finding,) = findings_of(steps)
    assert finding.message == "1 steps had no finite loss."


def test_losses_that_are_not_said_are_no_findings():
    steps = enumerate(steps_until(0.2))
    assert not findings_of([dataclasses.replace(step, loss=step.loss if at % 3 else math.nan) for at, step in steps])


def test_a_spike_and_another_batch_are_told():
    steps = [
        dataclasses.replace(step, loss=step.loss + 0.01 * (at % 3), tokens=2.0 * expected().batch)
        for at, step in enumerate(steps_until(0.2))
    ]
    steps[-1] = dataclasses.replace(steps[-1], loss=steps[-1].loss + 4.0)
    assert {"loss", "batch"} <= set(kinds(findings_of(steps)))


@pytest.mark.slow
def test_a_better_plan_for_the_rest_is_searched():
    monitor = em.Monitor(plan())
    assert monitor.replan() is None
    monitor.watch(in_order(steps_until(0.3, slower=1.1), readings_until(0.33)))
    better = monitor.replan()
    assert better.optimum.success
    assert better.saving >= 0.0


def test_nothing_is_forecast_before_the_start_and_the_end_is_what_was_measured():
    monitor = em.Monitor(plan(), every=1.0)
    assert monitor.update().forecast is None
    status = monitor.watch(steps_until(1.0))
    assert status.state.progress == pytest.approx(1.0)
    totals = status.forecast.totals
    assert totals["time"].value == pytest.approx(status.state.time, rel=1e-4)
    assert totals["energy"].value == pytest.approx(status.forecast.used["energy"], rel=1e-4)
    assert totals["loss"].value == pytest.approx(status.state.loss)


def test_the_loss_follows_the_runs_own_course():
    tokens, prior = np.geomspace(1e9, 30e9, 100), course_prior()
    loss = 2.0 + 0.4 * (tokens / 30e9) ** -0.8
    course = LossCourse(tokens, loss, np.full(100, 10.0), np.ones(100))
    assert fit_course(course._replace(loss=loss - 2.2), prior).at(1e15, 1.0).value >= 0.0  # no less than no entropy
    assert fit_course(course._replace(loss=loss - 10.0), prior) is None
    assert fit_course(LossCourse(*(column[:3] for column in course)), prior) is None
    assert fit_course(course, prior, begin=29.9e9) is None
    fitted = fit_course(course, prior)
    far, near = fitted.at(100e9, 1.0), fitted.at(31e9, 1.0)
    assert far.value == pytest.approx(2.0 + 0.4 * (100 / 30) ** -0.8, abs=0.02)
    assert far.lower < 2.0 + 0.4 * (100 / 30) ** -0.8 < far.upper
    assert near.upper - near.lower < far.upper - far.lower


def test_the_gain_of_a_decayed_learning_rate_is_still_to_come():
    entire, gain, prior = 100e9, 0.08, course_prior()
    tokens = np.geomspace(1e9, 60e9, 100)
    rate = 0.1 + 0.45 * (1.0 + np.cos(np.pi * tokens / entire))  # a cosine to a tenth
    undecayed = 2.0 + 0.4 * (tokens / 30e9) ** -0.8
    course = LossCourse(tokens, undecayed - gain * (1.0 - rate) / 0.9, np.full(100, 10.0), rate)
    end = fit_course(course, prior).at(entire, 0.1)
    truth = 2.0 + 0.4 * (entire / 30e9) ** -0.8 - gain
    assert end.value == pytest.approx(truth, abs=0.015)
    assert end.lower < truth < end.upper
    assert fit_course(course, prior).at(entire, 1.0).value > end.value + 0.04


def test_the_plans_schedule_stands_for_a_learning_rate_that_the_log_does_not_say():
    expectation = expected()
    assert expectation.end_rate == 0.1
    np.testing.assert_allclose(expectation.rate(np.array([0.0, 0.5, 1.0]) * expectation.tokens), [1.0, 0.55, 0.1])
    assert state_of(*steps_until(0.5)).course().rate[-1] == pytest.approx(0.55, abs=0.03)
    constant = expectation_of(load_scenario("test-1b-h100", {"system.recipe.learning_rate": "constant"}))
    assert constant.end_rate == 1.0
    np.testing.assert_array_equal(constant.rate(np.array([1.0, 1e9])), 1.0)


def test_the_stages_of_a_plan_tell_its_rates():
    change = {"preset": "two-stage", "shares": [1, 9, 10], "rates": [6e-4, 6e-4, 1.2e-4]}
    staged = load_scenario("test-1b-h100", {"system.recipe.learning_rate": change}).system.recipe.learning_rate
    course, end = rates_of(staged)
    plan_of_stages = dataclasses.replace(expected(), rate_course=course)
    rates = plan_of_stages.rate(np.array([0.025, 0.3, 0.499, 0.501, 1.0]) * plan_of_stages.tokens)
    np.testing.assert_allclose(rates, [0.5, 1.0, 1.0, 0.2, 0.2], atol=0.01)
    assert end == pytest.approx(0.2)


def test_a_rate_that_was_lowered_against_the_plan_stays_low():
    """A constant rate by the plan; the log's falls to a tenth at 40 %, and the loss by 0.08 nat with it."""
    goal = {"plan.goal": {"tokens": f"{expected().tokens!r} token"}}
    constant = load_scenario("test-1b-h100", {"system.recipe.learning_rate": "constant", **goal})
    state = RunState(expectation_of(constant))
    for step in steps_until(0.7):
        low = step.step > 0.4 * STEPS
        loss = 2.5 + 0.4 * (step.step / STEPS) ** -0.5 - 0.08 * low
        state.add(dataclasses.replace(step, loss=loss, learning_rate=3e-5 if low else 3e-4))
    end = forecast(state).totals["loss"]
    assert end.lower < 2.82 < end.upper
    assert end.value == pytest.approx(2.82, abs=0.02)


def test_the_law_is_as_uncertain_as_on_other_data():
    totals = watched(steps_until(0.011)).forecast.totals
    assert totals["loss"].upper - totals["loss"].lower > 2.0 * 1.64 * course_prior().law_error


def test_a_start_comes_but_once():
    expectation, pause = expected(), 300.0
    begin = LogEvent("start", START)
    late = [dataclasses.replace(step, time=step.time + pause) for step in steps_until(0.1)]
    status = watched([begin], late)
    assert status.state.start_pause == pytest.approx(pause)
    rest = STEPS * expectation.step_time
    assert status.forecast.totals["time"].value == pytest.approx(pause + rest, rel=0.02)


def test_power_of_a_start_is_not_that_of_the_rest():
    expectation, pause, nodes = expected(), 300.0, expected().chips / 8
    late = [dataclasses.replace(step, time=step.time + pause) for step in steps_until(0.2)]
    seconds = pause + 0.2 * STEPS * expectation.step_time
    power = float(expectation.outcome.power_average / expectation.outcome.pue) / nodes
    readings = [
        PowerReading(START + tick, "node", power=0.3 * power if tick < pause else power)
        for tick in np.arange(0.0, seconds, 5.0)
    ]
    totals = watched([LogEvent("start", START)], late, readings).forecast.totals
    energy = nodes * power * (0.3 * pause + STEPS * expectation.step_time)
    assert totals["equipment_energy"].value == pytest.approx(energy, rel=0.02)
    assert totals["equipment_energy"].lower < energy < totals["equipment_energy"].upper


def test_the_mean_of_the_rest_is_as_uncertain_as_the_parts_so_far():
    assert mean_spread([1.0] * 15, 0.5) == 0.0
    parts = np.repeat([0.9, 1.1] * 4, 10)  # standard deviation of the means 0.1 sqrt(8 / 7)
    assert mean_spread(parts, 0.5) == pytest.approx(0.1 * math.sqrt(8.0 / 7.0) * math.sqrt(2.0 / 8.0))
    assert mean_spread(parts, 0.9) > mean_spread(parts, 0.5)


def test_a_rising_learning_rate_is_left_out():
    rates = {step: 1e-3 * min(step / 20, 1.0) for step in range(1, 50)}
    state = state_of(*(LoggedStep(step, step_time=1.0, loss=5.0, learning_rate=rate) for step, rate in rates.items()))
    assert state.warm_tokens == 20 * expected().batch


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval": 0.0}, "interval: 0.0"),
        ({"interval": math.nan}, "interval: nan"),
        ({"every": 0.0}, "every: 0.0"),
        ({"every": 2}, "every: 2"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(em.InputError, match=message):
        em.Monitor(plan(), **options)


def test_an_unknown_event_is_refused():
    with pytest.raises(em.InputError, match="event lunch"):
        em.Monitor(plan()).event("lunch")
