"""A small grid of a scenario is evaluated by the program for any points, and gives what its own program would."""

import pickle

import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.sweeps import sweep as sweep_module
from energymodel.sweeps import tile_program
from energymodel.sweeps.points import evaluate_points, named_outputs
from energymodel.sweeps.scenario_axes import UNITS, ScenarioModel, model_and_limits, scenario_axis
from energymodel.sweeps.sweep import prepare_sweep
from energymodel.sweeps.tile_program import SmallGrid, TileProgram
from sweeps.sweep_models import LIMITS, axes, sweep_model

SCENARIO = "test-1b-h100"
AXES = {
    "system.accelerator": "h100-sxm, h200-sxm",
    "plan.layout": "all",
    "system.accelerator.memory_bandwidth": "2..3 TB/s linear 2",
    "plan.batch": "0.25..1 Mi token log 3",
}


@pytest.fixture(scope="module")
def scenario():
    return em.load_scenario(SCENARIO)


@pytest.fixture(scope="module")
def model(scenario):
    function, _ = model_and_limits(scenario, {})
    assert isinstance(function, ScenarioModel)
    return function


def test_many_points_are_those_of_the_model(scenario, model):
    parsed = [scenario_axis(scenario, path, values) for path, values in AXES.items()]
    rng = np.random.default_rng(0)
    indices = [[int(rng.integers(len(axis))) for axis in parsed] for _ in range(3)]
    outputs = evaluate_points(model, parsed, indices)
    assert set(outputs) == set(UNITS)
    for row, index in enumerate(indices):
        expected = model(**{axis.name: axis.at(number) for axis, number in zip(parsed, index, strict=True)})
        assert set(expected) == set(outputs)
        for name, value in expected.items():
            np.testing.assert_allclose(outputs[name][row], value, rtol=1e-9, atol=1e-9, err_msg=name)


def test_outputs_that_are_known_in_a_traced_model_are_outputs_too(model):
    """Those of a run that serves no users are numbers before it is traced."""
    shapes = jax.eval_shape(lambda clock: named_outputs(model(**{"plan.clock": clock})), 0.8)
    assert set(shapes) == set(UNITS)


SLOW = [pytest.param(keep, marks=pytest.mark.slow) for keep in ("full:energy", "along:plan.clock", "count", "top:3")]


@pytest.mark.parametrize("keep", ["pareto:energy,time", *SLOW])
def test_tiles_are_those_of_their_own_program(scenario, keep, monkeypatch):
    arguments = {"limits": {"time": "19 h"}, "chunk": 10, "tile": 20, "precision": 64}
    question = scenario, {"plan.clock": "0.6:1:4", "plan.batch": "0.25..1 Mi token log 9"}, keep
    swept = em.sweep(*question, **arguments)
    monkeypatch.setattr(sweep_module, "SMALL", 0)
    own = em.sweep(*question, order=list(question[1]), **arguments)
    assert own.grid.tiles == swept.grid.tiles > 1
    assert [winner.index for winner in swept.winners] == [winner.index for winner in own.winners]
    if keep == "count":
        assert swept.result == own.result
        assert 0 < swept.result < 36
    if keep == "full:energy":
        np.testing.assert_allclose(swept.result["energy"], own.result["energy"], rtol=1e-12)


def test_a_large_grid_has_its_own_program(scenario):
    for count, program in ((tile_program.SMALL, SmallGrid), (tile_program.SMALL + 1, TileProgram)):
        prepared = prepare_sweep(scenario, {"plan.clock": np.linspace(0.5, 1.0, count)}, order=["plan.clock"])
        assert type(prepared.program) is program
    assert type(prepare_sweep(sweep_model, axes(2, 2, 2, 2), "best", "energy", LIMITS).program) is TileProgram


def test_a_resumed_sweep_evaluates_nothing(scenario, tmp_path, monkeypatch):
    question = scenario, {"plan.clock": "0.6:1:4"}, "top:2"
    first = em.sweep(*question, resume=tmp_path)
    monkeypatch.setattr(SmallGrid, "_first_outputs", lambda *arguments: pytest.fail("evaluated again"))
    again = em.sweep(*question, resume=tmp_path)
    assert again.winners == first.winners


def test_workers_of_a_cluster_look_up_what_was_evaluated_once(scenario, monkeypatch):
    program = prepare_sweep(scenario, {"plan.clock": "0.6:1:4"}, "top:2").program
    sent = pickle.dumps(program)
    monkeypatch.setattr(SmallGrid, "_first_outputs", lambda *arguments: pytest.fail("evaluated again"))
    worker = pickle.loads(sent)
    for mine, theirs in zip(jax.tree.leaves(program.run(0)), jax.tree.leaves(worker.run(0)), strict=True):
        np.testing.assert_array_equal(theirs, mine)


def test_other_numbers_need_no_other_program(monkeypatch):
    """Other values of axes, limits and system, and other ranges of bins that follow from them."""
    monkeypatch.setattr(sweep_module, "SMALL", 0)

    def swept(batch, changes, limit):
        axes = {"plan.clock": "0.6:1:4", "plan.batch": batch}
        scenario = em.load_scenario(SCENARIO, changes)
        return em.sweep(scenario, axes, "quantiles:energy,time", limits={"time": limit}, tile=8, chunk=4)

    first = swept("0.25..1 Mi token log 5", [], "19 h")
    monkeypatch.setattr(tile_program.PointModel, "picked", lambda *_: pytest.fail("traced again"))
    second = swept("0.3..0.9 Mi token log 5", ["system.accelerator.busy_power=300 W"], "25 h")
    assert first.result != second.result


def test_its_time_is_estimated_without_compiling_a_program(scenario, monkeypatch):
    monkeypatch.setattr(SmallGrid, "compile", lambda self: pytest.fail("compiled"))
    cost = prepare_sweep(scenario, {"plan.clock": "0.5:1:2000"}, chunk=500).cost()
    assert cost.points == 2000
    assert 0.0 < cost.seconds < 600.0
