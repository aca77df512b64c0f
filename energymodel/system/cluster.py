"""Node, networks within and between nodes, and training framework of a cluster."""

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, component, is_fixed, real, share
from energymodel.performance.collectives import CollectiveLibrary
from energymodel.performance.network import Link, contended_bandwidth
from energymodel.performance.parallelism import AbstractGradientSharding, ScatterEachMicrobatch
from energymodel.performance.saturation import AbstractSaturation, KernelSaturation
from energymodel.performance.topology import AbstractTopology
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE, FACTOR, SHARE_ABOVE_ZERO, Range

UNLIMITED = 1e21  # B, B/s: more than any memory or link has
HALF_CROSSING = 0.5  # of uniform random traffic, half of the messages cross the bisection


class Node(eqx.Module):
    """Chips that share a scale-up network and a host."""

    chips: Real = real("1", within=AT_LEAST_ONE, integer=True)
    overhead_power: Real = real("W")
    scale_up: Link = component()
    host_bandwidth: Real = real("B/s", within=ABOVE_ZERO)
    host_update_bandwidth: Real = real(
        "B/s", doc="per chip, of memory that an optimizer on the host reads and writes", within=ABOVE_ZERO
    )
    host_memory: Real = real("B", UNLIMITED, doc="of all processors; unlimited if nobody states it", within=ABOVE_ZERO)
    fan_power: Real = real("W", 0.0, doc="of fans at rated flow with chips that draw nothing; or in overhead_power")
    fan_fraction: Real = share(0.0, doc="more power of the fans over power of the chips")
    collectives: CollectiveLibrary = component(CollectiveLibrary())


class Network(eqx.Module):
    """The scale-out network: links of every chip into a topology of switches.

    `nodes` are those of the topology (`performance.topology.AbstractTopology.node_count`).
    """

    link: Link = component()
    topology: AbstractTopology = component()
    hop_energy: Real = real("J/bit", doc="of a switch on the way")
    static_power: Real = real("W", doc="per chip, of what does not grow with the lanes")
    contention_exponent: Real = real("1", within=AT_LEAST_ONE)
    switch_lane_power: Real = real("W", 0.0, doc="of a lane of a switch port with its transceiver, at rest or in use")
    switch_lane_price: Real = real("USD", 0.0, doc="of a lane of a switch port with its transceiver")
    bus_share: Real = share(0.0, doc="of the bandwidth to the host that a link may take; 0 if it passes no bus")

    def injection(self, host_bandwidth: Numeric) -> Values:
        """Bandwidth of a chip into the network: of its link, or of the bus of its host if it passes that [B/s]."""
        if is_fixed(self.bus_share, 0.0):
            return self.link.bandwidth()
        over_bus = jnp.asarray(self.bus_share) > 0.0
        bus = jnp.where(over_bus, jnp.asarray(host_bandwidth) * self.bus_share, UNLIMITED)
        return jnp.minimum(self.link.bandwidth(), bus)

    def uplink_ratio(self, host_bandwidth: Numeric) -> Values:
        """Bandwidth of the chips of a domain over that of its links to other domains, at least 1 [1]."""
        used = self.injection(host_bandwidth) / self.link.bandwidth()
        return jnp.maximum(self.topology.uplink_ratio() * used, 1.0)

    def bandwidth(self, nodes: Numeric, domain: Numeric, host_bandwidth: Numeric = UNLIMITED) -> Values:
        """Bandwidth that the topology sustains per chip and direction within a domain of so many nodes [B/s]."""
        injection, within = self.injection(host_bandwidth), jnp.minimum(nodes, domain)
        bisection = self.topology.at(within).bisection_links
        return contended_bandwidth(injection, bisection, injection, within, self.contention_exponent, HALF_CROSSING)


class Software(eqx.Module):
    """What the training framework stores, sends and overlaps with computation."""

    weight_bytes: Real = real("B", within=ABOVE_ZERO)
    gradient_bytes: Real = real("B", within=ABOVE_ZERO)
    optimizer_bytes: Real = real("B", within=ABOVE_ZERO)
    communicated_bytes: Real = real("B", within=ABOVE_ZERO)
    memory_overhead: Real = real("1")
    reserved_memory: Real = real("B")
    tensor_overlap: Real = share()
    pipeline_overlap: Real = share()
    data_overlap: Real = share()
    context_overlap: Real = share()
    expert_overlap: Real = share()
    product_efficiency: Real = real(
        "1", 1.0, doc="rate of products in a step over that of the kernels alone", within=FACTOR
    )
    fp8_efficiency: Real = real("1", 1.0, doc="the same of products in fp8 over those in bf16", within=FACTOR)
    fp4_efficiency: Real = real("1", 1.0, doc="the same of products in fp4 over those in bf16", within=FACTOR)
    elementwise_passes: Real = real("1", 4.0, doc="times a stored byte of a layer is moved, forward and backward")
    score_passes: Real = real("1", 4.0, doc="the same for attention scores, without a fused attention kernel")
    attention_efficiency: Real = real(
        "1", 1.0, doc="rate of attention kernels over that of the kernels measured", within=FACTOR
    )
    unmasked: Real = share(0.0, doc="1 if unfused attention also computes the masked half of the scores")
    latency_overlap: Real = share(0.0, doc="share of tensor-parallel latency hidden behind kernels")
    async_efficiency: Real = share(1.0, doc="share of what asynchronous tensor parallelism can hide that it hides")
    node_dispatch: Real = share(0.0, doc="1 if a token goes once to each node that has some of its experts")
    dispatch_efficiency: Real = share(1.0, doc="share of the bandwidth between nodes that it then has")
    collective_latency: Real = real("s", 0.0, doc="what a framework adds to the start of each collective")
    tree: Real = share(0.0, doc="1 if all-reduces may use a tree, 0 if all use a ring")
    late_communication: Real = share(0.0, doc="1 if gradients are sent after the backward pass")
    bucket_size: Real = real("B", 1e21, doc="gradient bytes per collective", within=ABOVE_ZERO)
    unsharded_bucket_size: Real = real("B", 1e21, doc="the same of gradients that are all-reduced", within=ABOVE_ZERO)
    balanced_stages: Real = share(0.0, doc="1 if stages are balanced including the output head, 0 if by layers")
    empty_slots: Real = real("1", 0.0, doc="layer slots that a pipeline may leave empty: 0 where stages must be equal")
    whole_groups: Real = share(1.0, doc="1 if interleaving needs micro-batches in multiples of the pipeline")
    offload_kept_bytes: Real = real("B", 0.0, doc="optimizer bytes per parameter that offload leaves on the chip")
    microbatch_time: Real = real("s", 0.0, doc="launch overhead of a micro-batch outside its layers")
    expert_launch: Real = real("1", 0.0, doc="more launch overhead of a layer with experts, over that of one without")
    activation_copies: Real = real("1", 1.0, doc="activation memory over what the backward pass needs")
    kept_latent_heads: Real = share(
        1.0, doc="share of queries, keys and values made from latents that backward passes keep"
    )
    kept_expert_inputs: Real = share(1.0, doc="share of what enters products of routed experts kept for backward")
    logit_bytes: Real = real("B", 8.0, doc="logits, softmax and gradients, per token and vocabulary entry")
    kept_logit_bytes: Real = real("B", 0.0, doc="the same, kept from the previous micro-batch")
    gather_buffers: Real = real("B", 0.0, doc="freed all-gather buffers the allocator keeps, per token and hidden unit")
    table_bytes: Real = real("B", 4.0, doc="gradient of embedding or head while it is accumulated, per weight")
    kept_products: Real = share(1.0, doc="share of what enters the last projection of gated blocks kept for backward")
    narrow_inputs: Real = share(1.0, doc="1 if what enters products on 8 bits is kept in 8 bits")
    repeated_work: Real = real(
        "1", 1.0, doc="share of a layer's work that recomputing all of it repeats", within=SHARE_ABOVE_ZERO
    )
    whole_in_pipelines: Real = share(0.0, doc="1 if sharded weights and gradients stay whole in a pipeline")
    collective_memory: Real = real("B", 0.0, doc="buffers of collectives, where there are several chips")
    memory_spread: Real = real(
        "1", 0.03, doc="standard deviation scale of ln(memory) about the prediction", within=Range(0.0, 1.0, above=True)
    )
    sharded_gradients: AbstractGradientSharding = component(ScatterEachMicrobatch())
    regather: Real = share(0.0, doc="1 if ZeRO 2 gathers its parameters for every micro-batch, 0 if once a step")
    saturation: AbstractSaturation = component(KernelSaturation())
    expert_tensor: Real = share(1.0, doc="1 if models with experts can have tensor parallelism, 0 if not")
    zero_with_pipeline: Real = real(
        "1", 1.0, doc="highest ZeRO stage that runs with pipeline parallelism", within=Range(0.0, 3.0)
    )
