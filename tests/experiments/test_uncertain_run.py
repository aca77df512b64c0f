"""Draws of the loss law and recorded distributions of the 405B run, as experiment 12 has them."""

import numpy as np
import pytest

import energymodel as em
from experiment import Experiment

EXPERIMENT = Experiment("12_uncertain_run")
pytestmark = pytest.mark.slow


def test_the_fit_to_all_points_is_that_of_besiroglu_et_al():
    center, _ = EXPERIMENT.loss_law_draws.draws(1)
    # Epoch's notebook, exact replication on all points: log E 0.5973, log A 6.1691, log B 7.6699.
    np.testing.assert_allclose(center, [np.exp(0.5973), 6.1691, 0.34730429, 7.6699, 0.36715992], rtol=2e-4)


def test_draws_are_those_of_the_preset():
    header, *rows = EXPERIMENT.loss_law_draws.PRESET.with_suffix(".csv").read_text(encoding="utf-8").splitlines()
    assert header.split(",") == list(EXPERIMENT.loss_law_draws.COLUMNS)
    stored = np.loadtxt(rows, delimiter=",")
    assert stored.shape == (EXPERIMENT.loss_law_draws.DRAWS, 5)
    center, drawn = EXPERIMENT.loss_law_draws.draws(3)
    # The first draws of another number of draws are the same.
    np.testing.assert_allclose(stored[:3], drawn - center, rtol=1e-3, atol=1e-4)


def test_recorded_distributions_hold():
    recorded = EXPERIMENT.stored
    scenario = em.load_scenario("llama-3.1-405b-h100")
    drawn = em.monte_carlo(scenario, 2**15, limits=recorded["limits"], seed=3)
    for name, output in recorded["outputs"].items():
        # A few far draws decide mean and deviation of the energy, so that quantiles are compared.
        for share in ("0.05", "0.25", "0.5", "0.75", "0.95"):
            np.testing.assert_allclose(
                drawn.spreads[name].quantiles[float(share)], output["quantiles"][share], rtol=0.02
            )
    for name, chance in recorded["chances"].items():
        assert drawn.chances[name].share == pytest.approx(chance["share"], abs=0.02)
