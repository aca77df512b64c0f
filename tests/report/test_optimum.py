"""The report of a search: what changed, what limits cost, how sure the saving is, in tables and in JSON."""

import csv
import dataclasses
import json
import math
import re
import shlex

import jax
import numpy as np
import pytest

import energymodel as em
from cli.shell import numbers
from energymodel.report import data
from energymodel.report.answers.optimize import (
    choice_sentences,
    decision_sentence,
    headline,
    optimize_answer,
    plans_table,
    switches_sentence,
)
from energymodel.report.answers.plan_fields import command_of, plan_fields
from energymodel.report.answers.run_tables import Run, limits_table, prior_count
from energymodel.report.answers.search_parts import (
    binding_sentence,
    evaluate_command,
    failure,
    prices_table,
    risk_sentences,
    search_sentences,
)
from energymodel.report.cells import Quantity
from energymodel.report.number import sentence
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.layouts import layout_label
from energymodel.search.result import LayoutChoice, LayoutClaim, Optimum
from energymodel.sweeps.first_order import SavingAtRisk, saving_at_risk
from energymodel.sweeps.outcome_spread import DEVIATIONS
from report.reference_optimum import infeasible, optimum
from report.stored_answers import answer, on_terminal


def texts(result: Optimum) -> str:
    return " ".join(on_terminal(optimize_answer(result), 150).split())


def again(command: str) -> em.Scenario:
    """The scenario that a command evaluates."""
    words = shlex.split(command)
    assert words[:2] == ["energymodel", "evaluate"]
    return load_scenario(words[2], [word for word in words[3:] if word != "--set"])


def test_the_answer_names_both_plans():
    text = texts(optimum())
    for words in ("own plan", "found", "clock", "80.0 %", "524.3 k tokens", "262.1 k tokens", "Lowest-energy plan"):
        assert words in text
    assert "kWh" in text


def test_no_saving_is_stated_against_a_layout_that_was_chosen():
    best = optimum()
    chosen = dataclasses.replace(best, scenario=dataclasses.replace(best.scenario, chosen=("layout",)))
    text = texts(chosen)
    assert "It starts from a layout that was chosen, not given: no saving is stated." in text
    for words in ("own plan", "Saving by cause", "against the", "524.3 k tokens"):
        assert words not in text
    again(evaluate_command(chosen))
    assert f"plan.layout.pipeline={float(best.plan.layout.pipeline):g}" in evaluate_command(chosen)


def test_a_failure_does_not_claim_an_optimum():
    text = texts(infeasible())
    assert "Lowest" not in text
    assert "Infeasible; energy of the nearest plan" in text


def test_what_was_free_but_stayed_is_in_the_short_form():
    column, cells = optimize_answer(optimum()).table("plan").column("chips")
    assert column.level == "short"
    assert [cell.value if isinstance(cell, Quantity) else cell for cell in cells] == [8.0, 8.0, None]


def test_prices_by_hand():
    # 1 - 1.01^-0.25 = 0.2484 %; 1 TJ (1 - (61/60)^-0.25) = 4.1237 GJ = 1.145 MWh; a day is within a tenth of 60 days.
    best = dataclasses.replace(optimum(), value=1e12)
    table = prices_table(best, None)
    change, saved = (table.number(name)[1] for name in ("change", "saved"))
    assert change.value == pytest.approx(-0.002484, abs=1e-6)
    assert table.column("step")[1][0] == "1 day more"
    assert saved.value == pytest.approx(4.1237e9, rel=1e-4)
    words = sentence(binding_sentence(best, table))
    assert words == "Time binds: 1 % more saves 0.25 % energy; 1 day more saves 1.145 MWh."


def test_switches_that_were_not_searched_are_listed_by_worth():
    table = optimize_answer(optimum()).table("switches")
    assert [row[0].removeprefix("plan.layout.") for row in table.rows] == ["fp8", "cuda_graphs", "offload_optimizer"]
    assert [row[2:] for row in table.rows] == [["kept", "change"], ["kept", "stay"], ["exceeded", "stay"]]
    (words,) = map(sentence, switches_sentence(optimum()))
    assert "fp8 25 % (other numerics), cuda_graphs 3.0 %; --vary plan.layout.fp8=0:1" in words
    assert switches_sentence(dataclasses.replace(optimum(), switches=optimum().switches[2:])) == []


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (-0.004, "takes 0.40 % more energy on average, though less with 55 % (90 % is asked)"),
        (0.02, "saves 2.0 % energy on average, anything with 55 % (90 % is asked)"),
    ],
)
def test_a_layout_that_is_not_surely_better_is_not_recommended(gain, words):
    best = dataclasses.replace(optimum(), choice=LayoutChoice((), LayoutClaim(gain, 0.55, taken=False)))
    (said,) = map(sentence, choice_sentences(best))
    assert said.startswith(f"The own layout stays: the best of the model {words}.")


def test_an_own_layout_that_stays_names_the_switches_that_turn():
    best = optimum()
    layout = dataclasses.replace(best.plan.layout, cuda_graphs=1.0, zero_bubble=1.0)
    best = dataclasses.replace(
        best,
        plan=dataclasses.replace(best.plan, layout=layout),
        choice=LayoutChoice((), LayoutClaim(0.02, 0.7, taken=False)),
    )
    assert "The own layout stays, with zero_bubble and cuda_graphs on:" in sentence(*choice_sentences(best))
    assert layout_label(layout).endswith("·graphs")  # one stage has no schedule
    assert layout_label(dataclasses.replace(layout, pipeline=2.0, fp8=1.0)).endswith("p2·b4·fp8·ZB-H1·graphs")


def test_the_decision_names_switches_that_turn():
    best = optimum()
    layout = dataclasses.replace(best.plan.layout, fp8=1.0, shard_optimizer=0.0)
    best = dataclasses.replace(best, plan=dataclasses.replace(best.plan, layout=layout))
    words = sentence(decision_sentence(plans_table(best), best))
    assert words == "Change: batch to 262.1 k tokens †, clock to 80.0 %, shard optimizer to 0, fp8 share to 1."


def test_search_sentences():
    text = " ".join(map(sentence, search_sentences(optimum())))
    for words in (
        "385 compared",
        "7 fit in memory",
        "6 searched",
        "The others need at least 25 % more energy",
        "31 of 32 restarts of the best layout converge to the same optimum",
        "; the others end at most 5.1 % above it.",
        "microbatch 4",
        "1.2 % more energy than the best",
        "Rounding to whole numbers costs at most 1.0 %",
    ):
        assert words in text, words


def test_restarts_that_do_not_converge_are_no_worse_optima():
    best = optimum()
    astray = dataclasses.replace(best, statistics={**best.statistics, "restarts_agreeing": 27, "restarts_astray": 5})
    text = " ".join(map(sentence, search_sentences(astray)))
    assert "27 of 32 restarts of the best layout converge to the same optimum; 5 do not converge." in text


def test_the_change_has_one_interval_everywhere():
    stored = answer("optimize")
    column, change = stored.table("outcome").number("energy", 2)
    _, quantity = stored.sentences[0].numbers["change"]
    assert quantity[:3] == pytest.approx(change[:3])
    assert column.kind == "change"


def test_the_command_gives_the_found_plan():
    command = evaluate_command(optimum())
    assert command.startswith("energymodel evaluate test-1b-h100 ")
    read = {field.name: field.value for field in plan_fields(again(command).plan)}
    assert read == pytest.approx({field.name: field.value for field in plan_fields(optimum().plan)}, rel=1e-8)
    assert not re.search(r"\d\.\d{10}", command)


def test_the_command_keeps_the_changes_of_the_scenario():
    scenario = em.load_scenario("test-1b-h100", ["system.market=france", "plan.power_cap=600 W", "plan.clock=0.9"])
    best = dataclasses.replace(scenario.plan, clock=np.asarray(0.8))
    read = again(evaluate_command(dataclasses.replace(optimum(), scenario=scenario, plan=best)))
    assert plan_fields(read.plan) == plan_fields(best)
    assert read.system.market.carbon == scenario.system.market.carbon


def test_the_command_keeps_the_cluster():
    scenario = em.load_scenario("test-1b-h100", cluster="llm-foundry-a100")
    words = shlex.split(evaluate_command(dataclasses.replace(optimum(), scenario=scenario, plan=scenario.plan)))
    assert words[3:5] == ["--cluster", "llm-foundry-a100"]


def test_failure_is_one_line_with_limit_and_nearest_value():
    line = failure(infeasible())
    assert "\n" not in line
    assert line == "No plan obeys these limits together. time: asked 24 hours, nearest feasible 2 days."


def test_json_of_a_search():
    asked = dataclasses.replace(optimum(), scenario=optimum().scenario.with_question(limits={"time": "60 days"}))
    tree = json.loads(data.dumps(optimize_answer(asked)), parse_constant=pytest.fail)
    assert tree["scenario"]["optimize"] == {"minimize": "energy", "limits": {"time": "5184000.0 s"}}
    price = numbers(tree, "prices")
    assert (price["name"], price["elasticity"], price["price"], price["price_unit"]) == ("time", 0.25, 1000.0, "J/(s)")
    assert [row["name"] for row in tree["tables"]["prices"]["rows"] if row["binds"] == "yes"] == ["time"]
    search = numbers(tree, "search")
    assert search["layouts_considered"] == 385
    assert numbers(tree, "runner_up")["microbatch"] == 4
    assert tree["result"] == "successful"
    assert numbers(tree)["energy"] == pytest.approx(search["baseline_value"], rel=1e-9)
    assert numbers(tree, "plan", 1)["clock"] == 0.8


def test_what_is_not_finite_is_null_with_a_reason():
    tree = json.loads(data.dumps(optimize_answer(infeasible())), parse_constant=pytest.fail)
    assert numbers(tree, "search")["gap"] is None
    assert "runner_up" not in tree["tables"]
    assert "tables.search.rows[0].gap is inf and stands as null" in tree["warnings"]
    assert [numbers(tree, "conflicts", row)["time"] for row in (0, 1)] == [86400.0, 172800.0]


def test_csv_of_a_search_has_a_row_for_each_plan():
    rows = list(csv.DictReader(data.csv_text(data.main_table(optimize_answer(optimum()))).splitlines()))
    assert [row["row"] for row in rows] == ["own plan", "found", "change"]
    assert float(rows[0]["time [s]"]) == pytest.approx(float(np.asarray(optimum().baseline.time)))


def test_a_changed_table_becomes_options_one_by_one():
    price = {"life": {"value": 4.0, "unit": "year", "source": "our books"}, "utilization": 0.7}
    scenario = load_scenario("test-1b-h100", {"system.market.price": price, "plan.clock": 0.9})
    words = command_of(scenario, scenario.plan, {})
    assert '--set "system.market.price.life=4.0 year" --set system.market.price.utilization=0.7' in words
    assert jax.tree.leaves(again(words).system.market.price) == jax.tree.leaves(scenario.system.market.price)
    assert float(again(words).plan.clock) == 0.9


def test_the_command_names_the_file_that_was_read(tmp_path):
    path = tmp_path / "my plan.toml"
    path.write_text('base = "test-1b-h100"\n', encoding="utf-8")
    scenario = load_scenario(path, ["plan.clock=0.9"], cluster="nanotron-h100")
    words = shlex.split(command_of(scenario, scenario.plan, {}))
    assert words[:5] == ["energymodel", "evaluate", str(path), "--cluster", "nanotron-h100"]
    assert shlex.quote(str(path)) in sentence(prior_count(scenario))
    made = dataclasses.replace(scenario, source="--model test-1b --chips 8")
    assert "presets show" not in sentence(prior_count(made))
    assert "energymodel sensitivity --model test-1b --chips 8" in sentence(prior_count(made))


def test_the_margin_to_a_temperature_is_in_kelvin():
    best = optimum()
    column, cell = limits_table(Run(best.plan, best.outcome)).number("temperature")
    temperature, slack = (float(np.asarray(part.temperature)) for part in (best.outcome, best.outcome.slack))
    assert (column.unit, column.kind) == ("K", "difference")
    assert cell.value == pytest.approx(temperature * math.expm1(slack))


def at_risk(**changes):
    saving = optimum().baseline_value - optimum().value
    risk = SavingAtRisk(
        deviation=0.1,
        own_deviation=0.12,
        saving=saving,
        saving_deviation=0.25 * saving,
        prior_deviation=0.2 * saving,
        shares={"system.accelerator.busy_power": 0.5, "system.accelerator.leakage.power": 0.14},
        without=46,
    )
    return risk._replace(**changes)


def test_share_that_rests_on_priors_by_hand():
    # 1.645 x 0.2 = 0.329 of the saving; (0.2 / 0.25)^2 = 0.64 of the variance.
    assert at_risk().resting_on_priors == pytest.approx(0.329, abs=5e-4)
    assert at_risk().prior_variance == pytest.approx(0.64)
    assert at_risk(prior_deviation=10.0 * at_risk().saving).resting_on_priors == 1.0
    assert pytest.approx(1.645, abs=5e-4) == DEVIATIONS


def test_the_report_says_what_rests_on_numbers_that_nobody_measured():
    saved = dataclasses.replace(optimum(), saving={"clock": optimum().baseline_value - optimum().value})
    text = " ".join(map(sentence, risk_sentences(saved, at_risk())))
    assert "33 % rests on numbers that nobody measured" in text
    assert "They cause 64 % of its variance." in text
    assert "accelerator.busy_power (50 %)" in text
    assert "46 more such numbers have no stated spread" in text
    assert "more such numbers" not in " ".join(map(sentence, risk_sentences(saved, at_risk(without=0))))


def test_the_headline_has_the_interval_of_the_value_and_of_the_change():
    line = sentence(headline(optimum(), saving_at_risk(optimum())))
    assert line.count("(90 %: ") == 2
    number = line.split(": ", 1)[1].split(" ")[0]
    assert len(number.replace(".", "").lstrip("0")) <= 3
