import dataclasses
import math
import tomllib

import jax
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.explorer.explorer import Page
from energymodel.explorer.knobs import BATCH, BUSY_POWER, CHIPS, CLOCK, GENERATIONS
from energymodel.explorer.state import PlanSpace
from energymodel.scenarios.scenario import load_scenario
from energymodel.sweeps.outcome_spread import outcome_spread
from energymodel.system.evaluate import evaluate_once
from explorer_page import SMALL, message, small_explorer


@pytest.fixture(scope="module")
def explorer():
    return small_explorer()


def plan_at(**content):
    return small_explorer().plan_at(message(**content).asked)


def test_own_plan_has_the_outcome_of_evaluate(explorer):
    own = explorer.space.own
    expected = jax.device_get(evaluate_once(own.system, own.plan))
    result = explorer.own.outcome
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), result, expected)


def test_parts_add_up(explorer):
    view = explorer.own.view
    assert math.fsum(map(float, view.money.values())) == pytest.approx(float(view.outcome.money), rel=1e-12)
    steps = [float(step) for name, step in view.warmth._asdict().items() if name != "limit"]
    assert math.fsum(steps) == pytest.approx(float(view.outcome.temperature), abs=1e-9)
    roof = np.minimum(view.roofline.peak, view.roofline.bandwidth * view.roofline.intensity)
    assert np.all(view.roofline.rate <= roof)


def test_nearby_plans_at_the_own_batch_and_full_clock_are_the_plan():
    result = plan_at(values={CLOCK: 1.0}).view
    same = np.isclose(result.nearby.batch_factor, 1.0) & np.isclose(result.nearby.clock, 1.0)
    assert same.sum() == 1
    np.testing.assert_allclose(result.nearby.energy[same], np.asarray(result.outcome.energy.total), rtol=1e-8)
    np.testing.assert_allclose(result.nearby.time[same], float(result.outcome.time), rtol=1e-8)


def test_saved_scenario_evaluates_to_the_numbers_that_are_shown(explorer):
    tokens = explorer.space.knobs["plan.goal.tokens"].own
    values = {CLOCK: 0.8, "system.market.price.electricity": 5e-8, "plan.goal.tokens": 1.5 * tokens, GENERATIONS: 4.0}
    asked = message(values=values, layout={"tensor": "2", "zero": "1"}, moved="tensor").asked
    result = explorer.plan_at(asked)
    again = load_scenario(tomllib.loads(explorer.scenario_toml(asked)))
    outcome = jax.device_get(evaluate_once(again.system, again.plan))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), result.outcome, outcome)
    assert float(again.plan.layout.tensor) == 2.0


def test_every_knob_is_a_number_of_the_scenario_between_its_ends(explorer):
    values = explorer.space.run.values
    for path, knob in explorer.space.knobs.items():
        assert knob.own == values[path]
        assert knob.low <= knob.own <= knob.high, path
    assert {BATCH, CLOCK, CHIPS, GENERATIONS, BUSY_POWER, "plan.coolant_temperature"} <= set(explorer.space.knobs)


def test_energy_of_an_operation_goes_down_to_the_landauer_bound(explorer):
    lowest = plan_at(values={BUSY_POWER: explorer.space.knobs[BUSY_POWER].low}).view.operation
    assert 1.0 <= float(lowest.energy) / float(lowest.bound) < 1.1
    generations = [
        plan_at(values={GENERATIONS: float(count)}).view.operation.energy for count in (0.0, 5.0, 20.0, 60.0)
    ]
    assert np.all(np.diff(generations) < 0.0)
    assert generations[-1] > lowest.bound


def test_counts_become_whole():
    result = plan_at(values={CHIPS: 29.0, BATCH: 1e6}, layout={"tensor": "2"}, moved="tensor")
    layout = result.scenario.plan.layout
    group = float(layout.tensor * layout.pipeline * layout.context)
    assert result.chips % 8 == 0
    assert result.chips % group == 0
    microbatch = result.chips / group * float(layout.microbatch) * float(result.scenario.system.workload.sequence)
    assert (result.values[BATCH] / microbatch) % 1 == 0


def test_layout_keeps_the_field_that_was_moved(explorer):
    result = plan_at(layout={"tensor": "4", "pipeline": "1"}, moved="tensor")
    assert explorer.space.layouts.names(result.layout)["tensor"] == "4"
    assert result.chips == 16.0  # of the scenario: the layout follows the chips


def test_clock_below_what_the_chip_has_is_refused_with_its_range():
    with pytest.raises(InputError, match=r"Clock: 0\.01 is outside the range of the slider, 0\.1885 to 1"):
        message(values={CLOCK: 0.01})


def test_impossible_combination_is_one_sentence(explorer):
    knob = explorer.space.knobs["system.accelerator.leakage.power"]
    with pytest.raises(InputError, match=r"leave .* for switching") as caught:
        plan_at(values={knob.path: knob.high})
    assert "\n" not in str(caught.value)


def test_intervals_are_those_of_the_report(explorer):
    expected = outcome_spread(explorer.space.own)
    spread = explorer.spread(explorer.own)
    for name in ("energy", "time", "money", "temperature"):
        np.testing.assert_allclose(spread.interval(name), expected.interval(name), rtol=1e-6)


def test_page_sends_only_what_changed(explorer):
    page = Page(explorer)
    first, second = (page.picture(message(number=number, values={CLOCK: 0.9})) for number in (1, 2))
    assert {"outcome", "limits", "energy", "time", "money", "roofline", "thermal", "front"} <= set(first["parts"])
    assert second["parts"] == {}
    assert second["number"] == 2
    third = page.picture(message(values={CLOCK: 0.9, "system.market.carbon.intensity": 1e-7}))
    assert "outcome" in third["parts"]
    assert "roofline" not in third["parts"]


def test_intervals_stay_while_the_plan_does(explorer):
    page, plan = Page(explorer), message(values={CLOCK: 0.9})
    assert "90 %" not in page.picture(plan)["parts"]["outcome"]
    assert page.intervals() == {}
    assert page.estimate(plan) == {}
    assert page.intervals()["parts"]["outcome"].count("90 %") >= 10
    assert page.picture(message(values={CLOCK: 0.9}, seen=["front"]))["parts"] == {}
    assert "90 %" not in page.picture(message(values={CLOCK: 0.8}))["parts"]["outcome"]


def test_late_intervals_are_not_put_on_another_plan(explorer):
    page, plan = Page(explorer), message(values={CLOCK: 0.9})
    page.picture(plan)
    page.estimate(plan)
    page.picture(message(values={CLOCK: 0.8}))
    assert page.intervals() == {}
    assert "90 %" in page.picture(plan)["parts"]["outcome"]


def test_pinned_plans_stand_beside_the_own_one(explorer):
    page = Page(explorer)
    page.pin(message(pins=[{"name": "slow & <cool>", "values": {CLOCK: 0.7}}]))
    table = page.picture(message())["parts"]["compare"]
    assert "slow &amp; &lt;cool&gt;" in table
    assert "Clock" in table
    assert "calendar time" in table


def test_broken_limit_is_named(explorer):
    picture = Page(explorer).picture(message(values={"system.facility.power_limit": 6.1e3}))
    assert "exceeds the limit of facility power by" in picture["summary"]
    assert 'class="sentence infeasible"' in picture["parts"]["limits"]


@pytest.mark.slow  # in the quick run the browser asks for one
def test_optimum_from_here_saves_energy_in_the_same_layout_and_time(explorer):
    here = message(values={CLOCK: 0.95}).asked
    before = explorer.plan_at(here)
    told = []
    result = explorer.optimize(here, "energy", told.append)
    assert result.values is not None
    assert told
    after = explorer.plan_at(here._replace(values=result.values))
    np.testing.assert_array_equal(after.layout, before.settled.layout)
    old, new = before.outcome, after.view.outcome
    assert float(new.energy.total) <= float(old.energy.total) * (1.0 + 1e-9)
    assert float(new.time) <= float(old.time) * (1.0 + 1e-6)
    assert float(new.loss) == pytest.approx(float(old.loss), rel=1e-9)
    again = explorer.optimize(here._replace(values=result.values), "energy", told.append)
    assert again.values is None
    assert "No plan in this layout takes less energy" in again.message


@pytest.mark.slow
def test_search_from_a_plan_that_breaks_a_limit_ends_within_all(explorer):
    power = float(explorer.own.outcome.power_peak)
    limit = "system.facility.power_limit"
    here = message(values={limit: max(0.8 * power, explorer.space.knobs[limit].low), CHIPS: 32.0}).asked
    assert float(explorer.plan_at(here).outcome.slack.facility_power) < 0.0
    result = explorer.optimize(here, "energy", lambda sentence: None)
    assert result.values is not None
    slack = explorer.plan_at(here._replace(values=result.values)).outcome.slack
    assert all(float(getattr(slack, name)) >= -1e-6 for name in slack.__dataclass_fields__ if name != "information")


def test_scenario_with_a_target_loss_has_a_knob_for_it():
    own = load_scenario(SMALL)
    goal = {"loss": {"value": 2.9, "unit": "nat/token"}}
    tables = {**own.named_tables, "plan": {**own.named_tables["plan"], "goal": goal}}
    space = PlanSpace(load_scenario(tables))
    knob = space.knobs["plan.goal.loss"]
    assert 1.8 < knob.low < knob.own == 2.9 < knob.high  # above the entropy floor of the loss law
    assert "plan.goal.tokens" not in space.knobs


def test_chip_that_is_designed_in_the_scenario_stays_so():
    space = PlanSpace(load_scenario(SMALL, {"system.chip_design": "scaled", GENERATIONS: 2.0}))
    assert (
        dataclasses.asdict(space.own.system)["chip_design"] == dataclasses.asdict(space.scenario.system)["chip_design"]
    )
    assert space.knobs[GENERATIONS].own == 2.0
