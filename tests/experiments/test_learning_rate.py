"""Results of the experiment on learning rates, and the presets that take them over."""

import json
from pathlib import Path

import numpy as np
import pytest

from energymodel.scenarios.files import read_preset
from experiment import Experiment

pytestmark = pytest.mark.slow

EXPERIMENT = Experiment("22_learning_rate")


@pytest.fixture(scope="module")
def fits():
    return EXPERIMENT.module("learning_rate_fits")


@pytest.fixture(scope="module")
def outcome():
    return EXPERIMENT.stated()


def test_presets_are_what_the_experiment_found(outcome, fits):
    stiffness = next(row["value"] for row in outcome["constants"] if row["constant"] == "stiffness")
    for name in ("cosine", "wsd", "constant"):
        assert read_preset("schedules", name)["stiffness"]["value"] == pytest.approx(stiffness, rel=2e-3)
    worth = {kind: fits.schedule_worth(kind)[-1]["worth"] for kind in ("wsd", "constant")}  # of the largest size
    for kind, value in worth.items():
        assert read_preset("schedules", kind)["token_efficiency"]["value"] == pytest.approx(value, abs=0.006)


def test_schedules_of_held_out_sizes(outcome, fits):
    for kind, worst in (("wsd", 0.017), ("constant", 0.016)):
        rows = fits.schedule_worth(kind)
        assert len(rows) == 3
        assert max(row["held_out_error_nat"] for row in rows) < worst
        stated_worth = [row["worth"] for row in outcome["schedules"] if row["schedule"] == kind]
        np.testing.assert_allclose([row["worth"] for row in rows], stated_worth, rtol=1e-6)


def test_fit_recovers_known_constants(fits):
    """Losses made from constants of the same form, at the sizes and batches of the runs."""
    random = np.random.default_rng(3)
    size, batch = (random.choice(values, 400) for values in ([2e8, 4e8, 1e9], [2.6e5, 1e6, 4e6]))
    tokens, rate = random.choice([4e9, 2e10, 1e11], 400), np.exp(random.uniform(-7.5, -5.5, 400))
    runs = fits.Runs(size, tokens, batch, rate, np.zeros(400))
    truth = np.array([1.6, 0.45, 0.3, 0.35, 0.28, -6.4, -0.6, 0.2, 0.2, 0.03])
    runs = runs._replace(loss=fits.predicted(truth, runs, fits.effective_tokens(runs)))
    np.testing.assert_allclose(fits.fitted(runs)[5:], truth[5:], rtol=2e-3)


def test_held_out_errors_are_those_stated(outcome):
    rows = outcome["held_out_sizes"]
    assert len(rows) == 5
    assert max(row["loss_error_nat"] for row in rows) < 0.026
    assert all(row["excess_error_nat"] < row["excess_nat"] for row in rows)
    assert json.loads((Path(EXPERIMENT.folder) / "result.json").read_text())["batches"]
