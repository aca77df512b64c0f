"""How long is one training step, term by term?"""

from typing import TYPE_CHECKING

import jax.numpy as jnp

from energymodel.numerics import p_norm_excess
from energymodel.performance.parallelism import bubble_fraction, idle_stage_layers
from energymodel.performance.reliability import straggler_factor
from energymodel.system.exchange import Traffic
from energymodel.system.operating_point import ChipLoad, OperatingPoint
from energymodel.system.outcome import StepTime
from energymodel.system.plan import TrainingPlan
from energymodel.system.work import Division, LayerWork, Shard, activation_bytes, optimizer_traffic

if TYPE_CHECKING:
    from energymodel.system.training_system import TrainingSystem

BACKWARD_SHARE = 2.0 / 3.0  # of the work of a pass: two products for each one forward


def step_time(
    system: "TrainingSystem", plan: TrainingPlan, division: Division, work: LayerWork, part: Shard,
    load: ChipLoad, point: OperatingPoint, traffic: Traffic,
) -> StepTime:  # fmt: skip
    """Terms of `t = kappa_n [t_mb (m + (p-1)/v) + t_data + t_opt + t_fixed]` [derivation: docs/physics.md B3].

    A micro-batch takes the slowest pipeline rank `t_mb`: the layers' kernels and exposed exchanges against the time
    to launch them (p-norm), the output head and the hop to the next rank. `kappa_n` is the straggler factor.

    **Arguments:**

    - `system`, `plan`: what is given and what is decided.
    - `division`, `work`, `part`: from `divide`, `layer_work`, `shard`.
    - `load`, `point`: times of a layer at clock 1 and the clock, from `chip_load`, `operating_point`.
    - `traffic`: exchanges, from `traffic_of`.

    **Returns:** terms of the time of a step [s].
    """
    chip, layout, software = system.accelerator, plan.layout, system.software

    # One layer and micro-batch: kernels and exposed exchanges, against the time to launch them.
    products = load.product_time(chip, point.clock)
    tensor = (1.0 - software.tensor_overlap) * traffic.tensor.time
    context = (1.0 - software.context_overlap) * traffic.context.time
    expert = (1.0 - software.expert_overlap) * traffic.expert.time
    spill = 2.0 * layout.offload_activations * activation_bytes(system, plan, division) / system.node.host_bandwidth
    on_chip = products + load.elementwise + tensor + context + expert
    stall = jnp.maximum(p_norm_excess(chip.host_exponent, on_chip, chip.host_time), spill - on_chip)
    layer = on_chip + stall

    # The pipeline: the slowest rank paces all, the last one adds the output head.
    head = load.arithmetic * work.head_share / point.clock + work.head_bytes / chip.sustained_bandwidth
    hops = division.microbatches * (1.0 - software.pipeline_overlap) * traffic.pipeline.time
    work_time = division.layer_passes * layer + division.head_passes * head
    idle = idle_stage_layers(system.workload.layers, layout.pipeline, layout.interleaving, head / layer)
    imbalance = division.microbatches * idle * layer
    fill = bubble_fraction(layout.pipeline, layout.interleaving, division.microbatches)
    bubble = imbalance + fill * (work_time + hops + imbalance)
    passes = work_time + hops + bubble

    # The exchange of gradients hides behind the backward pass, as far as that lasts.
    exchange = traffic.data.time
    exposed = exchange - jnp.minimum(software.data_overlap * exchange, passes * BACKWARD_SHARE)
    copied = layout.offload_optimizer * (software.gradient_bytes + software.weight_bytes) * (part.dense + part.routed)
    update = optimizer_traffic(system, plan, part) / chip.sustained_bandwidth + copied / system.node.host_bandwidth
    waking = chip.gate.wake_delay(chip.leakage(point.voltage, point.temperature), passes / division.microbatches)
    overhead = chip.overhead_time + waking
    steady = passes + exposed + update + overhead
    slowdown = straggler_factor(plan.chips, system.reliability.straggler_variation)
    return StepTime(
        compute=division.layer_passes * products + division.head_passes * head,
        memory=division.layer_passes * load.elementwise,
        host=division.layer_passes * stall,
        tensor=division.layer_passes * tensor,
        context=division.layer_passes * context,
        expert=division.layer_passes * expert,
        pipeline=hops,
        bubble=bubble,
        data=exposed,
        optimizer=update,
        overhead=overhead,
        straggler=steady * (slowdown - 1.0),
    )
