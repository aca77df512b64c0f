"""Experiments 10, 11, 13 and 23: plans, prices and savings that they state, and some of them again."""

import itertools

import numpy as np
import pytest

import energymodel as em
from energymodel.system.evaluate import evaluate_once
from experiment import Experiment

pytestmark = pytest.mark.slow

POWER_CAP, ALLOCATION, REPLAN, HUNT = map(Experiment, ("10_power_cap", "11_power_allocation", "13_replan", "23_hunt"))
SERIES = ("time", "energy", "money")
SMALL, DEVICE, DAY = "test-1b-h100", "P100", 86400.0


@pytest.fixture(scope="module")
def device():
    """Workloads of one device, and the draws of its priors."""
    cells = [cell for cell in REPLAN.power_limits.cells() if cell.gpu == DEVICE]
    limits = cells[0].limits
    return cells, REPLAN.power_limits.draws(float(limits[0]), REPLAN.power_limits.IDLE[DEVICE], limits)


def scenario_of(row, loss):
    """The stated plan, read as a scenario, which refuses fractions of replicas and micro-batches."""
    changes = {
        "plan.chips": row["chips"],
        "plan.batch": f"{row['plan']['batch']!r} token",
        "plan.clock": row["plan"]["clock"],
        "plan.coolant_temperature": f"{row['plan']['coolant_temperature']!r} K",
        "plan.goal": {"loss": f"{loss!r} nat/token"},
    }
    layout = {f"plan.layout.{name}": value for name, value in row["layout"].items()}
    return em.load_scenario("llama-3.1-405b-h100", {**changes, **layout})


def test_stated_plans_are_whole_obey_the_site_and_give_the_stated_outcomes():
    for name in SERIES:
        for row in POWER_CAP.stored[name]:
            scenario = scenario_of(row, POWER_CAP.stored["loss"])
            outcome = evaluate_once(scenario.system, scenario.plan)
            np.testing.assert_allclose(outcome.time, row["days"] * DAY, rtol=1e-7)
            np.testing.assert_allclose(outcome.energy.total, row["energy_gwh"] * 3.6e12, rtol=1e-7)
            np.testing.assert_allclose(outcome.money, row["money_musd"] * 1e6, rtol=1e-7)
            np.testing.assert_allclose(outcome.loss, POWER_CAP.stored["loss"], rtol=1e-9)
            assert float(outcome.power_peak) <= row["site_mw"] * 1e6 * (1.0 + 1e-6)
            assert float(outcome.memory_per_chip) <= 80e9 * (1.0 + 1e-6)
            assert float(outcome.temperature) <= 360.15 + 1e-3


def test_a_larger_site_is_faster_and_a_stated_plan_beats_the_published_one():
    for name in SERIES:
        assert np.all(np.diff([row["days"] for row in POWER_CAP.stored[name]]) < 0.0)
    for row, old in zip(POWER_CAP.stored["time"], POWER_CAP.stored["published"], strict=True):
        assert row["days"] < 0.95 * old["days"]
    for fast, thrifty, cheap in zip(*(POWER_CAP.stored[name] for name in SERIES), strict=True):
        assert thrifty["energy_gwh"] <= min(fast["energy_gwh"], cheap["energy_gwh"]) * (1.0 + 1e-3)
        assert cheap["money_musd"] <= min(fast["money_musd"], thrifty["money_musd"]) * (1.0 + 1e-3)


def test_the_price_of_a_megawatt_is_what_solving_again_gives():
    check = POWER_CAP.stored["check"]
    np.testing.assert_allclose(check["price"], check["quotient"], rtol=0.01)
    priced = [
        (row, following)
        for row, following in itertools.pairwise(POWER_CAP.stored["time"])
        if row["active"] and following["active"]
    ]
    assert len(priced) >= 5  # a search that ends at a kink has no price
    for row, _ in priced:
        # Between sites the price is not constant: the mean of both elasticities says the way to a few percent.
        np.testing.assert_allclose(row["next_by_prices"], row["next_found"], rtol=0.06)
    money = POWER_CAP.stored["deadlines"]
    for row, following in itertools.pairwise(money):
        quotient = (row["money_musd"] - following["money_musd"]) / (following["days"] - row["days"])
        # Less than the price at the earlier deadline, but for the rounding to whole replicas and micro-batches.
        assert quotient < row["musd_per_day"] + 0.005 * row["money_musd"] / (following["days"] - row["days"])


def test_every_search_ended_well_and_no_time_was_lost():
    result = ALLOCATION.stored
    assert all(row["solved"] for rows in result.values() for row in rows)
    at_once = {row["per"]: row for row in result["pipelines"] if row["ranks"] == 4 and row["time_ratio"] < 1.0 + 1e-5}
    assert set(at_once) == {"rank", "phase", "operation"}
    assert at_once["operation"]["energy_ratio"] < at_once["phase"]["energy_ratio"] < at_once["rank"]["energy_ratio"]
    for row in result["site"]:
        parts = ["compute", "memory", "network", "host", "delivery_loss", "cooling", "other"]
        drawn = sum(row[f"{part}_w"] for part in parts)
        assert drawn <= row["limit_w"] * (1 + 1e-7)
        if row["price_token_per_j"] > 1e-6:  # elsewhere every part runs at full rate
            np.testing.assert_allclose(drawn, row["limit_w"], rtol=1e-7)


def test_the_experiment_gives_what_it_states():
    recomputed = ALLOCATION.run.compute()
    for name, rows in ALLOCATION.stored.items():
        for row, again in zip(rows, recomputed[name], strict=True):
            for key, value in row.items():
                # What has no effect, such as the clock of a device that hardly works, is not held to many digits.
                if isinstance(value, float) and key.startswith(("step_time", "energy", "throughput", "time_ratio")):
                    np.testing.assert_allclose(again[key], value, rtol=1e-5, err_msg=f"{name} {key}")


def test_planning_anew_pays():
    """On every device it takes less energy than the plan made once, which takes less than the highest limit."""
    for row in REPLAN.stored["power_limits_summary"]:
        assert row["in_the_end"] < row["replanned"] < row["planned_once"] < row["highest"]
        assert row["limits_tried"] < 4.0
    once, *later = REPLAN.stored["forecasts"]

    def power_error(row):
        return (1.0 + row["energy_error"]) / (1.0 + row["time_error"]) - 1.0

    for row in later:
        # Not the energy: the plan made once errs in time and in power, and these errors nearly cancel.
        assert abs(row["time_error"]) < min(1e-2, abs(once["time_error"]))
        assert abs(power_error(row)) < abs(power_error(once))
        assert row["energy_low"] < 0.0 < row["energy_high"]
        # The mean power so far needs no model, and this run draws constant power: replanning does not beat it.
        assert abs(row["energy_error"]) < abs(row["constant_power_error"]) + 1e-2


def test_one_device_again(device):
    cells, draws = device
    printed = [row for row in REPLAN.stored["power_limits"] if row["gpu"] == DEVICE]
    assert len(cells) == len(printed)
    for cell, row in zip(cells, printed, strict=True):
        chosen = REPLAN.power_limits.replay(cell, *draws)
        assert float(cell.limits[chosen[0]]) == row["planned_once_w"]
        assert float(cell.limits[chosen[-1]]) == row["last_w"]
        best = float(np.min(cell.energy))
        np.testing.assert_allclose(float(np.mean(cell.energy[chosen])) / best - 1.0, row["replanned"], atol=1e-8)


def test_only_what_was_run_counts_and_the_true_model_is_found(device):
    # Other numbers at limits that were never run change no choice.
    cells, draws = device
    for cell in cells[::9]:
        chosen = REPLAN.power_limits.replay(cell, *draws)
        unseen = np.setdiff1d(np.arange(len(cell.limits)), chosen)
        time = cell.time.copy()
        time[unseen] *= 3.0
        assert REPLAN.power_limits.replay(cell._replace(time=time), *draws) == chosen
    # A workload that is one of the draws: in the end its best limit, or one as good within three percent.
    cells, (log_time, log_power) = device
    for number in (3, 100, 2000):
        cell = cells[0]._replace(time=np.exp(log_time[number]), power=np.exp(log_power[number]))
        chosen = REPLAN.power_limits.replay(cell, log_time, log_power)
        assert float(cell.energy[chosen[-1]]) <= 1.03 * float(np.min(cell.energy))


def test_hunted_plans_run_and_changes_say_how_much_rests_on_priors():
    assert {row["runs"] for row in HUNT.stored["plans"]} == {"yes"}
    # Where a limit makes a kink at the own plan, no search converges; the plan runs all the same.
    assert {row["scenario"] for row in HUNT.stored["plans"] if not row["converged"]} <= {"olmo-2-13b-h100"}
    assert {row["minimized"].split(",")[0] for row in HUNT.stored["plans"]} == {"energy", "time", "money", "carbon"}
    for row in HUNT.stored["changes"]:
        assert row["saving"] > 0.01
        assert 0.0 <= row["rests_on_priors"] <= 1.0
        assert row["most_of_it"]
    [summary] = HUNT.stored["summary"]
    assert summary["changes_above_one_percent"] == len(HUNT.stored["changes"])


def test_a_search_finds_what_is_stated():
    hunt = HUNT.run
    optimum, _ = next(hunt.searches(SMALL))
    [row] = [row for row in HUNT.stored["plans"] if (row["scenario"], row["minimized"]) == (SMALL, "energy")]
    again = hunt.plan_row(SMALL, optimum, None)
    assert again["saving"] == pytest.approx(row["saving"], rel=1e-3)
    assert again["rests_on_priors"] == pytest.approx(row["rests_on_priors"], rel=1e-2)
    lines = [line for line in HUNT.stored["changes"] if (line["scenario"], line["minimized"]) == (SMALL, "energy")]
    changes = {change.cause: change for change in hunt.changes(optimum, None)}
    assert changes.keys() | {hunt.FORMATS} == {line["cause"] for line in lines}
    for line in lines:
        if line["cause"] in changes:
            saved = changes[line["cause"]].saving / optimum.baseline_value
            assert saved == pytest.approx(line["saving"], rel=1e-2)
