"""Formulas of the documents beside the model: equal where they must be, different where docs/sources.md says so."""

import numpy as np
import pytest

from energymodel.scenarios.scenario import load_scenario
from experiment import Experiment
from outcomes import outcome_of

SMALL = "test-1b-h100"


@pytest.fixture(scope="module")
def experiment():
    return Experiment("24_source_documents").run


@pytest.fixture(scope="module")
def run(experiment):
    return {row.formula: row for row in experiment.rows(SMALL)}, outcome_of(SMALL), load_scenario(SMALL)


def test_all_numbers_are_finite_and_both_documents_are_there(run):
    rows = run[0].values()
    assert {row.document for row in rows} == {"Training Dynamics", "Engineering Optimization"}
    for row in rows:
        # The exponent of B* as it is written, 1 / (gamma - beta), has a pole near this run.
        assert np.isfinite(row.printed) or row.formula.startswith("B* ="), row
        assert np.isfinite(row.model), row
        assert row.corrected is None or np.isfinite(row.corrected), row


@pytest.mark.parametrize(
    "formula",
    [
        "ETP = E_total · T_total",
        "EEI = (T_achieved/T_theoretical) · (E_min/E_actual)",
        "PPW = T(P)/P_total",
        "EUF = E_useful/E_total",
        "dT/dt = (P_inst - P_cooling)/C",
        "E_static = V · I_leak · t",
    ],
)
def test_formulas_that_are_right_agree_with_the_model(run, formula):
    row = run[0][formula]
    assert row.printed == pytest.approx(row.model, rel=1e-6)


def test_errors_of_the_documents_have_their_size(run):
    rows, outcome, scenario = run
    cooling = rows["E_cooling = CoP · Q_thermal"]
    heat = float(outcome.energy.total - outcome.energy.cooling)
    # Q CoP over Q / CoP is CoP^2.
    assert cooling.printed / cooling.corrected == pytest.approx((heat / float(outcome.energy.cooling)) ** 2, rel=1e-9)
    clock = rows["f_opt = min(f_max, √(P_max/(k·V²)))"]
    assert clock.printed**2 == pytest.approx(clock.corrected, rel=1e-9)
    assert clock.corrected == pytest.approx(float(outcome.clock) * float(scenario.system.accelerator.reference_clock))
    share = rows["Σ W_i = Σ W_total·(P_i/P_total)^α, α = 1/2"]
    assert share.printed == pytest.approx((2.0 / 3.0) ** 0.5 + (1.0 / 3.0) ** 0.5)


@pytest.mark.parametrize("formula", ["E(B) = α·B^(-β)", "dL/dt = -E(B)·T(B)·L"])
def test_laws_follow_the_model_better_once_corrected(run, formula):
    row = run[0][formula]
    assert abs(row.corrected / row.model - 1.0) < abs(row.printed / row.model - 1.0)


def test_the_page_is_of_this_model(experiment):
    written = experiment.PAGE.read_text(encoding="utf-8")
    page = experiment.page(experiment.rows(), [])
    assert written[: len(page)] == page, "run: python experiments/24_source_documents/run.py"


@pytest.mark.slow  # compiles a run for each law
def test_laws_of_the_documents_run_as_written(experiment):
    tried = experiment.laws()
    assert experiment.PAGE.read_text(encoding="utf-8").endswith(experiment.law_rows(tried))
    for law, (written, with_law, without) in tried:
        assert with_law == pytest.approx(written, rel=0.1), law["formula"]
        assert abs(with_law / written - 1.0) < abs(without / written - 1.0)
