"""How does a layout divide a model over chips, and what does the division cost in time?

Shared arguments, all counts [1]: `chips` G; the degrees `tensor` t, `pipeline` p, `context` c; `virtual_stages` v per
pipeline rank; `layers` L; `microbatches` m; `ranks` n of a group; `head` r, the time of the output head over a layer's.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, ceil_count

STAGE_TOLERANCE = 1e-6  # relative rounding error allowed where work divides into stages without remainder


def data_parallel_degree(chips: Numeric, tensor: Numeric, pipeline: Numeric, context: Numeric) -> Float[Array, "..."]:
    """Number of replicas, `d = G / (t p c)` [Narayanan et al. 2021].

    **Returns:** d [1].
    """
    return jnp.asarray(chips) / (jnp.asarray(tensor) * pipeline * context)


def microbatch_count(batch: Numeric, data: Numeric, microbatch: Numeric, sequence: Numeric) -> Float[Array, "..."]:
    """Micro-batches that one replica processes in a step, `m = B / (d b s)` [Narayanan et al. 2021].

    **Arguments:**

    - `batch`: global batch B [token].
    - `data`: data-parallel degree d [1].
    - `microbatch`: sequences b in a micro-batch [1].
    - `sequence`: s [token].

    **Returns:** m [1].
    """
    return jnp.asarray(batch) / (jnp.asarray(data) * microbatch * sequence)


def fullest_stage_layers(layers: Numeric, pipeline: Numeric, virtual_stages: Numeric) -> Float[Array, "..."]:
    """Layers on the fullest pipeline rank, `v ceil(L / (p v))` [Narayanan et al. 2021, sec. 2.2].

    L need not be a multiple of p v: some virtual stages then hold one layer less.

    **Returns:** layers [1], at least L / p.
    """
    slots = jnp.asarray(pipeline) * virtual_stages
    return jnp.asarray(virtual_stages) * ceil_count(layers / slots)


def idle_stage_layers(
    layers: Numeric,
    pipeline: Numeric,
    virtual_stages: Numeric,
    head: Numeric,
    ends: Numeric = 1.0,
    share: Numeric = 1.0,
) -> Float[Array, "..."]:
    """Layers' worth of idle time of the mean rank, `spare/p + max(-r/p, (a - 1/p) r - a min(e, spare))`.

    The slowest rank minus the mean `(L + r) / p`, without cancellation: exactly zero for a single rank. Spare
    slots are at the output head first, then at the embedding [derivation: docs/physics.md B3].

    **Arguments:**

    - `ends`: ends e of the pipeline on the rank with the output head; 2 where it also has the embedding [1].
    - `share`: of the micro-batches, a, whose head that rank computes; 1/2 where two ranks do [1].

    **Returns:** layer equivalents [1], not negative.
    """
    p, r = jnp.asarray(pipeline), jnp.asarray(head)
    spare = p * fullest_stage_layers(layers, pipeline, virtual_stages) - layers
    return spare / p + jnp.maximum(-r / p, (share - 1.0 / p) * r - share * jnp.minimum(ends, spare))


def slowest_chunk_layers(
    layers: Numeric, pipeline: Numeric, virtual_stages: Numeric, head: Numeric
) -> Float[Array, "..."]:
    """Work of the slowest virtual stage in layers, `max(k, k - min(1, spare) + r)` with `k = ceil(L / (p v))`.

    The last one has the output head and lacks the first spare layer [derivation: docs/physics.md B3].

    **Returns:** layer equivalents [1].
    """
    fullest = fullest_stage_layers(layers, pipeline, virtual_stages)
    spare = jnp.asarray(pipeline) * fullest - layers
    return fullest / virtual_stages + jnp.maximum(0.0, head - jnp.minimum(1.0, spare))


def balanced_stage_layers(
    layers: Numeric, pipeline: Numeric, head: Numeric
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
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

    first: Float[Array, "..."]
    middle: Float[Array, "..."]
    last: Float[Array, "..."]

    @property
    def fullest(self) -> Float[Array, "..."]:
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


def bubble_fraction(pipeline: Numeric, virtual_stages: Numeric, microbatches: Numeric) -> Float[Array, "..."]:
    """Pipeline bubble over ideal time, `((p - m)+ + (min(m, p) - 1) / v) / m` for equal stages.

    `(p - 1) / (v m)` for m >= p [Narayanan et al. 2021, sec. 2.2]; with fewer micro-batches at most m of p ranks work,
    whatever v is [derivation: docs/step_time.md].

    **Returns:** fraction [1].
    """
    m, p = jnp.asarray(microbatches), jnp.asarray(pipeline)
    return (jnp.maximum(p - m, 0.0) + (jnp.minimum(m, p) - 1.0) / virtual_stages) / m


def recomputed_share(
    recompute_full: Numeric, recompute_attention: Numeric, attention_share: Numeric
) -> Float[Array, "..."]:
    """Recomputed operations per model operation, `r/3 + (1 - r) r_a s_a / 3`.

    Full recomputation repeats the forward pass, a third of the work; selective recomputation repeats only the attention
    products [Korthikanti et al. 2022, sec. 5].

    **Arguments:**

    - `recompute_full`, `recompute_attention`: shares r, r_a of layers, 0 to 1 [1].
    - `attention_share`: share s_a of a layer's operations in attention products [1].

    **Returns:** extra operations per model operation [1].
    """
    full = jnp.asarray(recompute_full)
    return (full + (1.0 - full) * recompute_attention * attention_share) / 3.0


def zero_share(sharded: Numeric, ranks: Numeric) -> Float[Array, "..."]:
    """Share of a state held by one of n ranks, `1 - z + z / n`: all of it or one n-th [Rajbhandari et al. 2020].

    **Arguments:**

    - `sharded`: z, 1 if sharded over the data-parallel ranks, else 0 [1].

    **Returns:** share [1].
    """
    return 1.0 - jnp.asarray(sharded) + sharded / jnp.asarray(ranks)


def inner_ranks(ranks: Numeric, stride: Numeric, node: Numeric) -> Float[Array, "..."]:
    """Ranks of a group that share a node, `min(n, max(1, g / stride))` [definition].

    Chips are numbered with tensor parallelism innermost, then context, data and pipeline. The remaining factor
    `n / inner_ranks` of the group crosses the scale-out network.

    **Arguments:**

    - `stride`: chips between neighbors of the group [1].
    - `node`: chips g that share the scale-up network [1].

    **Returns:** ranks in one node [1].
    """
    n, room = jnp.asarray(ranks), jnp.asarray(node) / stride
    # At one rank with room for one, minimum and maximum would give slopes along the room, which does not matter there.
    alone = jnp.where(room > 1.0, n, 0.5 * (n + jnp.minimum(n, 1.0)))
    return jnp.where(n > 1.0, jnp.minimum(n, jnp.maximum(1.0, room)), alone)
