"""How much arithmetic and memory traffic does a layout give one chip?"""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Scalar
from energymodel.performance.hierarchy import gemm_traffic
from energymodel.performance.parallelism import data_parallel_degree, microbatch_count, recomputed_share
from energymodel.performance.roofline import elementwise_traffic, expert_bytes, tile_quantization
from energymodel.performance.workload import attention_flops_per_token
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

DENSE_BYTES = 24.0  # per token and hidden unit, moved by the element-wise kernels of a dense layer, norms excluded
ELEMENT_BYTES = 2.0  # of an activation or weight in bf16


class Division(NamedTuple):
    """Counts that follow from a layout; `layer_passes` and `head_passes` are per step on the mean chip."""

    data: Scalar
    ranks: Scalar
    microbatches: Scalar
    tokens: Scalar
    layer_passes: Scalar
    head_passes: Scalar


class LayerWork(NamedTuple):
    """Work of one layer and micro-batch on one chip, forward and backward, averaged over all layers."""

    flops: Scalar
    attention_flops: Scalar
    product_operations: Scalar
    attention_operations: Scalar
    gemm_bytes: Scalar
    elementwise_bytes: Scalar
    communicated: Scalar
    head_flops: Scalar
    head_operations: Scalar
    head_bytes: Scalar

    @property
    def head_share(self) -> Scalar:
        """Operations of the output head relative to a layer's [1]."""
        return self.head_flops / self.flops


def divide(system: TrainingSystem, plan: TrainingPlan, batch: Numeric) -> Division:
    """Counts of a layout, `d = G / (t p c)`, `m = B / (d b s)`, `M = b s / c` [Narayanan et al. 2021, sec. 2].

    `d c` ranks share a copy of the dense parameters. The mean chip passes `m L / p` layers per step.

    **Arguments:**

    - `batch`: global batch B [token].

    **Returns:** replicas [1], ranks [1], micro-batches [1], tokens of a micro-batch on a chip [token], passes [1].
    """
    layout, workload = plan.layout, system.workload
    data = data_parallel_degree(plan.chips, layout.tensor, layout.pipeline, layout.context)
    microbatches = microbatch_count(batch, data, layout.microbatch, workload.sequence)
    return Division(
        data=data,
        ranks=data * layout.context,
        microbatches=microbatches,
        tokens=layout.microbatch * workload.sequence / layout.context,
        layer_passes=microbatches * workload.layers / layout.pipeline,
        head_passes=microbatches / layout.pipeline,
    )


def layer_work(system: TrainingSystem, plan: TrainingPlan, division: Division) -> LayerWork:
    """Work of the mean layer on a chip, `F = M (6 w + 6 a d s) (1 + r) / t`, `Q = (3 + r_f) 2 Q_gemm`.

    A micro-batch has M tokens; r is the recomputed share [Narayanan et al. 2021]. The matrix products of a layer with w
    parameters count as one product, M by `w / (h t)` by h, whose memory traffic the cache bounds [Hong & Kung 1981].
    Element-wise kernels add theirs, and unfused attention adds `5 n a s M / t` bytes for scores moved n times. The
    output head has `6 M h V / t` operations and moves `16 M V / t` bytes of logits. `product_operations` and
    `attention_operations` include tile and wave quantization and the lower rate of attention.

    **Returns:** operations [FLOP] and memory traffic [B] of a layer and of the output head, and the activation bytes
    that tensor parallelism communicates [B].
    """
    layout, workload, software, tokens = plan.layout, system.workload, system.software, division.tokens
    weights = workload.active_layer_parameters / workload.layers
    attention = attention_flops_per_token(1.0, workload.attention_width, workload.sequence)
    model_flops = 6.0 * weights + attention
    repeated = recomputed_share(layout.recompute_full, layout.recompute_attention, attention / model_flops)
    passes = 3.0 + layout.recompute_full

    # The products of a layer count as one of equal depth. Resident experts are read even if no token uses them.
    width = weights / (workload.hidden * layout.tensor)
    element = ELEMENT_BYTES * layout.width
    cache = system.accelerator.cache_size / element
    product_traffic = gemm_traffic(tokens, width, workload.hidden, cache) * element
    resident = workload.routed_parameters / (workload.layers * layout.tensor * layout.expert)
    active_routed = resident * layout.expert * workload.active_experts / workload.experts
    idle_experts = jnp.maximum(0.0, resident - active_routed) * element

    # Recomputing attention or the whole layer repeats attention's forward products. An unfused kernel may also compute
    # the masked half of the scores; a fused one recomputes the scores in the backward pass.
    scored = tokens * attention / layout.tensor
    again = (layout.recompute_full + (1.0 - layout.recompute_full) * layout.recompute_attention) / 3.0
    attention_operations = scored * (1.0 + again) * (1.0 + (1.0 - workload.flash) * software.unmasked)
    quantization = layer_tile_quantization(system, plan, tokens)
    uneven = (workload.expert_imbalance - 1.0) * 2.0 * tokens * active_routed

    scores = (1.0 - workload.flash) * 5.0 * workload.heads * workload.sequence * tokens / layout.tensor
    of_experts = expert_bytes(
        workload.gated,
        workload.feed_forward / workload.hidden,
        workload.active_experts + workload.shared_experts,
        workload.active_experts,
    )
    routed_layers = workload.mixture * (1.0 - workload.dense_layers / workload.layers)
    divided = DENSE_BYTES + routed_layers * (of_experts - DENSE_BYTES)
    moved = 0.25 * elementwise_traffic(tokens, workload.hidden, layout.tensor, layout.sequence_parallel, divided)
    full = 1.0 + 0.5 * layout.recompute_full
    scored_again = full + 0.5 * (1.0 - layout.recompute_full) * layout.recompute_attention
    elementwise = software.elementwise_passes * moved * full + software.score_passes * scores * scored_again
    head_width = workload.vocabulary / layout.tensor
    head_flops = 6.0 * tokens * workload.hidden * head_width
    tile = system.accelerator.gemm_tile
    return LayerWork(
        flops=tokens * model_flops * (1.0 + repeated) / layout.tensor,
        attention_flops=scored * (1.0 + again),
        product_operations=passes * (2.0 * tokens * weights / layout.tensor + quantization + uneven),
        attention_operations=attention_operations / software.attention_efficiency,
        gemm_bytes=passes * (product_traffic + idle_experts),
        elementwise_bytes=elementwise * layout.width,
        communicated=tokens * workload.hidden * element,
        head_flops=head_flops,
        head_operations=head_flops + 3.0 * tile_quantization(tile, tokens, head_width, workload.hidden),
        head_bytes=16.0 * tokens * head_width,
    )


def layer_tile_quantization(system: TrainingSystem, plan: TrainingPlan, tokens: Numeric) -> Scalar:
    """Tile and wave quantization of the mean layer's forward products, `sum_i 2 d_0 (m n + n k + k m)`.

    The products are query-key-value, attention output, up (and gate) and down projection, each divided by the tensor
    degree along the side that is not the hidden size. Resident experts have their own [derivation: docs/step_time.md].

    **Arguments:**

    - `tokens`: M of a micro-batch on a chip [token].

    **Returns:** operations [FLOP].
    """
    layout, workload, tile = plan.layout, system.workload, system.accelerator.gemm_tile
    h, t, M = workload.hidden, layout.tensor, jnp.asarray(tokens)
    inputs = (workload.heads + 2.0 * workload.kv_heads) * workload.head_size / t
    attention = tile_quantization(tile, M, inputs, h) + tile_quantization(tile, M, h, workload.attention_width / t)

    def block(rows: Numeric, width: Numeric, count: Numeric) -> Scalar:
        up = tile_quantization(tile, rows, (1.0 + workload.gated) * width / t, h, count)
        return up + tile_quantization(tile, rows, h, width / t, count)

    mixture = (workload.layers - workload.dense_layers) / workload.layers
    held = 1.0 + workload.mixture * (workload.experts / layout.expert - 1.0)
    routed = block(M * workload.active_experts * workload.expert_imbalance, workload.feed_forward, held)
    shared = block(M * workload.shared_experts, workload.feed_forward, workload.shared_experts)
    dense = block(M, workload.dense_feed_forward, 1.0)
    return attention + mixture * (routed + shared) + (1.0 - mixture) * dense
