"""The timeline of a step: the passes of its plan, and its time beside the closed form of `evaluate`."""

from itertools import pairwise

import numpy as np
import pytest

from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate_once
from energymodel.system.timeline import stage_layers, step_timeline

NAME = "llama-3.1-405b-h100"
PLANS = [
    [],
    ["plan.layout.virtual_stages=1"],
    ["plan.layout.virtual_stages=1", "plan.layout.schedule=zb-h1"],
    ["plan.layout.virtual_stages=1", "plan.layout.schedule=zb-h2"],
    ["plan.layout.virtual_stages=2", "plan.layout.schedule=zb-v"],
    ["plan.layout.virtual_stages=1", "plan.layout.schedule=dualpipe", "plan.batch=32 Mi tokens"],
    ["plan.layout.virtual_stages=1", "plan.layout.schedule=gpipe", "plan.layout.recompute_full=1"],
    ["plan.layout.virtual_stages=1", "plan.layout.pipeline=1"],
]


@pytest.mark.parametrize("changes", PLANS, ids=lambda changes: " ".join(changes) or "own")
def test_simulation_and_closed_form_agree(changes):
    scenario = load_scenario(NAME, changes)
    timeline = step_timeline(scenario.system, scenario.plan)
    assert timeline.closed_form_time == pytest.approx(timeline.pipeline_time, rel=0.03)
    outcome = evaluate_once(scenario.system, scenario.plan)
    assert np.asarray(timeline.step_time.total) == pytest.approx(np.asarray(outcome.step_time.total), rel=1e-9)
    assert timeline.layers.sum() == 126
    _no_rank_does_two_things_at_once(timeline.simulated)


def _no_rank_does_two_things_at_once(step):
    for rank in range(len(step.busy)):
        own = [(item.start, item.end) for item in step.passes if item.rank == rank]
        slots = sorted(set(own))
        assert all(end <= after + 1e-12 for (_, end), (after, _) in pairwise(slots))
        assert sum(end - start for start, end in slots) == pytest.approx(step.busy[rank], rel=1e-9)
    assert max(item.end for item in step.passes) == pytest.approx(step.time)


def test_every_micro_batch_passes_every_stage_forward_and_backward():
    scenario = load_scenario(NAME)
    step = step_timeline(scenario.system, scenario.plan).simulated
    forward = {item.operation[1:] for item in step.passes if item.operation.kind == "F"}
    backward = {item.operation[1:] for item in step.passes if item.operation.kind == "B"}
    # 16 Mi tokens of 8,192 on 128 replicas are 16 micro-batches; 16 ranks with 8 virtual stages each.
    assert forward == backward == {(stage, number) for stage in range(128) for number in range(16)}


def test_layers_are_cut_as_the_layout_says():
    by_hand = load_scenario(
        NAME, ["plan.layout.virtual_stages=1", "plan.layout.first_stage_layers=7", "plan.layout.last_stage_layers=7"]
    )
    np.testing.assert_allclose(stage_layers(by_hand.system, by_hand.plan), [7.0, *[8.0] * 14, 7.0])
    balanced = load_scenario(NAME, ["plan.layout.virtual_stages=1", "system.software.balanced_stages=1"])
    layers = stage_layers(balanced.system, balanced.plan)
    assert layers.sum() == 126
    assert layers[-1] < layers[0]  # the last stage has the output head
