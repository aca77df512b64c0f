"""`evaluate`: the model's numbers in a table, strict JSON and CSV; scenarios read back to the same run."""

import csv
import json

import jax
import pytest

import energymodel as em
from cli.shell import SMALL, numbers, run, run_json
from energymodel.scenarios.files import names


@pytest.fixture(scope="module")
def small():
    return run_json("evaluate", SMALL)


def test_numbers_are_those_of_the_model(small):
    scenario = em.load_scenario(SMALL)
    outcome = jax.jit(em.evaluate)(scenario.system, scenario.plan)
    assert small["schema"] == {"name": "energymodel.evaluate", "version": 2}
    read, plan = numbers(small), numbers(small, "plan")
    assert read["loss"] == pytest.approx(float(outcome.loss), rel=1e-12)
    assert read["energy"] == pytest.approx(float(outcome.energy.total), rel=1e-12)
    assert read["chip_time"] == pytest.approx(float(outcome.time) * 8, rel=1e-12)
    assert read["slack.memory"] == pytest.approx(float(outcome.slack.memory), rel=1e-12)
    assert (plan["batch"], plan["layout.microbatch"]) == (524288, 4)


def test_parts_sum_to_the_whole(small):
    for name in ("energy", "step_time"):
        parts = [row[name]["value"] for row in small["tables"][f"{name}_parts"]["rows"]]
        assert sum(parts) == pytest.approx(numbers(small)[name], rel=1e-9)


def test_every_output_has_an_interval_around_it(small):
    (row,) = small["tables"]["outcome"]["rows"]
    for name in ("time", "money", "power_peak", "temperature", "chip_time", "loss"):
        assert row[name]["low"] < row[name]["value"] < row[name]["high"]
    assert (
        0.6 < row["energy"]["low"] / row["energy"]["value"] < 1.0 < row["energy"]["high"] / row["energy"]["low"] < 3.0
    )
    assert row["tokens"]["low"] == row["tokens"]["value"]


def test_a_second_run_is_the_same(small):
    assert run_json("evaluate", SMALL) == small


@pytest.mark.parametrize("name", [SMALL, "llama-3.1-405b-h100", "deepseek-v3-h800", "near-limit-hardware"])
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
        for key, one in some.items():
            assert_within(one, more[key])
    else:
        assert some == more


def test_the_scenario_in_the_json_gives_the_same_run(tmp_path):
    path = tmp_path / "run.json"
    changes = ["--set", "plan.clock=0.8", "--set", "system.market=france"]
    assert run("evaluate", SMALL, *changes, "-o", str(path)).exit_code == 0
    again, first = run_json("evaluate", str(path)), json.loads(path.read_text(encoding="utf-8"))
    assert (again["tables"], again["scenario"]) == (first["tables"], first["scenario"])
    alone = tmp_path / "scenario.json"
    alone.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8"))["scenario"]), encoding="utf-8")
    assert numbers(run_json("evaluate", str(alone))) == numbers(run_json("evaluate", SMALL, *changes))


def test_a_loss_may_be_the_goal(small):
    again = run_json("evaluate", SMALL, "--set", f"plan.goal.loss={numbers(small)['loss']!r} nat/token")
    assert numbers(again)["tokens"] == pytest.approx(numbers(small)["tokens"], rel=1e-6)
    assert "goal.loss" in numbers(again, "plan")


def test_csv_is_one_row_of_the_same_numbers(small, tmp_path):
    path = tmp_path / "run.csv"
    assert run("evaluate", SMALL, "-o", str(path)).exit_code == 0
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1
    assert rows[0]["scenario"] == SMALL
    assert float(rows[0]["outcome.energy [J]"]) == numbers(small)["energy"]
    assert float(rows[0]["plan.layout.tensor [1]"]) == 1


def test_the_table_names_units_and_priors():
    text = " ".join(run("evaluate", "llama-3.1-405b-h100", "--full").stdout.split())
    for words in (
        "Llama 3.1 405B on 16,384 H100",
        "GWh",
        "MW",
        "°C",
        "virtual stages",
        "8 †",
        "power conversion",
        "cooling",
        "pipeline bubble",
        "prior: assumed, not measured",
        "virtual stages: not disclosed",
        "6.0 % † for other stages",
    ):
        assert words in text


def test_a_broken_limit_exits_with_3_and_says_what_to_do():
    result = run("evaluate", SMALL, "--set", "system.facility.power_limit=5 kW")
    assert result.exit_code == 3
    assert len(result.stderr.strip().splitlines()) == 1
    for words in (
        "energymodel: infeasible: facility_power",
        "exceeds the limit 5 kW",
        "Raise system.facility.power_limit",
    ):
        assert words in result.stderr
    assert "exceeds the limit of facility power by" in result.stdout


def test_the_capacity_of_the_parameters_is_a_warning():
    assert "capacity of the parameters" in run_json("evaluate", "olmo-2-13b-h100")["warnings"][0]
    assert run_json("evaluate", "llama-3.1-405b-h100")["warnings"] == []


@pytest.mark.parametrize("name", names("scenarios"))
def test_every_scenario_can_be_run(name):
    outcome = numbers(run_json("evaluate", name))
    slack = {limit: value for limit, value in outcome.items() if limit.startswith("slack.")}
    assert min(value for limit, value in slack.items() if limit != "slack.information") >= 0


def test_the_disclosed_run_is_met():
    outcome = numbers(run_json("evaluate", "llama-3.1-405b-h100"))
    assert 0.36 <= outcome["mfu"] <= 0.45
    assert outcome["chip_time"] / 3600 == pytest.approx(30.84e6, rel=0.15)


def test_disclosed_throughput_of_other_runs():
    # disclosed_training_runs.csv: 2.664 million H800 hours; mlperf_training_runs.csv: 760.74 token/s and H100
    deepseek = numbers(run_json("evaluate", "deepseek-v3-h800"))
    assert deepseek["chip_time"] / 3600 == pytest.approx(2.664e6, rel=0.15)
    gpt3 = numbers(run_json("evaluate", "gpt3-175b-h100"))
    assert gpt3["token_rate"] / 512 == pytest.approx(760.74, rel=0.15)
