"""What links, switches and oversubscription cost a run, by hand and in a whole run, for each topology."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.performance.collectives import CollectiveLibrary
from energymodel.performance.switch_topologies import Dragonfly, FatTree, RailOnly
from energymodel.performance.topology import AbstractTopology, Torus
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.training_system import as_designed

LLAMA, MIXTURE = "llama-3.1-405b-h100", "deepseek-v3-h800"
TOPOLOGY = "system.network.topology"
PORT, CABLE = 168.0, 330.0  # USD per lane


def loaded(name, topology=None, scenario=LLAMA, **more):
    own = {} if topology is None else {TOPOLOGY: topology}
    return load_scenario(scenario, {**own, **{f"{TOPOLOGY}.{field}": value for field, value in more.items()}} | name)


def fabric(scenario):
    return scenario.system.links(scenario.plan.chips).fabric._replace(library=CollectiveLibrary())


def test_a_fat_tree_by_name_is_that_of_today_apart_from_its_cables(run):
    """Without oversubscription, with cables that cost nothing and a latency that does not count switches."""
    today = loaded({}, oversubscription=1, pod=1024)
    named = loaded({}, "fat-tree", uplink_lane_price="0 USD", hop_latency="0 s")
    for left, other in zip(*(jax.tree.leaves(run(each.system, each.plan)) for each in (today, named)), strict=True):
        np.testing.assert_array_equal(left, other)


@pytest.mark.parametrize(
    ("topology", "more", "ports", "links"),
    [
        # 16,384 ports: three tiers up to 64 pods of 1,024; five switch ports and two links between switches a chip.
        ("fat-tree", {}, 5.0, 2.0),
        # A quarter of the links from pods: 2 + 1/4 links and 3.5 ports.
        ("fat-tree", {"oversubscription": 4}, 3.5, 1.25),
        # 128 ports of 200 Gbit/s: 32,768 ports, beyond the 8,192 of two tiers: the same in twice as many half as wide.
        ("fat-tree", {"radix": 128, "port_lanes": 2, "pod": 4096}, 5.0, 2.0),
        # Chassis of 128 ports of 400 Gbit/s: 8,192 ports of two tiers, and three switch chips in each switch.
        ("fat-tree", {"radix": 128, "pod": 4096}, 15.0, 2.0),
        # Rails of 2,048 ports, which two tiers of 64-port switches just hold.
        ("rail-only", {}, 3.0, 1.0),
        # Rails of 4,096 ports of 200 Gbit/s: two tiers of 128-port switches hold twice as many.
        ("rail-only", {"radix": 128, "port_lanes": 2}, 3.0, 1.0),
        # Routers of 63 ports for 16 hosts; 47 links of a router are half its own and belong to 16 hosts.
        ("dragonfly", {}, 63.0 / 16.0, 47.0 / 32.0),
        ("torus", {}, 0.0, 0.0),
    ],
)
def test_price_and_power_per_chip_are_those_counted_by_hand(topology, more, ports, links):
    system = loaded({}, topology, **more).system
    with jax.enable_x64(True):
        np.testing.assert_allclose(system.links(16384.0).price, 4.0 * (ports * PORT + links * CABLE), rtol=1e-12)
        np.testing.assert_allclose(system.links(16384.0).power, 4.0 * ports * 4.58, rtol=1e-12)


def test_one_switch_per_rail_needs_no_links_between_switches():
    rails, rail = loaded({}, "rail-only").system, RailOnly()
    with jax.enable_x64(True):
        np.testing.assert_allclose(rails.links(512.0).price, 4.0 * PORT)  # 64 nodes of 8 chips
        np.testing.assert_allclose(rails.network_nodes(512.0), 64.0)
        assert float(FatTree().at(16384.0).switch_ports * 16384.0 / FatTree().radix) == 1280.0
        # Two tiers: 64 + 32 switches of each rail.
        assert float(rail.at(2048.0).switch_ports * 2048.0 / rail.radix * 8.0) == 768.0


def test_links_that_do_not_exist_cost_nothing():
    with jax.enable_x64(True):
        system = load_scenario(LLAMA).system
        power = [float(system.links(chips).power) for chips in (64.0, 2048.0, 24576.0)]
        lane = float(system.network.link.lanes) * float(system.network.switch_lane_power)
    # One switch; leaf and spine; and a top tier with a seventh of the links: 1, 3 and 3 + 2/7 ports a chip.
    np.testing.assert_allclose(np.array(power) / lane, [1.0, 3.0, 3.0 + 2.0 / 7.0])
    with jax.enable_x64(True):
        system = jax.tree.map(jnp.asarray, load_scenario(LLAMA).system)
        power = lambda chips: system.links(chips).power  # noqa: E731
        slope, across = float(jax.grad(power)(4096.0)), float(power(4096.5) - power(4095.5))
    np.testing.assert_allclose(slope, across, rtol=1e-6)
    assert slope > 0.0  # between one pod and two, the top tier grows


def test_traffic_across_rails_passes_the_network_within_the_node():
    with jax.enable_x64(True):
        rails, tree = (fabric(loaded({}, entry, hop_latency="0 s")) for entry in ("rail-only", "fat-tree"))
        size, ranks, nodes = 1e9, 64.0, 8.0
        entry, other = (f.all_to_all(ranks, 1.0, size) for f in (rails, tree))
        far = (1.0 - 1.0 / nodes) * size
        messages = 7.0 / 8.0 * (nodes - 1.0) * float(rails.inner_latency)
        np.testing.assert_allclose(
            entry.time - other.time, 7.0 / 8.0 * far / float(rails.inner_bandwidth) + messages, rtol=1e-6
        )
        np.testing.assert_allclose(entry.inner_bytes - other.inner_bytes, 7.0 / 8.0 * far)
        np.testing.assert_allclose(entry.outer_bytes, other.outer_bytes)
        # A chip of each node: one rail. Tokens that go to each node once are passed on there on any network.
        for stride, once in (8.0, 0.0), (1.0, 1.0):
            times = [float(f.all_to_all(ranks, stride, size, copies=8.0, once=once).time) for f in (rails, tree)]
            np.testing.assert_allclose(*times, rtol=1e-12)
        ring = [float(f.all_reduce(128.0, 1.0, size, fused=1.0).time) for f in (rails, tree)]
        np.testing.assert_allclose(*ring, rtol=1e-12)


def test_tokens_sent_once_have_the_bandwidth_of_their_dispatcher():
    """64 ranks on 8 nodes of 8: of 8 copies 8 (1 - (7/8)^8) / 8 leave, in 7/8 of the bytes."""
    with jax.enable_x64(True):
        plain = fabric(loaded({}, "fat-tree"))._replace(dispatch=1.0)
        faster = plain._replace(dispatch=1.2)
        size = 1e9
        times = [float(f.all_to_all(64.0, 1.0, size, copies=8.0, once=1.0).time) for f in (plain, faster)]
        same = [float(f.all_to_all(64.0, 1.0, size, copies=8.0).time) for f in (plain, faster)]
        sent = 7.0 / 8.0 * (1.0 - (7.0 / 8.0) ** 8) * size / float(plain.outer_bandwidth)
    np.testing.assert_allclose(times[0] - times[1], sent * (1.0 - 1.0 / 1.2), rtol=1e-9)
    np.testing.assert_allclose(*same, rtol=1e-12)


def test_a_mixture_pays_for_rails_unless_tokens_go_to_each_node_once(run):
    once, each = {}, {"system.software.node_dispatch": 0.0}
    times = {
        (name, str(more)): float(run(entry.system, entry.plan).step_time.total)
        for more in (once, each)
        for name in ("fat-tree", "rail-only")
        for entry in (loaded(more, name, MIXTURE),)
    }
    np.testing.assert_allclose(times["rail-only", str(once)], times["fat-tree", str(once)], rtol=1e-4)
    assert times["rail-only", str(each)] > 1.05 * times["fat-tree", str(each)]


def test_oversubscription_acts_on_what_leaves_a_pod_of_a_rail():
    with jax.enable_x64(True):
        narrow, full = (fabric(loaded({}, "rail-only", pod=512, radix=32, oversubscription=o)) for o in (4, 1))
        np.testing.assert_allclose([narrow.domain, narrow.ratio], [4096.0, 4.0])  # 512 nodes of 8 chips
        size = 1e9
        inside = [float(f.all_to_all(512.0, 8.0, size).time) for f in (narrow, full)]
        outside = [float(f.all_to_all(2048.0, 8.0, size).time) for f in (narrow, full)]
    np.testing.assert_allclose(*inside, rtol=1e-12)
    more = (4.0 * (1.0 - 512.0 / 2048.0) - (1.0 - 1.0 / 2048.0)) * size / float(full.outer_bandwidth)
    np.testing.assert_allclose(outside[0] - outside[1], more, rtol=1e-9)


def test_a_torus_has_only_the_links_that_lead_there():
    torus, all_links = Torus(dimensions=3, single_links=1), Torus(dimensions=3)
    with jax.enable_x64(True):
        # 16 x 16 x 16: 512 links of a sixth of a node's bandwidth carry a quarter of what 4,096 nodes send.
        np.testing.assert_allclose(torus.spread_share(4096.0, 4096.0), 512 / 6 / 1024 * (1 - 1 / 4096), rtol=1e-12)
        # 4 x 4 x 4 of them: 16 links, a quarter of what 64 nodes send.
        np.testing.assert_allclose(torus.spread_share(64.0, 4096.0), 16 / 6 / 16 * (1 - 1 / 64), rtol=1e-12)
        np.testing.assert_allclose([torus.ring_share(g, 4096.0) for g in (4096.0, 256.0, 2.0)], [1, 2 / 3, 1 / 3])
        np.testing.assert_allclose(torus.neighbor_share(), 1 / 6)
        for share in (all_links.spread_share(64.0, 4096.0), all_links.ring_share(2.0, 64.0)):
            np.testing.assert_allclose(share, 1.0)


@pytest.mark.parametrize(
    "topology",
    [
        FatTree(radix=48, pod=512, oversubscription=3, hop_latency=2e-7, uplink_lane_price=330),
        RailOnly(radix=72, pod=512, oversubscription=3, hop_latency=2e-7, uplink_lane_price=330),
        Dragonfly(30, 14, 15, hop_latency=2e-7, uplink_lane_price=330),
        Torus(dimensions=3, single_links=0.7, hop_latency=2e-7),
    ],
    ids=lambda tree: type(tree).__name__,
)
def test_gradients_are_those_of_differences(topology):
    """Of price, power and times of collectives, by each number of the topology and by the lanes."""
    scenario = load_scenario(LLAMA)

    case = (jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), topology), jnp.asarray(4.3))

    def everything(shift):
        system = eqx.tree_at(
            lambda tree: (tree.network.topology, tree.network.link.lanes),
            scenario.system,
            jax.tree.map(lambda leaf, by: leaf * (1.0 + by), case, shift),
            is_leaf=lambda tree: isinstance(tree, AbstractTopology),
        )
        result = system.links(scenario.plan.chips).fabric
        times = (
            result.all_to_all(64.0, 1.0, 1e9).time
            + result.all_reduce(512.0, 8.0, 1e9, fused=1.0, pipeline=4.0).time
            + result.ring_pass(16.0, 8.0, 1e8).time
        )
        return system.links(5000.0).price / 1e3 + system.links(5000.0).power / 1e2 + 10.0 * times

    none = jax.tree.map(lambda leaf: jnp.zeros(()), case)
    with jax.enable_x64(True):
        slopes, structure = jax.tree.flatten(jax.jit(jax.grad(everything))(none))
        value = jax.jit(everything)
        for slope, shift in zip(slopes, 1e-5 * np.eye(len(slopes)), strict=True):
            above, below = (float(value(jax.tree.unflatten(structure, list(side)))) for side in (shift, -shift))
            np.testing.assert_allclose(slope, (above - below) / 2e-5, rtol=1e-4, atol=1e-9)
    assert sum(abs(float(slope)) > 0.0 for slope in slopes) >= 3


def test_a_link_is_as_wide_as_its_bus_and_added_lanes_of_a_designed_chip_take_area():
    with jax.enable_x64(True):
        rates = [float(fabric(loaded({"system.network.link.lanes": lanes})).outer_bandwidth) for lanes in (4, 5, 6, 16)]
    assert rates[0] < rates[1] < rates[2]
    assert rates[3] == rates[2] <= 0.9 * 64e9
    with jax.enable_x64(True):
        result = []
        for change in {"system.node.scale_up.lanes": 36}, {"system.chip_design.link_lanes": 2}:
            scenario = load_scenario(LLAMA, {"system.chip_design": "scaled", **change})
            built = as_designed(scenario.system, scenario.plan).system
            result.append((built.accelerator.peak_flops, built.node.scale_up.lanes, built.accelerator.price))
        np.testing.assert_allclose(*result, rtol=1e-12)
    assert result[0][0] < load_scenario(LLAMA).system.accelerator.peak_flops


LANES = ("system.node.scale_up.lanes", "system.network.link.lanes")


def fabric_with(**changes):
    scenario = loaded({}, **changes)
    return scenario.system.links(scenario.plan.chips).fabric


def test_a_ring_meets_the_narrow_tier_only_where_few_of_its_ranks_share_a_pod():
    with jax.enable_x64(True):
        narrow, full = fabric_with(), fabric_with(oversubscription=1)
        np.testing.assert_allclose([narrow.domain, narrow.ratio], [3072.0, 7.0])
        # 128 replicas of 128 chips: 24 of them in a pod share 24 / 7 rings' worth of links upwards.
        np.testing.assert_allclose(narrow.beyond_node(128.0, 128.0), full.outer_bandwidth)
        # Replicas of 1,024 chips, 3 in a pod: each pod's three chips of a ring share the links of 3 / 7 chips.
        np.testing.assert_allclose(narrow.beyond_node(16.0, 1024.0), full.outer_bandwidth * 3.0 / 7.0)
        # Within one pod, and with full bandwidth everywhere, there is nothing to share.
        np.testing.assert_allclose(narrow.beyond_node(3.0, 1024.0), full.outer_bandwidth)
        np.testing.assert_allclose(full.beyond_node(16.0, 1024.0), full.outer_bandwidth)


def test_full_bandwidth_is_full_for_every_group():
    """Groups whose nodes are larger than their share of a pod, too."""
    with jax.enable_x64(True):
        full = fabric_with(oversubscription=1)._replace(node=jnp.asarray(4096.0))
        for ranks, stride, pipeline in itertools.product((8.0, 64.0, 8192.0), (1.0, 64.0), (1.0, 16.0)):
            far = full._replace(domain=jnp.asarray(1e12))
            np.testing.assert_array_equal(
                full.all_reduce(ranks, stride, 1e9, fused=1.0, pipeline=pipeline).time,
                far.all_reduce(ranks, stride, 1e9, fused=1.0, pipeline=pipeline).time,
            )
            np.testing.assert_array_equal(
                full.all_to_all(ranks, stride, 1e9, pipeline).time, far.all_to_all(ranks, stride, 1e9, pipeline).time
            )


def test_an_all_to_all_over_pods_waits_for_the_links_between_them():
    with jax.enable_x64(True):
        narrow, full = (
            entry._replace(library=CollectiveLibrary()) for entry in (fabric_with(), fabric_with(oversubscription=1))
        )
        size, ranks = 1e9, 2048.0
        entry, other = (float(f.all_to_all(ranks, 8.0, size).time) for f in (narrow, full))
        # 384 of 2,048 ranks are in a pod: 13/16 of the bytes go up at a seventh of the rate.
        more = (7.0 * (1.0 - 384.0 / ranks) - (1.0 - 1.0 / ranks)) * size / float(full.outer_bandwidth)
        np.testing.assert_allclose(entry - other, more, rtol=1e-9)
        assert float(narrow.all_to_all(384.0, 8.0, size).time) == float(full.all_to_all(384.0, 8.0, size).time)


@pytest.mark.parametrize(("path", "own_lanes", "factors"), [(LANES[0], 18, (4, 100)), (LANES[1], 4, (4, 10))])
def test_lanes_are_not_free(path, own_lanes, factors, scenario, run):
    case = scenario(LLAMA)
    own = run(case.system, case.plan)
    for wide in (load_scenario(LLAMA, {path: own_lanes * factor}) for factor in factors):
        result = run(wide.system, wide.plan)
        assert result.step_time.total < own.step_time.total
        assert result.energy.total > own.energy.total
        assert result.energy.network > own.energy.network
        if wide.system.node.scale_up.lanes > 1000 or "network" in path:
            assert result.money > own.money
