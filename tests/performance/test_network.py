"""Links, collectives and topologies: by hand, against counting, in their limits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energymodel.performance import collectives
from energymodel.performance.network import Link, contended_bandwidth
from energymodel.performance.switch_topologies import Dragonfly, FatTree, dragonfly_groups, dragonfly_nodes
from energymodel.performance.topology import FullyConnected, Torus
from gradients import check_grads

# NVLink 4 of an H100: 18 links of 25 GB/s per direction; protocol and efficiency of docs/physics.md B3 and B7.
NVLINK = Link(
    lanes=18,
    lane_bandwidth=25e9,
    payload=256,
    overhead=16,
    coding=1,
    efficiency=0.68,
    latency=5e-6,
    energy=5e-12,
    lane_power=1.5,
)


def test_links_by_hand():
    # 18 * 25e9 * 256/272 * 0.68 = 450e9 * 0.64 = 288e9
    np.testing.assert_allclose(NVLINK.bandwidth(), 288e9, rtol=1e-12)
    np.testing.assert_allclose(NVLINK.power(), 27.0, rtol=1e-12)
    # 8e9 bit * 5 pJ
    np.testing.assert_allclose(NVLINK.transfer_energy(1e9), 0.04, rtol=1e-12)
    gradient = jax.grad(lambda link: link.bandwidth() / 1e9 + link.power())(jax.tree.map(jnp.asarray, NVLINK))
    assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(gradient))
    # Bandwidth and power are both proportional to the lanes.
    np.testing.assert_allclose(gradient.lanes, (288 + 27) / 18, rtol=1e-12)
    wide = eqx.tree_at(lambda link: (link.lanes, link.included_lanes, link.lane_price), NVLINK, (20.0, 18.0, 100.0))
    np.testing.assert_allclose([wide.power(), wide.price()], [2 * 1.5, 2 * 100.0])


@given(injection=st.floats(1.0, 100.0), links=st.floats(1.0, 4096.0), exponent=st.floats(1.0, 64.0))
def test_contended_bandwidth_is_below_both_limits_by_at_most_the_stated_share(injection, links, exponent):
    limit = min(injection, 2 * links * 50.0 / 4096)
    reached = float(contended_bandwidth(injection, links, 50.0, 4096.0, exponent))
    assert limit * 2 ** (-1 / exponent) * (1 - 1e-12) <= reached <= limit * (1 + 1e-12)


def ring(n, size, latency, bandwidth, passes):
    """A ring in which every rank waits for each other and sends its part n - 1 times, in each pass."""
    return passes * (n - 1.0) * (latency + size / n / bandwidth)


@given(n=st.floats(1.0, 1e5), size=st.floats(0.0, 1e11), passes=st.sampled_from([1.0, 2.0]))
def test_a_hierarchy_of_one_level_is_the_flat_ring(n, size, passes):
    expected = ring(n, size, 5e-6, 5e10, passes)
    for levels in ((n, 1.0), (1.0, n)):
        time = collectives.hierarchical_transfer_time(*levels, size, 5e10, 5e10, passes)
        time += collectives.hierarchical_latency(*levels, 5e-6, 5e-6, passes)
        np.testing.assert_allclose(time, expected, rtol=1e-12, atol=1e-18)


def test_trees_win_with_small_messages_and_a_single_chip_takes_no_time():
    def time(nodes, size, tree):
        transfer = collectives.hierarchical_transfer_time(1.0, nodes, size, 5e10, 5e10, tree=tree)
        return transfer + collectives.hierarchical_latency(1.0, nodes, 5e-6, 5e-6, tree=tree)

    assert time(1024.0, 1e4, True) < time(1024.0, 1e4, False)
    assert time(16.0, 1e11, False) < time(16.0, 1e11, True)

    def alone(*numbers):
        inner, outer, size, slow, narrow, far, wide = numbers
        transfer = collectives.hierarchical_transfer_time(inner, outer, size, narrow, wide)
        return transfer + collectives.hierarchical_latency(inner, outer, slow, far)

    arguments = tuple(map(jnp.asarray, (1.0, 1.0, 1e9, 5e-6, 3.6e11, 1e-5, 4.5e10)))
    assert alone(*arguments) == 0
    assert np.all(np.isfinite(jax.grad(alone, argnums=tuple(range(7)))(*arguments)))


MEASURED = collectives.CollectiveLibrary(5e-6, 2e-5, 0.35, 0.4, 0.64)


def in_node(n, size, latency=8e-7, bandwidth=3.6e11, library=MEASURED, passes=1.0, fused=1.0):
    return collectives.node_collective_time(n, size, latency, bandwidth, library, passes, fused)


@given(n=st.floats(1.0, 100.0), size=st.floats(1.0, 1e10), passes=st.sampled_from([1.0, 2.0]))
def test_measured_collectives_take_longer_with_ranks_and_size(n, size, passes):
    time = float(in_node(n, size, passes=passes))
    assert 0 <= time <= float(in_node(n * 1.1, size, passes=passes)) * (1 + 1e-12)
    assert time < float(in_node(n + 1.0, size * 1.1, passes=passes))


@given(n=st.floats(1.0, 100.0), size=st.floats(0.0, 1e10))
def test_without_what_libraries_add_the_law_is_that_of_rings(n, size):
    plain = collectives.CollectiveLibrary()
    for passes in (1.0, 2.0):
        time = in_node(n, size, 1e-6, 3e11, plain, passes=passes)
        np.testing.assert_allclose(time, ring(n, size, 1e-6, 3e11, passes), rtol=1e-12)


def test_collectives_of_libraries_in_their_limits():
    np.testing.assert_allclose(in_node(8.0, 0.0), 5e-6 + 7 * 8e-7, rtol=1e-12)
    np.testing.assert_allclose(in_node(8.0, 1e12), 7.4 / 8 * 1e12 / 3.6e11, rtol=1e-4)
    ring = MEASURED.__class__(5e-6, 2e-5, 0.35, 0.4, 0.0)
    assert in_node(8.0, 1e9, passes=2.0) < in_node(8.0, 1e9, passes=2.0, library=ring)
    np.testing.assert_allclose(in_node(2.0, 1e9, passes=2.0), in_node(2.0, 1e9, passes=2.0, library=ring), rtol=1e-12)
    # Two collectives cannot be added by switches on their way.
    np.testing.assert_allclose(in_node(8.0, 1e9, passes=2.0, fused=0.0), 2 * in_node(8.0, 1e9), rtol=1e-12)


@pytest.mark.parametrize("n", [1.0, 1.5, 3.0, 6.0, 12.0])
def test_gradients_of_measured_collectives(n):
    arguments = tuple(map(jnp.asarray, (n, 2.0, 0.3, 1.5)))
    law = lambda *numbers: in_node(*numbers, library=collectives.CollectiveLibrary(0.1, 0.7, 0.4, 0.3, 0.6))  # noqa: E731
    assert np.all(np.isfinite(jax.grad(law, argnums=(0, 1, 2, 3))(*arguments)))


RING, TORUS = Torus(dimensions=1), Torus(dimensions=3)
TREE = FatTree(radix=32, pod=256)
POD, RATIO = 3072.0, 7.0
PODS = FatTree(radix=64, pod=POD, oversubscription=RATIO)  # Llama team 2024, sec. 3.3.1
DRAGONFLY = Dragonfly(routers_per_group=16, global_links=8, hosts_per_router=8)
EVERY = pytest.mark.parametrize("topology", [RING, TORUS, TREE, PODS, DRAGONFLY, FullyConnected()], ids=repr)


def switches(tree, nodes):
    """Switches whose ports are all in use."""
    return tree.at(float(nodes)).switch_ports * nodes / tree.radix


def hops_in_graph(neighbors, nodes):
    """Hops between all pairs of nodes of a small graph, by breadth-first search."""
    hops = np.full((nodes, nodes), -1)
    for start in range(nodes):
        front, distance = {start}, 0
        while front:
            for node in front:
                hops[start, node] = distance
            front = {n for node in front for n in neighbors(node) if hops[start, n] < 0}
            distance += 1
    return hops


def test_ring_and_torus_against_breadth_first_search():
    n = 12
    hops = hops_in_graph(lambda node: [(node - 1) % n, (node + 1) % n], n)
    np.testing.assert_allclose(RING.at(12.0).mean_switches, hops.mean())
    a = 4

    def neighbors(node):
        x, y, z = node // a**2, node // a % a, node % a
        for step in (-1, 1):
            yield from (
                (x + step) % a * a**2 + y * a + z,
                x * a**2 + (y + step) % a * a + z,
                x * a**2 + y * a + (z + step) % a,
            )

    hops = hops_in_graph(neighbors, a**3)
    np.testing.assert_allclose(TORUS.at(64.0).mean_switches, hops.mean())


def test_switches_on_the_way_of_a_fat_tree_against_counting():
    k = 8
    n = k**3 // 4
    host = np.arange(n)
    edge, pod = host // (k // 2), host // (k**2 // 4)
    same = (host[:, None] == host, edge[:, None] == edge, pod[:, None] == pod)
    hops = np.select(same, (0, 2, 4), 6)
    tree = FatTree(radix=k, pod=k**2 // 4)
    # Six links pass five switches: one less than links between different nodes.
    np.testing.assert_allclose(tree.at(float(n)).mean_switches, np.where(hops > 0, hops - 1, 1).mean(), rtol=1e-12)


@pytest.mark.parametrize("nodes", [8, 16, 32, 128, 192, 256])
def test_links_and_switches_of_trees_that_are_built(nodes):
    """Trees of 8-port switches, counted switch by switch."""
    k, pod = 8, 16
    leaves = 1 if nodes <= k else nodes // (k // 2)
    up = 0 if leaves == 1 else nodes  # links from leaf to spine
    top = nodes if nodes > k * k // 2 else 0
    spines = -(-up // (k // 2 if top else k))
    cores = top // k
    tree = FatTree(radix=k, pod=pod)
    if nodes in (8, 16, 32, 128):  # sizes that fill a tier
        np.testing.assert_allclose(switches(tree, nodes), leaves + spines + cores)
    np.testing.assert_allclose(tree.at(float(nodes)).links_per_node * nodes, nodes + up + top)
    np.testing.assert_allclose(switches(tree, nodes) * k, nodes + 2 * up + 2 * top)  # ports in use


def test_pods_of_the_llama_3_cluster_and_tiers_without_a_jump():
    # 24,576 chips in 8 pods of 3,072, joined at 1:7: 2 + 1/7 links a chip, both ends but the chip's are ports.
    np.testing.assert_allclose(PODS.at(24576.0).links_per_node, 2 + 1 / 7)
    np.testing.assert_allclose(PODS.at(24576.0).switch_ports, 3 + 2 / 7)
    np.testing.assert_allclose(PODS.at(24576.0).bisection_links, 12288 / 7)
    np.testing.assert_allclose([PODS.at(24576.0).domain, PODS.at(POD).domain], POD)
    # A pod by itself has no third tier and is not oversubscribed.
    np.testing.assert_allclose([PODS.at(POD).links_per_node, PODS.at(POD).bisection_links], [2, POD / 2])
    np.testing.assert_allclose(np.asarray([PODS.most_nodes, TREE.most_nodes]), np.asarray([64 * POD, 8192.0]))
    for at in (32.0, 512.0, 64.0, 1024.0):  # where a tier begins, and where it is complete
        for name in ("switch_ports", "mean_switches", "bisection_links", "links_per_node"):
            below, above = (float(getattr(TREE.at(at * (1 + e)), name)) for e in (-1e-9, 1e-9))
            np.testing.assert_allclose(below, above, rtol=1e-6, err_msg=f"{name} at {at}")


def test_routers_on_the_way_of_a_dragonfly_against_counting():
    # a = 4 routers, h = 1 global link each: g = 5 groups, router r of group x leads to group (x + r + 1) mod 5.
    a, p, g = 4, 2, 5
    small = Dragonfly(routers_per_group=a, global_links=1, hosts_per_router=p)
    n = a * p * g
    total = 0
    for source in range(n):
        x, r = source // (a * p), source // p % a
        for target in range(n):
            y, q = target // (a * p), target // p % a
            if x == y:
                total += 1 + (r != q)
            else:
                out, into = (y - x) % g - 1, (x - y) % g - 1
                total += 2 + (r != out) + (q != into)
    np.testing.assert_allclose(small.at(float(n)).mean_switches, total / n**2, rtol=1e-12)


def test_table_of_integer_examples():
    # docs/physics.md B7
    np.testing.assert_allclose(TORUS.at(4096.0).links_per_node, 3)
    np.testing.assert_allclose(TREE.at(8192.0).links_per_node, 3)
    np.testing.assert_allclose(switches(TREE, 8192.0), 1280, rtol=1e-12)
    np.testing.assert_allclose(TREE.at(8192.0).bisection_links, 4096)
    np.testing.assert_allclose(DRAGONFLY.groups(16512.0), 129)
    ring, full = RING.at(16.0), FullyConnected().at(8.0)
    np.testing.assert_allclose([ring.bisection_links, ring.links_per_node, ring.mean_switches], [2, 1, 4])
    np.testing.assert_allclose([full.bisection_links, full.links_per_node, full.mean_switches], [4, 1, 1])
    tree = FatTree(radix=48, pod=24 * 24)
    # A full tree of k-port switches: k^3 / 4 nodes, 5 k^2 / 4 switches [Al-Fares et al. 2008, sec. 3].
    np.testing.assert_allclose(switches(tree, 48.0**3 / 4.0), 5.0 * 48.0**2 / 4.0, rtol=1e-12)
    # Routers of 8 hosts, 15 local and 8 global links: 31 ports for 8 nodes, of which paths pass up to four.
    np.testing.assert_allclose(DRAGONFLY.at(16512.0).switch_ports, 31 / 8)
    assert 3.0 < DRAGONFLY.at(16512.0).mean_switches < 4.0
    np.testing.assert_allclose(DRAGONFLY.groups(dragonfly_nodes(16.0, 8.0, 8.0)), dragonfly_groups(16.0, 8.0))
    # 64 chips of 8 lanes take two ports each, of 2 lanes half a port: 128 and 32 ports of a 32-port switch.
    np.testing.assert_allclose([TREE.node_count(64.0, 8.0, w) for w in (8.0, 4.0, 2.0)], [128, 64, 32])
    np.testing.assert_allclose(TREE.at(TREE.node_count(64.0, 8.0, 2.0)).switch_ports, 1)
    np.testing.assert_allclose(TREE.at(TREE.node_count(64.0, 8.0, 4.0)).switch_ports, 3)
    np.testing.assert_allclose([TORUS.node_count(64.0, 8.0, 4.0), DRAGONFLY.node_count(64.0, 8.0, 4.0)], [8, 64])


@EVERY
def test_values_are_sensible_at_any_size(topology):
    nodes = jnp.asarray([1.0, 2.0, 7.5, 64.0, 129.0, 1e4, 1e6])
    shape = topology.at(nodes)
    for name, value in shape._asdict().items():
        assert value.shape == nodes.shape
        assert np.all(np.isfinite(value)), name
        assert name == "added_latency" or np.all(value >= 0), name
    assert np.all(shape.bisection_links > 0)


@EVERY
@pytest.mark.parametrize("nodes", [1.0, 100.0, 5e3])
def test_gradients(topology, nodes):
    def everything(nodes, topology):
        return sum(part / 100 for part in topology.at(nodes)[:4])

    check_grads(everything, (jnp.asarray(nodes), jax.tree.map(jnp.asarray, topology)), order=1, rtol=1e-5)
