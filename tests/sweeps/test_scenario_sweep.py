"""Sweeps of `evaluate` itself: paths, presets, layouts, limits, and the optimum of the solver beside them."""

import itertools
import json

import jax
import numpy as np
import pytest

import energymodel as em
from cli.shell import run
from energymodel.errors import InputError
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.scenario_axes import HARD_LIMITS, ScenarioModel, scenario_axis
from energymodel.sweeps.sweep import prepare_sweep

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
    model = jax.jit(ScenarioModel(scenario.system, scenario.plan).__call__)
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
    values = [winner.value for winner in swept.winners]
    assert values == sorted(values)


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
    assert tables["run"][0]["program"] == "the model in float64"
    assert tables["run"][0]["reason"] == "a grid of 18 points needs no program of its own"
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
        (("--samples", "100", "--polish"), "--polish needs a grid"),
    ],
)
def test_command_names_bad_input(options, words):
    done = run("sweep", "llama-3.1-405b-h100", *options)
    assert done.exit_code == 2
    assert words in done.stderr
