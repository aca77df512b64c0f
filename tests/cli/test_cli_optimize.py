"""`optimize`: what is asked reaches the search, its verdict is the exit code, its JSON repeats it."""

import json

import pytest

from cli.shell import SMALL, numbers, run, run_json
from energymodel.scenarios.question import parse_limits, parse_question
from energymodel.scenarios.scenario import load_scenario
from report.reference_optimum import infeasible, optimum


@pytest.fixture
def search(monkeypatch):
    """A search that answers at once and remembers what it was asked."""
    asked = {}

    def answer(scenario, *, progress):
        progress("searching")
        asked["question"] = scenario.optimize
        return asked.get("answer", optimum())

    monkeypatch.setattr("energymodel.search.optimize.optimize", answer)
    return asked


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("time=60 days", "time", 60 * 86400.0),
        ("facility_power = 25 MW", "facility_power", 25e6),
        ("temperature=60 °C", "temperature", 333.15),
        ("chips=16384", "chips", 16384.0),
        ("loss=1.9 nat/token", "loss", 1.9),
        ("memory=80 GB", "memory", 80e9),
        ("carbon=10 t", "carbon", 1e4),
        ("money=70 M USD", "money", 70e6),
    ],
)
def test_limits(text, name, value):
    assert parse_limits([text]) == {name: pytest.approx(value)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plan.clock=0.5:1", ("plan.clock", (0.5, 1.0))),
        ("plan.power_cap=400 W:0.7 kW", ("plan.power_cap", (400.0, 700.0))),
        ("plan.coolant_temperature=10:45 °C", ("plan.coolant_temperature", (283.15, 318.15))),
    ],
)
def test_ranges(text, expected):
    units = {"plan.clock": "1", "plan.power_cap": "W", "plan.coolant_temperature": "K"}
    assert parse_question({"vary": [text]}, units).vary == {expected[0]: pytest.approx(expected[1])}


def test_options_reach_the_search(search):
    arguments = ["--minimize", "time", "--limit", "facility_power=15 kW", "--limit", "money=300 USD"]
    arguments += ["--vary", "plan.power_cap=400 W:700 W", "--fix", "plan.clock"]
    run_json("optimize", SMALL, *arguments)
    question = search["question"]
    assert question.minimize == "time"
    assert question.limits == pytest.approx({"facility_power": 15e3, "money": 300.0})
    assert question.vary == {"plan.power_cap": pytest.approx((400.0, 700.0))}
    assert question.fix == ("plan.clock",)


def test_the_section_of_a_file_holds_unless_an_option_says_otherwise(search, tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(
        f'base = "{SMALL}"\n[optimize]\nminimize = "money"\nfix = ["plan.clock"]\n'
        '[optimize.limits]\ntime = "2 days"\nmoney = "300 USD"\n'
        '[optimize.vary]\n"plan.power_cap" = ["400 W", "700 W"]\n'
    )
    run_json("optimize", str(path), "--limit", "time=1 day")
    question = search["question"]
    assert question.minimize == "money"
    assert question.limits == pytest.approx({"time": 86400.0, "money": 300.0})
    assert question.vary == {"plan.power_cap": pytest.approx((400.0, 700.0))}
    assert question.fix == ("plan.clock",)


def test_the_scenario_in_the_json_asks_the_same_again():
    scenario = load_scenario(SMALL)
    asked = scenario.with_question("etp", {"time": 86400.0}, ["plan.coolant_temperature=10:45 °C"], ["plan.clock"])
    assert asked.optimize != scenario.optimize
    again = load_scenario(json.loads(json.dumps({**asked.tables})))
    assert again.optimize == asked.optimize


def test_json_alone_stands_on_stdout(search):
    result = run("optimize", SMALL, "--json")
    tree = json.loads(result.stdout)
    assert numbers(tree, "search")["layouts_considered"] == 385
    assert "searching" in result.stderr


def test_the_table_and_a_file(search, tmp_path):
    path = tmp_path / "best.json"
    result = run("optimize", SMALL, "--full", "-o", str(path))
    assert result.exit_code == 0
    assert "385 compared" in result.stdout
    assert json.loads(path.read_text(encoding="utf-8"))["result"] == "successful"


def test_infeasible_limits_exit_with_3(search):
    search["answer"] = infeasible()
    result = run("optimize", SMALL, "--limit", "time=1 day", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["result"] == "infeasible"
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("energymodel: infeasible: ")
    assert "time" in last
    assert "2 days" in last


def test_interruption_is_one_line(monkeypatch):
    def interrupted(scenario, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("energymodel.search.optimize.optimize", interrupted)
    result = run("optimize", SMALL)
    assert result.exit_code == 130
    assert result.stderr.strip().splitlines()[-1] == "energymodel: interrupted."


@pytest.mark.slow
def test_a_search_beats_the_own_plan_and_the_command_repeats_it():
    tree = run_json("optimize", SMALL)
    search = numbers(tree, "search")
    assert search["value"] < search["baseline_value"]
    assert numbers(tree, "outcome", 1)["time"] <= numbers(tree, "outcome", 0)["time"] * (1 + 1e-6)
    result = run("optimize", SMALL, "--limit", "time=1 hour", "--json")
    assert result.exit_code == 3
    assert "time" in result.stderr
