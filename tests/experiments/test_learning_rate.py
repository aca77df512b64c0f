"""Results of the experiment on learning rates, and the presets that take them over."""

import numpy as np
import pytest

from energymodel.scenarios.files import read_preset
from experiment import Experiment

pytestmark = pytest.mark.slow

EXPERIMENT = Experiment("22_learning_rate")
FITS, STEP_LAW, STATED = EXPERIMENT.learning_rate_fits, EXPERIMENT.step_law, EXPERIMENT.stored


def test_presets_are_what_the_experiment_found():
    stiffness = next(row["value"] for row in STATED["constants"] if row["constant"] == "stiffness")
    for name in ("cosine", "wsd", "constant"):
        assert read_preset("schedules", name)["stiffness"]["value"] == pytest.approx(stiffness, rel=2e-3)
    worth = {kind: FITS.schedule_worth(kind)[-1]["worth"] for kind in ("wsd", "constant")}  # of the largest size
    for kind, value in worth.items():
        assert read_preset("schedules", kind)["token_efficiency"]["value"] == pytest.approx(value, abs=0.006)


def test_schedules_and_sizes_held_out():
    for kind, worst in (("wsd", 0.017), ("constant", 0.016)):
        rows = FITS.schedule_worth(kind)
        assert len(rows) == 3
        assert max(row["held_out_error_nat"] for row in rows) < worst
        stated_worth = [row["worth"] for row in STATED["schedules"] if row["schedule"] == kind]
        np.testing.assert_allclose([row["worth"] for row in rows], stated_worth, rtol=1e-6)
    rows = STATED["held_out_sizes"]
    assert len(rows) == 5
    assert max(row["loss_error_nat"] for row in rows) < 0.026
    assert all(row["excess_error_nat"] < row["excess_nat"] for row in rows)
    assert STATED["batches"]


def test_fit_recovers_known_constants():
    """Losses made from constants of the same form, at the sizes and batches of the runs."""
    grid = np.meshgrid([2e8, 4e8, 1e9], [4e9, 2e10, 1e11], [2.6e5, 1e6], np.geomspace(2e-4, 8e-3, 11))
    size, tokens, batch, rate = (axis.ravel() for axis in grid)
    setting = np.unique(np.stack([size, tokens]), axis=1, return_inverse=True)[1].ravel()
    runs = STEP_LAW.Runs(setting, size, tokens, batch, rate, np.zeros(len(rate)))
    law, truth = np.array([1.5e-3, 0.6, 0.2]), np.array([1.6, 0.45, 0.3, 0.35, 0.28, 0.03])
    runs = runs._replace(loss=FITS.predicted(truth, law, runs, FITS.effective_tokens(runs)))
    np.testing.assert_allclose(FITS.rate_law(runs), law, rtol=2e-3)
    np.testing.assert_allclose(FITS.fitted(runs, law), truth, rtol=2e-3)


def test_the_predicted_batch_and_rate_lose_little():
    """Of sizes held out; the law in the presets is the one that was fitted."""
    regret = {row["quantity"]: row["mean"] for row in STATED["chosen_summary"]}
    assert regret["regret_best_rate_nat"] <= 0.002 < regret["regret_nat"] <= 0.005
    preset, fitted = (
        read_preset("laws", "li-2025-rates"),
        {row["constant"]: row["value"] for row in STATED["constants"]},
    )
    for name, constant in zip(("at_pivot", "by_parameters", "by_batch"), FITS.RATE_NAMES, strict=True):
        assert preset[name]["value"] == pytest.approx(fitted[constant], rel=2e-3)


def test_curves_and_sizes_under_any_schedule_are_predicted():
    """Held out; the constants of the presets in stages are the fitted ones, and the fit gives them again."""
    curves = EXPERIMENT.schedule_curves.luo()
    constants = [row["value"] for row in STATED["schedule_constants"]]
    names = ("jitter", "jitter_exponent", "memory")
    preset = read_preset("schedules", "two-stage")
    np.testing.assert_allclose([preset[name]["value"] for name in names], constants[1:], rtol=2e-3)
    np.testing.assert_allclose(EXPERIMENT.schedule_curves.fitted(curves), constants, rtol=1e-3)
    rows = STATED["held_out_schedules"]
    for out, worst in (("curve", 0.012), ("size", 0.011)):
        far = [abs(row["final_error_nat"]) for row in rows if row["held_out"] == out]
        assert np.mean(far) < 0.006
        assert max(far) < worst
