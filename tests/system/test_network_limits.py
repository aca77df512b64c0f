"""What do links, switches and oversubscription cost a whole run, and where does a collective meet a narrow tier?"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.performance.collectives import CollectiveLibrary
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.communication import fabric_of

SCENARIO = "llama-3.1-405b-h100"  # pods of 3,072 chips at 1:7
LANES = ("system.node.scale_up.lanes", "system.network.link.lanes")


def fabric(**changes):
    topology = {f"system.network.topology.{name}": value for name, value in changes.items()}
    scenario = load_scenario(SCENARIO, topology)
    return fabric_of(scenario.system, scenario.plan)


def test_a_ring_meets_the_narrow_tier_only_where_few_of_its_ranks_share_a_pod():
    with jax.enable_x64(True):
        narrow, full = fabric(), fabric(oversubscription=1)
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
        full = fabric(oversubscription=1)._replace(node=jnp.asarray(4096.0))
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
        narrow, full = (one._replace(library=CollectiveLibrary()) for one in (fabric(), fabric(oversubscription=1)))
        size, ranks = 1e9, 2048.0
        one, other = (float(f.all_to_all(ranks, 8.0, size).time) for f in (narrow, full))
        # 384 of 2,048 ranks are in a pod: 13/16 of the bytes go up at a seventh of the rate.
        more = (7.0 * (1.0 - 384.0 / ranks) - (1.0 - 1.0 / ranks)) * size / float(full.outer_bandwidth)
        np.testing.assert_allclose(one - other, more, rtol=1e-9)
        assert float(narrow.all_to_all(384.0, 8.0, size).time) == float(full.all_to_all(384.0, 8.0, size).time)


@pytest.mark.parametrize(("path", "own_lanes", "factors"), [(LANES[0], 18, (4, 100)), (LANES[1], 4, (4, 10))])
def test_lanes_are_not_free(path, own_lanes, factors, scenario, run):
    own = run(*_given(scenario))
    for wide in (load_scenario(SCENARIO, {path: own_lanes * factor}) for factor in factors):
        found = run(wide.system, wide.plan)
        assert found.step_time.total < own.step_time.total
        assert found.energy.total > own.energy.total
        assert found.energy.network > own.energy.network
        if wide.system.node.scale_up.lanes > 1000 or "network" in path:
            assert found.money > own.money


def _given(scenario):
    given = scenario(SCENARIO)
    return given.system, given.plan


def test_links_that_do_not_exist_cost_nothing():
    with jax.enable_x64(True):
        system = load_scenario(SCENARIO).system
        power = [float(system.links_power(chips)) for chips in (64.0, 2048.0, 24576.0)]
        lane = float(system.network.link.lanes) * float(system.network.switch_lane_power)
    # One switch; leaf and spine; and a top tier with a seventh of the links: 1, 3 and 3 + 2/7 ports a chip.
    np.testing.assert_allclose(np.array(power) / lane, [1.0, 3.0, 3.0 + 2.0 / 7.0])


def test_gradients_are_those_of_the_tiers():
    with jax.enable_x64(True):
        system = jax.tree.map(jnp.asarray, load_scenario(SCENARIO).system)
        slope = float(jax.grad(lambda chips: system.links_power(chips))(4096.0))
        across = float(system.links_power(4096.5) - system.links_power(4095.5))
    np.testing.assert_allclose(slope, across, rtol=1e-6)
    assert slope > 0.0  # between one pod and two, the top tier grows


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"system.network.topology.radix": 4}, ["system.network.topology", "16384", "ports", "12288", "radix"]),
        ({"system.network.topology.oversubscription": 0.5}, ["oversubscription", "0.5"]),
        ({"system.network.link.lanes": 400}, ["1.6384e+06 ports", "lanes"]),
        ({"system.network.link.lanes": 0}, ["system.network.link.lanes", "0"]),
        ({"system.network.topology.port_lanes": 0}, ["port_lanes"]),
    ],
)
def test_a_network_that_cannot_be_built_is_refused(changes, words):
    with pytest.raises(InputError) as refused:
        load_scenario(SCENARIO, changes)
    assert all(word in str(refused.value) for word in words), refused.value
