"""`sensitivity`: options reach the analysis, its verdict is the exit code, files are what their extension says."""

import dataclasses
import json

import pytest

from cli.shell import SMALL, run, run_json
from energymodel.search.result import SearchResult
from report.reference_sensitivity import of_optimum, sensitivity


@pytest.fixture
def analysis(monkeypatch):
    """An analysis that answers at once and remembers what it was asked."""
    asked = {}

    def answer(scenario, of=(), *, optimum=False, progress):
        progress("analyzing")
        asked.update(of=tuple(of), optimum=optimum, question=scenario.optimize)
        return asked.get("answer", of_optimum() if optimum else sensitivity())

    monkeypatch.setattr("energymodel.search.sensitivity.sensitivity", answer)
    return asked


def test_outputs_reach_the_analysis(analysis):
    tree = run_json("sensitivity", SMALL, "--of", "money", "--of", "mfu")
    assert analysis["of"] == ("money", "mfu")
    assert not analysis["optimum"]
    assert tree["tables"]["numbers"]["rows"][0]["path"] == "system.accelerator.gemm_efficiency"
    assert tree["scenario"]["name"] == SMALL


def test_the_usual_outputs_are_the_default(analysis):
    run_json("sensitivity", SMALL)
    assert analysis["of"] == ("energy", "time", "money", "carbon", "loss")


def test_a_question_reaches_the_search(analysis):
    options = ["--minimize", "money", "--limit", "time=2 days", "--vary", "plan.clock=0.5:1", "--fix", "plan.chips"]
    tree = run_json("sensitivity", SMALL, "--optimum", *options)
    assert analysis["optimum"]
    assert analysis["question"].minimize == "money"
    assert analysis["question"].limits == {"time": 172800.0}
    assert analysis["question"].vary == {"plan.clock": (0.5, 1.0)}
    assert analysis["question"].fix == ("plan.chips",)
    assert "moves with it" in tree["tables"]["limits"]["rows"][0]["origin"]


def test_the_table_is_printed_with_as_many_lines_as_asked(analysis):
    result = run("sensitivity", SMALL, "--top", "1")
    assert result.exit_code == 0, result.stderr
    assert "Measure next" in result.stdout
    assert "Change next" in result.stdout
    assert "system.facility.cooling.coil_approach" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--minimize", "money"], "--minimize is about the optimum: add --optimum"),
        (["--limit", "time=2 days"], "add --optimum"),
        (["--optimum", "--of", "energy"], "leave out --optimum"),
        (["--optimum", "--minimize", "enrgy"], 'Did you mean "energy"'),
        (["--optimum", "--limit", "tme=2 days"], 'Did you mean "time"'),
        (["-o", "out.gif"], "Choose one of .json, .csv, .html, .svg, .png, .pdf"),
        (["-o", "missing/out.svg"], "there is no folder"),
        (["--set", "plan.clok=1"], 'Did you mean "clock"'),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(analysis, arguments, words):
    result = run("sensitivity", SMALL, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1 + ("loading" in result.stderr)


def test_an_unknown_output_is_refused():
    result = run("sensitivity", SMALL, "--of", "enrgy")
    assert result.exit_code == 2
    assert 'Did you mean "energy"' in result.stderr


def test_files_are_what_their_extension_says(analysis, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need the extra `plot`")
    for name in ("run.json", "run.csv", "run.svg", "run.png", "run.pdf", "run.html"):
        result = run("sensitivity", SMALL, "-o", str(tmp_path / name))
        assert result.exit_code == 0, result.stderr
    assert json.loads((tmp_path / "run.json").read_text())["tables"]["outputs"]["rows"][0]["value"]["value"] == 100.0
    assert (tmp_path / "run.csv").read_text().startswith("path,kind,source")
    assert "<svg" in (tmp_path / "run.svg").read_text()
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_extra_is_named_before_the_work(analysis, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run("sensitivity", SMALL, "-o", str(tmp_path / "run.png"))
    assert result.exit_code == 2
    assert "energymodel[plot]" in result.stderr
    assert "of" not in analysis


@pytest.mark.parametrize(("verdict", "code"), [("infeasible", 3), ("not converged", 3), ("interrupted", 130)])
def test_what_cannot_be_trusted_is_said_by_the_exit_code(analysis, verdict, code):
    message = "No plan obeys these limits together."
    analysis["answer"] = dataclasses.replace(of_optimum(), result=SearchResult(verdict), message=message)
    result = run("sensitivity", SMALL, "--optimum")
    assert result.exit_code == code
    assert f"{verdict}: {message}" in result.stderr
