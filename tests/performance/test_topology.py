import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.performance.topology import (
    Dragonfly,
    FatTree,
    FullyConnected,
    Ring,
    Torus,
    dragonfly_groups,
    dragonfly_nodes,
    fat_tree_nodes,
    fat_tree_switches,
)
from gradients import check_grads

TORUS = Torus(dimensions=3)
DRAGONFLY = Dragonfly(routers_per_group=16, global_links=8, hosts_per_router=8)
EVERY = pytest.mark.parametrize("topology", [Ring(), TORUS, FatTree(), DRAGONFLY, FullyConnected()], ids=repr)


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


def test_ring_against_breadth_first_search():
    n = 12
    hops = hops_in_graph(lambda node: [(node - 1) % n, (node + 1) % n], n)
    np.testing.assert_allclose(Ring().diameter(12.0), hops.max())
    np.testing.assert_allclose(Ring().mean_hops(12.0), hops.mean())


def test_torus_against_breadth_first_search():
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
    np.testing.assert_allclose(TORUS.diameter(64.0), hops.max())
    np.testing.assert_allclose(TORUS.mean_hops(64.0), hops.mean())


def test_fat_tree_mean_hops_against_counting():
    k = 8
    n = k**3 // 4
    host = np.arange(n)
    edge, pod = host // (k // 2), host // (k**2 // 4)
    same = (host[:, None] == host, edge[:, None] == edge, pod[:, None] == pod)
    hops = np.select(same, (0, 2, 4), 6)
    np.testing.assert_allclose(FatTree().mean_hops(float(n)), hops.mean(), rtol=1e-12)
    np.testing.assert_allclose(FatTree().diameter(float(n)), hops.max())


def test_dragonfly_mean_hops_against_counting():
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
                total += 0 if source == target else 2 + (r != q)
            else:
                out, into = (y - x) % g - 1, (x - y) % g - 1
                total += 3 + (r != out) + (q != into)
    np.testing.assert_allclose(small.mean_hops(float(n)), total / n**2, rtol=1e-12)


def test_table_of_integer_examples():
    # docs/physics.md B7
    np.testing.assert_allclose(TORUS.links_per_node(4096.0), 3)
    np.testing.assert_allclose(FatTree().diameter(8192.0), 6)
    np.testing.assert_allclose(FatTree().links_per_node(8192.0), 3)
    np.testing.assert_allclose(FatTree().switches(8192.0), 1280, rtol=1e-12)
    np.testing.assert_allclose(DRAGONFLY.diameter(16512.0), 3)
    np.testing.assert_allclose(DRAGONFLY.groups(16512.0), 129)
    np.testing.assert_allclose(
        [Ring().diameter(16.0), Ring().bisection_links(16.0), Ring().links_per_node(16.0), Ring().mean_hops(16.0)],
        [8, 2, 1, 4],
    )
    full = FullyConnected()
    np.testing.assert_allclose(
        [full.diameter(8.0), full.bisection_links(8.0), full.links_per_node(8.0), full.mean_hops(8.0)], [2, 4, 1, 1.75]
    )


def test_a_ring_is_a_torus_of_one_dimension():
    line = Torus(dimensions=1)
    for name in ("diameter", "bisection_links", "mean_hops", "links_per_node"):
        np.testing.assert_allclose(getattr(line, name)(64.0), getattr(Ring(), name)(64.0), rtol=1e-12)


def test_largest_sizes_are_consistent():
    np.testing.assert_allclose(FatTree().radix(fat_tree_nodes(48.0)), 48, rtol=1e-12)
    np.testing.assert_allclose(FatTree().switches(fat_tree_nodes(48.0)), fat_tree_switches(48.0), rtol=1e-12)
    np.testing.assert_allclose(DRAGONFLY.groups(dragonfly_nodes(16.0, 8.0, 8.0)), dragonfly_groups(16.0, 8.0))


def test_dragonfly_bisection_is_continuous_at_two_groups():
    below, at, above = (float(DRAGONFLY.bisection_links(256.0 * (1 + e))) for e in (-1e-9, 0.0, 1e-9))
    np.testing.assert_allclose([below, above], at, rtol=1e-8)
    # two groups of 128 nodes, all 128 global links of a group between them
    np.testing.assert_allclose(at, 128)


@EVERY
def test_values_are_sensible_at_any_size(topology):
    nodes = jnp.asarray([1.0, 2.0, 7.5, 64.0, 129.0, 1e4, 1e6])
    for name in ("diameter", "bisection_links", "mean_hops", "links_per_node"):
        value = getattr(topology, name)(nodes)
        assert value.shape == nodes.shape
        assert np.all(np.isfinite(value)), name
        assert np.all(value >= 0), name
    assert np.all(topology.bisection_links(nodes) > 0)
    assert np.all(topology.mean_hops(nodes[3:]) <= topology.diameter(nodes[3:]) + 2)


@EVERY
@pytest.mark.parametrize("nodes", [1.0, 100.0, 5e3])
def test_gradients(topology, nodes):
    def everything(nodes, topology):
        return sum(
            getattr(topology, name)(nodes) / 100
            for name in ("diameter", "bisection_links", "mean_hops", "links_per_node")
        )

    check_grads(everything, (jnp.asarray(nodes), jax.tree.map(jnp.asarray, topology)), order=1, rtol=1e-5)
    for function in (fat_tree_nodes, fat_tree_switches):
        check_grads(function, (jnp.asarray(3.0),), order=1)
    check_grads(dragonfly_groups, (jnp.asarray(3.0), jnp.asarray(2.0)), order=1)
    check_grads(dragonfly_nodes, (jnp.asarray(3.0), jnp.asarray(2.0), jnp.asarray(2.0)), order=1)
