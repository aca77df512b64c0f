"""How long is one training step, and what power does a chip draw during it?"""

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, p_norm_excess
from energymodel.performance.parallelism import bubble_fraction, idle_stage_layers
from energymodel.performance.reliability import straggler_factor
from energymodel.system.exchange import (
    Exchange,
    data_exchange,
    fabric_of,
    layer_exchange,
    pipeline_exchange,
)
from energymodel.system.operating_point import OperatingPoint, chip_load, operating_point
from energymodel.system.outcome import StepTime
from energymodel.system.plan import TrainingPlan
from energymodel.system.work import (
    Division,
    activation_bytes,
    divide,
    layer_work,
    memory_per_chip,
    optimizer_traffic,
    shard,
)

if TYPE_CHECKING:
    from energymodel.system.training_system import TrainingSystem

Scalar = Float[Array, ""]


class ChipPower(NamedTuple):
    """Mean direct-current power per chip over a step, by where it goes [W]."""

    dynamic: Scalar
    static: Scalar
    memory: Scalar
    network: Scalar
    host: Scalar
    idle_wait: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts [W]."""
        return self.dynamic + self.static + self.memory + self.network + self.host + self.idle_wait


class Step(NamedTuple):
    """One training step."""

    time: StepTime
    power: ChipPower
    point: OperatingPoint
    division: Division
    memory: Scalar
    hardware_flops: Scalar
    background_power: Scalar
    waiting_power: Scalar


def training_step(system: "TrainingSystem", plan: TrainingPlan, batch: Numeric) -> Step:
    """One step, `t = kappa_n [t_mb (m + (p-1)/v) + t_data + t_opt + t_fixed]` [derivation: docs/physics.md B3].

    A micro-batch takes the slowest pipeline rank `t_mb`: the layers' kernels and exposed exchanges against the time
    to launch them (p-norm), the output head and the hop to the next rank. `kappa_n` is the straggler factor.

    **Arguments:**

    - `system`, `plan`: what is given and what is decided.
    - `batch`: global batch [token].

    **Returns:** terms of the time [s], mean power per chip by where it goes [W], operating point, memory of the
    fullest chip [B], operations of the mean chip [FLOP].
    """
    chip, layout, software = system.accelerator, plan.layout, system.software
    division = divide(system, plan, batch)
    work = layer_work(system, plan, division)
    part = shard(system, plan, division)
    load = chip_load(system, plan, work.flops, work)
    point = operating_point(system, plan, load)
    fabric = fabric_of(system, plan)
    exchange = layer_exchange(system, plan, fabric, work)

    # One layer and micro-batch: kernels and exposed exchanges, against the time to launch them.
    products = load.product_time(chip, point.clock)
    kernels = products + load.elementwise
    tensor = (1.0 - software.tensor_overlap) * exchange.tensor.time
    context = (1.0 - software.context_overlap) * exchange.context.time
    expert = (1.0 - software.expert_overlap) * exchange.expert.time
    spill = 2.0 * layout.offload_activations * activation_bytes(system, plan, division) / system.node.host_bandwidth
    on_chip = kernels + tensor + context + expert
    stall = jnp.maximum(p_norm_excess(chip.host_exponent, on_chip, chip.host_time), spill - on_chip)
    layer = on_chip + stall

    # The pipeline: the slowest rank paces all, the last one adds the output head.
    head_arithmetic = load.arithmetic * work.head_flops / work.flops
    head = head_arithmetic / point.clock + work.head_bytes / (chip.memory_bandwidth * chip.memory_efficiency)
    link = pipeline_exchange(plan, fabric, work)
    hop = (1.0 - software.pipeline_overlap) * link.time
    mean_layers = division.microbatches * division.layers
    mean_heads = division.microbatches / layout.pipeline
    work_time = mean_layers * layer + mean_heads * head
    hops = division.microbatches * hop
    idle = idle_stage_layers(system.workload.layers, layout.pipeline, layout.interleaving, head / layer)
    imbalance = division.microbatches * idle * layer
    fill = bubble_fraction(layout.pipeline, layout.interleaving, division.microbatches)
    bubble = imbalance + fill * (work_time + hops + imbalance)
    passes = work_time + hops + bubble

    # The exchange of gradients hides behind the backward pass, two thirds of the work, as far as that lasts.
    data = data_exchange(system, plan, fabric, division, part)
    hidden = jnp.minimum(software.data_overlap * data.time, passes * (2.0 / 3.0))
    optimizer_bytes = optimizer_traffic(system, plan, part)
    copied = layout.offload_optimizer * (software.gradient_bytes + software.weight_bytes) * (part.dense + part.routed)
    update = (
        optimizer_bytes * (1.0 - layout.offload_optimizer) / (chip.memory_bandwidth * chip.memory_efficiency)
        + copied / system.node.host_bandwidth
    )
    waking = chip.gate.wake_delay(chip.leakage(point.voltage, point.temperature), passes / division.microbatches)
    steady = passes + (data.time - hidden) + update + chip.overhead_time + waking
    slowdown = straggler_factor(plan.chips, system.reliability.straggler_variation)
    time = StepTime(
        compute=mean_layers * products + mean_heads * head,
        memory=mean_layers * load.elementwise,
        host=mean_layers * stall,
        tensor=mean_layers * tensor,
        context=mean_layers * context,
        expert=mean_layers * expert,
        pipeline=hops,
        bubble=bubble,
        data=data.time - hidden,
        optimizer=update,
        overhead=chip.overhead_time + waking,
        straggler=steady * (slowdown - 1.0),
    )
    total = steady * slowdown

    # Energy of the mean chip. Kernels keep it busy; host stalls idle it; bubbles and exchanges keep it spinning.
    busy = time.compute + time.memory + time.optimizer
    exchanges = time.tensor + time.context + time.expert + time.pipeline + time.data
    waiting = exchanges + time.bubble + time.overhead + time.straggler
    head_share = work.head_flops / work.flops
    layers_worth = mean_layers + mean_heads * head_share
    memory_energy = mean_layers * load.memory_energy + 8.0 * chip.memory_energy * (
        mean_heads * work.head_bytes + optimizer_bytes * (1.0 - layout.offload_optimizer)
    )
    sent = [exchange.tensor, exchange.context, exchange.expert]
    sent = [one.scaled(mean_layers) for one in sent] + [link.scaled(division.microbatches), data]
    leakage = chip.leakage(point.voltage, point.temperature)
    saved = chip.gate.saved_power(leakage, waiting, total)
    background = system.network.static_power + system.node.scale_up.power() + system.network.link.power()
    host = system.node.overhead_power / system.node.chips
    power = ChipPower(
        dynamic=layers_worth * load.switching_energy * point.voltage**2 / total,
        static=point.static_power * busy / total,
        memory=memory_energy / total,
        network=_network_energy(system, plan, sent) / total + background,
        host=jnp.asarray(host),
        idle_wait=(point.static_power * waiting + chip.idle_power * time.host) / total - saved,
    )
    return Step(
        time=time,
        power=power,
        point=point,
        division=division,
        memory=memory_per_chip(system, plan, division),
        hardware_flops=layers_worth * work.flops,
        background_power=background + host,
        waiting_power=point.static_power,
    )


def _network_energy(system: "TrainingSystem", plan: TrainingPlan, sent: list[Exchange]) -> Scalar:
    """Energy that one chip's traffic costs in links and switches in a step [J]."""
    nodes = jnp.maximum(1.0, plan.chips / system.node.chips)
    inner = sum(exchange.inner_bytes for exchange in sent)
    outer = sum(exchange.outer_bytes for exchange in sent)
    return 8.0 * (inner * system.node.scale_up.energy + outer * system.network.energy_per_bit(nodes))
