"""An iteration of post-training: what fits, what it takes, and what contradicts itself."""

import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.scenarios.pieces import Pieces
from energymodel.scenarios.scenario import load_scenario
from energymodel.sweeps.post_training import PostTraining, post_training

SMALL = "test-1b-h100"
ASKED = {"algorithm": "grpo", "prompts": 64, "answers": 8, "updates": 1, "prompt_length": 200.0}
LENGTHS = {"answer_length": 600.0, "longest_answer": 1848.0}


def iteration(**changes):
    def pieces(batch, sequence, made):
        return Pieces(load_scenario(SMALL, made), ())

    return post_training(PostTraining(**{**ASKED, **LENGTHS, **changes}), pieces)


@pytest.fixture(scope="module")
def usual():
    return iteration()


def test_parts_add_up_and_have_intervals(usual):
    assert not usual.shortfall
    np.testing.assert_allclose(usual.time.total, sum(usual.time[:7]), rtol=1e-6)
    assert 0.05 < usual.halves.total < 1.0
    assert usual.tokens == 64 * 8 * 800.0


def test_a_critic_takes_memory_and_time(usual):
    ppo = iteration(algorithm="ppo")
    np.testing.assert_allclose(ppo.time.scoring, 2.0 * usual.time.scoring, rtol=1e-6)
    np.testing.assert_allclose(ppo.time.critic, usual.time.actor, rtol=1e-6)
    grown = ppo.memory["others"] - usual.memory["others"]
    np.testing.assert_allclose(grown, float(usual.scenario.system.workload.parameters) * 20.0 / 8.0, rtol=1e-6)
    np.testing.assert_allclose(ppo.memory["training"] - usual.memory["training"], grown, rtol=1e-6)


def test_an_engine_with_too_much_memory_is_told_what_is_free():
    full = iteration(engine_share=0.95)
    assert full.memory["writing"] > full.memory["capacity"]
    share = float(full.shortfall.partition("--engine-share ")[2].split(",")[0])
    assert not iteration(engine_share=share - 0.01).shortfall
    assert not iteration(engine_share=0.95, offload=True).shortfall


def test_an_unknown_length_widens_the_interval(usual):
    unknown = iteration(longest_answer=None)
    assert unknown.load.longest == 600.0 / 0.35
    assert unknown.halves.writing > usual.halves.writing


def test_chips_that_write_alone_hold_more_answers(usual):
    apart = iteration(rollout_chips=8.0, overlap=True)
    assert apart.load.memory > usual.load.memory
    assert apart.chips == 16.0
    assert apart.time.total < usual.time.total


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "grp"}, "--algorithm"),
        ({"answer_length": None, "longest_answer": None}, "--answer-length is missing"),
        ({"longest_answer": 500.0}, "above --longest-answer"),
        ({"engine_share": 60.0}, "not a share"),
        ({"overlap": True}, "--rollout-chips"),
        ({"engine_chips": 3.0}, "does not divide 8 chips"),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        iteration(**changes)
