"""Results of the experiment on batches, and recovery of a known law of the critical batch."""

import dataclasses

import numpy as np
import pytest

from energymodel.calibration import batch_curves
from energymodel.calibration.least_squares import FitOptions, FitProblem, fit
from energymodel.learning.critical_batch import PowerCriticalBatch, power_critical_batch, sharp_batch_penalty
from energymodel.learning.learning import CriticalBatchLearning
from energymodel.learning.loss_law import ChinchillaLaw
from energymodel.scenarios.files import read_preset
from experiment import Experiment

pytestmark = pytest.mark.slow

EXPERIMENT = Experiment("06_critical_batch")
FITS, REFERENCES, STATED = EXPERIMENT.batch_fits, EXPERIMENT.reference_batches, EXPERIMENT.stored
JOINT, STEP_LAW = EXPERIMENT.joint_fit, EXPERIMENT.step_law
FEW = FitOptions(starts=2)


def test_accuracy_reached():
    tables = STATED["zhang_summary"] + STATED["convergence_summary"]
    answer = {row["protocol"]: row.get("mean_error") for row in tables}
    assert answer["size held out, one run known"] <= 0.08
    near, batch = "benchmark held out, smallest batch known, up to ten times it", "batch held out, others known"
    # The population's multiple is worth far more than the same samples at every batch.
    assert answer[f"{near}, predicted"] <= 0.15 < 1.5 * answer[f"{near}, predicted"] < answer[f"{near}, same_samples"]
    assert answer[f"{batch}, predicted"] <= 0.07 < answer[f"{batch}, straight_line"]
    between = "batch held out between others"
    assert answer[f"{between}, predicted"] <= 0.05 < answer[f"{between}, straight_line"]
    # A sharpness for every benchmark is worse than one where it is determined.
    assert answer[f"{batch}, predicted"] < answer[f"{batch}, sharpness_fitted"]
    covered = next(row["share"] for row in tables if "share" in row)
    assert 0.75 <= covered <= 1.0
    # The hyperbola is worse: the sharpness is worth its constant.
    assert answer["the same with a sharpness of one"] > answer["size held out, one run known"]


def test_tables_agree_and_tokens_seen_before_the_run_matter():
    # The mean over sizes and benchmarks, weighed by their rows, is what the summary states.
    points = [row for row in STATED["zhang_points"] if not row["anchor"]]
    errors = [abs(row["steps_held_out"] / row["steps"] - 1.0) for row in points]
    np.testing.assert_allclose(np.mean(errors), STATED["zhang_summary"][0]["mean_error"], rtol=1e-6)
    points = [row for row in STATED["convergence_from_smallest"] if row["within_tenfold"]]
    errors = [abs(row["predicted"] / row["amount_over_smallest"] - 1.0) for row in points]
    np.testing.assert_allclose(np.mean(errors), STATED["convergence_summary"][0]["mean_error"], rtol=1e-6)
    # The law of `evaluate` on GPT-3 from its checkpoint: without the tokens of the checkpoint it errs far more.
    errors = {
        row["tokens_seen"]: row["mean_error"] for row in STATED["convergence_by_law"] if row["benchmark"] == "gpt3"
    }
    assert 3.0 * errors[max(errors)] < errors[0.0]


def test_constants_and_population_again():
    sizes, table = FITS.zhang()
    constants = batch_curves.family_constants(sizes, batch_curves.SHARPNESS)
    fitted = fit(FitProblem(batch_curves.family_errors, constants, table, noise=FITS.NOISE, options=FEW))
    printed = {row["constant"]: row["value"] for row in STATED["zhang_constants"]}
    for name, value in zip(fitted.names, np.concatenate(list(map(np.atleast_1d, fitted.values.values()))), strict=True):
        np.testing.assert_allclose(value, printed[name], rtol=1e-4, err_msg=name)
    population, row = batch_curves.reference_population(), STATED["reference_population"][0]
    np.testing.assert_allclose([row[name] for name in population._fields], population, rtol=0.01)
    again = REFERENCES.population(REFERENCES.benchmarks())
    np.testing.assert_allclose(again, population, rtol=0.01)


def test_known_law_is_recovered():
    """Runs of a law with a sharpness of one and a half, exact, at the batches of the experiment."""
    sizes, table = FITS.zhang()
    effective = 0.9 * table.usual_tokens
    critical = power_critical_batch(effective / batch_curves.PIVOT, 3e6, 0.4)
    tokens = np.asarray(effective * sharp_batch_penalty(table.batch, critical, 1.5))
    runs = batch_curves.batch_runs(sizes, table.batch, tokens, table.usual_tokens)
    constants = batch_curves.family_constants(sizes, batch_curves.SHARPNESS)
    fitted = fit(FitProblem(batch_curves.family_errors, constants, runs, noise=1e-3, options=FEW))
    np.testing.assert_allclose(float(fitted.values["critical_batch_at_pivot"]), 3e6, rtol=1e-3)
    np.testing.assert_allclose(float(fitted.values["exponent"]), 0.4, rtol=1e-3)
    np.testing.assert_allclose(float(fitted.values["sharpness"]), 1.5, rtol=1e-3)
    law = batch_curves.family_law(fitted.values)
    np.testing.assert_allclose(float(law.run_level(batch_curves.PIVOT, 2.0)), 3e6, rtol=1e-3)


def test_a_known_population_is_recovered():
    """Benchmarks whose multiples are drawn from a distribution, with noise, give it back."""
    generator = np.random.default_rng(0)
    batch, population = 16.0 * 2.0 ** np.arange(6), []
    places = np.log(batch)
    covariance = 0.05**2 * np.exp(-np.abs(places[:, None] - places) / 0.8) + 0.02**2 * np.eye(6)
    for number in range(60):
        multiple = 12.0 * np.exp(0.5 * generator.standard_normal())
        deviation = np.linalg.cholesky(covariance) @ generator.standard_normal(6)
        amount = 1e6 * (1.0 + batch / batch[0] / multiple) * np.exp(deviation)
        population.append(REFERENCES.Benchmark(str(number), batch, amount))
    answer = REFERENCES.population(population)
    np.testing.assert_allclose(answer.multiple, 12.0, rtol=0.2)
    np.testing.assert_allclose(answer.spread, 0.5, rtol=0.25)
    np.testing.assert_allclose(np.hypot(answer.deviation, answer.noise), np.hypot(0.05, 0.02), rtol=0.2)


def test_reference_points_count_once():
    """No suspect row, no value of an earlier round beside its successor, no benchmark under two names."""
    answer = REFERENCES.benchmarks()
    assert len({benchmark.name for benchmark in answer} & {"ssd", "retinanet"}) == 1
    assert len({benchmark.name for benchmark in answer} & {"gnn", "rgat"}) == 1
    for benchmark in answer:
        assert np.all(np.diff(benchmark.batch) > 0)
    gpt3 = next(benchmark for benchmark in answer if benchmark.name == "gpt3")
    assert 3072.0 not in gpt3.batch  # the slip of the pen of its last round
    assert gpt3.amount.max() < 2e9


def test_the_joint_fit_is_the_preset_and_its_batch_loses_little():
    """Sizes held out lose next to nothing at the batch that the law chooses; the smallest batch loses 0.05 nat."""
    preset = read_preset("laws", "zhang-2024-li-2025-runs")
    found = {row["constant"]: row for row in STATED["joint_constants"]}
    names = ("critical_batch_at_pivot", "exponent", "sharpness", "small_batches")
    for name, constant in zip(("at_pivot", "exponent", "sharpness", "small_batch_share"), names, strict=True):
        assert preset[name]["value"] == pytest.approx(found[constant]["value"], rel=1e-4)
    overhead = read_preset("learning", "chinchilla")["absorbed_overhead"]["value"]
    assert overhead == pytest.approx(found["overhead of the best batch"]["value"], abs=1e-4)
    regret = {row["quantity"]: row["mean"] for row in STATED["joint_summary"]}
    assert regret["dense, size held out, regret_nat"] <= 0.002
    assert regret["dense, size held out, regret_without_nat"] >= 0.04
    assert regret["mixture of experts, all held out, regret_nat"] <= 0.002


def test_a_known_joint_law_is_recovered():
    """Best runs of a law with a cost of small batches, exact, beside the runs to a target of Zhang et al."""
    law = PowerCriticalBatch(3e6, 0.5, 5e9, 1.2, small_batch_share=0.02)
    _, targets = FITS.zhang()
    effective = 0.9 * targets.usual_tokens
    whole = dataclasses.replace(law, small_batch_share=0.0)
    to_target = targets._replace(tokens=np.asarray(effective * whole.run_penalty(targets.batch, effective, np.nan)))
    size, tokens, batch = (
        axis.ravel() for axis in np.meshgrid([2e8, 1e9], [4e9, 2e10, 1e11], np.geomspace(6e4, 4e6, 7))
    )
    loss = ChinchillaLaw(1.5, 0.45 * 4e8**0.3, 0.3, 0.36 * 2e10**0.26, 0.26)
    runs = STEP_LAW.Runs(
        np.arange(len(size)),
        size,
        tokens,
        batch,
        np.ones(len(size)),
        np.asarray(CriticalBatchLearning(loss, law, np.zeros(())).run(size, tokens, batch)[0]),
    )
    joint = JOINT.problem(runs)
    table = joint.table._replace(runs=joint.table.runs._replace(tokens=np.concatenate([to_target.tokens, tokens])))
    fitted = fit(joint._replace(table=table, options=FEW))
    answer = JOINT.law_of(fitted.values)
    for name in ("at_pivot", "exponent", "sharpness", "small_batch_share"):
        np.testing.assert_allclose(getattr(answer, name), getattr(law, name), rtol=0.01, err_msg=name)
