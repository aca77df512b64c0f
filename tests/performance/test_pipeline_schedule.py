from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from energymodel.performance.parallelism import bubble_fraction
from energymodel.performance.pipeline_schedule import operation_ends, pipeline_makespan, pipeline_schedule

F, B = 0, 1
# Direction, virtual stage, micro-batch, as drawn in Narayanan et al. 2021, figs. 3 and 4, for three ranks or two.
ONE_BY_ONE = [
    [(F, 0, 0), (F, 0, 1), (F, 0, 2), (B, 0, 0), (F, 0, 3), (B, 0, 1), (B, 0, 2), (B, 0, 3)],
    [(F, 1, 0), (F, 1, 1), (B, 1, 0), (F, 1, 2), (B, 1, 1), (F, 1, 3), (B, 1, 2), (B, 1, 3)],
    [(F, 2, 0), (B, 2, 0), (F, 2, 1), (B, 2, 1), (F, 2, 2), (B, 2, 2), (F, 2, 3), (B, 2, 3)],
]
INTERLEAVED = [
    [(F, 0, 0), (F, 0, 1), (F, 2, 0), (F, 2, 1), (B, 2, 0), (B, 2, 1), (B, 0, 0), (B, 0, 1)],
    [(F, 1, 0), (F, 1, 1), (F, 3, 0), (B, 3, 0), (F, 3, 1), (B, 3, 1), (B, 1, 0), (B, 1, 1)],
]
SCHEDULES = {sizes: pipeline_schedule(*sizes) for sizes in [(3, 4, 1), (2, 4, 2)]}
makespan = jax.jit(pipeline_makespan)
critical = jax.jit(jax.grad(pipeline_makespan))
WRITTEN_OUT = [(ONE_BY_ONE, (3, 4, 1)), (INTERLEAVED, (2, 2, 2))]


def least_time(orders, durations, hop):
    """Makespan as a linear program over the starts: an operation follows its predecessors, the last one ends at t."""
    operations = [operation for order in orders for operation in order]
    position = {operation: number for number, operation in enumerate(operations)}
    stages, ranks = durations.shape[1], len(orders)
    rows, limits = [], []

    def follows(late, early, gap):
        row = np.zeros(len(operations) + 1)
        row[position[early]], row[late] = 1.0, -1.0
        rows.append(row)
        limits.append(-durations[early] - gap)

    for order in orders:
        for early, late in pairwise(order):
            follows(position[late], early, 0.0)
    for direction, stage, microbatch in operations:
        late = position[direction, stage, microbatch]
        if direction == B and stage == stages - 1:
            follows(late, (F, stage, microbatch), 0.0)
        neighbor = stage - 1 if direction == F else stage + 1
        if 0 <= neighbor < stages:
            follows(late, (direction, neighbor, microbatch), hop if neighbor % ranks != stage % ranks else 0.0)
        follows(len(operations), (direction, stage, microbatch), 0.0)
    cost = np.zeros(len(operations) + 1)
    cost[-1] = 1.0
    return linprog(cost, A_ub=np.asarray(rows), b_ub=np.asarray(limits)).fun


def test_two_ranks_by_hand():
    # Rank 0 starts 0, 1 (F), 7, 13 (B); rank 1 starts 1 (F), 3 (B), 7 (F), 9 (B): the second rank decides.
    schedule = pipeline_schedule(2, 2)
    durations = np.asarray([[[1.0], [2.0]], [[2.0], [4.0]]])
    ends = operation_ends(durations, schedule)
    np.testing.assert_array_equal(ends, [[[1, 2], [3, 9]], [[9, 15], [7, 13]]])
    assert float(pipeline_makespan(durations, schedule)) == 15.0
    # First forward on rank 0, all four operations of rank 1, last backward on rank 0; two hops.
    np.testing.assert_array_equal(critical(durations, schedule), [[[1], [2]], [[1], [2]]])
    assert float(pipeline_makespan(durations, schedule, 0.5)) == 16.0
    durations = jnp.asarray([[[1.0], [2.0]], [[2.0], [4.0]]], jnp.float32)
    scaled = jax.jit(jax.vmap(lambda factor: pipeline_makespan(durations * factor, schedule)))(
        jnp.asarray([1.0, 2.0], jnp.float32)
    )
    assert scaled.dtype == jnp.float32
    np.testing.assert_array_equal(scaled, [15.0, 30.0])


@pytest.mark.parametrize(
    ("ranks", "microbatches", "chunks"), [(1, 3, 1), (1, 2, 3), (4, 8, 1), (4, 2, 1), (8, 8, 2), (4, 8, 3), (16, 16, 8)]
)
def test_equal_stages_take_the_time_of_the_closed_form(ranks, microbatches, chunks):
    schedule = pipeline_schedule(ranks, microbatches, chunks)
    durations = np.broadcast_to(np.asarray([1.0, 2.0])[:, None, None], (2, ranks * chunks, 1))
    passes = microbatches * (1.0 + float(bubble_fraction(float(ranks), float(chunks), float(microbatches))))
    if microbatches >= ranks:
        np.testing.assert_allclose(makespan(durations, schedule), 3.0 * chunks * passes, rtol=1e-14)
        assert schedule.levels == pytest.approx(2.0 * chunks * passes)
    else:
        # Fewer micro-batches than ranks: the same count, (m + p - 1) of both, in a pipeline that never fills.
        assert float(makespan(durations, schedule)) == 3.0 * (microbatches + ranks - 1)


@pytest.mark.parametrize(("orders", "sizes"), WRITTEN_OUT, ids=["1F1B", "interleaved"])
def test_makespan_is_that_of_the_linear_program(orders, sizes):
    schedule = pipeline_schedule(*sizes)
    random = np.random.default_rng(0)
    for hop in (0.0, 0.3):
        for _ in range(5):
            durations = random.uniform(0.1, 2.0, (2, schedule.stages, schedule.microbatches))
            expected = least_time(orders, durations, hop)
            np.testing.assert_allclose(makespan(durations, schedule, hop), expected, rtol=1e-9)


@given(seed=st.integers(0, 10_000), sizes=st.sampled_from(sorted(SCHEDULES)), hop=st.sampled_from([0.0, 0.2]))
def test_the_critical_path_has_the_length_of_the_makespan_and_bounds_all_others(seed, sizes, hop):
    schedule = SCHEDULES[sizes]
    random = np.random.default_rng(seed)
    here, there = random.uniform(0.1, 2.0, (2, 2, schedule.stages, schedule.microbatches))
    counts = np.asarray(critical(here, schedule, hop))
    assert set(np.unique(counts)) <= {0.0, 1.0}
    length = float(makespan(here, schedule, hop))
    hops = length - np.sum(counts * here)
    np.testing.assert_allclose(hops, hop * round(hops / hop) if hop else 0.0, atol=1e-12)
    assert float(makespan(there, schedule, hop)) >= np.sum(counts * there) + hops - 1e-12


def test_gradient_is_that_of_central_differences():
    schedule = pipeline_schedule(3, 4)
    durations = np.random.default_rng(1).uniform(0.5, 1.5, (2, 3, 1))
    counts = np.asarray(critical(durations, schedule, 0.1))
    for position in np.ndindex(durations.shape):
        step = np.zeros_like(durations)
        step[position] = 1e-6
        change = makespan(durations + step, schedule, 0.1) - makespan(durations - step, schedule, 0.1)
        np.testing.assert_allclose(counts[position], change / 2e-6, atol=1e-6)
    hop_slope = jax.grad(makespan, argnums=2)(jnp.asarray(durations), schedule, 0.1)
    change = makespan(durations, schedule, 0.1001) - makespan(durations, schedule, 0.0999)
    np.testing.assert_allclose(hop_slope, change / 2e-4, rtol=1e-9)


def test_sizes_that_no_schedule_has():
    with pytest.raises(ValueError, match="Give at least one of each"):
        pipeline_schedule(2, 0)
    with pytest.raises(ValueError, match="5 micro-batches do not divide into groups of 2 ranks"):
        pipeline_schedule(2, 5, 2)
