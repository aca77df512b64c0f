"""The experiment on batch sizes: stated numbers, and its answers by other ways."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from energymodel.learning.loss_law import chinchilla_loss
from experiment import Experiment

EXPERIMENT = Experiment("08_batch_tradeoff")
QUICK = "test-1b-h100"
OBJECTIVES = ("energy", "money", "time")


@pytest.fixture(scope="module")
def published():
    return EXPERIMENT.stated()


@pytest.fixture(scope="module")
def run():
    return EXPERIMENT.module("batch_curves").Run(QUICK)


def row_of(rows, name):
    return next(row for row in rows if row["scenario"] == name)


def test_closed_form_gives_the_best_batches(published):
    """Predicted from the slope at another batch, up to 15 times as large: steps cost a fixed part and one per token."""
    for row in published["batches"]:
        for objective in OBJECTIVES:
            expected = max(row[f"{objective}_closed_token"], row["least_token"])
            np.testing.assert_allclose(row[f"{objective}_token"], expected, rtol=2e-3, err_msg=row["scenario"])
        assert row["energy_token"] <= row["money_token"] * (1 + 1e-6) <= row["time_token"] * (1 + 2e-6)
        assert all(row[f"{objective}_of_own"] > -1e-9 for objective in OBJECTIVES)


def test_literal_formula_is_lost_in_its_unit_and_singular_at_the_optimum(published):
    for row, optimum in zip(published["literal"], published["batches"], strict=True):
        off = abs(np.log10(row["stated_token_in_w"] / row["best_token"]))
        assert off > 1.5, row["scenario"]
        np.testing.assert_allclose(
            np.log10(row["stated_token_in_w"] / row["stated_token_in_kw"]), 3.0 * row["exponent"], rtol=1e-9
        )
        if not optimum["at_least_batch"]:
            # The optimum is where both elasticities are equal, and the exponent 1/(gamma - beta) has no value.
            np.testing.assert_allclose(row["gamma_at_time_optimum"], row["beta_at_time_optimum"], rtol=1e-4)


def test_break_even_conditions_agree_with_whole_runs(published):
    for row in published["pairs"]:
        where = f"{row['scenario']}, {row['pair']}"
        np.testing.assert_allclose(row["time_ratio"], row["time_evaluated"], rtol=1e-9, err_msg=where)
        np.testing.assert_allclose(row["energy_ratio"], row["energy_evaluated"], rtol=1e-9, err_msg=where)
        assert (row["has_throughput"] > row["needs_throughput"]) == (row["time_evaluated"] < 1.0), where
        assert (row["draws_per_token"] < row["may_draw_per_token"]) == (row["energy_evaluated"] < 1.0), where


def test_schedules_save_what_the_closed_form_allows(published):
    # The search begins at a 64th of the own batch.
    least = {row["scenario"]: max(row["least_token"], row["own_token"] / 64) for row in published["batches"]}
    for row in published["schedules"]:
        if "saved_closed" not in row:  # where the least batch is nearly the best, at a kink
            assert 0.0 <= row["saved"] < 1e-3
            continue
        assert row["saved"] <= row["saved_closed"], row["scenario"]
        # The closed form knows neither.
        if row["first_token"] > 1.01 * least[row["scenario"]]:
            assert row["saved"] >= 0.85 * row["saved_closed"], row["scenario"]
            np.testing.assert_allclose(row["last_token"], row["last_closed_token"], rtol=1e-3)
    # README: these reach the iteration limit; the closed form holds for DeepSeek-V3 all the same.
    unsolved = {row["scenario"] for row in published["schedules"] if not row["solved"]}
    assert unsolved <= {"llama-3.1-405b-h100", "deepseek-v3-h800"}


def test_mirror_image_of_a_batch_takes_the_same_time(run):
    curves = EXPERIMENT.module("batch_curves")
    row = {"energy_token": 1.5e5, "time_token": 2.1e5}
    for pair in curves.pairs(QUICK, run, row):
        totals = run.totals([pair["first_token"], pair["same_time_token"], pair["same_energy_token"]])
        np.testing.assert_allclose(totals.time[1], totals.time[0], rtol=1e-4)
        np.testing.assert_allclose(totals.energy[2], totals.energy[0], rtol=1e-3)


def test_ladder_of_bounds(published):
    """Exponents by hand from the law's 0.3478 and 0.3658: N ~ D^(b/a), F ~ D^(1+b/a), steps ~ D^(1-0.462)."""
    ladder = EXPERIMENT.module("dataset_ladder")
    growth = 0.3658 / 0.3478
    lines = {row["line"]: row for row in published["exponents"]}
    for name in ("landauer_operation", "landauer_source", "cmos_wall"):
        np.testing.assert_allclose(lines[name]["exponent"], 1.0 + growth, rtol=2e-3)
    np.testing.assert_allclose(lines["landauer_overwrite"]["exponent"], growth + 1.0 - 0.462, rtol=2e-3)
    np.testing.assert_allclose(lines["landauer_model"]["least"], 1.0 - 0.3658, rtol=2e-3)
    np.testing.assert_allclose(lines["landauer_model"]["most"], growth, rtol=2e-3)
    for row in published["ladder"]:
        for key, value in ladder.bounds(row["tokens_effective"]).items():
            np.testing.assert_allclose(value, row[key], rtol=1e-9, err_msg=key)


def test_model_is_compute_optimal_for_its_tokens():
    ladder = EXPERIMENT.module("dataset_ladder")
    law = ladder.em.load_scenario(ladder.BASE).system.learning.loss_law
    for tokens in (1e9, 1.329e12, 1e15):
        parameters = ladder.compute_optimal_parameters(tokens, law)
        best: Any = minimize_scalar(
            lambda shift, n=parameters, d=tokens: chinchilla_loss(n * np.exp(shift), d * np.exp(-shift), law),
            bounds=(-1.0, 1.0),
            method="bounded",
            options={"xatol": 1e-9},
        )
        np.testing.assert_allclose(best.x, 0.0, atol=1e-5)
    # docs/physics.md B1: N* = 7.225e10 at D* = 1.329e12
    np.testing.assert_allclose(ladder.compute_optimal_parameters(1.329e12, law), 7.225e10, rtol=2e-3)


def test_runs_of_today_stand_above_every_bound(published):
    bounds = {row["tokens_effective"]: row for row in published["ladder"]}
    for row in published["runs"]:
        assert row["result"] == "successful"
        below = bounds[row["tokens_effective"]]
        assert row["energy_j"] > 1e3 * max(value for key, value in below.items() if key.endswith("_j"))
        np.testing.assert_allclose(row["parameters"], below["parameters"], rtol=0.08)
        assert row["within_100_days"] == (row["time_day"] <= 100.0 * (1 + 1e-6))
    for name in ("h100", "b200"):
        line = next(row for row in published["exponents"] if row["line"] == name)
        assert 1.9 < line["exponent"] < 2.15


@pytest.mark.slow
def test_the_experiment_gives_what_it_states(published):
    recomputed = EXPERIMENT.module("batch_curves").compute()[0] | EXPERIMENT.module("dataset_ladder").compute()
    for name, rows in published.items():
        for row, again in zip(rows, recomputed[name], strict=True):
            for key, value in row.items():
                if isinstance(value, float) and ("energy" in key or key in ("saved", "exponent", "time_day")):
                    # The search screens layouts: what it finds may change a little with it.
                    tolerance = 1e-2 if name == "runs" else 1e-4
                    np.testing.assert_allclose(again[key], value, rtol=tolerance, atol=1e-6, err_msg=f"{name} {key}")
