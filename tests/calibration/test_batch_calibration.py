"""Kind `batch` with one reference point, with several, and of runs from a checkpoint."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from calibration.files import constants_of, scenario_file, table_file
from energymodel.calibration.batch_curves import reference_population
from energymodel.calibration.calibrate import Calibration, calibrate
from energymodel.errors import InputError
from energymodel.learning.critical_batch import (
    PowerCriticalBatch,
    batch_penalty,
    rest_critical_batch,
    sharp_batch_penalty,
    small_batch_excess,
)
from energymodel.report import data
from energymodel.report.answers.calibrate import calibrate_answer
from energymodel.scenarios.files import read_preset
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.system.training_system import learning_of, parameters_in_loss

MULTIPLE = reference_population().multiple
BATCHES = np.array([1e5, 4e5, 1e6, 4e6, 1.6e7])
SHARE, EXPONENT = (  # k and xi of the prior
    float(read_preset("laws", "zhang-2024-li-2025-runs")[name]["value"]) for name in ("small_batch_share", "exponent")
)


def calibrated(folder: Path, header: str, *rows: str, prior: str | None = None) -> Calibration:
    return calibrate("batch", table_file(folder, header, *rows), prior=prior)


def written(folder: Path, fitted: Calibration) -> Scenario:
    return load_scenario(scenario_file(folder, fitted))


def tokens_to(scenario: Scenario, effective_tokens: float, batches: np.ndarray) -> np.ndarray:
    """Tokens of a scenario's run at constant batches, as `evaluate` counts them."""
    with jax.enable_x64(True):
        learning = learning_of(scenario.system, scenario.plan)
        size = parameters_in_loss(scenario.system)
        return np.asarray(learning.tokens_to(size, np.full(len(batches), effective_tokens), batches))


def test_one_reference_point_gives_the_usual_multiple_with_an_interval(tmp_path):
    fitted = calibrated(tmp_path, "benchmark,batch,samples", "a,1536,585728")
    np.testing.assert_allclose(constants_of(fitted)["critical_batch[a]"].value, MULTIPLE * 1536, rtol=0.01)
    assert fitted.undetermined == ("critical_batch[a]",)
    assert not fitted.held_out
    assert any('"a" was measured at one batch: its critical batch is taken as' in note for note in fitted.notes)
    predicted = {prediction.batch: prediction for prediction in fitted.predictions}
    assert len(calibrate_answer(fitted).table("predictions").rows) == len(predicted)
    np.testing.assert_allclose(predicted[1536.0].amount, 585728, rtol=1e-3)
    # (1 + 16/m) / (1 + 1/m)
    ratio = (MULTIPLE + 16.0) / (MULTIPLE + 1.0)
    far = predicted[16.0 * 1536]
    np.testing.assert_allclose(far.amount, 585728 * ratio, rtol=5e-3)
    # No fewer than nearly the same samples, no more than nearly the same steps, and uncertain by a large factor.
    assert 0.9 * 585728 < far.low < far.amount < far.high < 1.2 * 16 * 585728
    assert far.high / far.low > 3.0 > 1.5 > predicted[1536.0].high / predicted[1536.0].low


def test_the_scenario_of_one_reference_point_is_a_prior_and_evaluates(tmp_path):
    header = "batch,samples,sequence_length"
    fitted = calibrated(tmp_path, header, "1000,400000,2000")
    scenario = written(tmp_path, fitted)
    path = "system.learning.critical_batch"
    assert scenario.provenance[f"{path}.at_pivot"].kind == "prior"
    assert scenario.provenance[f"{path}.sharpness"].kind == "prior"
    law = scenario.system.learning.critical_batch  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(float(law.at_pivot), MULTIPLE * 2e6, rtol=0.01)
    needed = tokens_to(scenario, float(law.pivot), np.array([2e6, 16e6]))
    small = 1.0 + (SHARE * MULTIPLE) ** 2  # times the tokens at the smaller batch, and 1 + v / 64 at the larger
    np.testing.assert_allclose(needed[1] / needed[0] * small, (MULTIPLE + 8.0) / (MULTIPLE + 1.0), rtol=5e-3)
    assert "calibration" not in scenario.tables
    # More batches of a critical one of 4e6, with the file as prior: then it is measured.
    amounts = 8e8 / 1.5 * np.asarray(batch_penalty(np.array([4e6, 8e6, 16e6]), 4e6))
    rows = [f"{batch:g},{amount:.10g}" for batch, amount in zip((4e6, 8e6, 16e6), amounts, strict=True)]
    better = calibrated(tmp_path, "batch_tokens,tokens", *rows, prior=str(tmp_path / "out.toml"))
    assert not better.undetermined
    constant = constants_of(better)["critical_batch[all]"]
    assert constant.laplace is not None
    assert constant.laplace[0] < 4e6 < constant.laplace[1]
    assert written(tmp_path, better).provenance[f"{path}.at_pivot"].kind == "measured"


@pytest.mark.parametrize("share", [SHARE, 0.0])
def test_the_cost_of_small_batches_is_that_of_the_prior_unless_some_are_below_the_best(tmp_path, share):
    """At B_c = 2e6 the best batch is near 2e5: above it the prior stays, below it the runs tell k or its absence."""
    shares = []
    for smallest in (4e5, 2e4):
        batches = np.geomspace(smallest, 1.6e7, 10)
        amounts = 1e9 * np.asarray(batch_penalty(batches, 2e6)) * (1.0 + (share * 2e6 / batches) ** 2)
        rows = [f"{batch:.8g},{amount:.8g}" for batch, amount in zip(batches, amounts, strict=True)]
        fitted = calibrated(tmp_path, "batch_tokens,tokens", *rows)
        assert ("small_batches" in constants_of(fitted)) == (smallest < 1e5)
        law = written(tmp_path, fitted).system.learning.critical_batch  # pyright: ignore[reportAttributeAccessIssue]
        shares.append(float(law.small_batch_share))
    np.testing.assert_allclose(shares[0], SHARE, rtol=1e-6)
    np.testing.assert_allclose(shares[1], share, rtol=0.1, atol=0.25 * SHARE)


def test_carried_over_values_count_once_and_suspect_ones_not_at_all(tmp_path):
    header = "benchmark,round,batch,samples,repeat_of_earlier_round,suspect"
    first = ["a,1.0,8,100,0,", "a,1.0,16,120,0,", "a,1.0,32,160,0,"]
    again = ["a,1.1,8,100,0,", "a,1.1,16,120,1,", "a,1.1,64,9999,0,slip of the pen"]
    fitted = calibrated(tmp_path, header, *first, *again)
    assert fitted.rows == 3
    assert "2 rows carried over from an earlier round, counted once: lines 5, 6." in fitted.notes
    assert any("1 row left out" in note and note.endswith("line 7.") for note in fitted.notes)
    # A later round that measured another value is another measurement; its own values may repeat another round alone.
    assert calibrated(tmp_path, header, *first, "a,1.1,8,103,0,").rows == 4
    assert calibrated(tmp_path, header, *(row.replace(",0,", ",1,") for row in first)).rows == 3
    with pytest.raises(InputError, match="line 5: repeats the setting of line 2"):
        calibrated(tmp_path, header, *first, "a,1.0,8,103,0,")
    with pytest.raises(InputError, match="every row is marked in the column `suspect`"):
        calibrated(tmp_path, header, "a,1.0,8,100,0,doubtful")


@pytest.mark.parametrize(("sharpness", "noise", "is_fitted"), [(2.0, 0.003, True), (1.0, 0.02, False)])
def test_the_sharpness_is_one_unless_the_measurements_exclude_it(tmp_path, sharpness, noise, is_fitted):
    batches = np.geomspace(4e5, 6.4e7, 12)
    generator = np.random.default_rng(3)
    exact = 1e9 * np.asarray(sharp_batch_penalty(batches, 2e6, sharpness))
    exact *= 1.0 + np.asarray(small_batch_excess(batches, 2e6, SHARE))
    measured = exact * np.exp(noise * generator.standard_normal(12))
    rows = [f"{batch:.8g},{amount:.8g}" for batch, amount in zip(batches, measured, strict=True)]
    fitted = calibrated(tmp_path, "batch_tokens,tokens", *rows)
    assert ("sharpness[all]" in constants_of(fitted)) == is_fitted
    law = written(tmp_path, fitted).system.learning.critical_batch  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(float(law.sharpness), sharpness, rtol=0.1 if is_fitted else 1e-12)


def test_runs_from_a_checkpoint_give_the_law_of_all_tokens_seen(tmp_path):
    """The law in the file and `system.tokens_seen` give back what was measured, under the formulas of `evaluate`."""
    seen, rest = 1e11, 2e9
    law = PowerCriticalBatch(4.4e5, EXPONENT, 5e9, small_batch_share=SHARE)
    amounts = np.subtract(*(end * np.asarray(law.run_penalty(BATCHES, end, 2.0)) for end in (seen + rest, seen)))
    rows = [f"{batch:g},{amount:.12g},{seen:g}" for batch, amount in zip(BATCHES, amounts, strict=True)]
    fitted = calibrated(tmp_path, "batch_tokens,tokens,tokens_seen", *rows)
    scenario = written(tmp_path, fitted)
    assert float(scenario.system.tokens_seen) == seen
    needed = tokens_to(scenario, rest, BATCHES)
    np.testing.assert_allclose(needed / needed[0], amounts / amounts[0], rtol=0.02)
    # Without the checkpoint's tokens the same law wastes far more.
    forgot = load_scenario(tmp_path / "out.toml", ["system.tokens_seen=0 token"])
    wasted = tokens_to(forgot, rest, BATCHES)
    assert wasted[-1] / wasted[0] > 2.0 * amounts[-1] / amounts[0]


def test_a_family_from_checkpoints_has_one_law_of_all_tokens(tmp_path):
    rows = []
    for name, rest, seen in (("a", 1e9, 2e10), ("b", 2e9, 2e11), ("c", 4e9, None)):
        before = 0.0 if seen is None else seen
        critical_of_run = 3e6 * ((before + rest) / 5e9) ** 0.4
        critical = float(rest_critical_batch(critical_of_run, before, rest, 0.4))
        for batch in BATCHES:
            amount = rest * float(batch_penalty(batch, critical))
            rows.append(f"{name},{batch:g},{amount:.12g},{rest:g},{'' if seen is None else f'{seen:g}'}")
    fitted = calibrated(tmp_path, "group,batch_tokens,tokens,usual_tokens,tokens_seen", *rows)
    for name, value in (("critical_batch_at_pivot", 3e6), ("exponent", 0.4)):
        np.testing.assert_allclose(constants_of(fitted)[name].value, value, rtol=2e-3)


def test_tokens_seen_that_cannot_be_are_refused(tmp_path):
    header = "group,batch_tokens,tokens,tokens_seen"
    with pytest.raises(
        InputError, match=r'line 3, column "tokens_seen": 2e\+10 token where line 2 has 1e\+10.*a group'
    ):
        calibrated(tmp_path, header, "a,1e5,1e9,1e10", "a,1e6,2e9,2e10")
    with pytest.raises(InputError, match=r'"tokens_seen" needs batches in tokens\. Add a column "sequence_length"'):
        calibrated(tmp_path, "batch,samples,tokens_seen", "8,100,1e10", "16,120,1e10")
    with pytest.raises(InputError, match=r'column "tokens_seen": -1 token cannot be'):
        calibrated(tmp_path, header, "a,1e5,1e9,-1")


def test_sequences_become_tokens_by_the_prior(tmp_path):
    fitted = calibrated(tmp_path, "batch,samples", "16,160000", "64,230000", prior="llama-3.1-405b-h100")
    assert any("Sequences have 8192 tokens" in note for note in fitted.notes)
    assert {constant.unit for constant in fitted.constants} == {"token"}
    assert json.dumps(data.tree(calibrate_answer(fitted))["scenario"]).count("at_pivot") == 1


def test_rows_without_an_amount_are_predicted(tmp_path):
    rows = ["a,8,100", "a,16,120", "a,24,", "b,4,50", "b,40,"]
    fitted = calibrated(tmp_path, "group,batch,samples", *rows)
    assert fitted.rows == 3
    assert [(prediction.group, prediction.batch) for prediction in fitted.predictions] == [("a", 24.0), ("b", 40.0)]
    np.testing.assert_allclose(fitted.predictions[0].amount, 140.0, rtol=0.04)
    assert fitted.predictions[0].low < 140.0 < fitted.predictions[0].high
    np.testing.assert_allclose(fitted.predictions[1].amount, 50.0 * (MULTIPLE + 10.0) / (MULTIPLE + 1.0), rtol=0.01)
    with pytest.raises(InputError, match='line 3: nothing was measured of "b"'):
        calibrated(tmp_path, "group,batch,samples", "a,8,100", "b,16,")


def test_points_between_others_follow_their_neighbors(tmp_path):
    """A smooth deviation from the curve, as of batches that were tuned alike, is predicted; a straight line is not."""
    batches = np.array([8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0])
    amounts = 1000.0 * (1.0 + batches / 60.0) * np.exp(0.08 * np.sin(2.0 * np.log(batches)))
    measured = batches != 32.0
    rows = [f"{batch:g},{amount:.8g}" for batch, amount in zip(batches[measured], amounts[measured], strict=True)]
    fitted = calibrated(tmp_path, "batch,samples", *rows, "32,")
    (predicted,) = fitted.predictions
    line = np.polyfit(batches[measured], amounts[measured], 1, w=1.0 / amounts[measured])
    truth = amounts[~measured][0]
    assert abs(predicted.amount / truth - 1.0) < 0.5 * abs(np.polyval(line, 32.0) / truth - 1.0)
    assert predicted.low < truth < predicted.high
    # They are part of predictions, not constants that a reader sees or another file keeps.
    assert not any("deviation" in constant.name for constant in fitted.constants)
    assert not any("deviation" in name for name in fitted.tables["calibration"]["batch"]["names"])
