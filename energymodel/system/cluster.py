"""What connects the accelerators, in a node and between nodes?"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, component, real
from energymodel.performance.network import Link, contended_bandwidth
from energymodel.performance.topology import AbstractTopology

HALF_CROSSING = 0.5  # of random traffic: half of the messages cross the middle of the network


class Node(eqx.Module):
    """Chips that share a scale-up network and a host."""

    chips: Real = real("1")
    overhead_power: Real = real("W")
    scale_up: Link = component()
    host_bandwidth: Real = real("B/s")

    @property
    def overhead_per_chip(self) -> Float[Array, "..."]:
        """Power of host, fans and cards for each chip [W]."""
        return jnp.asarray(self.overhead_power) / self.chips

    def count(self, chips: Numeric) -> Float[Array, "..."]:
        """Nodes that hold so many chips, at least one [1]."""
        return jnp.maximum(1.0, jnp.asarray(chips) / self.chips)


class Network(eqx.Module):
    """The scale-out network: one link per chip into a topology of switches."""

    link: Link = component()
    topology: AbstractTopology = component()
    hop_energy: Real = real("J/bit")
    static_power: Real = real("W")
    contention_exponent: Real = real("1")

    def bandwidth(self, nodes: Numeric) -> Float[Array, "..."]:
        """Bandwidth per chip and direction that the topology sustains [B/s]."""
        injection = self.link.bandwidth()
        bisection = self.topology.bisection_links(nodes)
        return contended_bandwidth(injection, bisection, injection, nodes, self.contention_exponent, HALF_CROSSING)

    def energy_per_bit(self, nodes: Numeric) -> Float[Array, "..."]:
        """Energy from chip to chip, `2 e_link + H e_hop`, with H the mean number of hops [J/bit]."""
        return 2.0 * self.link.energy + self.topology.mean_hops(nodes) * self.hop_energy


class Software(eqx.Module):
    """What the training framework keeps, sends and hides behind computation."""

    weight_bytes: Real = real("B")
    gradient_bytes: Real = real("B")
    optimizer_bytes: Real = real("B")
    communicated_bytes: Real = real("B")
    memory_overhead: Real = real("1")
    reserved_memory: Real = real("B")
    tensor_overlap: Real = real("1")
    pipeline_overlap: Real = real("1")
    data_overlap: Real = real("1")
    context_overlap: Real = real("1")
    expert_overlap: Real = real("1")
    fp8_efficiency: Real = real("1", 1.0, doc="share of the 8-bit peak that products reach, over that at 16 bits")
    fp4_efficiency: Real = real("1", 1.0, doc="the same of the 4-bit peak")
    elementwise_passes: Real = real("1", 4.0, doc="times that a stored byte of a layer is moved, forward and backward")
    score_passes: Real = real("1", 4.0, doc="the same of attention scores, where attention is not fused")
    attention_efficiency: Real = real("1", 1.0, doc="rate of attention products over that of other products")
    unmasked: Real = real("1", 0.0, doc="1 if attention that is not fused also computes what the mask removes")
    latency_overlap: Real = real("1", 0.0, doc="share of the latency of tensor exchanges that kernels hide")
    collective_steps: Real = real("1", 0.0, doc="latencies to start and end a collective operation")
    tree: Real = real("1", 0.0, doc="1 if all-reduces may take a tree, 0 if all take a ring")
    late_communication: Real = real("1", 0.0, doc="1 if gradients are sent after the backward pass")
    bucket_size: Real = real("B", 1e21, doc="gradients that one collective operation carries")
    balanced_stages: Real = real("1", 0.0, doc="1 if pipeline ranks share the output head's work, 0 if layers only")
    microbatch_time: Real = real("s", 0.0, doc="host time of a micro-batch beside its layers")
    activation_copies: Real = real("1", 1.0, doc="memory of activations over what the backward pass needs")
    logit_bytes: Real = real("B", 8.0, doc="logits, their softmax and gradients, for each of tokens x vocabulary")
    kept_logit_bytes: Real = real("B", 0.0, doc="the same kept of the micro-batch before")
    gather_buffers: Real = real("B", 0.0, doc="kept of buffers for gathered inputs, for each token and hidden unit")
    usable_memory: Real = real("1", 0.9, doc="share of a chip's memory at which half of the runs fail")
    memory_spread: Real = real("1", 0.05, doc="spread of the logarithm of memory around the prediction")
