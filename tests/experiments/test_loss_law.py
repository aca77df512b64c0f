"""Published constants of the loss law by its refit, and results of the experiment."""

import numpy as np
import pytest

from energymodel.calibration.kinds.loss import TrainedModels, loss_law_problem
from energymodel.calibration.least_squares import fit
from energymodel.learning.loss_law import ChinchillaLaw, chinchilla_loss
from experiment import Experiment

pytestmark = pytest.mark.slow

EXPERIMENT = Experiment("05_loss_law")
REFIT, STATED = EXPERIMENT.refit, EXPERIMENT.stored


def test_published_constants_and_held_out_sizes_are_met():
    # A fifth of a standard error each, and bootstrap errors and intervals like the published ones.
    for row in STATED["constants"]:
        assert row["off_standard_errors"] <= 0.2, row["constant"]
        assert 0.75 < row["error"] / row["published_error"] < 1.35, row["constant"]
        width = (row["high_95"] - row["low_95"]) / (row["published_high_95"] - row["published_low_95"])
        assert 0.75 < width < 1.35, row["constant"]
        assert row["low_95"] < row["low_80"] < row["value"] < row["high_80"] < row["high_95"]
    assert STATED["summary"][0]["held_out_error"] <= 0.01
    assert STATED["accuracy"][0]["mean_error"] == STATED["summary"][0]["held_out_error"]


def test_refit_again():
    fitted = fit(loss_law_problem(REFIT.models()))
    assert fitted.converged
    printed = {row["constant"]: row["value"] for row in STATED["constants"]}
    for name, value in fitted.values.items():
        # Constants are worth less than their digits: they agree to a thousandth of an error.
        error = next(row["error"] for row in STATED["constants"] if row["constant"] == REFIT.NAMES[name])
        np.testing.assert_allclose(float(value), printed[REFIT.NAMES[name]], atol=1e-3 * error)


def test_constants_are_recovered():
    """Losses of a known law, exact: the fit returns its constants, up to what the priors pull."""
    models = REFIT.models()
    law = ChinchillaLaw(1.8, 450.0, 0.34, 1800.0, 0.36)
    loss = np.asarray(chinchilla_loss(models.parameters, models.tokens, law))
    values = fit(loss_law_problem(TrainedModels(models.parameters, models.tokens, loss))).values
    np.testing.assert_allclose(float(values["entropy_floor"]), 1.8, rtol=1e-3)
    np.testing.assert_allclose(float(values["parameter_exponent"]), 0.34, rtol=1e-3)
    np.testing.assert_allclose(float(values["data_exponent"]), 0.36, rtol=1e-3)
