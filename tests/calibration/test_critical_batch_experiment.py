"""Does the experiment on batches still give what it states, and does the fit find a known law of the critical batch?"""

import numpy as np
import pytest

from energymodel.calibration.kinds.batch import PIVOT, batch_runs, family_constants, family_errors, family_law
from energymodel.calibration.least_squares import FitOptions, FitProblem, fit
from energymodel.learning.critical_batch import power_critical_batch, sharp_batch_penalty
from experiment import Experiment

EXPERIMENT = Experiment("06_critical_batch")
FEW = FitOptions(starts=2)


@pytest.fixture(scope="module")
def stated():
    return EXPERIMENT.stated()


@pytest.fixture(scope="module")
def batch_fits():
    return EXPERIMENT.module("batch_fits")


def test_accuracy_reached(stated):
    found = {row["protocol"]: row["mean_error"] for row in stated["zhang_summary"] + stated["convergence_summary"]}
    assert found["size held out, one run known"] <= 0.08
    assert found["batch held out, reference points and submissions"] <= 0.05
    # The hyperbola is worse: the sharpness is worth its constant.
    assert found["the same with a sharpness of one"] > found["size held out, one run known"]


def test_tables_agree(stated):
    """The mean over sizes and benchmarks, weighed by their rows, is what the summary states."""
    points = [row for row in stated["zhang_points"] if not row["anchor"]]
    errors = [abs(row["steps_held_out"] / row["steps"] - 1.0) for row in points]
    np.testing.assert_allclose(np.mean(errors), stated["zhang_summary"][0]["mean_error"], rtol=1e-6)
    points = [row for row in stated["convergence_points"] if row["reference_point"]]
    errors = [abs(row["held_out"] / row["samples"] - 1.0) for row in points]
    np.testing.assert_allclose(np.mean(errors), stated["convergence_summary"][0]["mean_error"], rtol=1e-6)


@pytest.mark.slow
def test_constants_again(stated, batch_fits):
    sizes, table = batch_fits.zhang()
    constants = family_constants(sizes, batch_fits.SHARPNESS)
    fitted = fit(FitProblem(family_errors, constants, table, noise=batch_fits.NOISE, options=FEW))
    printed = {row["constant"]: row["value"] for row in stated["zhang_constants"]}
    for name, value in zip(fitted.names, np.concatenate(list(map(np.atleast_1d, fitted.values.values()))), strict=True):
        np.testing.assert_allclose(value, printed[name], rtol=1e-4, err_msg=name)


@pytest.mark.slow
def test_known_law_is_recovered(batch_fits):
    """Runs of a law with a sharpness of one and a half, exact, at the batches of the experiment."""
    sizes, table = batch_fits.zhang()
    effective = 0.9 * table.usual_tokens
    critical = power_critical_batch(effective / PIVOT, 3e6, 0.4)
    tokens = np.asarray(effective * sharp_batch_penalty(table.batch, critical, 1.5))
    runs = batch_runs(sizes, table.batch, tokens, table.usual_tokens)
    constants = family_constants(sizes, batch_fits.SHARPNESS)
    fitted = fit(FitProblem(family_errors, constants, runs, noise=1e-3, options=FEW))
    np.testing.assert_allclose(float(fitted.values["critical_batch_at_pivot"]), 3e6, rtol=1e-3)
    np.testing.assert_allclose(float(fitted.values["exponent"]), 0.4, rtol=1e-3)
    np.testing.assert_allclose(float(fitted.values["sharpness"]), 1.5, rtol=1e-3)
    law = family_law(fitted.values)
    np.testing.assert_allclose(float(law.run_level(PIVOT, 2.0)), 3e6, rtol=1e-3)


def test_reference_points_are_those_of_the_file(batch_fits):
    """No carried-over or suspect row, and no submission counted as a reference point."""
    names, table, reference = batch_fits.convergence()
    rows = [row for row in batch_fits.rows_of("mlperf_rcp.csv") if row["benchmark"] in set(names)]
    kept = [row for row in rows if row["repeat_of_earlier_round"] == "0" and not row["suspect"]]
    assert reference.sum() == len([row for row in kept if row["suite"] == "training"])
    assert len(names) == len(table.batch)
