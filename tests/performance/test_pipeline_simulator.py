"""The simulator of pipeline schedules against what their authors publish and draw."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energymodel.performance.pipeline_simulator import (
    ORDERS,
    Operation,
    PassTimes,
    PipelineOrder,
    one_forward_one_backward,
    run_orders,
    simulate_pipeline,
)

counts = st.integers(1, 8)
names = st.sampled_from([name for name in ORDERS if name != "dualpipe"])


def word(slot):
    return "".join(f"{kind}{microbatch}" for kind, _, microbatch in slot)


def idle_share(step, work):
    """Bubble over the time of the work, as the papers state it."""
    return step.time / work - 1.0


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (4, 8), (8, 64)])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_gpipe_and_1f1b_wait_p_less_one_passes(schedule, ranks, microbatches):
    # (p - 1) / m: Huang et al. 2019, sec. 2.3, O((K - 1) / (M + K - 1)) of the step; Narayanan et al. 2021, sec. 2.2.1.
    step = simulate_pipeline(schedule, ranks, microbatches)
    np.testing.assert_allclose(idle_share(step, 3.0 * microbatches), (ranks - 1) / microbatches, rtol=1e-12)
    np.testing.assert_allclose(step.idle, step.idle[0])
    held = microbatches if schedule == "gpipe" else ranks  # Narayanan et al. 2021, sec. 2.2.1
    assert step.held.max() == held


@pytest.mark.parametrize(("ranks", "microbatches", "chunks"), [(4, 8, 2), (8, 16, 4), (8, 8, 12)])
def test_interleaving_divides_the_bubble(ranks, microbatches, chunks):
    # (p - 1) / (v m): Narayanan et al. 2021, sec. 2.2.2; held: Korthikanti et al. 2022, sec. 4.2.3.
    step = simulate_pipeline("1f1b", ranks, microbatches, chunks)
    share = idle_share(step, 3.0 * microbatches * chunks)
    np.testing.assert_allclose(share, (ranks - 1) / (chunks * microbatches), rtol=1e-12)
    assert step.held.max() == min(microbatches * chunks, ranks * chunks + ranks - 1)


@pytest.mark.parametrize("times", [PassTimes(), PassTimes(2.0, 2.5, 1.5)], ids=["equal", "unequal"])
@pytest.mark.parametrize(("ranks", "microbatches"), [(4, 8), (8, 24)])
def test_zero_bubble_waits_as_published(ranks, microbatches, times):
    # Qi et al. 2024, table 1: (p - 1)(F + I - W) in ZB-H1, a third of 1F1B at equal times, and p held micro-batches;
    # (p - 1)(F + I - 2 W) and 2 p - 1 in ZB-H2, which has no bubble at equal times.
    f, i, w = times.forward, times.input_gradient, times.weight_gradient
    h1 = simulate_pipeline("zb-h1", ranks, microbatches, 1, times)
    np.testing.assert_allclose(h1.idle, (ranks - 1) * (f + i - w), rtol=1e-12)
    np.testing.assert_array_equal(h1.held, ranks)
    h2 = simulate_pipeline("zb-h2", ranks, microbatches, 1, times)
    np.testing.assert_allclose(h2.period - microbatches * (f + i + w), (ranks - 1) * (f + i - 2.0 * w), atol=1e-9)
    assert h2.held.max() == 2 * ranks - 1


@pytest.mark.parametrize(("ranks", "microbatches"), [(4, 7), (4, 16), (8, 15)])
def test_zb_v_has_no_bubble_and_holds_what_1f1b_does(ranks, microbatches):
    # Qi et al. 2024, sec. 6: zero bubble at equal times with the memory of 1F1B: p micro-batches, each in two chunks.
    step = simulate_pipeline("zb-v", ranks, microbatches)
    assert step.period == step.busy[0] == 6.0 * microbatches
    np.testing.assert_array_equal(step.held, 2 * ranks)


@pytest.mark.parametrize("overlap", [1.0, 0.9])
@pytest.mark.parametrize(("ranks", "microbatches"), [(4, 8), (8, 20), (16, 120)])
def test_dualpipe_waits_as_published(ranks, microbatches, overlap):
    # DeepSeek-AI 2024 (arXiv 2412.19437), table 2: (p/2 - 1)(F&B + B - 3 W), and p + 1 held micro-batches.
    step = simulate_pipeline("dualpipe", ranks, microbatches, 1, PassTimes(overlap=overlap))
    expected = (ranks / 2 - 1) * (3.0 * overlap + 2.0 - 3.0)
    np.testing.assert_allclose(step.idle.max(), expected, rtol=1e-12)
    np.testing.assert_array_equal(step.held, ranks + 1)


def test_orders_are_those_drawn():
    # Narayanan et al. 2021, fig. 4 (interleaved, p = 4, v = 2, m = 8): warm-up of the first rank and its first turns.
    first = one_forward_one_backward(4, 8, 2).slots[0]
    assert [slot[0].kind for slot in first].index("B") == 11  # 2 (p - 1) + (v - 1) p + 1 forward passes before it
    assert [slot[0].microbatch for slot in first[:11]] == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6]
    # Qi et al. 2024, fig. 2 (ZB-H1, p = 4, m = 8): the last rank postpones its weights by three micro-batches.
    last = ORDERS["zb-h1"](4, 8, 1).slots[3]
    assert " ".join(map(word, last)) == ("F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7")
    # DeepSeek-AI 2024, fig. 5 (p = 8, 20 micro-batches): the first rank starts with seven of its own direction.
    dual = ORDERS["dualpipe"](8, 20, 1).slots[0]
    assert " ".join(map(word, dual[:14])) == "F0 F1 F2 F3 F4 F5 F6 F10 I10 W10 F11 I11 W11 F12"


@given(schedule=names, ranks=counts, microbatches=counts, chunks=counts, hop=st.floats(0.0, 2.0))
def test_every_operation_is_done_once(schedule, ranks, microbatches, chunks, hop):
    order = ORDERS[schedule](ranks, microbatches, chunks)
    done = [operation for rank in order.slots for slot in rank for operation in slot]
    assert len(done) == len(set(done))
    halves = {"F": 1, "B": 2, "I": 1, "W": 1}
    assert sum(halves[operation.kind] for operation in done) == 3 * order.stages * microbatches
    step = run_orders(order, PassTimes(1.0, 1.0, 1.0, hop))
    assert step.time >= 3.0 * order.stages * microbatches / ranks - 1e-9
    np.testing.assert_allclose(step.busy.sum(), 3.0 * order.stages * microbatches)
    assert np.all(step.idle >= -1e-9)
    assert np.all(step.held <= order.stages / ranks * microbatches)


def test_unequal_stages_pace_the_step_and_deadlocks_are_named():
    # Worked by hand: two ranks, two micro-batches, stages of 1 + 1 + 1 and 2 + 2 + 2 s, hop 0.5 s. Rank 1 starts at 1.5
    # and works 12 s; its last gradient arrives 0.5 s later, and rank 0 goes back through it in 2 s.
    step = simulate_pipeline("1f1b", 2, 2, 1, PassTimes([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], 0.5))
    assert step.time == 1.5 + 12.0 + 0.5 + 2.0
    np.testing.assert_allclose(step.busy, [6.0, 12.0])
    stuck = PipelineOrder([[(Operation("B", 0, 0),), (Operation("F", 0, 0),)]], 1)
    with pytest.raises(ValueError, match="the ranks wait for each other"):
        run_orders(stuck, PassTimes())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("2f2b", 2, 2), 'unknown schedule "2f2b". Choose one of gpipe, 1f1b'),
        (("1f1b", 0, 2), "0 ranks, 2 micro-batches"),
        (("dualpipe", 5, 10), "Give even numbers of both"),
        (("dualpipe", 4, 6), "at least two micro-batches for each rank"),
    ],
)
def test_what_cannot_run_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        simulate_pipeline(*arguments)
