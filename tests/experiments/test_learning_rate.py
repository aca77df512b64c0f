"""Results of the experiment on learning rates, and the presets that take them over."""

import numpy as np
import pytest

from energymodel.scenarios.files import read_preset
from experiment import Experiment

pytestmark = pytest.mark.slow

EXPERIMENT = Experiment("22_learning_rate")
FITS, STATED = EXPERIMENT.learning_rate_fits, EXPERIMENT.stored


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
    random = np.random.default_rng(3)
    size, batch = (random.choice(values, 400) for values in ([2e8, 4e8, 1e9], [2.6e5, 1e6, 4e6]))
    tokens, rate = random.choice([4e9, 2e10, 1e11], 400), np.exp(random.uniform(-7.5, -5.5, 400))
    runs = FITS.Runs(size, tokens, batch, rate, np.zeros(400))
    truth = np.array([1.6, 0.45, 0.3, 0.35, 0.28, -6.4, -0.6, 0.2, 0.2, 0.03])
    runs = runs._replace(loss=FITS.predicted(truth, runs, FITS.effective_tokens(runs)))
    np.testing.assert_allclose(FITS.fitted(runs)[5:], truth[5:], rtol=2e-3)
