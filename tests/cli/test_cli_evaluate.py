"""`evaluate`: the model's numbers in a table, strict JSON and CSV; scenarios read back to the same run."""

import csv
import json

import jax
import pytest

import energymodel as em
from cli.shell import SMALL, run, run_json
from energymodel.scenarios.files import names

KEYS = [
    "loss_nat_per_token",
    "tokens",
    "steps",
    "step_time_s",
    "time_s",
    "chip_hours",
    "tokens_per_s",
    "mfu",
    "hfu",
    "energy_j",
    "power_average_w",
    "power_busy_w",
    "power_peak_w",
    "pue",
    "temperature_k",
    "memory_per_chip_b",
    "money_usd",
    "carbon_operational_kg",
    "carbon_embodied_kg",
    "information_bit",
    "etp_j_s",
    "eei",
    "ppw_token_per_j",
    "euf",
    "landauer_multiple",
    "slack",
]
ENERGY = ["total", "dynamic", "static", "memory", "network", "host", "idle_wait", "delivery_loss", "cooling", "other"]


@pytest.fixture(scope="module")
def small():
    return run_json("evaluate", SMALL)


def test_keys_are_those_of_the_design(small):
    assert list(small)[:3] == ["scenario", "plan", "outcome"]
    assert set(KEYS) <= set(small["outcome"])
    assert list(small["outcome"]["energy_j"]) == ENERGY


def test_numbers_are_those_of_the_model(small):
    scenario = em.load_scenario(SMALL)
    outcome = jax.jit(em.evaluate)(scenario.system, scenario.plan)
    shown = small["outcome"]
    assert shown["loss_nat_per_token"] == pytest.approx(float(outcome.loss), rel=1e-12)
    assert shown["energy_j"]["total"] == pytest.approx(float(outcome.energy.total), rel=1e-12)
    assert shown["chip_hours"] == pytest.approx(float(outcome.time) * 8 / 3600, rel=1e-12)
    assert shown["slack"]["memory"] == pytest.approx(float(outcome.slack.memory), rel=1e-12)
    assert small["plan"]["batch_tokens"] == 524288
    assert small["plan"]["layout"]["microbatch"] == 4


def test_parts_sum_to_the_whole(small):
    outcome = small["outcome"]
    energy = dict(outcome["energy_j"])
    total = energy.pop("total")
    assert sum(energy.values()) == pytest.approx(total, rel=1e-9)
    assert sum(outcome["step_time_terms_s"].values()) == pytest.approx(outcome["step_time_s"], rel=1e-9)


def test_every_output_has_an_interval_around_it(small):
    outcome, intervals = small["outcome"], small["intervals"]
    assert intervals["probability"] == 0.9
    for key in ("time_s", "money_usd", "power_peak_w", "temperature_k", "chip_hours", "loss_nat_per_token"):
        assert intervals[key]["low"] < outcome[key] < intervals[key]["high"]
    energy = intervals["energy_j"]["total"]
    assert 0.6 < energy["low"] / outcome["energy_j"]["total"] < 1.0 < energy["high"] / energy["low"] < 3.0
    assert intervals["tokens"]["low"] == outcome["tokens"]


def test_a_second_run_is_the_same(small):
    assert run_json("evaluate", SMALL) == small


@pytest.mark.parametrize("name", [SMALL, "llama-3.1-405b-h100", "deepseek-v3-h800", "near-limit-hardware"])
def test_a_printed_scenario_gives_the_same_run(name, tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(run("presets", "show", name).stdout, encoding="utf-8")
    own, copy = run_json("evaluate", name), run_json("evaluate", str(path))
    assert copy["outcome"] == own["outcome"]
    assert copy["plan"] == own["plan"]
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
    assert run_json("evaluate", str(path)) == json.loads(path.read_text(encoding="utf-8"))
    alone = tmp_path / "scenario.json"
    alone.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8"))["scenario"]), encoding="utf-8")
    assert run_json("evaluate", str(alone))["outcome"] == run_json("evaluate", SMALL, *changes)["outcome"]


def test_a_loss_may_be_the_goal(small):
    again = run_json("evaluate", SMALL, "--set", f"plan.goal.loss={small['outcome']['loss_nat_per_token']!r} nat/token")
    assert again["outcome"]["tokens"] == pytest.approx(small["outcome"]["tokens"], rel=1e-6)
    assert list(again["plan"]["goal"]) == ["loss_nat_per_token"]


def test_csv_is_one_row_of_the_same_numbers(small, tmp_path):
    path = tmp_path / "run.csv"
    assert run("evaluate", SMALL, "-o", str(path)).exit_code == 0
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1
    assert rows[0]["scenario"] == SMALL
    assert float(rows[0]["outcome.energy_j.total"]) == small["outcome"]["energy_j"]["total"]
    assert float(rows[0]["plan.layout.tensor"]) == 1


def test_the_table_names_units_and_priors():
    text = run("evaluate", "llama-3.1-405b-h100").stdout
    for words in (
        "Llama 3.1 405B on 16,384 H100",
        "GWh",
        "MW",
        "°C",
        "virtual_stages",
        "8 †",
        "power conversion",
        "cooling",
        "pipeline bubble",
        "prior: assumed, not measured",
        "plan.layout.virtual_stages: not disclosed",
        "6 % for other stages",
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
    assert "exceeded" in result.stdout


def test_the_capacity_of_the_parameters_is_a_warning():
    assert "capacity of the parameters" in run_json("evaluate", "olmo-2-13b-h100")["warnings"][0]
    assert run_json("evaluate", "llama-3.1-405b-h100")["warnings"] == []


@pytest.mark.parametrize("name", names("scenarios"))
def test_every_scenario_can_be_run(name):
    outcome = run_json("evaluate", name)["outcome"]
    slack = {limit: room for limit, room in outcome["slack"].items() if limit != "information"}
    assert min(slack.values()) >= 0


def test_the_disclosed_run_is_met():
    outcome = run_json("evaluate", "llama-3.1-405b-h100")["outcome"]
    assert 0.36 <= outcome["mfu"] <= 0.45
    assert outcome["chip_hours"] == pytest.approx(30.84e6, rel=0.15)


def test_disclosed_throughput_of_other_runs():
    # disclosed_training_runs.csv: 2.664 million H800 hours; mlperf_training_runs.csv: 760.74 token/s and H100
    deepseek = run_json("evaluate", "deepseek-v3-h800")["outcome"]
    assert deepseek["chip_hours"] == pytest.approx(2.664e6, rel=0.15)
    gpt3 = run_json("evaluate", "gpt3-175b-h100")["outcome"]
    assert gpt3["tokens_per_s"] / 512 == pytest.approx(760.74, rel=0.15)
