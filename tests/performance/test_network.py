import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.network import (
    Link,
    contended_bandwidth,
    network_energy,
    network_energy_per_bit,
    protocol_efficiency,
)

few = settings(max_examples=25, deadline=None)

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


def test_link_by_hand():
    # 18 * 25e9 * 256/272 * 0.68 = 450e9 * 0.64 = 288e9
    np.testing.assert_allclose(NVLINK.bandwidth(), 288e9, rtol=1e-12)
    np.testing.assert_allclose(NVLINK.power(), 27.0, rtol=1e-12)
    # 8e9 bit * 5 pJ
    np.testing.assert_allclose(NVLINK.transfer_energy(1e9), 0.04, rtol=1e-12)


def test_link_fields_carry_units_and_gradients():
    gradient = jax.grad(lambda link: link.bandwidth() / 1e9 + link.power())(jax.tree.map(jnp.asarray, NVLINK))
    assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(gradient))
    # Bandwidth and power are both proportional to the lanes.
    np.testing.assert_allclose(gradient.lanes, (288 + 27) / 18, rtol=1e-12)


def test_only_lanes_that_are_not_in_chip_and_node_cost():
    wide = eqx.tree_at(lambda link: (link.lanes, link.included_lanes, link.lane_price), NVLINK, (20.0, 18.0, 100.0))
    np.testing.assert_allclose([wide.power(), wide.price()], [2 * 1.5, 2 * 100.0])


@few
@given(payload=st.floats(1.0, 1e5), overhead=st.floats(0.0, 1e3))
def test_protocol_efficiency_is_a_share_that_grows_with_the_payload(payload, overhead):
    share = protocol_efficiency(payload, overhead, 1.0)
    assert 0 < share <= 1
    assert protocol_efficiency(2 * payload, overhead, 1.0) >= share


@few
@given(injection=st.floats(1.0, 100.0), links=st.floats(1.0, 4096.0), exponent=st.floats(1.0, 64.0))
def test_contended_bandwidth_is_below_both_limits_by_at_most_the_stated_share(injection, links, exponent):
    limit = min(injection, 2 * links * 50.0 / 4096)
    reached = float(contended_bandwidth(injection, links, 50.0, 4096.0, exponent))
    assert limit * 2 ** (-1 / exponent) * (1 - 1e-12) <= reached <= limit * (1 + 1e-12)


def test_a_wide_bisection_leaves_the_injection():
    np.testing.assert_allclose(contended_bandwidth(50.0, 1e9, 50.0, 4096.0, 4.0), 50.0, rtol=1e-12)


def test_energy_adds_up_over_hops():
    per_hop = network_energy_per_bit(15e-12, 3.0, 12e-12) - network_energy_per_bit(15e-12, 2.0, 12e-12)
    np.testing.assert_allclose(per_hop, 12e-12, rtol=1e-9)
    np.testing.assert_allclose(network_energy(2e9, 1e-12), 2 * network_energy(1e9, 1e-12), rtol=1e-14)
