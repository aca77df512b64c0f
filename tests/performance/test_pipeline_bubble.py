"""Closed forms of pipeline schedules against the simulator."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance import pipeline_bubble
from energymodel.performance.parallelism import bubble_fraction
from energymodel.performance.pipeline_simulator import PassTimes, simulate_pipeline

RANKS = (1, 2, 3, 4, 8, 16)
MICROBATCHES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 40, 64)
SHARES = (1.0 / 3.0, 0.3, 0.25)  # none of the layers, some, all recomputed
EXACT = 1e-9
few = settings(max_examples=40, deadline=None)


def passes(stage_times, share, chunks=1):
    """Pass times of stages whose forward and weight passes are a share of their time each."""
    times = np.asarray(stage_times) / chunks
    return PassTimes(share * times, (1.0 - 2.0 * share) * times, share * times)


def waits(step, stage_times, microbatches, ranks):
    """Mean waiting of a rank in a step of a simulation, and in its period."""
    work = microbatches * np.sum(stage_times) / ranks
    return step.time - work, step.period - work


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("ranks", RANKS)
def test_equal_stages(ranks, share):
    for microbatches in MICROBATCHES:
        run = (3.0, 0.0)
        counts = (float(microbatches), float(ranks))
        bubble = pipeline_bubble.interleaved_bubble(*run, 3.0, *counts)
        expected = {
            "gpipe": bubble,
            "1f1b": bubble,
            "zb-h1": pipeline_bubble.zero_bubble_h1_wait(*run, *counts, share),
            "zb-h2": pipeline_bubble.zero_bubble_h2_wait(*run, *counts, share),
            "zb-v": pipeline_bubble.zero_bubble_v_wait(*run, 1.5, *counts, share),
        }
        if ranks % 2 == 0 and microbatches % 2 == 0 and microbatches >= 2 * ranks:
            expected["dualpipe"] = pipeline_bubble.dual_pipe_wait(*run, 0.0, *counts, share)
        for schedule, wait in expected.items():
            chunks = 2 if schedule == "zb-v" else 1
            step = simulate_pipeline(schedule, ranks, microbatches, 1, passes(3.0, share, chunks))
            of_step, of_period = waits(step, [3.0] * ranks, microbatches, ranks)
            result = of_period if schedule in ("zb-h2", "zb-v") else of_step
            np.testing.assert_allclose(wait, result, atol=EXACT, err_msg=f"{schedule} with m = {microbatches}")


@pytest.mark.parametrize("chunks", [2, 3, 8])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 16])
def test_interleaved_with_any_number_of_microbatches(ranks, chunks):
    for microbatches in MICROBATCHES:
        step = simulate_pipeline("1f1b", ranks, microbatches, chunks, PassTimes(1.0, 1.5, 1.0))
        total = 3.5 * chunks
        bubble = pipeline_bubble.interleaved_bubble(total, 0.0, 3.5, float(microbatches), float(ranks))
        np.testing.assert_allclose(step.time, microbatches * total + bubble, rtol=EXACT)
        bubble = bubble_fraction(float(ranks), float(chunks), float(microbatches))
        time = total * microbatches * (1.0 + bubble)
        np.testing.assert_allclose(step.time, time, rtol=EXACT)
        group = pipeline_bubble.group_size(float(microbatches), float(ranks))
        held = [
            pipeline_bubble.held_chunks(float(microbatches), float(chunks), ranks - 1.0 - rank, group)
            for rank in range(ranks)
        ]
        np.testing.assert_array_equal(step.held, np.array(held))


def with_head(ranks, microbatches, chunks, layers, head, lacking):
    """Simulated and stated time of stages of some layers; the last has the head and, as the first, may lack a layer."""
    stages = np.full(ranks * chunks, float(layers))
    stages[-1] += head - min(1, lacking)
    stages[0] -= max(0, lacking - 1)
    step = simulate_pipeline("1f1b", ranks, microbatches, chunks, passes(stages, 1.0 / 3.0))
    mean = stages.sum() / ranks
    rank = layers * chunks + max(0.0, head - min(1, lacking))
    bubble = pipeline_bubble.interleaved_bubble(rank, rank - mean, stages.max(), float(microbatches), float(ranks))
    return step.time, microbatches * mean + bubble


@few
@given(
    ranks=st.integers(2, 12),
    microbatches=st.integers(1, 40),
    chunks=st.integers(1, 6),
    layers=st.integers(1, 4),
    head=st.floats(0.0, 2.0),
)
def test_an_output_head_is_within_one_percent(ranks, microbatches, chunks, layers, head):
    simulated, published = with_head(ranks, microbatches, chunks, layers, head, 0)
    np.testing.assert_allclose(published, simulated, rtol=0.01)


@pytest.mark.parametrize("lacking", [1, 2])
@pytest.mark.parametrize("head", [0.0, 0.5, 1.5])
@pytest.mark.parametrize(
    ("ranks", "chunks", "layers"),
    [
        *((8, 16, 1), (32, 1, 4), (16, 4, 2), (4, 1, 32)),
        *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((16, 8, 1), (4, 32, 1), (16, 1, 8))),
    ],
)
def test_128_slots_that_lack_a_layer_at_either_end(ranks, chunks, layers, head, lacking):
    for groups in (1, 2, 4):
        simulated, published = with_head(ranks, groups * ranks, chunks, layers, head, lacking)
        np.testing.assert_allclose(published, simulated, rtol=0.01)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("head", [0.1, 0.3, 1.0])
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 8), (4, 2), (4, 8), (8, 8), (8, 16), (8, 32), (16, 64)])
@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2", "zb-v", "dualpipe"])
def test_an_output_head_in_zero_bubble_schedules(schedule, ranks, microbatches, head, share):
    """The last stage takes longer by the head, in stages' worth."""
    if schedule == "dualpipe" and microbatches < 2 * ranks:
        return
    chunks = 2 if schedule == "zb-v" else 1
    stages = np.full(ranks * chunks, 4.0 / chunks)
    stages[-1] += 4.0 * head
    step = simulate_pipeline(schedule, ranks, microbatches, 1, passes(stages, share))
    mean, excess = stages.sum() / ranks, (0.5 if schedule == "dualpipe" else 1.0) * 4.0 * head
    rank, counts = 4.0 + excess, (float(microbatches), float(ranks), share)
    of_step, of_period = waits(step, stages, microbatches, ranks)
    wait, result = {
        "zb-h1": lambda: (pipeline_bubble.zero_bubble_h1_wait(rank, rank - mean, *counts), of_step),
        "zb-h2": lambda: (pipeline_bubble.zero_bubble_h2_wait(rank, rank - mean, *counts), of_period),
        "zb-v": lambda: (pipeline_bubble.zero_bubble_v_wait(rank, rank - mean, stages.max(), *counts), of_period),
        "dualpipe": lambda: (pipeline_bubble.dual_pipe_wait(rank, rank - mean, excess, *counts), of_step),
    }[schedule]()
    work = microbatches * mean
    exact = EXACT if schedule == "zb-h1" else 0.02 if schedule == "zb-v" and share < 1.0 / 3.0 else 0.011
    np.testing.assert_allclose(work + wait, work + result, rtol=exact)


@pytest.mark.parametrize("share", SHARES)
def test_a_single_rank_never_waits(share):
    assert pipeline_bubble.interleaved_bubble(4.0, 0.0, 4.0, 7.0, 1.0) == 0.0
    assert pipeline_bubble.zero_bubble_h1_wait(4.0, 0.0, 7.0, 1.0, share) == 0.0
    assert pipeline_bubble.zero_bubble_h2_wait(4.0, 0.0, 7.0, 1.0, share) == 0.0
    assert pipeline_bubble.zero_bubble_v_wait(4.0, 0.0, 2.0, 7.0, 1.0, share) == 0.0


def test_what_schedules_ask_of_the_batch():
    assert [
        float(pipeline_bubble.fewest_microbatches(8.0, *switches)) for switches in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
    ] == [1.0, 8.0, 16.0]
    cases = {(0.0, 0.0, 1.0): 1.0, (1.0, 0.0, 1.0): 8.0, (1.0, 0.0, 0.0): 1.0, (0.0, 1.0, 1.0): 2.0}
    assert all(pipeline_bubble.microbatch_multiple(8.0, *switches) == multiple for switches, multiple in cases.items())
    assert float(jax.jit(jax.grad(pipeline_bubble.group_size))(20.0, 8.0)) == 0.0
    np.testing.assert_array_equal(
        pipeline_bubble.group_size(np.array([3.0, 8.0, 12.0, 16.0, 20.0]), 8.0), [3.0, 8.0, 12.0, 8.0, 10.0]
    )
    np.testing.assert_allclose(  # between whole counts without rounding up
        pipeline_bubble.group_size(np.array([2.5, 8.5, 12.5, 15.9, 20.1]), 8.0),
        [2.5, 8.5, 12.5, 15.9, 10.05],
        rtol=1e-12,
    )
