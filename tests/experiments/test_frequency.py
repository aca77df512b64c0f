"""Results of the experiment on clocks, and the schedules and laws of its fronts."""

import numpy as np
import pytest

from energymodel.calibration import kernel_clock
from experiment import Experiment

pytestmark = pytest.mark.slow

EXPERIMENT = Experiment("03_frequency")
STATED = EXPERIMENT.stored


def test_accuracy_reached_and_clocks_chosen_well():
    kernels = {(row["known"], row["held_out"]): row for row in STATED["kernel_errors"]}
    one_clock = kernels["one clock", "benchmark"]
    assert one_clock["energy_error"] <= 0.04
    assert one_clock["power_error"] <= 0.035
    for other in ("one clock, posynomial", "one clock, without counters"):
        assert kernels[other, "benchmark"]["energy_error"] > one_clock["energy_error"]
    assert kernels["two clocks", "benchmark"]["time_error"] < one_clock["time_error"]
    fronts = {row["held_out"]: row for row in STATED["frontier_summary"]}
    assert fronts["layout"]["mean_error"] <= 0.032
    assert fronts["method"]["mean_error"] <= 0.04
    assert fronts["nothing"]["mean_error"] <= fronts["layout"]["mean_error"] < fronts["everything"]["mean_error"]
    # The preset has what is fitted to all fronts; the mean front is within 3 % up to 1.3 times the shortest time.
    measured, preset = (
        next(row for row in STATED["frontier_means"] if name in row["energy"]) for name in ("measured", "preset")
    )
    for time in ("+5 %", "+10 %", "+20 %", "+30 %"):
        np.testing.assert_allclose(preset[time], measured[time], rtol=0.03)
    rules = {row["rule"]: row for row in STATED["kernel_choices"]}
    assert rules["least predicted, one clock"]["mean_regret"] <= 0.002
    assert rules["least predicted, one clock"]["mean_regret"] < rules["945 MHz for all"]["mean_regret"]
    assert rules["1380 MHz for all"]["mean_regret"] > 0.2
    # What the best clock saves of the energy at the highest: 1 - 1 / (1 + regret), kernel by kernel.
    assert rules["1380 MHz for all"]["mean_saving_of_best"] < rules["1380 MHz for all"]["mean_regret"]


def test_constants_are_few_splits_add_up_and_tables_agree():
    assert len(STATED["kernel_constants"]) == len(kernel_clock.CONSTANTS) == 9
    assert len(STATED["frontier_constants"]) == len(EXPERIMENT.frontiers.CONSTANTS) == 2
    for row in STATED["kernel_split"]:
        np.testing.assert_allclose(row["static"] + row["memory"] + row["core"], 1.0, rtol=1e-6)
        assert min(row["static"], row["memory"], row["core"]) >= 0.0
    accuracy = {(row["prediction"].split()[0], row["held_out"].split(";")[0]): row for row in STATED["accuracy"]}
    one_clock = STATED["kernel_errors"][0]
    for name in ("time", "power", "energy"):
        np.testing.assert_allclose(accuracy[name, "benchmark"]["mean_error"], one_clock[f"{name}_error"], rtol=1e-6)
    for row in STATED["frontier_summary"]:
        if row["held_out"] in ("layout", "method"):
            answer = accuracy["energy", row["held_out"]]
            np.testing.assert_allclose(answer["mean_error"], row["mean_error"], rtol=1e-6)
            errors = [front[f"error_{row['held_out']}"] for front in STATED["frontiers"]]
            np.testing.assert_allclose(np.mean(errors), row["mean_error"], rtol=1e-6)


def test_fronts_are_those_of_the_file():
    # Fronts begin with their fastest plan.
    answer = EXPERIMENT.frontiers.fronts()
    assert sum(len(front.time) for front in answer) == 95
    assert sum(front.is_outlier for front in answer) == 1
    assert all(np.all(np.diff(front.time) > 0.0) for front in answer)


def test_constants_again():
    kernel_runs, frontiers = EXPERIMENT.kernel_runs, EXPERIMENT.frontiers
    data = kernel_runs.measured("V100")
    answer = kernel_runs.fitted(kernel_clock.kernel_errors, kernel_clock.CONSTANTS, data.runs, data.tested)
    for row in STATED["kernel_constants"]:
        np.testing.assert_allclose(float(answer.values[row["constant"]]), row["value"], rtol=1e-4)
    answer = frontiers.fitted([True] * len(frontiers.fronts()))
    for row in STATED["frontier_constants"]:
        np.testing.assert_allclose(float(answer.values[row["constant"]]), row["value"], rtol=1e-4)


def test_the_preset_has_the_constants_of_the_fronts():
    frontiers = EXPERIMENT.frontiers
    preset = frontiers.preset_values(frontiers.fronts()[0].key)
    for row in STATED["frontier_constants"]:
        # Refits with other step times move the knee by less than a tenth of the preset's spread, 0.03.
        np.testing.assert_allclose(float(preset[row["constant"]]), row["value"], atol=3e-3)
