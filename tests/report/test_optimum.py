"""The report of a search: what changed, what limits cost, in tables and in JSON."""

import dataclasses
import json
import math
import shlex

import jax
import numpy as np
import pytest
from rich.console import Console, RenderableType

import energymodel as em
from energymodel.report.command_text import command_of
from energymodel.report.fields import plan_fields
from energymodel.report.json_tree import csv_row, dumps, optimum_json, plan_json
from energymodel.report.plan_report import (
    evaluate_command,
    failure_line,
    limit_lines,
    optimum_report,
    price_line,
    search_lines,
)
from energymodel.report.tables import prior_count, slack_table
from energymodel.scenarios.scenario import load_scenario
from report.reference_optimum import infeasible, optimum


def _text(report: RenderableType) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(report)
    return capture.get()


def test_the_report_names_both_plans():
    text = _text(optimum_report(optimum()))
    for words in ("own plan", "found", "clock", "0.8", "524.3 k tokens", "262.1 k tokens", "Lowest-energy plan", "kWh"):
        assert words in text


def test_a_failure_does_not_claim_an_optimum():
    text = _text(optimum_report(infeasible()))
    assert "Lowest" not in text
    assert "Infeasible; energy of the nearest plan" in text


def test_what_was_free_but_stayed_is_shown():
    lines = _text(optimum_report(optimum())).splitlines()
    assert [line for line in lines if line.startswith("chips") and line.split()[1:] == ["8", "8"]]


def test_prices_by_hand():
    # 1 - 1.01^-0.25 = 0.2484 %; 1 TJ (1 - (61/60)^-0.25) = 4.1237 GJ = 1.145 MWh; a day is within a tenth of 60 days.
    line = price_line(dataclasses.replace(optimum(), value=1e12), "time")
    assert line == "time: 1 % more saves 0.248 % energy; 1 day more saves 1.145 MWh"
    assert "facility power" not in "\n".join(limit_lines(optimum())[1:])


def test_search_lines():
    lines = "\n".join(search_lines(optimum()))
    for words in (
        "385 compared",
        "7 fit in memory",
        "6 searched",
        "The others need at least 25 % more energy",
        "31 of 32 restarts of the best layout converge to the same optimum",
        "; the others end at most 5.1 % above it.",
        "microbatch 4",
        "1.2 % more energy than the best",
        "Rounding to whole numbers costs at most 1 %",
    ):
        assert words in lines


def test_restarts_that_do_not_converge_are_no_worse_optima():
    found = optimum()
    astray = dataclasses.replace(found, statistics={**found.statistics, "restarts_agreeing": 27, "restarts_astray": 5})
    assert "27 of 32 restarts of the best layout converge to the same optimum; 5 do not converge." in search_lines(
        astray
    )


def test_the_command_gives_the_found_plan():
    words = shlex.split(evaluate_command(optimum()))
    assert words[:3] == ["energymodel", "evaluate", "test-1b-h100"]
    changes = [word for word in words[3:] if word != "--set"]
    again = em.load_scenario(words[2], changes)
    assert plan_fields(again.plan) == plan_fields(optimum().plan)


def test_the_command_keeps_the_changes_of_the_scenario():
    given = em.load_scenario("test-1b-h100", ["system.market=france", "plan.power_cap=600 W", "plan.clock=0.9"])
    found = dataclasses.replace(given.plan, clock=np.asarray(0.8))
    words = shlex.split(evaluate_command(dataclasses.replace(optimum(), scenario=given, plan=found)))
    again = em.load_scenario(words[2], [word for word in words[3:] if word != "--set"])
    assert plan_fields(again.plan) == plan_fields(found)
    assert again.system.market.carbon == given.system.market.carbon


def test_the_command_keeps_the_cluster():
    given = em.load_scenario("test-1b-h100", cluster="llm-foundry-a100")
    words = shlex.split(evaluate_command(dataclasses.replace(optimum(), scenario=given, plan=given.plan)))
    assert words[3:5] == ["--cluster", "llm-foundry-a100"]


def test_failure_is_one_line_with_limit_and_nearest_value():
    line = failure_line(infeasible())
    assert "\n" not in line
    assert line == "No plan obeys these limits together. time: asked 24 hours, nearest feasible 2 days."


def test_json_of_a_search():
    asked = dataclasses.replace(optimum(), scenario=optimum().scenario.with_question(limits={"time": "60 days"}))
    tree = json.loads(dumps(optimum_json(asked)), parse_constant=pytest.fail)
    assert tree["scenario"]["optimize"] == {"minimize": "energy", "limits": {"time": "5184000.0 s"}}
    assert tree["multipliers"]["time"] == {"elasticity": 0.25, "price": 1000.0, "price_unit": "J/(s)"}
    assert tree["active"] == ["time"]
    assert tree["layouts_considered"] == 385
    assert tree["runner_up"]["layout"]["microbatch"] == 4
    assert tree["result"] == "successful"
    assert tree["baseline"]["energy_j"]["total"] == pytest.approx(tree["baseline_value"], rel=1e-9)
    assert tree["plan"]["clock"] == 0.8


def test_what_is_not_finite_is_null_with_a_reason():
    tree = json.loads(dumps(optimum_json(infeasible())), parse_constant=pytest.fail)
    assert tree["gap"] is None
    assert tree["runner_up"] is None
    assert tree["warnings"] == ["gap is inf and stands as null"]
    assert tree["conflicts"] == [{"limit": "time", "asked": 86400.0, "nearest": 172800.0, "unit": "s"}]


def test_csv_of_a_search():
    header, row = csv_row(optimum_json(optimum())).splitlines()
    columns = dict(zip(header.split(","), row.split(","), strict=True))
    assert columns["multipliers.time.elasticity"] == "0.25"
    assert float(columns["baseline.time_s"]) == pytest.approx(float(np.asarray(optimum().baseline.time)))


def test_a_changed_table_becomes_options_one_by_one():
    price = {"life": {"value": 4.0, "unit": "year", "source": "our books"}, "utilization": 0.7}
    scenario = load_scenario("test-1b-h100", {"system.market.price": price, "plan.clock": [1.0, 0.8]})
    words = command_of(scenario, scenario.plan, {})
    assert '--set "system.market.price.life=4.0 year" --set system.market.price.utilization=0.7' in words
    again = load_scenario("test-1b-h100", [word for word in shlex.split(words)[3:] if word != "--set"])
    assert jax.tree.leaves(again.system.market.price) == jax.tree.leaves(scenario.system.market.price)
    assert plan_json(again.plan, again)["clock"] == [1.0, 0.8]


def test_the_command_names_the_file_that_was_read(tmp_path):
    path = tmp_path / "my plan.toml"
    path.write_text('base = "test-1b-h100"\n', encoding="utf-8")
    scenario = load_scenario(path, ["plan.clock=0.9"], cluster="nanotron-h100")
    words = shlex.split(command_of(scenario, scenario.plan, {}))
    assert words[:5] == ["energymodel", "evaluate", str(path), "--cluster", "nanotron-h100"]
    assert shlex.quote(str(path)) in prior_count(scenario)
    made = dataclasses.replace(scenario, source="--model test-1b --chips 8")
    assert "presets show" not in prior_count(made)
    assert "energymodel sensitivity --model test-1b --chips 8" in prior_count(made)


def test_room_to_a_temperature_is_in_kelvin():
    found = optimum()
    table = slack_table(found.plan, found.outcome)
    rooms = dict(zip(*(list(column.cells) for column in table.columns), strict=True))
    room = float(np.asarray(found.outcome.temperature)) * math.expm1(float(np.asarray(found.outcome.slack.temperature)))
    shown = rooms["junction temperature"]
    assert shown.endswith(" K")
    np.testing.assert_allclose(float(shown.removesuffix(" K")), room, atol=0.06)
