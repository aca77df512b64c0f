"""Communication of a chip in a training step: collectives of a layer, of the pipeline and of the gradients."""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Scalar, blend, is_fixed, part
from energymodel.performance.collectives import Communication, Fabric, point_to_point_time
from energymodel.system.cluster import Software
from energymodel.system.division import Division
from energymodel.system.memory import ChipMemory
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.system.work import LayerWork


class LayerCommunication(NamedTuple):
    """Communication of one layer and one micro-batch, before overlap."""

    tensor: Communication
    context: Communication
    expert: Communication


class ExposedCommunication(NamedTuple):
    """Time of one layer and micro-batch in which kernels wait for other chips [s], by kind of parallelism."""

    tensor: Scalar
    context: Scalar
    expert: Scalar


class Traffic(NamedTuple):
    """A chip's communication before overlap: per layer and micro-batch, per micro-batch (pipeline), per step (data).

    `exposed` is what no kernel of a layer hides.
    """

    tensor: Communication
    context: Communication
    expert: Communication
    pipeline: Communication
    data: Communication
    exposed: ExposedCommunication

    def of_step(self, division: Division) -> tuple[Communication, ...]:
        """Communication of each kind in a whole step of the mean chip."""
        of_layers = (part.scaled(division.layer_passes) for part in (self.tensor, self.context, self.expert))
        return *of_layers, self.pipeline.scaled(division.microbatches), self.data


def traffic_of(
    system: TrainingSystem,
    plan: TrainingPlan,
    fabric: Fabric,
    division: Division,
    work: LayerWork,
    memory: ChipMemory,
    products: Numeric,
    attention: Numeric,
) -> Traffic:
    """All communication of a chip [s, B], each collective `n t + Q / bw` [Thakur et al. 2005].

    **Arguments:**

    - `products`, `attention`: as in `exposed_communication` [s].
    """
    layer = layer_communication(system, plan, fabric, division, work)
    exposed = exposed_communication(system.software, plan.layout, layer, products, attention)
    pipeline = pipeline_communication(plan, fabric, work)
    return Traffic(*layer, pipeline, data_communication(system, plan, fabric, division, memory), exposed)


def layer_communication(
    system: TrainingSystem, plan: TrainingPlan, fabric: Fabric, division: Division, work: LayerWork
) -> LayerCommunication:
    """Collectives of a layer and micro-batch before overlap [s, B] [Korthikanti et al. 2022, sec. 4; Liu et al. 2023].

    Tensor: `4 + 2 r` all-reduces of `2 M h` bytes, six with full recomputation; half of them where attention and
    feed-forward block run in parallel and share one [Chowdhery et al. 2022, sec. 2]. Context: keys and values travel
    around the ring in the forward pass, keys, values and their gradients in the backward pass: three times `c - 1`
    hops. Or all-to-alls divide heads instead of tokens (`context_all_to_all`) [Jacobs et al. 2023]: four in the forward
    pass, four in the backward pass and four where it is recomputed, of `2 M a d / t` bytes or, for keys and values,
    `2 M k d / t`; keys and values of fewer than `t c` heads are sent more than once. Layers with a state divide heads:
    an all-to-all of what enters the state and one of what leaves it, in each pass. Expert: `4 + 2 r` all-to-alls
    (dispatch and combine, forward and backward) in layers that have experts. Modules that are recomputed add one
    all-reduce for each block, and two all-to-alls where they send tokens to experts (`repeated_modules`).
    """
    layout, workload, sizes, sent = plan.layout, system.workload, division.sizes, work.communicated
    tensor, context, turned = layout.tensor, layout.context, layout.context_all_to_all
    passes = 4.0 + 2.0 * layout.recompute_full
    copies = jnp.maximum(1.0, tensor * context / jnp.asarray(workload.kv_heads))
    heads = workload.heads + copies * workload.kv_heads
    of_heads = sent * 0.5 * heads * workload.head_size / (workload.hidden * tensor)
    summed = fabric.all_reduce(tensor, 1.0, sent, fused=1.0 - layout.sequence_parallel)
    in_context = blend(
        turned,
        lambda: fabric.all_to_all(context, tensor, of_heads).scaled(2.0 * passes),
        lambda: fabric.ring_pass(context, tensor, sent * sizes.kv / (workload.hidden * tensor)).scaled(3.0),
    )
    dispatched = fabric.all_to_all(
        layout.expert,
        tensor,
        part(workload.expert_latent, lambda: sent / tensor * workload.active_experts),
        layout.pipeline,
        workload.active_experts,
        system.software.node_dispatch,
    )
    if not is_fixed(sizes.state_share, 0.0):
        width = 0.5 * (sizes.state_inputs + sizes.state_values) / (workload.hidden * tensor)
        state = fabric.all_to_all(context, tensor, sent * width).scaled(passes * sizes.state_share)
        in_context = in_context.scaled(sizes.attention_share).plus(state)
    return LayerCommunication(
        tensor=summed.scaled(passes * (1.0 - 0.5 * workload.parallel_block) + work.repeated.sums),
        context=in_context,
        expert=dispatched.scaled(passes * sizes.expert_share + 2.0 * work.repeated.dispatched),
    )


def exposed_communication(
    software: Software, layout: ParallelLayout, traffic: LayerCommunication, products: Numeric, attention: Numeric
) -> ExposedCommunication:
    """What no kernel of a layer hides [s], `(1 - overlap) t` [definition]; latency of tensor parallelism may hide, too.

    Asynchronous tensor parallelism divides each collective and its product into t parts, and sends one while it
    computes another: it can hide `(t - 1) / t` of the transfer, or of the products if these are shorter, and hides a
    share of that (`software.async_efficiency`): smaller products and copies beside them are slower [Wang et al. 2023,
    "Overlap communication with dependent computation via decomposition", sec. 4]. A ring of context parallelism sends
    the next keys and values while attention computes with those at hand [Liu et al. 2023]: it can hide behind
    `(c - 1) / c` of attention, and hides a share of that (`software.context_overlap`).

    **Arguments:**

    - `products`, `attention`: time of the matrix products of one layer and micro-batch at the reference clock, and of
      attention [s].
    """
    parts, steps = 1.0 - 1.0 / jnp.asarray(layout.tensor), 1.0 - 1.0 / jnp.asarray(layout.context)
    ring = software.context_overlap * (1.0 - layout.context_all_to_all)
    transfer = traffic.tensor.time - traffic.tensor.latency
    hidden = software.latency_overlap * traffic.tensor.latency
    hidden += part(layout.async_tensor, lambda: software.async_efficiency * parts * jnp.minimum(transfer, products))
    return ExposedCommunication(
        tensor=(1.0 - software.tensor_overlap) * (traffic.tensor.time - hidden),
        context=traffic.context.time - part(ring, lambda: jnp.minimum(traffic.context.time, steps * attention)),
        expert=(1.0 - software.expert_overlap) * traffic.expert.time,
    )


def pipeline_messages(layout: ParallelLayout) -> Scalar:
    """Messages that the mean rank of a pipeline sends for a micro-batch [1], `2 (v - 1/p)` [definition].

    None from a single rank to itself; ZB-V passes from its first to its second chunk within the last rank.
    """
    several = jnp.clip(2.0 * (jnp.asarray(layout.pipeline) - 1.0), 0.0, 1.0)  # without a kink at two ranks
    return 2.0 * several * (layout.virtual_stages - (1.0 + layout.zero_bubble_v) / layout.pipeline)


def pipeline_communication(plan: TrainingPlan, fabric: Fabric, work: LayerWork) -> Communication:
    """Communication of pipeline ranks [s, B], `2 (v - 1/p)` messages [Narayanan et al. 2021, sec. 2.2].

    Activations and gradients per micro-batch, averaged over ranks: p v - 1 boundaries are crossed twice, those from the
    last rank to the first among them. Each message has `2 M h / t` bytes. Of the `p - 1` boundaries, at most
    `G / g - 1` lie between nodes: pipeline ranks are placed in different nodes as far as possible.
    """
    layout = plan.layout
    size = work.communicated / layout.tensor  # scattered to send, then gathered [Narayanan et al. 2021, sec. 4.1]
    boundaries = pipeline_messages(layout)
    crossing = jnp.clip((plan.chips / fabric.node - 1.0) / jnp.maximum(1.0, layout.pipeline - 1.0), 0.0, 1.0)
    near = point_to_point_time(size, fabric.message_latency, fabric.inner_bandwidth)
    bandwidth = fabric.beyond_node(layout.pipeline, jnp.maximum(fabric.node, layout.tensor * layout.context))
    bandwidth *= fabric.topology.neighbor_share()
    far = point_to_point_time(size, fabric.outer_latency + fabric.framework_latency, bandwidth)
    time = (1.0 - crossing) * near + crossing * far
    return Communication(time, (1.0 - crossing) * size, crossing * size).scaled(boundaries)


def data_communication(
    system: TrainingSystem, plan: TrainingPlan, fabric: Fabric, division: Division, memory: ChipMemory
) -> Communication:
    """Gradients and parameters over the replicas in a step, `n (w_g + k w_p)` bytes [Rajbhandari et al. 2020, sec. 7].

    One reduce-scatter of gradients and `k = 1` all-gather of parameters. Sharded gradients are scattered as often as
    the framework does (`software.sharded_gradients`). With sharded parameters every micro-batch gathers in its forward
    and its backward pass, `k = 2 m`; some frameworks gather for every micro-batch with sharded gradients alone, `k = m`
    (`software.regather`). Without sharding, gradients are all-reduced: both halves send `w_g`. Gradients travel in
    buckets, one collective each (`software.bucket_size`, or `software.unsharded_bucket_size` of those all-reduced).

    **Returns:** time [s] and bytes sent [B] in a step, before overlap.
    """
    layout, software, own, stored = plan.layout, system.software, memory.shard, memory.stored
    regathered = layout.shard_gradients * software.regather
    gathers = blend(
        layout.shard_parameters,
        lambda: 2.0 * division.microbatches,
        lambda: 1.0 + part(regathered, lambda: division.microbatches - 1.0),
    )
    scatters = 1.0 + part(layout.shard_gradients, lambda: division.gradients.scatters - 1.0)
    sharded = jnp.maximum(layout.shard_optimizer, layout.shard_parameters)
    updated = stored.weight * (layout.shard_parameters + (1.0 - layout.shard_parameters) * stored.trained)
    halves = scatters * stored.sent + gathers * (sharded * updated + (1.0 - sharded) * stored.sent)
    # Reduce-scatter and all-gather use rings; only an all-reduce may use a tree.
    fused, tree = 1.0 - sharded, part(software.tree, lambda: 1.0 - sharded)
    bucket = blend(sharded, lambda: software.bucket_size, lambda: software.unsharded_bucket_size)

    def collective(ranks: Numeric, stride: Numeric, parameters: Numeric) -> Communication:
        size = parameters * halves
        count = 1.0 + size / bucket
        reduced = fabric.all_reduce(ranks, stride, size, fused=fused, count=count, pipeline=layout.pipeline, tree=tree)
        # An all-reduce is a reduce-scatter and an all-gather of the same bytes, and `halves` counts both.
        return reduced.scaled(0.5)

    dense = collective(own.dense_ranks, layout.tensor, own.dense)
    if is_fixed(division.sizes.mixture, 0.0):
        return dense
    routed = collective(own.routed_ranks, layout.tensor * layout.expert, own.routed)
    return dense.plus(routed.scaled(division.sizes.mixture))  # a dense model starts no second collective
