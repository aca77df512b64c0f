"""One training step: time by term, operating point, and power of a chip."""

import operator
from functools import partial, reduce
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from energymodel.numerics import Numeric, Part, Scalar, is_fixed, p_norm, p_norm_excess, part
from energymodel.performance.adaptation import FineTuning
from energymodel.performance.network import network_energy as transfer_energy
from energymodel.performance.reliability import straggler_factor
from energymodel.physics.cooling import Coolant
from energymodel.physics.switching import low_clock_share
from energymodel.system.chip_load import ChipLoad, FormatFactors, OperatingPoint, chip_load, operating_point
from energymodel.system.communication import Traffic, traffic_of
from energymodel.system.division import Division, divide
from energymodel.system.memory import ChipMemory, chip_memory
from energymodel.system.outcome import StepTime
from energymodel.system.pipeline_ranks import PassTimes, RankStages, Stages, even_wait, rank_stages, staged_wait
from energymodel.system.plan import StagePower, TrainingPlan
from energymodel.system.training_system import Links, TrainingSystem
from energymodel.system.work import LayerWork, layer_work


class StepWork(NamedTuple):
    """Work of a step on a chip, the links and the coolant that it has, independent of the clock."""

    division: Division
    layer: LayerWork
    memory: ChipMemory
    traffic: Traffic
    load: ChipLoad
    head: ChipLoad
    factors: FormatFactors
    links: Links
    coolant: Coolant


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
        return reduce(operator.add, self)

    @property
    def chip(self) -> Scalar:
        """What the chip draws itself [W]."""
        return self.dynamic + self.static + self.memory + self.idle_wait


class PowerLevels(NamedTuple):
    """Power of a chip without links and host [W].

    While it works (the mean over its kernels and the communication within a layer), waits for others between steps,
    stands awake at a checkpoint, and is stopped; and what a power floor adds to the mean over a step.
    """

    working: Scalar
    waiting: Scalar
    writing: Scalar
    stopped: Scalar
    added: Scalar

    def above(self, floor: Scalar, total: Scalar, apart: Scalar) -> "PowerLevels":
        """None below a floor [W] but at a stop, in a step of which chips wait a time `apart` [s]."""
        raised = jnp.maximum(floor - self.working, 0.0) * (total - apart)
        raised = raised + jnp.maximum(floor - self.waiting, 0.0) * apart
        working, waiting, writing = (jnp.maximum(level, floor) for level in self[:3])
        return PowerLevels(working, waiting, writing, self.stopped, raised / total)


class Step(NamedTuple):
    """One training step and its `duration` [s]; `memory` of the fullest chip, `hardware_flops` of the mean chip.

    `host_memory` is what the fullest chip keeps in that of its host [B].
    `busy_load` is what a busy chip draws with its share of links and host, at least the mean over the step; `idle` is
    the power of a chip that does nothing; `links_price` is per chip [USD].
    """

    time: StepTime
    duration: Scalar
    power: ChipPower
    point: OperatingPoint
    memory: Scalar
    host_memory: Part
    hardware_flops: Scalar
    busy_load: Scalar
    levels: PowerLevels
    idle: ChipPower
    factors: FormatFactors
    links_price: Scalar
    coolant: Coolant


def training_step(system: TrainingSystem, plan: TrainingPlan, batch: Numeric) -> Step:
    """Time [s], power [W] and memory [B] of a step at its operating point, `P = E / t` [derivation: docs/physics.md E].

    Kernels keep the mean chip busy; launch stalls leave it idle; bubbles, exposed communication and stragglers keep it
    spinning, less what power gating saves. Links, switches and the host draw power all the time. A run that is not as
    well tuned (`production_slowdown`) takes longer at the same mean power, as meters of such runs say.

    **Arguments:**

    - `batch`: global batch [token].
    """
    work = step_work(system, plan, batch)
    if isinstance(plan.power, StagePower):
        return _staged_step(system, plan, plan.power, work)
    point, passes = _settled(system, plan, work, plan.power_cap)
    return _step_at(system, plan, work, point, step_time(system, plan, work, point, passes))


def _settled(
    system: TrainingSystem, plan: TrainingPlan, work: StepWork, cap: Numeric
) -> tuple[OperatingPoint, PassTimes]:
    """Operating point of a chip under a power cap [W], and times of a micro-batch there."""
    capped = eqx.tree_at(lambda decisions: decisions.power_cap, plan, cap)
    point = operating_point(system, capped, work.coolant, work.load, sum(work.traffic.exposed))
    return point, pass_times(system, plan, work, point)


def _step_at(system: TrainingSystem, plan: TrainingPlan, work: StepWork, point: OperatingPoint, time: StepTime) -> Step:
    """Power of a step with such work at an operating point, from the energy of each term [definition].

    **Arguments:**

    - `time`: of the step by term [s].
    """
    chip, division, load, head = system.accelerator, work.division, work.load, work.head
    coolant, links = work.coolant, work.links
    total, apart = jnp.asarray(time.total), jnp.asarray(time.apart)
    tuned = total / system.production_slowdown

    layers_worth = division.layer_passes + division.head_passes * work.layer.head_share
    switched = division.layer_passes * load.switching_energy + division.head_passes * head.switching_energy
    memory_energy = division.layer_passes * load.memory_energy + division.head_passes * head.memory_energy
    memory_energy += chip.traffic_energy * work.memory.optimizer_traffic
    busy = time.compute + time.memory + time.optimizer
    waiting = time.tensor + time.context + time.expert + time.pipeline + apart
    waiting_power = point.static_power + point.spin_power
    leakage, slowed = point.leakage, 0.0
    if not is_fixed(plan.waiting_clock, 1.0):
        low = jnp.maximum(point.clock * plan.waiting_clock, chip.minimum_clock)
        low_voltage = chip.voltage(low)
        leakage = chip.leakage(low_voltage, point.temperature)
        slowed = waiting_power - (leakage + chip.fixed_power) - chip.spin_power(low, low_voltage)
        slowed = slowed * low_clock_share(apart, chip.clock_switch_time)
    low_power, periods = leakage + chip.fixed_power, division.idle_periods
    saved = chip.gate.saved_power(leakage, waiting / periods, total / periods)
    sent = work.traffic.of_step(division)
    network_energy = system.node.scale_up.transfer_energy(sum(part.inner_bytes for part in sent))
    network_energy += transfer_energy(sum(part.outer_bytes for part in sent), links.energy_per_bit)
    nothing, idle = jnp.zeros_like(total), jnp.asarray(chip.idle_power)
    power = ChipPower(
        dynamic=switched * point.swing**2 / tuned,
        static=point.static_power * busy / total,
        memory=memory_energy / tuned,
        network=network_energy / tuned + links.power,
        host=nothing,
        idle_wait=(waiting_power * waiting + idle * time.host - slowed * apart) / total - saved,
    )
    some = waiting > 0.0
    gated = 0.0 if is_fixed(saved, 0.0) else jnp.where(some, saved * total / jnp.where(some, waiting, 1.0), 0.0)
    # The working level is what leaves the mean power of the step beside that of waiting apart.
    low_level = waiting_power - gated - slowed
    high_level = (power.chip * total - low_level * apart) / (total - apart)
    levels = PowerLevels(high_level, low_level, low_power, idle, nothing)
    if not is_fixed(plan.power_floor, 0.0):
        levels = levels.above(plan.power_floor * point.busy_power, total, apart)
        power = power._replace(idle_wait=power.idle_wait + levels.added)
    power = power._replace(host=system.host_power(power.chip, coolant))
    busy_load = point.busy_power + links.power + system.host_power(point.busy_power, coolant)
    return Step(
        time=time,
        duration=total,
        power=power,
        point=point,
        memory=work.memory.total,
        host_memory=work.memory.host,
        hardware_flops=layers_worth * work.layer.flops,
        busy_load=jnp.maximum(busy_load, power.total),  # chips that mostly send or wait may draw less when busy
        levels=levels,
        idle=ChipPower(nothing, nothing, nothing, links.power, system.host_power(idle, coolant), idle),
        factors=work.factors,
        links_price=links.price,
        coolant=coolant,
    )


def step_work(system: TrainingSystem, plan: TrainingPlan, batch: Numeric) -> StepWork:
    """Work of a step, independent of the clock [FLOP, B, s]: counts, kernels, parameters, traffic [definition]."""
    division = divide(system, plan, batch)
    layer = layer_work(system, plan, division)
    memory = chip_memory(system, plan, division)
    load, head, factors = chip_load(system, plan, layer, batch)
    links, coolant = system.links(plan.chips), system.facility.cooling.at(plan.coolant_temperature)
    products = load.product_time(system.accelerator, 1.0)
    traffic = traffic_of(system, plan, links.fabric, division, layer, memory, products, load.attention)
    return StepWork(division, layer, memory, traffic, load, head, factors, links, coolant)


def step_time(
    system: TrainingSystem,
    plan: TrainingPlan,
    work: StepWork,
    point: OperatingPoint,
    mean: PassTimes,
    passes_end: Scalar | None = None,
) -> StepTime:
    """Terms [s] of `t = s kappa_n [m t_mb + t_wait + t_data + t_opt + t_fixed]` [derivation: docs/physics.md B3].

    `t_mb` is the time of a micro-batch on the mean pipeline rank: the layers' kernels and exposed communication,
    joined with their launch overhead by a p-norm, the output head and the hop to the next rank. `t_wait` is what the
    schedule makes that rank wait (`performance.pipeline_bubble`), `kappa_n` the straggler factor, s the
    `production_slowdown`, which lengthens all terms alike. The latency of tensor-parallel communication is exposed, or
    overlaps with kernels as launches do (`latency_overlap`). Layers with experts launch more kernels (`expert_launch`);
    launches in CUDA graphs take no time. Sharded parameters are gathered in both passes; all other
    data-parallel communication hides behind the backward pass.

    **Arguments:**

    - `mean`: times of a micro-batch on the mean rank (`pass_times`) [s].
    - `passes_end`: when the last rank has ended its passes [s], unless all ranks have the clock of this one.
    """
    division, memory, load, traffic = work.division, work.memory, work.load, work.traffic
    chip, layout, software = system.accelerator, plan.layout, system.software
    tensor, context, expert = work.traffic.exposed
    head, hop = mean.head, mean.hop

    # The pipeline: the slowest rank paces all others, and the last one adds the output head.
    work_time = division.layer_passes * mean.layer + division.head_passes * head
    hops = division.microbatches * hop
    bubble = even_wait(layout, division, mean) if passes_end is None else passes_end - work_time - hops
    passes = work_time + hops + bubble

    # Gradient communication hides behind the backward pass once gradients are complete, unless it starts at its end.
    gradients_time, rounds = traffic.data.time, division.gradients
    # Of the work of a layer, two products are backward for each one forward; frozen weights have one.
    forward = 1.0 / jnp.asarray(system.adaptation.passes(plan.trained_share).layer)
    window = (1.0 - forward) * (rounds.last + layout.shard_gradients * (rounds.window - rounds.last))
    window = window + forward * layout.shard_parameters
    early = (1.0 - layout.shard_optimizer) * (1.0 - jnp.minimum(layout.pipeline - 1.0, 1.0))
    overlap = software.data_overlap * (1.0 - software.late_communication * (1.0 - early))
    exposed = gradients_time - jnp.minimum(overlap * gradients_time, passes * window)
    # Fetches from the host hide behind all passes. After them the host updates what it keeps, and states on different
    # sides of the link are copied.
    waiting = part(memory.host_traffic, lambda: 1.0 / system.node.host_update_bandwidth)
    if not is_fixed(memory.fetched, 0.0):
        fetched = division.microbatches * memory.fetched / system.node.host_bandwidth
        waiting = waiting + jnp.maximum(fetched - passes, 0.0)
    moved = memory.copied if is_fixed(memory.paged, 0.0) else memory.copied + memory.paged
    update = memory.optimizer_traffic / chip.sustained_bandwidth + part(moved, lambda: 1.0 / system.node.host_bandwidth)
    outside = part(
        (1.0 - layout.cuda_graphs) * software.microbatch_time, lambda: division.microbatches * (1.0 + division.fill)
    )
    waits = division.layer_passes * (tensor + context + expert) + hops + bubble + exposed + chip.overhead_time + outside
    periods = division.idle_periods
    waking = periods * chip.gate.wake_delay(point.leakage, waits / periods)
    overhead = chip.overhead_time + waking + outside
    steady = passes + waiting + exposed + update + overhead
    stragglers = straggler_factor(plan.chips, system.reliability.straggler_variation)
    terms = StepTime(
        compute=division.layer_passes * point.products + division.head_passes * head,
        memory=division.layer_passes * load.elementwise,
        host=division.layer_passes * mean.stall + waiting,
        tensor=division.layer_passes * tensor,
        context=division.layer_passes * context,
        expert=division.layer_passes * expert,
        pipeline=hops,
        bubble=bubble,
        data=exposed,
        optimizer=update,
        overhead=overhead,
        straggler=steady * (stragglers - 1.0),
    )
    return jax.tree.map(lambda term: system.production_slowdown * term, terms)


def pass_times(system: TrainingSystem, plan: TrainingPlan, work: StepWork, point: OperatingPoint) -> PassTimes:
    """Times of a micro-batch at a clock [s]: kernels and exposed communication, joined with launch overhead.

    `t_l = (t_k^p + t_launch^p)^(1/p)`, no shorter than what is spilled to the host takes [derivation:
    docs/physics.md B3].
    """
    chip, layout, software = system.accelerator, plan.layout, system.software
    hidden = software.latency_overlap * work.traffic.tensor.latency
    spill = part(layout.offload_activations, lambda: 2.0 * work.memory.activations / system.node.host_bandwidth)
    on_chip = point.products + work.load.elementwise + sum(work.traffic.exposed)
    sizes = work.division.sizes
    launched = 1.0 + part(sizes.mixture, lambda: software.expert_launch * sizes.expert_share)
    if isinstance(system.adaptation, FineTuning):
        launched = launched + system.adaptation.launched()
    per_layer = part(1.0 - layout.cuda_graphs, lambda: chip.launch_overhead * launched)
    launch = p_norm(chip.launch_exponent, per_layer, hidden)
    stall = p_norm_excess(chip.launch_exponent, on_chip, launch)
    return PassTimes(
        on_chip=on_chip,
        stall=stall if is_fixed(spill, 0.0) else jnp.maximum(stall, spill - on_chip),
        head=work.head.arithmetic / point.clock + work.head.elementwise,
        hop=(1.0 - software.pipeline_overlap) * work.traffic.pipeline.time,
    )


class StagePoints(NamedTuple):
    """The ranks of a pipeline with power by stage: layers, operating points and times, of the three kinds of ranks."""

    stages: RankStages
    caps: Stages
    points: OperatingPoint
    passes: PassTimes


def settle_stages(system: TrainingSystem, plan: TrainingPlan, power: StagePower, work: StepWork) -> StagePoints:
    """Operating points of first, middle and last ranks at their power caps [W], three of each entry [definition]."""
    stages = rank_stages(plan.layout, work.division)
    caps = jnp.minimum(jnp.stack([power.first_stage, power.middle_stages, power.last_stage]), plan.power_cap)
    caps = jnp.where(stages.ranks > 0.0, caps, caps[2])
    return StagePoints(stages, caps, *jax.vmap(partial(_settled, system, plan, work))(caps))


def _staged_step(system: TrainingSystem, plan: TrainingPlan, power: StagePower, work: StepWork) -> Step:
    """The step of a pipeline whose first, middle and last ranks have power caps of their own [definition].

    Each settles at its own clock; the slowest paces the pipeline, and the others wait the rest. Time and power are
    means over the ranks; temperature and busy power those of the chip that has most.
    """
    stages, caps, points, passes = settle_stages(system, plan, power, work)
    count, share = work.division.microbatches, stages.ranks / plan.layout.pipeline
    waited = staged_wait(plan.layout, work.division, stages, passes)
    passes_end = count * jnp.sum(share * stages.work(passes)) + waited

    def step(layers: Scalar, heads: Scalar, point: OperatingPoint, mean: PassTimes) -> Step:
        division = work.division._replace(layer_passes=count * layers, head_passes=count * heads)
        of_rank = work._replace(division=division)
        return _step_at(system, plan, of_rank, point, step_time(system, plan, of_rank, point, mean, passes_end))

    each = jax.vmap(step)(stages.layers, stages.heads, points, passes)
    mean = jax.tree.map(lambda leaf: jnp.sum(share * leaf), each)
    operations = share * stages.layers / jnp.sum(share * stages.layers)
    voltage, swing = (jnp.sqrt(jnp.sum(operations * of**2)) for of in (points.voltage, points.swing))
    temperature = jnp.max(points.temperature)
    point = mean.point._replace(
        voltage=voltage,
        swing=swing,
        temperature=temperature,
        leakage=system.accelerator.leakage(voltage, temperature),
        busy_power=jnp.max(points.busy_power),
        lowest_power=plan.power_cap * jnp.max(points.lowest_power / caps),  # as if the cap of the plan bound
    )
    return mean._replace(point=point, memory=work.memory.total)
