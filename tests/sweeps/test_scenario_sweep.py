"""Sweeps of `evaluate` itself: paths, presets, layouts, limits, and the optimum of the solver beside them."""

import itertools
import json

import equinox as eqx
import jax
import numpy as np
import pytest

import energymodel as em
from cli.shell import run
from energymodel.errors import InputError
from energymodel.report.answers.sweep import sweep_answer
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.scenario_axes import HARD_LIMITS, ScenarioModel, scenario_axis
from energymodel.sweeps.sweep import prepare_sweep
from energymodel.system.plan import TargetLoss

CHIP = "system.accelerator"
AXES = {"plan.power_cap": "450, 700 W", "plan.clock": "0.6..1 linear 3", "plan.batch": "4..16 Mi token log 3"}


@pytest.fixture(scope="module")
def scenario():
    return em.load_scenario("llama-3.1-405b-h100")


@pytest.fixture(scope="module")
def swept(scenario):
    with jax.enable_x64(True):
        return em.sweep(scenario, AXES, "top:18", limits={"time": "100 days"})


def test_sweep_of_a_scenario_equals_evaluating_each_point(scenario, swept):
    axes = [scenario_axis(scenario, path, text) for path, text in AXES.items()]
    loss = em.evaluate(scenario.system, scenario.plan).loss
    plan = eqx.tree_at(lambda plan: plan.goal, scenario.plan, TargetLoss(loss))
    model = jax.jit(ScenarioModel(scenario.system, plan).__call__)
    expected = {}
    for index in itertools.product(*(range(len(axis)) for axis in axes)):
        outputs = model(**{axis.name: axis.at(number) for axis, number in zip(axes, index, strict=True)})
        holds = all(low <= float(outputs[name]) <= high for name, (low, high) in HARD_LIMITS.items())
        if holds and float(outputs["time"]) <= 100 * 86400.0:
            expected[index] = float(outputs["energy"])
    assert expected
    assert len(expected) < 18
    assert {winner.index for winner in swept.winners} == set(expected)
    for winner in swept.winners:
        np.testing.assert_allclose(winner.value, expected[winner.index], rtol=1e-10)
        np.testing.assert_allclose([winner.outputs["loss"], swept.loss], float(loss), rtol=1e-9)
    values = [winner.value for winner in swept.winners]
    assert values == sorted(values)


BATCHES = {"plan.batch": "0.25, 1 Mi token"}


@pytest.mark.parametrize(
    ("axes", "options", "loss"),
    [
        (BATCHES, {"limits": {"loss": "2.6 nat/token"}}, 2.6),
        (BATCHES, {"minimize": "loss"}, None),
        (BATCHES, {"keep": "pareto:energy,loss"}, None),
        ({"plan.goal.tokens": "20, 40 G token"}, {}, None),
        ({"plan.goal.tokens": "20, 40 G token"}, {"limits": {"loss": "2.6 nat/token"}}, None),
    ],
)
def test_points_train_to_one_loss_unless_it_is_asked_for(axes, options, loss):
    swept = em.sweep(em.load_scenario("test-1b-h100"), axes, **{"keep": "top:2", **options})
    assert swept.loss == loss
    losses = [winner.outputs["loss"] for winner in swept.winners]
    if loss is not None:
        np.testing.assert_allclose(losses, loss, rtol=1e-9)
    else:
        assert len(set(losses)) == len(losses)
        assert not options.get("limits") or max(losses) < 2.6


def test_a_loss_out_of_reach_has_no_point():
    swept = em.sweep(em.load_scenario("test-1b-h100"), BATCHES, "count", limits={"loss": "1.5 nat/token"})
    assert swept.result == 0


@pytest.mark.parametrize(
    ("axes", "keep", "ends"),
    [
        ({"plan.clock": "0.9, 1"}, "best", [("plan.clock", 0.9, 0.81)]),
        ({"plan.clock": "1, 0.9"}, "along:plan.clock", [("plan.clock", 0.9, 0.81)]),
        ({"plan.clock": "0.4:1:13"}, "best", []),
        ({"plan.clock": "0.9, 1"}, "pareto:energy,time", []),
        ({"plan.clock": "0.9"}, "best", []),
        ({"system.market.price.electricity": "0.05, 0.1 USD/kWh"}, "best", []),
        ({"plan.clock": "0.9, 1", "plan.batch": "0.5, 1 Mi token"}, "along:plan.batch", [("plan.batch", 2**19, 2**18)]),
    ],
)
def test_a_best_point_at_the_end_of_an_axis_is_named(axes, keep, ends):
    """Not where the number cannot go on or changes nothing, nor along an axis all of whose values are kept."""
    edges = em.sweep(em.load_scenario("test-1b-h100"), axes, keep).edges
    assert [(edge.axis.name, edge.end, pytest.approx(edge.beyond)) for edge in edges] == ends
    assert all(edge.saving > 0.0 for edge in edges if edge.axis.name == "plan.clock")


@pytest.mark.parametrize("minimize", ["time", "energy^0.5*time^2"])
def test_the_fastest_clock_has_no_edge_and_a_limit_beyond_one_is_broken(minimize):
    scenario = em.load_scenario("test-1b-h100")
    assert em.sweep(scenario, {"plan.clock": "0.9, 1"}, minimize=minimize).edges == ()
    (edge,) = em.sweep(scenario, {"plan.chips": "4, 8"}, minimize=minimize, limits={"chips": 8.0}).edges
    assert (edge.end, edge.beyond, edge.saving) == (8.0, 16.0, -np.inf)


def test_a_product_of_outputs_has_its_value_not_its_logarithm():
    scenario = em.load_scenario("test-1b-h100")
    swept = em.sweep(scenario, {"plan.clock": "0.7, 0.8"}, minimize="energy*time^2")
    (winner,) = swept.winners
    assert winner.value == pytest.approx(winner.outputs["energy"] * winner.outputs["time"] ** 2, rel=1e-9)
    column, cell = sweep_answer(scenario, swept, "energy*time^2").tables[0].number("value")
    assert (column.unit, cell.value) == ("J s^2", winner.value)
    (edge,) = swept.edges
    assert 0.0 < edge.saving < 0.5
    own = em.sweep(scenario, {"plan.clock": "0.7, 0.8"}, minimize=lambda run: run["energy"] * run["time"] ** 2)
    assert own.edges[0].saving == pytest.approx(edge.saving, rel=1e-5)


@pytest.mark.parametrize(("cap", "caps"), [("700 W", [700.0, 1000.0]), ("500 W", [500.0, 500.0])])
def test_an_accelerator_of_an_axis_may_draw_its_own_power(cap, caps):
    scenario = em.load_scenario("test-1b-h100", {"plan.power_cap": cap})
    model, axis = ScenarioModel(scenario.system, scenario.plan), scenario_axis(scenario, CHIP, "h100-sxm, b200-sxm")
    assert [float(model.at({CHIP: axis.at(index)})[1].power_cap) for index in range(2)] == caps
    swept = em.sweep(scenario, {CHIP: axis}, "top:2", minimize="time")
    assert "node, network and rent stay" in str(sweep_answer(scenario, swept, "time").sentences)
    for winner in swept.winners:
        chip = em.load_scenario("test-1b-h100", {CHIP: winner.point[CHIP]}).system.accelerator
        capped = float(caps[winner.index[0]])
        run = eqx.tree_at(lambda run: run[0].accelerator, (scenario.system, scenario.plan), chip)
        plan = eqx.tree_at(lambda plan: plan.power_cap, run[1], np.asarray(capped))
        np.testing.assert_allclose(winner.value, float(em.evaluate(run[0], plan).time), rtol=1e-6)


@pytest.mark.slow
def test_presets_and_layouts_are_axes(scenario):
    chips = scenario_axis(scenario, "system.accelerator", "h100-sxm, h200-sxm")
    assert [chips.label(0), chips.label(1)] == ["h100-sxm", "h200-sxm"]
    other = em.load_scenario("llama-3.1-405b-h100", ["system.accelerator=h200-sxm"])
    assert float(chips.at(1).memory_capacity) == float(other.system.accelerator.memory_capacity)
    layouts = scenario_axis(scenario, "plan.layout", "3")
    assert len(layouts) == 3
    assert layouts.labels is not None
    assert all(label.startswith("t") for label in layouts.labels)
    model = ScenarioModel(scenario.system, scenario.plan)
    system, plan = model.at({"system.accelerator": chips.at(1), "plan.layout": layouts.at(2), "plan.chips": 1024.0})
    assert float(system.accelerator.memory_capacity) == float(other.system.accelerator.memory_capacity)
    assert float(plan.layout.tensor) == float(layouts.values.tensor[2])
    assert float(plan.chips) == 1024.0


@pytest.mark.parametrize(
    ("path", "values", "words"),
    [
        ("plan.clok", "0.5:1:2", 'unknown path "plan.clok". Did you mean "plan.clock"'),
        ("plan.batch", "8..64 4", "has no unit"),
        ("plan.layout", "many", "neither"),
        ("system.accelerator", "h100-sxm, h900", "h900"),
        ("system.market", "", "Unknown"),
        ("plan", "1", "unknown path"),
    ],
)
def test_bad_axes_of_a_scenario(scenario, path, values, words):
    with pytest.raises(InputError, match=words):
        scenario_axis(scenario, path, values)


def test_axes_made_by_hand_are_checked(scenario):
    assert scenario_axis(scenario, "plan.power_cap", Axis.of("plan.power_cap", [500.0])).unit == "W"
    with pytest.raises(InputError, match=r'unknown path "plan\.clok"'):
        prepare_sweep(scenario, [Axis.of("plan.clok", [0.5])], "best", "energy", {})
    with pytest.raises(InputError, match="its unit is MW, not W"):
        scenario_axis(scenario, "plan.power_cap", Axis.of("plan.power_cap", [500.0], "MW"))


def test_costly_physics_goes_outside(scenario):
    axes = {"plan.batch": "8..64 Mi token log 70", "plan.clock": "0.5:1:70", "plan.chips": "1024..16384 log 70"}
    prepared = prepare_sweep(scenario, axes, "best", "energy", {}, chunk=1000)
    # The operating point depends on clock and chips, whose networks differ, and not on the batch: that fills the chunk.
    assert prepared.program.grid.names[0] != "plan.batch"


@pytest.mark.slow
def test_command_prints_the_best_points(tmp_path):
    options = [part for path, text in AXES.items() for part in ("--axis", f"{path}={text}")]
    path = tmp_path / "sweep.csv"
    done = run("sweep", "llama-3.1-405b-h100", *options, "--keep", "top:2", "--json", "-o", str(path))
    assert done.exit_code == 0, done.stderr
    tree = json.loads(done.stdout)
    tables = {name: table["rows"] for name, table in tree["tables"].items()}
    assert tables["run"][0]["points"] == 18
    assert [row["axis"] for row in tables["axes"]] == list(AXES)
    first, second = tables["points"]
    assert second["change"] == pytest.approx(second["energy"]["value"] / first["energy"]["value"] - 1.0)
    lines = path.read_text().splitlines()
    assert lines[0].startswith("plan.power_cap [W],plan.clock [1],plan.batch [token],")
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "no axis"),
        (("--axis", "plan.clock"), "is not PATH=VALUES"),
        (("--axis", "plan.clock=0.5:1:2", "--keep", "most"), 'unknown "most"'),
        (("--axis", "plan.clock=0.5:1:2", "--limit", "time=1 kg"), "time"),
        (("--axis", "plan.clock=0.5:1:2", "-o", "sweep.xls"), ".xls"),
    ],
)
def test_command_names_bad_input(options, words):
    done = run("sweep", "llama-3.1-405b-h100", *options)
    assert done.exit_code == 2
    assert words in done.stderr
