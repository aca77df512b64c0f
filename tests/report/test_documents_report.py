"""Do the formulas of the documents agree with the model where they must, and differ where docs/sources.md says so?"""

import jax
import numpy as np
import pytest

from cli.shell import run, run_json
from energymodel.report.documents_report import statements
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.document_symbols import document_symbols
from energymodel.system.evaluate import evaluate_once

SMALL = "test-1b-h100"


@pytest.fixture(scope="module")
def found():
    scenario = load_scenario(SMALL)
    with jax.enable_x64(True):
        outcome = evaluate_once(scenario.system, scenario.plan)
        symbols = document_symbols(scenario.system, scenario.plan, outcome)
        return {one.formula: one for one in statements(scenario, outcome, symbols)}, outcome, scenario


def test_all_numbers_are_finite_and_both_documents_are_there(found):
    rows = found[0].values()
    assert {one.document for one in rows} == {"Training Dynamics", "Engineering Optimization"}
    for one in rows:
        assert np.isfinite([one.stated, one.model]).all(), one
        assert one.corrected is None or np.isfinite(one.corrected), one


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
def test_formulas_that_are_right_agree_with_the_model(found, formula):
    one = found[0][formula]
    assert one.stated == pytest.approx(one.model, rel=1e-6)


def test_errors_of_the_documents_have_their_size(found):
    rows, outcome, scenario = found
    cooling = rows["E_cooling = CoP · Q_thermal"]
    heat = float(outcome.energy.total - outcome.energy.cooling)
    # Q CoP over Q / CoP is CoP^2.
    assert cooling.stated / cooling.corrected == pytest.approx((heat / float(outcome.energy.cooling)) ** 2, rel=1e-9)
    clock = rows["f_opt = min(f_max, √(P_max/(k·V²)))"]
    assert clock.stated**2 == pytest.approx(clock.corrected, rel=1e-9)
    assert clock.corrected == pytest.approx(float(outcome.clock) * float(scenario.system.accelerator.reference_clock))
    share = rows["Σ W_i = Σ W_total·(P_i/P_total)^α, α = 1/2"]
    assert share.stated == pytest.approx((2.0 / 3.0) ** 0.5 + (1.0 / 3.0) ** 0.5)


@pytest.mark.parametrize("formula", ["E(B) = α·B^(-β)", "dL/dt = -E(B)·T(B)·L"])
def test_laws_follow_the_model_better_once_corrected(found, formula):
    one = found[0][formula]
    assert abs(one.corrected / one.model - 1.0) < abs(one.stated / one.model - 1.0)


def test_command_prints_and_writes(tmp_path):
    shown = run_json("documents", SMALL, "-o", str(tmp_path / "documents.json"))
    assert {"formula", "unit", "stated", "corrected", "model"} <= set(shown["statements"][0])
    assert (tmp_path / "documents.json").is_file()
    text = run("documents", SMALL).stdout
    assert "E(B) = α·B^(-β)" in text
    assert "…" not in text
    assert "Choose one of .json" in run("documents", SMALL, "-o", str(tmp_path / "documents.csv")).stderr
