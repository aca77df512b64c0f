"""Commands about one plan: the model's numbers in tables, strict JSON, CSV, pages and figures; scenarios read back."""

import dataclasses
import importlib.util
import json
import math
import re

import jax
import numpy as np
import pytest

import energymodel as em
from cli.shell import SMALL, assert_bad_input, numbers, rows_of, run, run_json
from energymodel.constants import BOLTZMANN, PLANCK
from energymodel.explorer.explorer import Explorer
from energymodel.explorer.server import ExplorerServer
from energymodel.readers.training_config import read_training_config
from energymodel.scenarios.files import names
from energymodel.search.result import SearchResult
from report.page.read_page import assert_sound
from report.reference_sensitivity import of_optimum, sensitivity

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]{40,}/")
PASSES = ("timeline", "llama-3.1-405b-h100", "--set", "plan.layout.virtual_stages=1")
CLOCKS = (
    *("timeline", SMALL, "--clocks", "--set", "plan.layout.pipeline=4", "--set", "plan.layout.microbatch=2"),
    *("--set", "plan.layout.last_stage_layers=1", "--points", "2"),
)


@pytest.fixture(scope="module")
def small():
    return run_json("evaluate", SMALL)


@pytest.fixture
def opened(monkeypatch):
    """Addresses that are opened in the browser."""
    addresses = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    return addresses


def test_evaluate_has_the_numbers_of_the_model(small):
    scenario = em.load_scenario(SMALL)
    outcome = jax.jit(em.evaluate)(scenario.system, scenario.plan)
    assert small["schema"] == {"name": "energymodel.evaluate", "version": 2}
    answer, plan = numbers(small), numbers(small, "plan")
    assert answer["loss"] == pytest.approx(float(outcome.loss), rel=1e-12)
    assert answer["energy"] == pytest.approx(float(outcome.energy.total), rel=1e-12)
    assert answer["chip_time"] == pytest.approx(float(outcome.time) * 8, rel=1e-12)
    assert answer["slack.memory"] == pytest.approx(float(outcome.slack.memory), rel=1e-12)
    assert (plan["batch"], plan["layout.microbatch"]) == (524288, 4)
    for name in ("energy", "step_time"):
        parts = [row[name]["value"] for row in small["tables"][f"{name}_parts"]["rows"]]
        assert sum(parts) == pytest.approx(answer[name], rel=1e-9)


def test_every_output_has_an_interval_around_it(small):
    (row,) = small["tables"]["outcome"]["rows"]
    for name in ("time", "money", "power_peak", "temperature", "chip_time", "loss", "energy"):
        assert row[name]["low"] < row[name]["value"] < row[name]["high"]
    assert row["energy"]["low"] / row["energy"]["value"] > 0.6
    assert row["energy"]["high"] / row["energy"]["low"] < 3.0
    assert row["tokens"]["low"] == row["tokens"]["value"]


@pytest.mark.parametrize("name", [SMALL, "near-limit-hardware"])
def test_a_printed_scenario_gives_the_same_run(name, tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(run("presets", "show", name).stdout, encoding="utf-8")
    own, copy = run_json("evaluate", name), run_json("evaluate", str(path))
    assert numbers(copy) == numbers(own)
    assert numbers(copy, "plan") == numbers(own, "plan")
    assert_within(own["scenario"], {**copy["scenario"], "name": name})


def assert_within(some: object, more: object) -> None:
    """That all of a tree stands in another, which also says what is otherwise by default."""
    if isinstance(some, dict) and isinstance(more, dict):
        for key, value in some.items():
            assert_within(value, more[key])
    else:
        assert some == more


def test_files_hold_the_same_run_and_are_read_again(tmp_path, opened):
    files = {suffix: tmp_path / f"a run.{suffix}" for suffix in ("json", "csv", "html", "svg", "sh")}
    changes = ["--set", "plan.clock=0.8", "--set", "system.market=france"]
    outputs = (word for path in files.values() for word in ("-o", str(path)))
    tree = run_json("evaluate", SMALL, *changes, *outputs, "--open")
    again, written = run_json("evaluate", str(files["json"])), json.loads(files["json"].read_text(encoding="utf-8"))
    assert {name: written["tables"][name] for name in again["tables"]} == again["tables"]  # a page has more
    assert again["scenario"] == written["scenario"]
    alone = tmp_path / "scenario.json"
    alone.write_text(json.dumps(written["scenario"]), encoding="utf-8")
    assert numbers(run_json("evaluate", str(alone))) == numbers(tree)
    (row,) = rows_of(files["csv"])
    assert row["scenario"] == SMALL
    assert float(row["outcome.energy [J]"]) == numbers(tree)["energy"]
    assert float(row["plan.layout.tensor [1]"]) == 1
    cooling = {row["part"]: row["energy"]["value"] for row in tree["tables"]["energy_parts"]["rows"]}["cooling"]
    assert cooling in assert_sound(files["html"].read_text(encoding="utf-8"), data=False).numbers("cooling")
    assert opened == [files["html"].resolve().as_uri()]
    assert "# Not in this file: clock 0.8 (1464 MHz)" in files["sh"].read_text(encoding="utf-8")
    assert read_training_config(files["sh"]).chips == written["scenario"]["plan"]["chips"]


def test_a_loss_may_be_the_goal(small):
    again = run_json("evaluate", SMALL, "--set", f"plan.goal.loss={numbers(small)['loss']!r} nat/token")
    assert numbers(again)["tokens"] == pytest.approx(numbers(small)["tokens"], rel=1e-6)
    assert "goal.loss" in numbers(again, "plan")


def test_the_table_names_units_and_priors():
    text = " ".join(run("evaluate", "llama-3.1-405b-h100", "--full").stdout.split())
    for words in (
        *("Llama 3.1 405B on 16,384 H100", "GWh", "MW", "°C", "virtual stages", "8 †", "power conversion", "cooling"),
        *("pipeline bubble", "prior: assumed, not measured", "virtual stages: not disclosed"),
        "6.0 % † for other stages",
    ):
        assert words in text


def test_a_broken_limit_exits_with_3_and_says_what_to_do():
    result = run("evaluate", SMALL, "--set", "system.facility.power_limit=5 kW")
    assert result.exit_code == 3
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("energymodel: infeasible: facility_power")
    assert "exceeds the limit 5 kW" in line
    assert "Raise system.facility.power_limit" in line
    assert "exceeds the limit of facility power by" in result.stdout


@pytest.mark.parametrize("name", names("scenarios"))
def test_every_scenario_can_be_run(name):
    tree = run_json("evaluate", name)
    outcome = numbers(tree)
    slack = {limit: value for limit, value in outcome.items() if limit.startswith("slack.")}
    assert min(value for limit, value in slack.items() if limit != "slack.information") >= 0
    # disclosed_training_runs.csv: 30.84 million H100 hours and 2.664 million H800 hours;
    # mlperf_training_runs.csv: 760.74 token/s and H100
    hours = {"llama-3.1-405b-h100": 30.84e6, "deepseek-v3-h800": 2.664e6}
    if name in hours:
        assert outcome["chip_time"] / 3600 == pytest.approx(hours[name], rel=0.15)
    if name == "llama-3.1-405b-h100":
        assert 0.36 <= outcome["mfu"] <= 0.45
        assert tree["warnings"] == []
    if name == "gpt3-175b-h100":
        assert outcome["token_rate"] / 512 == pytest.approx(760.74, rel=0.15)
    if name == "olmo-2-13b-h100":
        assert "information that the parameters can store" in tree["warnings"][0]


def test_a_trajectory_ends_at_the_outcome(tmp_path):
    words, figure = ("evaluate", SMALL, "--trajectory", "--points", "40"), tmp_path / "run.svg"
    tree = run_json(*words, "-o", str(tmp_path / "run.csv"), "--plot", str(figure))
    rows = rows_of(tmp_path / "run.csv")
    assert len(rows) == 40
    assert float(rows[-1]["energy [J]"]) == pytest.approx(numbers(tree)["energy"])
    assert numbers(tree, "trajectory", -1)["loss"] == pytest.approx(numbers(tree)["loss"])
    assert "After half of the energy the loss is" in figure.read_text(encoding="utf-8")
    text = run(*words).stdout
    assert "Run over time" in text
    assert "a run that ends there" in text


@pytest.fixture(scope="module")
def limits():
    return run_json("limits", SMALL)


def bounds(tree, name="energy"):
    rows = tree["tables"]["bounds"]["rows"][:-1]  # without the run itself
    return {row["key"]: row[name]["value"] if isinstance(row[name], dict) else row[name] for row in rows}


def test_the_ladder_of_limits_by_hand(limits):
    outcome, energies = numbers(limits), bounds(limits)
    # 16 layers of 4 x 2048^2 in attention and 3 x 2048 x 8192 in the feed-forward block, tied embedding of 50304
    parameters = 16 * (4 * 2048**2 + 3 * 2048 * 8192) + 50304 * 2048
    bit, flops = BOLTZMANN * 298.15 * math.log(2.0), 6.0 * parameters * 24e9
    # Docs/physics.md A0.7: bits written, overwritten, erased by operations (32 per FLOP), and N H with H = D E / ln 2.
    by_hand = {
        "landauer_model": bit * min(outcome["information"], 2.0 * parameters),
        "landauer_overwrite": bit * 16.0 * parameters * outcome["steps"],
        "landauer_operation": bit * 32.0 * flops,
        "landauer_source": bit * parameters * 24e9 * 1.8172 / math.log(2.0),
        "landauer_finite_time": bit * 32.0 * flops * 1.1,
        "cmos_wall": flops / 4.7e15,
    }
    assert {key: energies[key] for key in by_hand} == pytest.approx(by_hand, rel=1e-9)


def test_multiples_and_speed_limits(limits):
    outcome, rates, multiples = numbers(limits), numbers(limits, "rates"), bounds(limits, "multiple")
    for key, energy in bounds(limits).items():
        assert multiples[key] == pytest.approx(outcome["energy"] / energy, rel=1e-9)
        assert multiples[key] > 1
    assert multiples["landauer_operation"] == pytest.approx(outcome["landauer_multiple"], rel=1e-9)
    assert rates["speed_limit_of_energy"] == pytest.approx(4.0 * outcome["energy"] / PLANCK, rel=1e-9)
    assert rates["energy_per_bit"] == pytest.approx(outcome["energy"] / outcome["information"], rel=1e-9)
    assert rates["operation_rate"] < rates["speed_limit_of_step_energy"]
    assert rates["light_distance"] == pytest.approx(rates["link_latency"] * 2.99792458e8 / 1.468, rel=1e-9)
    near = bounds(run_json("limits", "near-limit-hardware"), "multiple")
    assert near["landauer_operation"] < multiples["landauer_operation"] / 1000
    assert near["cmos_wall"] < 10


def test_rows_of_batch_are_the_batches(tmp_path):
    table, figure = tmp_path / "b.csv", tmp_path / "b.svg"
    tree = run_json("batch", SMALL, "--points", "6", "-o", str(table), "-o", str(figure))
    assert [float(row["time [s]"]) for row in rows_of(table)] == [
        row["time"] for row in tree["tables"]["batches"]["rows"]
    ]
    best = {row["objective"]: row["batch"] for row in tree["tables"]["best"]["rows"]}["energy"]
    assert best["low"] < best["value"] < best["high"]
    assert "over the lowest value" in figure.read_text(encoding="utf-8")


def test_rows_of_a_timeline_are_the_passes(tmp_path):
    table, figure = tmp_path / "passes.csv", tmp_path / "step.svg"
    tree = run_json(*PASSES, "-o", str(table), "--plot", str(figure))
    rows = rows_of(table)
    assert len(rows) == len(tree["tables"]["passes"]["rows"]) == 2 * 16 * 16  # directions, ranks, micro-batches
    assert float(rows[0]["end [s]"]) == pytest.approx(numbers(tree, "passes")["end"])
    assert max(float(row["end [s]"]) for row in rows) == pytest.approx(numbers(tree, "times")["pipeline_time"])
    assert sum(rank["layers"] for rank in tree["tables"]["ranks"]["rows"]) == 126
    picture = figure.read_text(encoding="utf-8")
    assert "The mean rank waits" in picture
    assert "forward" in picture
    text = " ".join(run(*PASSES).stdout.split())
    for words in ("by simulation, and", "by the closed form", "16 ranks, 16 virtual stages"):
        assert words in text


def test_rows_of_clocks_are_the_clocks(tmp_path):
    table, figure = tmp_path / "clocks.csv", tmp_path / "front.svg"
    tree = run_json(*CLOCKS, "--slowdown", "10%", "-o", str(table), "--plot", str(figure))
    rows = rows_of(table)
    assert len(rows) == 2 * 2 * 4  # step times, directions, ranks
    first, last = (numbers(tree, "front", row) for row in (0, -1))
    assert last["step_time"] == pytest.approx(1.1 * first["step_time"], rel=1e-5)
    assert float(rows[-1]["clock [1]"]) == pytest.approx(numbers(tree, "clocks", -1)["clock"])
    assert last["energy"] < last["one_clock_energy"]
    assert "Clocks by rank save up to" in figure.read_text(encoding="utf-8")
    text = run(*CLOCKS).stdout
    assert "with one clock" in text
    assert "GHz" in text


@pytest.fixture
def analysis(monkeypatch):
    """An analysis that answers at once and remembers what it was asked."""
    asked = {}

    def answer(scenario, of=(), *, optimum=False, progress):
        progress("analyzing")
        asked.update(of=tuple(of), optimum=optimum, question=scenario.optimize)
        return asked.get("answer", of_optimum() if optimum else sensitivity())

    monkeypatch.setattr("energymodel.sensitivity", answer)
    return asked


def test_outputs_reach_the_analysis(analysis):
    tree = run_json("sensitivity", SMALL, "--of", "money", "--of", "mfu")
    assert analysis["of"] == ("money", "mfu")
    assert not analysis["optimum"]
    assert tree["tables"]["numbers"]["rows"][0]["path"] == "system.accelerator.gemm_efficiency"
    result = run("sensitivity", SMALL, "--top", "1")
    assert result.exit_code == 0, result.stderr
    assert analysis["of"] == ("energy", "time", "money", "carbon", "loss")
    assert "Measure next" in result.stdout
    assert "Change next" in result.stdout
    assert "system.facility.cooling.coil_approach" not in result.stdout


def test_a_question_reaches_the_search_of_a_sensitivity(analysis):
    options = ["--minimize", "money", "--limit", "time=2 days", "--vary", "plan.clock=0.5:1", "--fix", "plan.chips"]
    tree = run_json("sensitivity", SMALL, "--optimum", *options)
    question = analysis["question"]
    assert analysis["optimum"]
    assert (question.minimize, question.limits, question.fix) == ("money", {"time": 172800.0}, ("plan.chips",))
    assert question.vary == {"plan.clock": (0.5, 1.0)}
    assert "moves with it" in tree["tables"]["limits"]["rows"][0]["origin"]


def test_files_are_what_their_extension_says(analysis, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need the extra `plot`")
    starts = {"json": b"{", "csv": b"path,kind,source", "svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}
    outputs = (word for suffix in starts for word in ("-o", str(tmp_path / f"run.{suffix}")))
    assert run("sensitivity", SMALL, *outputs).exit_code == 0
    for suffix, start in starts.items():
        assert (tmp_path / f"run.{suffix}").read_bytes().startswith(start)


@pytest.mark.parametrize(("verdict", "code"), [("infeasible", 3), ("not converged", 3), ("interrupted", 130)])
def test_what_cannot_be_trusted_is_said_by_the_exit_code(analysis, verdict, code):
    message = "No plan obeys these limits together."
    analysis["answer"] = dataclasses.replace(of_optimum(), result=SearchResult(verdict), message=message)
    result = run("sensitivity", SMALL, "--optimum")
    assert result.exit_code == code
    assert f"{verdict}: {message}" in result.stderr


@pytest.mark.parametrize("options", [("--set", "plan.chips=16"), ("--no-browser",)])
def test_explore_prints_its_address_and_opens_it(options, opened, monkeypatch):
    served = []
    monkeypatch.setattr(Explorer, "__init__", lambda self, scenario: None)

    def serve(server):
        served.append(server.address)
        server._socket.close()

    monkeypatch.setattr(ExplorerServer, "serve", serve)
    result = run("explore", SMALL, *options)
    assert result.exit_code == 0
    assert ADDRESS.fullmatch(served[0])
    assert opened == ([] if "--no-browser" in options else served)
    assert result.stdout.strip().endswith(served[0])
    assert "this machine only" in result.stderr


def test_a_missing_package_of_the_explorer_names_the_extra(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    assert_bad_input(["explore", SMALL], 'explore needs uvicorn. Install it: pip install "energymodel[explore]".')


def test_the_file_of_scenario_gives_the_same_scenario(tmp_path):
    file = tmp_path / "mine.toml"
    words = ("--model", "test-1b", "--accelerator", "h100-sxm", "--chips", "16", "--tokens", "50 G")
    tree = run_json("scenario", *words, "--set", "plan.clock=0.9", "-o", str(file))
    written, printed = em.load_scenario(file), em.load_scenario(tree["scenario"])
    for leaf, other in zip(jax.tree.leaves(written.system), jax.tree.leaves(printed.system), strict=True):
        np.testing.assert_array_equal(leaf, other)
    assert "The layout was chosen, not given" in file.read_text()
    stored, pieces = run_json("evaluate", str(file)), run_json("evaluate", *words, "--set", "plan.clock=0.9")
    assert numbers(pieces) == numbers(stored)
    assert numbers(pieces)["tokens"] == 5e10
    assert numbers(pieces)["slack.memory"] > 0.0
    assert numbers(pieces, "plan")["clock"] == 0.9
