"""Replicas, micro-batches and layers of pipeline ranks that a layout makes of a model, and scatters of its gradients.

With gradient accumulation, a framework that shards gradients (ZeRO stages 2 and 3) either scatters those of every
micro-batch, which multiplies the traffic, or sums them whole, which takes the memory that sharding was to save
[PyTorch pull request 126166].

Shared arguments, all counts [1]: `chips` G; the degrees `tensor` t, `pipeline` p, `context` c and `data` d;
`virtual_stages` v per pipeline rank; `layers` L; `microbatches` m of a replica in a step, each of `microbatch` b
sequences of `sequence` s [token]; global `batch` B [token]; `ranks` n of a group; `head` r, the time of the output head
over a layer's.
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Values, ceil_count

STAGE_TOLERANCE = 1e-6  # relative rounding error allowed where work divides into stages without remainder


def data_parallel_degree(chips: Numeric, tensor: Numeric, pipeline: Numeric, context: Numeric) -> Values:
    """Number of replicas [1], `d = G / (t p c)` [Narayanan et al. 2021]."""
    return jnp.asarray(chips) / (jnp.asarray(tensor) * pipeline * context)


def microbatch_count(batch: Numeric, data: Numeric, microbatch: Numeric, sequence: Numeric) -> Values:
    """Micro-batches that one replica processes in a step [1], `m = B / (d b s)` [Narayanan et al. 2021]."""
    return jnp.asarray(batch) / (jnp.asarray(data) * microbatch * sequence)


def fullest_stage_layers(layers: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Values:
    """Layers on the fullest pipeline rank, `v ceil(L / (p v))` [Narayanan et al. 2021, sec. 2.2].

    L need not be a multiple of p v: some virtual stages then hold one layer less.

    **Returns:** layers [1], at least L / p.
    """
    slots = jnp.asarray(pipeline) * virtual_stages
    return jnp.asarray(virtual_stages) * ceil_count(layers / slots)


def balanced_stage_layers(layers: Numeric, pipeline: Numeric, head: Numeric) -> tuple[Values, Values]:
    """Layers of the fullest and of the last rank if ranks are filled in turn up to p equal parts of the work.

    Rank k takes layers until it passes `k x`, `x = (L + r) / p`, so that it ends with layer `floor(k x) + 1`. The first
    rank gets `floor(x) + 1` layers, and no other rank gets more; the last rank gets what is left
    [derivation: docs/step_time.md; Hugging Face nanotron 2024].

    **Returns:** layers of the first rank, which is the fullest, and of the last rank, which has the output head [1].
    """
    L, p, r = map(jnp.asarray, (layers, pipeline, head))
    part = (L + r) / p
    several = p > 1.0
    fullest = jnp.minimum(L, jnp.floor(part * (1.0 + STAGE_TOLERANCE)) + 1.0)
    last = jnp.maximum(0.0, L - jnp.floor((p - 1.0) * part * (1.0 + STAGE_TOLERANCE)) - 1.0)
    return jnp.where(several, fullest, L), jnp.where(several, last, L)


class StageLayers(NamedTuple):
    """Layers of the first pipeline rank, of each one between, and of the last one, which has the output head [1]."""

    first: Values
    middle: Values
    last: Values

    @property
    def fullest(self) -> Values:
        """Layers of the rank that has the most [1]."""
        return jnp.maximum(jnp.maximum(self.first, self.last), self.middle)


def uneven_stage_layers(layers: Numeric, pipeline: Numeric, first: Numeric, last: Numeric) -> StageLayers:
    """Layers of the ranks of a pipeline whose ends are cut by hand, `M = (L - F - Z) / (p - f - z)` for each other one.

    f and z are 1 where F and Z are given; an end that is not given has M layers [definition],
    `--decoder-first-pipeline-num-layers` and `--decoder-last-pipeline-num-layers` of Megatron Core.

    **Arguments:**

    - `first`, `last`: layers F and Z of the first and the last rank; 0 for as many as the others [1].

    **Returns:** layers of the first, a middle and the last rank [1].
    """
    F, Z = jnp.asarray(first), jnp.asarray(last)
    f, z = jnp.minimum(F, 1.0), jnp.minimum(Z, 1.0)
    middle = (jnp.asarray(layers) - F - Z) / jnp.maximum(pipeline - f - z, 1.0)
    return StageLayers(F + (1.0 - f) * middle, middle, Z + (1.0 - z) * middle)


def bubble_fraction(pipeline: Numeric, virtual_stages: Numeric, microbatches: Numeric) -> Values:
    """Pipeline bubble over ideal time [1], `((p - m)+ + (min(m, p) - 1) / v) / m` for equal stages.

    `(p - 1) / (v m)` for m >= p [Narayanan et al. 2021, sec. 2.2]; with fewer micro-batches at most m of p ranks work,
    whatever v is [derivation: docs/step_time.md].
    """
    m, p = jnp.asarray(microbatches), jnp.asarray(pipeline)
    return (jnp.maximum(p - m, 0.0) + (jnp.minimum(m, p) - 1.0) / virtual_stages) / m


def last_round_share(microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Values:
    """Share of a step in which the gradients of a rank become complete [1], `min(1, r / m)` [derivation below].

    Gradients that micro-batches sum are complete with the last of them, `r = 1`. In the interleaved schedule the
    virtual stages of a rank take turns in the last round of `r = p` micro-batches, and the first is complete as it
    begins [Narayanan et al. 2021, sec. 2.2]. Only that part of the backward pass hides their communication.
    """
    interleaved = jnp.clip(jnp.asarray(virtual_stages) - 1.0, 0.0, 1.0)
    last = 1.0 + interleaved * (jnp.asarray(pipeline) - 1.0)
    return jnp.minimum(1.0, last / jnp.asarray(microbatches))


class GradientRounds(NamedTuple):
    """Rounds in which gradients become complete [1].

    Share of a step in its `last` round; of sharded gradients how often a step `scatters` them all, what share of the
    whole a chip has `held` until then, and the `window` of the backward passes that may hide the scatters.
    """

    last: Values
    scatters: Values
    held: Values
    window: Values


class AbstractGradientSharding(eqx.Module):
    """What a framework does with the gradients of a micro-batch where they are sharded."""

    @abstractmethod
    def rounds(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> GradientRounds:
        """Rounds of the gradients of a step."""


class ScatterEachMicrobatch(AbstractGradientSharding):
    """Every micro-batch scatters its gradients, layer by layer: `m` times the traffic, nothing kept.

    DeepSpeed's ZeRO 2 and 3, Megatron-FSDP and PyTorch's FSDP by default.
    """

    def rounds(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> GradientRounds:
        """Scatters for each micro-batch, `m`, of nothing but the layer at work, behind all passes."""
        every = jnp.ones_like(jnp.asarray(microbatches) * pipeline * virtual_stages)
        last = last_round_share(microbatches, pipeline, virtual_stages)
        return GradientRounds(last, jnp.asarray(microbatches) * every, jnp.zeros_like(every), every)


class ScatterOnce(AbstractGradientSharding):
    """Micro-batches sum their whole gradients, and the last one scatters them: PyTorch's FSDP with `no_sync`."""

    def rounds(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> GradientRounds:
        """One scatter behind the last round, of all, `min(m - 1, 1)`: a single micro-batch has nothing to add to."""
        every = jnp.ones_like(jnp.asarray(microbatches) * pipeline)
        last = last_round_share(microbatches, pipeline, virtual_stages)
        return GradientRounds(last, every, jnp.clip(jnp.asarray(microbatches) - 1.0, 0.0, 1.0) * every, last)


class ScatterEachRound(AbstractGradientSharding):
    """A virtual stage sums the gradients of the p micro-batches that pass it in a row, then scatters them.

    The interleaved schedule passes micro-batches in rounds of p [Narayanan et al. 2021, sec. 2.2], so that only the
    virtual stage at work keeps its gradients whole. Up to p micro-batches make one round: all forward passes come
    before all backward passes. Without a pipeline every micro-batch is a round.
    """

    def rounds(self, microbatches: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> GradientRounds:
        """Scatters once a round, `max(1, m / p)`, of one virtual stage, `1 / v`, or nothing without a pipeline."""
        m, p = jnp.asarray(microbatches), jnp.asarray(pipeline)
        several, again = jnp.clip(p - 1.0, 0.0, 1.0), jnp.clip(m - 1.0, 0.0, 1.0)
        return GradientRounds(
            last=last_round_share(m, p, virtual_stages),
            scatters=jnp.maximum(1.0, m / p),
            held=several * again / jnp.asarray(virtual_stages),
            window=jnp.ones_like(m * p * virtual_stages),
        )
