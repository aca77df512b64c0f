"""The work and the times of a training step, written a second time in NumPy from docs/step_time.md and docs/physics.md.

For layouts without tensor, context and pipeline parallelism. The communication that kernels do not hide, the clock and
the temperature are those of the outcome: what a collective takes and where a chip settles is tested elsewhere.
"""

from types import SimpleNamespace

import jax
import numpy as np


def plain(tree):
    """A system or a plan with Python numbers."""
    return jax.tree.map(lambda leaf: float(np.ravel(np.asarray(leaf))[0]), tree)


def norm(p, *times):
    """The p-norm of times."""
    return sum(time**p for time in times) ** (1.0 / p)


def slowdown(columns, inner, exponent, unaligned):
    """Of a product whose edges share the power of two g: `(64 / g)^x`, and u where g is below 8."""
    g = next(g for g in (64, 32, 16, 8, 4, 2, 1) if int(columns) % g == 0 and int(inner) % g == 0)
    return (64.0 / g) ** exponent * (unaligned if g < 8 else 1.0)


def mean_result(m, n, k, count=1.0):
    """Twice the elements that the mean product of training writes."""
    return 2.0 / 3.0 * (m * n + m * k + count * n * k)


def weights(w):
    """Parameters of one attention block, one feed-forward block, one dense block, and the embeddings."""
    if w.kv_rank:
        queries = (
            w.hidden * w.query_rank + w.query_rank * w.heads * w.head_size
            if w.query_rank
            else w.hidden * w.heads * w.head_size
        )
        made = w.kv_rank * w.heads * (w.head_size - w.rope_head_size + w.value_head_size)
        attention = queries + w.hidden * (w.kv_rank + w.rope_head_size) + made + w.heads * w.value_head_size * w.hidden
    else:
        attention = 2.0 * w.hidden * w.heads * w.head_size + 2.0 * w.hidden * w.kv_heads * w.head_size
    per_width = (2.0 + w.gated) * w.hidden
    embeddings = w.vocabulary * w.hidden * (2.0 - w.tied)
    return attention, per_width * w.feed_forward, per_width * w.dense_feed_forward, embeddings


def counts(w):
    """Parameters of all layers that act on a token, of routed experts, of all else in the layers, of everything."""
    attention, expert, dense, embeddings = weights(w)
    mixed = w.layers - w.dense_layers
    others = w.layers * attention + w.dense_layers * dense + mixed * w.shared_experts * expert
    routed = mixed * w.experts * expert if w.experts > 1.0 else 0.0
    active = others + mixed * w.active_experts * expert
    rest = others if routed else active
    return SimpleNamespace(
        active_layers=active, active=active + embeddings, routed=routed, rest=rest, embeddings=embeddings
    )


def work(system, plan):
    """Counts of a step, and operations, bytes and kernel times at clock 1 of a layer and of the output head."""
    w, chip, s, layout = system.workload, system.accelerator, system.software, plan.layout
    assert layout.tensor == layout.pipeline == layout.context == 1.0
    M = layout.microbatch * w.sequence
    m = plan.batch / plan.chips / M
    n, u, h = counts(w), plan.trained_share, w.hidden
    value = w.value_head_size if w.kv_rank else w.head_size
    head_size = 0.5 * (w.head_size + value)
    mixed = (w.layers - w.dense_layers) / w.layers
    experts = w.experts > 1.0

    # Operations: forward 1, gradients of inputs 1, of weights 1; recomputation repeats the forward pass.
    attention = 6.0 * w.heads * head_size * w.sequence  # of causal scores and values, in all passes
    per_layer = n.active_layers / w.layers
    again = layout.recompute_full + (1.0 - layout.recompute_full) * layout.recompute_attention
    products = 2.0 * (2.0 + u + layout.recompute_full) * per_layer
    # The share that is repeated is counted of a layer that is trained whole.
    flops = M * (products + attention * (1.0 + again / 3.0))
    attention_flops = M * attention * (1.0 + again / 3.0)

    # Memory traffic.
    wide = 1.0 + layout.tf32 + layout.fp32
    element, bandwidth = 2.0 * wide, chip.memory_bandwidth * chip.memory_efficiency
    width = per_layer / h
    compulsory, forced = M * h + h * width + M * width, 2.0 * M * width * h / np.sqrt(chip.cache_size / element)
    traffic = norm(4.0, compulsory, forced)
    resident = n.routed / w.layers / layout.expert
    unused = max(0.0, resident - n.routed / w.layers * w.active_experts / w.experts)
    gemm_bytes = (2.0 + u + layout.recompute_full) * element * (traffic + unused)
    scores = (1.0 - w.flash) * 5.0 * w.heads * w.sequence * M
    of_experts = (
        8.0
        + (4.0 + 2.0 * w.gated) * w.feed_forward / h * (w.active_experts + w.shared_experts)
        + 8.0 * w.active_experts
    )
    q = 10.0 + (mixed * of_experts + (1.0 - mixed) * 24.0 if experts else 24.0)
    elementwise = s.elementwise_passes * M * h * q * (1.0 + 0.5 * layout.recompute_full)
    elementwise += s.score_passes * scores * (1.0 + 0.5 * again)

    # Products of a layer, forward: rows, columns, inner edge, share of the layers, products that share the rows.
    held = w.experts / layout.expert if experts else 1.0
    extra = M * w.active_experts * (w.expert_imbalance - 1.0) + (held * chip.expert_tile if experts else 0.0)
    rows = M * w.active_experts + extra
    f, dense, gate = w.feed_forward, w.dense_feed_forward, 1.0 + w.gated
    if w.kv_rank:
        first = w.query_rank + w.kv_rank + w.rope_head_size
        made = w.heads * (w.head_size - w.rope_head_size + w.value_head_size)
        shapes = [
            (M, first, h, 1.0, 1.0),
            (M, w.heads * w.head_size, w.query_rank, 1.0, 1.0),
            (M, made, w.kv_rank, 1.0, 1.0),
        ]
    else:
        shapes = [(M, (w.heads + 2.0 * w.kv_heads) * w.head_size, h, 1.0, 1.0)]
    shapes.append((M, h, w.heads * value, 1.0, 1.0))
    blocks = [
        (rows, gate * f, f, h, mixed, held),
        (rows, h, f, h, mixed, held),
        (M, gate * f, f, h, mixed * w.shared_experts, 1.0),
        (M, h, f, h, mixed * w.shared_experts, 1.0),
        (M, gate * dense, dense, h, 1.0 - mixed, 1.0),
        (M, h, dense, h, 1.0 - mixed, 1.0),
    ]
    a = lambda columns, inner: slowdown(columns, inner, chip.alignment_exponent, chip.unaligned_slowdown)  # noqa: E731
    run = [(r, c, k, share, a(c, k), count) for r, c, k, share, count in shapes]
    run += [
        (r, c, inner if c == h else h, share, a(inner, hidden), count)
        for r, c, inner, hidden, share, count in blocks
        if share
    ]
    operations = sum(2.0 * r * c * k * share * slow for r, c, k, share, slow, _ in run)
    edges = sum(share * slow * mean_result(r, c, k, count) for r, c, k, share, slow, count in run)
    number = 6.0 if w.kv_rank else 4.0
    number += 2.0 * min(1.0, w.shared_experts)
    repeats = 2.0 + u + layout.recompute_full

    def time(rate, edge):
        return repeats * (operations + edge * edges) / rate

    wide_time = 1.0
    for share, peak in ((layout.tf32, chip.peak_flops_tf32), (layout.fp32, chip.peak_flops_fp32)):
        wide_time += share * (chip.peak_flops / peak - 1.0)
    bf16 = time(chip.peak_flops * chip.gemm_efficiency, chip.gemm_edge)
    product_time = wide_time * bf16
    for share, peak, efficiency, edge, lost in (
        (layout.fp8, chip.peak_flops_fp8, chip.fp8_gemm_efficiency, chip.fp8_gemm_edge, s.fp8_efficiency),
        (layout.fp4, chip.peak_flops_fp4, chip.fp4_gemm_efficiency, chip.fp4_gemm_edge, s.fp4_efficiency),
    ):
        product_time += share * (time(peak * efficiency * lost, edge) - bf16 if peak else 0.0)
    arithmetic = number * repeats * chip.product_latency + product_time / s.product_efficiency

    padded = 8.0 * np.ceil(head_size / 8.0)
    rate = chip.peak_flops * chip.attention_efficiency / np.sqrt(1.0 + (chip.attention_half_head / padded) ** 2)
    fused = M * attention / 3.0 * padded / head_size / rate
    fused *= (1.0 + chip.attention_half_keys / (w.sequence / 2.0)) * (1.0 + chip.attention_tail / (M * w.heads))
    square = 2.0 if s.unmasked else 1.0
    unfused = M * attention / 3.0 * square * a(w.sequence, head_size)
    unfused /= chip.peak_flops * chip.gemm_efficiency * s.product_efficiency
    attention_time = w.flash * fused * (1.0 + chip.attention_backward + again)
    attention_time = (attention_time + (1.0 - w.flash) * unfused * (3.0 + again)) / s.attention_efficiency

    head_flops = 2.0 * M * h * w.vocabulary
    head_slow = slowdown(h, h, chip.alignment_exponent, 1.0)
    head_rate = chip.peak_flops * chip.gemm_efficiency * s.product_efficiency
    head_time = (head_flops + chip.gemm_edge * mean_result(M, w.vocabulary, h)) / head_rate * wide_time
    head_time = (2.0 + u) * head_slow * (head_time + chip.product_latency)

    # The optimizer reads gradients and states, writes states and weights of the parameters that the chip updates.
    ranks = plan.chips
    part = 1.0 - layout.shard_optimizer + layout.shard_optimizer / ranks
    part_routed = 1.0 - layout.shard_optimizer + layout.shard_optimizer * layout.expert / ranks
    optimizer_bytes = u * (s.optimizer_bytes - 4.0 * (wide - 1.0))
    weight_bytes = s.weight_bytes * wide
    touched = 2.0 * optimizer_bytes + u * s.gradient_bytes + u * weight_bytes
    updated = touched * ((n.rest + n.embeddings) * part + n.routed / layout.expert * part_routed)
    held_parameters = n.rest + n.embeddings + n.routed / layout.expert
    return SimpleNamespace(
        counts=n,
        microbatches=m,
        layer_passes=m * w.layers,
        flops=flops,
        attention_flops=attention_flops,
        gemm_bytes=gemm_bytes,
        elementwise_bytes=elementwise * wide,
        head_flops=(2.0 + u) * head_flops,
        head_bytes=16.0 * M * w.vocabulary,
        arithmetic=arithmetic,
        attention_time=attention_time * wide_time,
        head_time=head_time,
        wide=wide,
        optimizer_traffic=(1.0 - layout.offload_optimizer) * updated,
        host_traffic=layout.offload_optimizer * updated,
        copied=layout.offload_optimizer * (u * s.gradient_bytes + u * weight_bytes) * held_parameters,
        bandwidth=bandwidth,
    )


def step_times(system, plan, done, outcome, temperature):
    """Terms of a step, from the work, the clock, and the communication that the outcome leaves exposed."""
    w, chip, s, layout = system.workload, system.accelerator, system.software, plan.layout
    slow, clock = system.production_slowdown, outcome.clock
    case = {name: getattr(outcome.step_time, name) / slow for name in ("expert", "data")}
    product = norm(chip.roofline_exponent, done.arithmetic / clock, done.gemm_bytes / done.bandwidth)
    product += done.attention_time / clock
    elementwise = done.elementwise_bytes / done.bandwidth
    on_chip = product + elementwise + case["expert"] / done.layer_passes
    routed = 1.0 - w.dense_layers / w.layers if w.experts > 1.0 else 0.0
    launch = chip.launch_overhead * (1.0 + s.expert_launch * routed) * (1.0 - layout.cuda_graphs)
    layer = norm(chip.launch_exponent, on_chip, launch)
    head = done.head_time / clock + done.head_bytes / done.bandwidth
    compute = done.layer_passes * product + done.microbatches * head
    passes = done.layer_passes * layer + done.microbatches * head
    offloaded = done.host_traffic / system.node.host_update_bandwidth
    optimizer = done.optimizer_traffic / done.bandwidth + done.copied / system.node.host_bandwidth
    outside = (1.0 - layout.cuda_graphs) * s.microbatch_time * done.microbatches
    idle = chip.overhead_time + outside + case["data"] + case["expert"]
    periods = done.layer_passes + done.microbatches + 1.0
    leakage = leakage_power(chip, voltage(chip, clock), temperature)
    waking = periods * gated_share(chip, leakage, idle / periods) * chip.gate.wake_time
    overhead = chip.overhead_time + outside + waking
    steady = passes + offloaded + case["data"] + optimizer + overhead
    terms = {
        "compute": compute,
        "memory": done.layer_passes * elementwise,
        "host": done.layer_passes * (layer - on_chip) + offloaded,
        "tensor": 0.0,
        "context": 0.0,
        **case,
        "pipeline": 0.0,
        "bubble": 0.0,
        "optimizer": optimizer,
        "overhead": overhead,
        "straggler": steady * system.reliability.straggler_variation * largest_of(plan.chips),
    }
    return {name: slow * term for name, term in terms.items()}


def largest_of(n):
    """Largest of n normal deviates, `sqrt(2 ln n) - (ln ln n + ln 4 pi) / (2 sqrt(2 ln n))`, from 8 chips."""
    assert n >= 8
    root = np.sqrt(2.0 * np.log(n))
    return root - (np.log(np.log(n)) + np.log(4.0 * np.pi)) / (2.0 * root)


def voltage(chip, clock):
    """Supply over that at clock 1: a floor, then a ramp whose knee is rounded."""
    curve = chip.voltage
    ramp = lambda phi: np.logaddexp(0.0, (phi - curve.knee) / curve.width)  # noqa: E731
    slope = (1.0 - curve.floor) / (1.0 - curve.knee) * curve.width
    return (curve.floor + slope * ramp(clock)) / (curve.floor + slope * ramp(1.0))


def leakage_power(chip, volts, temperature):
    """Leakage, `P v exp(k (v - 1)) exp(b (theta - theta_0))`."""
    law = chip.leakage
    warm = np.exp(law.temperature_sensitivity * (temperature - law.reference_temperature))
    return law.power * volts * np.exp(law.voltage_sensitivity * (volts - 1.0)) * warm


def gated_share(chip, leakage, idle):
    """Share of the chip that is off in idle periods of a length."""
    gate = chip.gate
    even = gate.wake_energy / ((1.0 - gate.residual_fraction) * leakage)
    return gate.fraction / (1.0 + np.exp(-(idle - even) / gate.blend_time))
