"""Times of overlaps, asynchronous collectives and kinds of context parallelism by their definitions."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.calibration.layout_table import OF_CLUSTER
from energymodel.calibration.step_prediction import predict_row
from energymodel.errors import InputError
from energymodel.performance.collectives import CollectiveLibrary, Communication, Fabric, node_collective_time
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.communication import LayerCommunication, exposed_communication
from energymodel.system.plan import ParallelLayout
from gradients import interpreted
from outcomes import prediction, replaced, row_inputs

ROW = {
    "cluster": "torchtitan-h100",
    "model": "llama-3.1-70b",
    "chips": 256,
    "batch_sequences": 512,
    "sequence": 8192,
    "tensor": 8,
    "microbatch": 16,
    "zero": 3,
}
MIXTURE = {"experts": 64, "active_experts": 8, "feed_forward": 4096, "expert": 16, "tensor": 1}


@pytest.fixture(scope="module")
def system():
    return cluster_scenario("torchtitan-h100").system


columns = partial(row_inputs, ROW)


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    scenario = load_scenario("llama-3.1-405b-h100")
    return scenario.system.links(scenario.plan.chips).fabric


@pytest.mark.parametrize("name", [column.name for column in OF_CLUSTER])
def test_a_column_replaces_the_number_of_the_cluster(name, system):
    changes = {**MIXTURE, "pipeline": 2, "context": 2, "tensor": 2, "fp8": 1}
    own = prediction(system, columns(**changes)).step_time.total
    there = prediction(replaced(system, {f"software.{name}": 0.75}), columns(**changes)).step_time.total
    here = prediction(system, columns(**changes, **{name: 0.75})).step_time.total
    np.testing.assert_allclose(here, there, rtol=1e-12)
    assert abs(float(here / own) - 1.0) > 1e-6


@pytest.mark.parametrize(
    ("zero", "bucket", "other"),
    [(0, "unsharded_bucket_size", "bucket_size"), (1, "bucket_size", "unsharded_bucket_size")],
)
def test_each_bucket_of_gradients_costs_the_latency_of_a_collective(system, zero, bucket, other):
    def time(**sizes):
        software = {f"software.{name}": size for name, size in sizes.items()}
        return float(prediction(replaced(system, software), columns(zero=zero, data_overlap=0)).step_time.data)

    whole = time(**{bucket: 1e21, other: 1e6})
    latency = time(**{bucket: 1e9, other: 1e21}) - whole
    assert latency > 0.0
    np.testing.assert_allclose(time(**{bucket: 1e9 / 3.0}) - whole, 3.0 * latency, rtol=1e-9)


@pytest.mark.parametrize("value", [1.5, -0.1])
def test_an_impossible_overlap_is_named(value):
    with pytest.raises(InputError, match="tensor_overlap"):
        columns(tensor_overlap=value)


def test_fewer_heads_than_chips_are_refused():
    with pytest.raises(InputError, match="divides 64 heads over tensor x context = 128 chips"):
        columns(context=16, context_all_to_all=1)


def test_full_overlap_hides_all_and_asynchronous_collectives_all_parts_but_one(system):
    time = prediction(system, columns(**MIXTURE, expert_overlap=1, data_overlap=1)).step_time
    assert time.expert == 0.0
    assert prediction(system, columns(tensor_overlap=1)).step_time.tensor == 0.0
    np.testing.assert_allclose(hidden(8.0, 10.0), 7 / 8 * 3.0, rtol=1e-12)
    np.testing.assert_allclose(hidden(8.0, 2.0), 7 / 8 * 2.0, rtol=1e-12)
    assert hidden(1.0, 10.0) == 0.0


def hidden(tensor, products, transfer=3.0, latency=0.5):
    numbers = {"async_efficiency": 1.0, "tensor_overlap": 0.0, "latency_overlap": 0.0}
    software = replaced(cluster_scenario("torchtitan-h100").system.software, numbers)
    none = Communication(*map(jnp.asarray, (0.0, 0.0, 0.0, 0.0)))
    sent = Communication(*map(jnp.asarray, (transfer + latency, 0.0, 0.0, latency)))
    result = [
        exposed_communication(
            software,
            ParallelLayout(tensor=tensor, async_tensor=switch),
            LayerCommunication(sent, none, none),
            products,
            0.0,
        )
        for switch in (0.0, 1.0)
    ]
    return float(result[0].tensor - result[1].tensor)


@pytest.mark.parametrize(("turned", "attention", "exposed"), [(0.0, 10.0, 0.6), (0.0, 2.0, 1.8), (1.0, 10.0, 3.0)])
def test_a_ring_hides_behind_attention_of_the_keys_at_hand(turned, attention, exposed):
    """Behind three of four steps of attention, 0.8 of which it uses; an all-to-all waits for all heads."""
    software = replaced(cluster_scenario("torchtitan-h100").system.software, {"context_overlap": 0.8})
    none, sent = (Communication(*map(jnp.asarray, (time, 0.0, 0.0, 0.0))) for time in (0.0, 3.0))
    layout = ParallelLayout(context=4.0, context_all_to_all=turned)
    result = exposed_communication(software, layout, LayerCommunication(none, sent, none), 0.0, attention)
    np.testing.assert_allclose(result.context, exposed, rtol=1e-12)


def test_asynchronous_tensor_parallelism_is_faster_and_differentiable(system):
    assert prediction(system, columns(async_tensor=1)).step_time.total < prediction(system, columns()).step_time.total
    point = {name: jnp.asarray(value) for name, value in columns(async_tensor=0.5).items()}
    slopes = interpreted(jax.grad(lambda row: predict_row(system, row).step_time.total))(point)
    assert np.isfinite(slopes["async_tensor"])
    assert slopes["async_tensor"] < 0.0
    assert np.isfinite(slopes["tensor"])


@pytest.mark.parametrize("context", [2, 4, 8])
def test_heads_instead_of_tokens_send_less_than_a_ring_of_whole_keys(context, system):
    """Per chip: 4 (c - 1)/c M h of activations forward, against (c - 1) of keys and values, as wide with 64 heads."""
    at = lambda s: (s.node.collectives, s.node.scale_up.latency, s.software.collective_latency)  # noqa: E731
    system = eqx.tree_at(at, system, (CollectiveLibrary(), 0.0, 0.0))
    row = columns(tensor=1, context=context, context_overlap=0, kv_heads=64, microbatch=context)
    ring, heads = (prediction(system, {**row, "context_all_to_all": kind}).step_time.context for kind in (0.0, 1.0))
    # 8 of M h (c - 1)/c, forward and backward, against three times 2 M h (c - 1): a ratio of 3 c / 4.
    np.testing.assert_allclose(ring / heads, 0.75 * context, rtol=1e-9)


@pytest.mark.parametrize("tensor", [3.0, 6.0, 12.0])
def test_tensor_degrees_that_are_no_power_of_two(tensor, fabric):
    less, at, more = (float(fabric.all_reduce(n, 1.0, 1e8, fused=1.0).time) for n in (tensor - 1, tensor, tensor + 1))
    assert 0.0 < less < at * 1.01 < more * 1.02
    if tensor < 8.0:
        link = fabric.inner_latency, fabric.inner_bandwidth
        alone = node_collective_time(tensor, 1e8, *link, fabric.library, 2.0)
        np.testing.assert_allclose(at, alone + fabric.framework_latency, rtol=1e-12)


def test_nodes_wait_once_for_each_other_and_take_a_token_once(fabric):
    two, three = (fabric.all_to_all(8.0 * nodes, 1.0, 0.0).time for nodes in (2.0, 3.0))
    np.testing.assert_allclose(three - two, fabric.outer_latency, rtol=1e-9)
    each, once = (fabric.all_to_all(16.0, 1.0, 1e8, copies=8.0, once=switch) for switch in (0.0, 1.0))
    # Two nodes: 4 of 8 copies go to the other one, or one, unless all 8 experts are here.
    np.testing.assert_allclose(once.outer_bytes / each.outer_bytes, (1.0 - 0.5**8) / 4.0, rtol=1e-12)
    np.testing.assert_allclose(once.inner_bytes, 7.0 / 8.0 * 1e8, rtol=1e-12)
    assert once.time < each.time


def test_what_a_framework_adds_is_added_to_each_collective(fabric):
    slower = fabric._replace(framework_latency=fabric.framework_latency + 1e-3)
    for fused, collectives in ((1.0, 1.0), (0.0, 2.0)):
        more = slower.all_reduce(8.0, 1.0, 1e8, fused=fused).time - fabric.all_reduce(8.0, 1.0, 1e8, fused=fused).time
        np.testing.assert_allclose(more, 1e-3 * collectives, rtol=1e-6)
    assert slower.all_reduce(1.0, 1.0, 1e8, fused=1.0).time == 0.0
