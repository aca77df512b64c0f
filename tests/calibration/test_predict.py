"""Step times of tables of layouts against measurements, and monotonicity of their terms."""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.calibration.layout_table import inputs_of, layouts
from energymodel.calibration.step_prediction import predict, predict_row, with_constants
from energymodel.errors import InputError
from energymodel.performance.collectives import CollectiveLibrary

ROW = {
    "cluster": "megatron-a100",
    "model": "megatron-175b",
    "chips": 64,
    "batch_sequences": 64,
    "tensor": 8,
    "pipeline": 8,
    "virtual_stages": 3,
    "recomputation": "selective",
}
CLUSTER = "megatron-a100"


@pytest.fixture(scope="module")
def system():
    return cluster_scenario(CLUSTER).system


@pytest.fixture(scope="module")
def run():
    return jax.jit(predict_row)


def columns(**changes):
    table = layouts([{**ROW, **changes}])
    return {name: values[0] for name, values in inputs_of(table).items()}


def test_a_row_has_the_measured_step_time_within_eight_percent():
    """Korthikanti et al. 2022, table 5: 13.75 s for 175B with selective recomputation, 18.13 s with full."""
    answers = predict([ROW, {**ROW, "recomputation": "full", "sequence_parallel": 0}])
    np.testing.assert_allclose(answers.table()["step_time_s"], [13.75, 18.13], rtol=0.08)


def test_terms_add_up_and_tokens_per_second_follow():
    table = predict([ROW]).table()
    terms = [name for name in table if name.endswith("_s") and not name.startswith(("step_time_", "tokens_"))]
    np.testing.assert_allclose(sum(table[name] for name in terms), table["step_time_s"], rtol=1e-12)
    np.testing.assert_allclose(table["tokens_per_s"] * table["step_time_s"], 64 * 2048, rtol=1e-12)


RATES = ("accelerator.peak_flops", "accelerator.memory_bandwidth")
RATES += ("node.scale_up.lane_bandwidth", "network.link.lane_bandwidth")
DELAYS = ("accelerator.launch_overhead", "accelerator.overhead_time", "accelerator.product_latency")
DELAYS += ("node.scale_up.latency", "network.link.latency", "software.collective_latency", "software.microbatch_time")
DELAYS += ("node.collectives.start_latency", "node.collectives.protocol_latency")
FASTER = dict.fromkeys(RATES, 2.0) | dict.fromkeys(DELAYS, 0.5)
"""Factors of rates and of delays."""


def scaled(system, factors):
    """The system with numbers at dotted paths multiplied."""
    values = {path: factor * reduce(getattr, path.split("."), system) for path, factor in factors.items()}
    return with_constants(system, values)


@pytest.mark.parametrize("path", FASTER)
def test_a_faster_part_never_slows_a_step(path, system, run):
    faster = scaled(system, {path: FASTER[path]})
    for row in (columns(), columns(microbatch=4, tensor=4, zero=3, pipeline=1)):
        assert run(faster, row).step_time.total <= run(system, row).step_time.total * (1.0 + 1e-12)


def test_twice_every_rate_and_half_every_delay_halve_the_step(system, run):
    fast, slow = (run(cluster, columns()).step_time.total for cluster in (scaled(system, FASTER), system))
    np.testing.assert_allclose(fast, 0.5 * slow, rtol=1e-9)


def test_narrower_products_are_never_slower(run):
    system = cluster_scenario("megatron-bridge-b200").system  # the one here multiplies in fp8 and fp4
    times = [run(system, columns(**change)).step_time.total for change in ({}, {"fp8": 1}, {"fp4": 1})]
    assert times[0] >= times[1] >= times[2]


def test_more_copies_of_a_token_take_longer(system, run):
    mixture = {"experts": 64, "feed_forward": 2048, "expert": 8, "shared_experts": 0}
    fewer, more = (run(system, columns(**mixture, active_experts=k)).step_time for k in (4, 8))
    assert more.memory > fewer.memory
    assert more.expert > fewer.expert
    assert more.total > fewer.total


@pytest.mark.parametrize(
    "change", [{"tensor": 4}, {"pipeline": 4, "chips": 32}, {"zero": 0}, {"zero": 1}, {"zero": 2}], ids=str
)
def test_memory_falls_with_every_sharding_degree(change, system, run):
    base = {"zero": 3, "virtual_stages": 1, "chips": 128}
    sharded = run(system, columns(**base)).memory
    assert run(system, columns(**{**base, **change})).memory > sharded


def test_all_reduced_gradients_are_sent_both_ways(system, run):
    """4 bytes of gradients beside 2 of weights: 4 + 4 instead of 2 + 2 without ZeRO, 4 + 2 with it."""
    latencies = (
        "node.scale_up.latency",
        "network.link.latency",
        "software.collective_latency",
        "software.data_overlap",
    )
    instant = with_constants(system, {**dict.fromkeys(latencies, 0.0), "node.collectives": CollectiveLibrary()})
    narrow, wide = (with_constants(instant, {"software.communicated_bytes": size}) for size in (2.0, 4.0))
    for zero, ratio in ((0, 2.0), (1, 1.5)):
        row = columns(chips=512, zero=zero)
        np.testing.assert_allclose(run(wide, row).step_time.data / run(narrow, row).step_time.data, ratio, rtol=1e-9)


@pytest.mark.parametrize(
    ("layout", "hidden"), [({"zero": 0}, 0.1), ({"zero": 1}, 0.0), ({"pipeline": 2}, 0.0)], ids=str
)
def test_late_gradients_do_not_hide(layout, hidden, system, run):
    row = columns(chips=512, batch_sequences=4096, **{"pipeline": 1, "virtual_stages": 1, "zero": 0, **layout})
    times = [
        run(with_constants(system, {"software.data_overlap": share, "software.late_communication": late}), row)
        for share, late in ((0.1, 1.0), (0.0, 0.0))
    ]
    np.testing.assert_allclose(times[0].step_time.data, (1.0 - hidden) * times[1].step_time.data, rtol=1e-9)


def test_parallel_blocks_share_their_all_reduces(system, run):
    """Attention and feed-forward block that run in parallel: two all-reduces a layer instead of four."""
    alone, shared = (run(system, columns(parallel_block=block)).step_time.tensor for block in (0, 1))
    np.testing.assert_allclose(shared, alone / 2.0, rtol=1e-9)


def test_windows_shorten_attention_and_change_nothing_where_they_reach_everything(system, run):
    """The steps of layers with a window of 2048 tokens at 2,048 and 16,384 tokens."""
    long = {"sequence": 16384, "batch_sequences": 8, "flash": 1}
    full, windows, halves, wide = (
        run(system, columns(**long, local_layers=share, window=window)).step_time.compute
        for share, window in ((0, 0), (1, 2048), (0.5, 2048), (1, 16384))
    )
    np.testing.assert_allclose(wide, full, rtol=1e-9)
    assert windows < halves < full


@pytest.mark.parametrize(("tensor", "resident"), [(1, 0.0), (8, 100.0 * 2048 * 12288)])
def test_buffers_of_gathered_inputs_stay_whole(tensor, resident, system, run):
    """100 bytes for each of 2,048 tokens and 12,288 hidden units of Megatron's 175B, not divided."""
    keeping = with_constants(system, {"software.gather_buffers": 100.0})
    row = columns(tensor=tensor)
    added = run(keeping, row).memory - run(system, row).memory
    np.testing.assert_allclose(added, resident * system.software.memory_overhead, rtol=1e-6)


def test_wider_products_are_slower_and_need_more_memory(system, run):
    """FP32 keeps 4 + 4 + 8 bytes of a parameter, mixed precision 2 + 4 + 12, and activations are twice as wide."""
    sixteen, tf32, fp32 = (run(system, columns(**wide)) for wide in ({}, {"tf32": 1}, {"fp32": 1}))
    assert sixteen.step_time.total < tf32.step_time.total < fp32.step_time.total
    assert sixteen.memory < tf32.memory
    np.testing.assert_allclose(tf32.memory, fp32.memory, rtol=1e-12)
    # The share of the peak of the own precision hardly changes where arithmetic takes the time.
    np.testing.assert_allclose(fp32.mfu, sixteen.mfu, rtol=0.35)


@pytest.mark.parametrize("what", ["parameters", "gradients", "optimizer", "activations"])
def test_offload_saves_memory_and_costs_time(what, system, run):
    row = {"chips": 128, "zero": 0}
    resident, offloaded = (run(system, columns(**row, **{f"offload_{what}": share})) for share in (0, 1))
    assert offloaded.memory < resident.memory
    assert offloaded.step_time.total >= resident.step_time.total
    slow = with_constants(system, {"node.host_bandwidth": 1e8})
    assert run(slow, columns(**row, **{f"offload_{what}": 1})).step_time.total > 1.1 * resident.step_time.total


def test_what_lives_on_the_host_together_is_not_copied(system, run):
    """Optimizer, gradients and parameters on the host: the passes fetch, but no copy follows the update."""
    slow = with_constants(system, {"node.host_bandwidth": 1e8})
    apart, together = (
        run(slow, columns(zero=0, offload_optimizer=1, offload_gradients=share, offload_parameters=share)).step_time
        for share in (0, 1)
    )
    assert apart.optimizer > 1e3 * together.optimizer
    assert together.host > apart.host


def test_small_exchanges_take_a_tree_and_large_ones_a_ring(system, run):
    """Two halves of log2(64) = 6 instead of 63 latencies, against 1 - 1/64 of the bytes."""
    row, exposed = (
        columns(chips=4096, batch_sequences=4096, zero=0),
        with_constants(system, {"software.data_overlap": 0.0}),
    )
    small, large = (
        [
            run(with_constants(exposed, {"software.tree": tree, "network.link.latency": latency}), row).step_time.data
            for tree in (0.0, 1.0)
        ]
        for latency in (0.1, 1e-9)
    )
    assert small[1] < 0.25 * small[0]
    np.testing.assert_allclose(large[1], large[0], rtol=1e-12)


@pytest.mark.slow
def test_time_and_memory_are_differentiable(system):
    def total(row):
        prediction = predict_row(system, row)
        return prediction.step_time.total + 1e-9 * prediction.memory

    slopes = jax.jit(jax.grad(total))({name: jnp.asarray(value) for name, value in columns().items()})
    assert all(np.isfinite(slope) for slope in slopes.values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tensor": 0.5}, ["line 2", "tensor", "0.5"]),
        ({"chips": 8}, ["line 2", "8 chips", "64"]),
        ({"zero": 4}, ["ZeRO", "4"]),
        ({"offload_parameters": 2}, ["line 2", "offload_parameters", "2", "at most 1"]),
        ({"tf32": 0.5, "fp8": 0.7}, ["line 2", "tf32", "1.2"]),
        ({"model": "megatron-176b"}, ["megatron-175b"]),
        ({"local_layers": 0.5}, ["line 2", "window", "0.5"]),
        ({"ssm_layers": 24}, ["ssm_layers", "state_layers", "config.json"]),
        ({"kv_rank": 512, "value_head_size": 128, "rope_head_size": 192}, ["line 2", "rope_head_size", "192"]),
        ({"cluster": "megatron-a10"}, ["megatron-a100"]),
        ({"recomputation": "some"}, ["recomputation", "some"]),
        ({"pipelin": 2}, ["pipelin", "pipeline"]),
        ({"microbatch": "two"}, ["microbatch", "two"]),
    ],
    ids=str,
)
def test_bad_rows_are_named(change, words):
    with pytest.raises(InputError) as raised:
        predict([{**ROW, **change}])
    assert all(word in str(raised.value) for word in words)
