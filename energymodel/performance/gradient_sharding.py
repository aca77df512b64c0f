"""Scatters of sharded gradients, and the share of the gradient that a chip keeps until then.

With gradient accumulation, a framework that shards gradients (ZeRO stages 2 and 3) either scatters those of every
micro-batch, which multiplies the traffic, or sums them whole, which takes the memory that sharding was to save
[PyTorch pull request 126166].

Shared arguments [1]: `microbatches` m of a replica in a step; `pipeline` ranks p; `virtual_stages` v of a rank.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Values


def last_round_share(microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Values:
    """Share of a step in which the gradients of a rank become complete [1], `min(1, r / m)` [derivation below].

    Gradients that micro-batches sum are complete with the last of them, `r = 1`. In the interleaved schedule the
    virtual stages of a rank take turns in the last round of `r = p` micro-batches, and the first is complete as it
    begins [Narayanan et al. 2021, sec. 2.2]. Only that part of the backward pass hides their communication.
    """
    interleaved = jnp.clip(jnp.asarray(virtual_stages) - 1.0, 0.0, 1.0)
    last = 1.0 + interleaved * (jnp.asarray(pipeline) - 1.0)
    return jnp.minimum(1.0, last / jnp.asarray(microbatches))


class AbstractGradientSharding(eqx.Module):
    """What a framework does with the gradients of a micro-batch where they are sharded."""

    @abstractmethod
    def scatters(self, microbatches: Numeric, pipeline: Numeric) -> Values:
        """Times that a step scatters the gradients of all parameters [1]."""

    @abstractmethod
    def held(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Values:
        """Share of the whole gradient that a chip keeps until it is scattered [1]."""

    @abstractmethod
    def window(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Values:
        """Share of the backward passes of a step that may hide the scatters [1]."""


class ScatterEachMicrobatch(AbstractGradientSharding):
    """Every micro-batch scatters its gradients, layer by layer: `m` times the traffic, nothing kept.

    DeepSpeed's ZeRO 2 and 3, Megatron-FSDP and PyTorch's FSDP by default.
    """

    def scatters(self, microbatches: Numeric, pipeline: Numeric) -> Values:
        """Once for each micro-batch, `m` [1]."""
        return jnp.asarray(microbatches) * jnp.ones_like(pipeline)

    def held(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Values:
        """Nothing but the layer at work [1]."""
        return jnp.zeros_like(jnp.asarray(microbatches) * pipeline * virtual_stages)

    def window(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Values:
        """All of them [1]."""
        return jnp.ones_like(jnp.asarray(microbatches) * pipeline * virtual_stages)


class ScatterOnce(AbstractGradientSharding):
    """Micro-batches sum their whole gradients, and the last one scatters them: PyTorch's FSDP with `no_sync`."""

    def scatters(self, microbatches: Numeric, pipeline: Numeric) -> Values:
        """Once [1]."""
        return jnp.ones_like(jnp.asarray(microbatches) * pipeline)

    def held(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Values:
        """All of it, `min(m - 1, 1)`: a single micro-batch has nothing to add to [1]."""
        return jnp.clip(jnp.asarray(microbatches) - 1.0, 0.0, 1.0) * jnp.ones_like(jnp.asarray(pipeline))

    def window(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Values:
        """The last round [1]."""
        return last_round_share(microbatches, pipeline, virtual_stages)


class ScatterEachRound(AbstractGradientSharding):
    """A virtual stage sums the gradients of the p micro-batches that pass it in a row, then scatters them.

    The interleaved schedule passes micro-batches in rounds of p [Narayanan et al. 2021, sec. 2.2], so that only the
    virtual stage at work keeps its gradients whole. Up to p micro-batches make one round: all forward passes come
    before all backward passes. Without a pipeline every micro-batch is a round.
    """

    def scatters(self, microbatches: Numeric, pipeline: Numeric) -> Values:
        """Once a round, `max(1, m / p)` [1]."""
        return jnp.maximum(1.0, jnp.asarray(microbatches) / pipeline)

    def held(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Values:
        """One virtual stage of the rank, `1 / v`; nothing without a pipeline [1]."""
        several = jnp.clip(jnp.asarray(pipeline) - 1.0, 0.0, 1.0)
        again = jnp.clip(jnp.asarray(microbatches) - 1.0, 0.0, 1.0)
        return several * again / jnp.asarray(virtual_stages)

    def window(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Values:
        """All of them [1]."""
        return jnp.ones_like(jnp.asarray(microbatches) * pipeline * virtual_stages)
