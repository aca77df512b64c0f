"""Clocks by rank beside one clock for all, at the same time of a step."""

import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.pipeline import pipeline_load
from energymodel.search.pipeline_clocks import one_clock, stage_front

SMALL = "test-1b-h100"
FOUR = ["plan.layout.pipeline=4", "plan.layout.microbatch=2", "plan.layout.last_stage_layers=1"]


@pytest.fixture(scope="module")
def scenario():
    return load_scenario(SMALL, FOUR)


def test_clocks_by_rank_beat_one_clock_at_the_same_time(scenario):
    front = stage_front(scenario.system, scenario.plan, points=3, slowdown=0.1)
    np.testing.assert_allclose(front.clocks.late, 0.0, atol=2e-6)
    assert front.saved[0] == pytest.approx(0.0, abs=1e-3)
    assert np.all(front.saved[1:] > 0.01)
    # With one layer and the output head the last rank takes longest; the others may be slower for it.
    clocks = front.clocks.clock[-1, :, :, 0]
    assert np.all(clocks[:, 1] < clocks[:, -1])


def test_one_clock_is_the_same_pipeline_at_that_clock(scenario):
    pipeline, schedule = pipeline_load(scenario.system, scenario.plan)
    grid = one_clock(pipeline, schedule)
    assert np.all(np.diff(grid.step_time) < 0.0)
    again = one_clock(pipeline, schedule, grid.step_time[[10, 40]])
    np.testing.assert_allclose(again.clock, grid.clock[[10, 40]], rtol=1e-9)
    np.testing.assert_allclose(again.energy, grid.energy[[10, 40]], rtol=1e-9)
    between = one_clock(pipeline, schedule, np.sqrt(grid.step_time[30:32].prod(keepdims=True)))
    np.testing.assert_allclose(between.step_time**2, grid.step_time[30:32].prod(), rtol=2e-4)


@pytest.mark.parametrize(
    ("changes", "asked", "message"),
    [
        ([], {}, "1 stage has nothing to wait for"),
        ([*FOUR[:2], "plan.layout.schedule=zb-h1"], {}, "planned for 1F1B alone"),
        ([*FOUR, "plan.power.last_stage=400 W"], {}, "Leave out plan.power"),
        (FOUR, {"points": 1}, "1 make no front"),
        (FOUR, {"slowdown": 0.0}, "slowdown: 0 is not above 0"),
        (FOUR, {"slowdown": float("nan")}, "slowdown: nan is not above 0"),
        (FOUR, {"per": "operation"}, "are more than 128"),
    ],
)
def test_what_has_no_front_is_refused(changes, asked, message):
    scenario = load_scenario(SMALL, changes)
    with pytest.raises(InputError, match=message):
        stage_front(scenario.system, scenario.plan, **asked)
