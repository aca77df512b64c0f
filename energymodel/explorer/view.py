"""What does the page show of a plan: its outcome, where money and heat go, the roofline, and plans near it?

Everything is one function of the numbers of a run, so that a single compiled program serves every slider.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Scalar
from energymodel.physics.limits import landauer_energy
from energymodel.search.training_run import TrainingRun
from energymodel.system.chip_load import format_factors
from energymodel.system.evaluate import evaluate
from energymodel.system.operating_point import OperatingPoint, operating_point
from energymodel.system.outcome import Slack, TrainingOutcome
from energymodel.system.plan import TargetLoss
from energymodel.system.step import StepWork, step_work
from energymodel.system.training_system import DesignedRun, as_designed

CLOCKS, BATCHES = 8, 7
"""Clocks and batches of the plans that the front is taken from."""


class Money(NamedTuple):
    """Cost of a run by what is paid for; the parts add up to the money of the outcome [USD]."""

    equipment: Scalar
    building: Scalar
    electricity: Scalar
    delay: Scalar


class Roofline(NamedTuple):
    """Work of a chip under its roofs: of the matrix products of a layer, of all its kernels, and of a whole step.

    - `intensity`: operations over bytes of memory [FLOP/B]; `rate`: operations over time [FLOP/s].
    - `peak`: of the chip in the number formats of the plan, at the clock of the run [FLOP/s].
    - `bandwidth`: that kernels get from the memory [B/s].
    """

    intensity: Float[Array, " works"]
    rate: Float[Array, " works"]
    peak: Scalar
    bandwidth: Scalar


class Warmth(NamedTuple):
    """How the hottest chip gets its temperature; the steps add up to it [K].

    `supply` is the temperature of the coolant; the others are what it rises along the row, from coolant to package,
    within the package, and at the hottest point of the die. `limit` is that of the accelerator.
    """

    supply: Scalar
    row: Scalar
    coldplate: Scalar
    package: Scalar
    hot_spot: Scalar
    limit: Scalar


class Operation(NamedTuple):
    """Energy of an operation of the chip at clock 1 [J/FLOP], and the Landauer bound of the bits that it erases."""

    energy: Scalar
    bound: Scalar


class Nearby(NamedTuple):
    """Plans with other batches and clocks that reach the same loss, each with what it takes.

    `room` is the smallest logarithm of limit over value; negative where a plan violates a limit.
    """

    batch_factor: Float[Array, " plans"]
    clock: Float[Array, " plans"]
    time: Float[Array, " plans"]
    energy: Float[Array, " plans"]
    money: Float[Array, " plans"]
    carbon: Float[Array, " plans"]
    room: Float[Array, " plans"]


class View(NamedTuple):
    """All that is drawn of a plan."""

    outcome: TrainingOutcome
    money: Money
    roofline: Roofline
    warmth: Warmth
    operation: Operation
    nearby: Nearby


def view_of(run: TrainingRun, factors: Float[Array, " batches"], clocks: Float[Array, " clocks"]) -> View:
    """Everything that the page shows of a run [definition].

    **Arguments:**

    - `factors`: batches of the plans near it, over its own [1]; `clocks`: their clocks [1].
    """
    outcome = evaluate(run.system, run.plan)
    designed = as_designed(run.system, run.plan)
    batch = jnp.max(jnp.asarray(designed.plan.batch))
    work = step_work(designed.system, designed.plan, batch)
    point = operating_point(designed.system, designed.plan, work.coolant, work.load, sum(work.exposed))
    return View(
        outcome=outcome,
        money=_money(designed, outcome),
        roofline=_roofline(designed, work, point, outcome),
        warmth=_warmth(designed, outcome, point),
        operation=_operation(designed),
        nearby=_nearby(run, outcome, factors, clocks),
    )


def _money(run: DesignedRun, outcome: TrainingOutcome) -> Money:
    """The cost of a run is linear in what is paid for: each part is the cost without the others."""
    system, plan = run
    chip, facility, price = system.accelerator, system.facility, system.market.price
    chips, time, energy = plan.chips + system.spare_chips(plan.spares), outcome.time, outcome.energy.total
    links = system.links_price(plan.chips) + facility.equipment_price()
    delay = price.cost(0.0, 0.0, time, 0.0, 0.0)
    equipment = price.cost(chip.price, chips, time, 0.0, 0.0, links) - delay
    electricity = price.cost(0.0, 0.0, time, energy, 0.0) - delay
    return Money(equipment, outcome.money - equipment - electricity - delay, electricity, delay)


def _roofline(run: DesignedRun, work: StepWork, point: OperatingPoint, outcome: TrainingOutcome) -> Roofline:
    system, plan = run
    chip, load, layer, division = system.accelerator, work.load, work.layer, work.division
    products = layer.flops - layer.attention_flops
    products_time = load.product_time(chip, point.clock) - load.attention / point.clock
    of_layer = layer.gemm_bytes + layer.elementwise_bytes
    of_step = division.layer_passes * of_layer + division.head_passes * layer.head_bytes
    step = (division.layer_passes + division.head_passes * layer.head_share) * layer.flops
    operations = jnp.stack([products, layer.flops, step])
    moved = jnp.stack([layer.gemm_bytes, of_layer, of_step + work.memory.optimizer_traffic])
    times = jnp.stack([products_time, load.busy_time(chip, point.clock), outcome.step_time.total])
    return Roofline(
        intensity=operations / moved,
        rate=operations / times,
        peak=chip.peak_flops * format_factors(chip, plan.layout).speedup * point.clock,
        bandwidth=chip.sustained_bandwidth,
    )


def _warmth(run: DesignedRun, outcome: TrainingOutcome, point: OperatingPoint) -> Warmth:
    system, plan = run
    chip, cooling = system.accelerator, system.facility.cooling
    supply = jnp.asarray(plan.coolant_temperature)
    hot_spot = point.busy_power * chip.hot_spot_resistance
    package = chip.thermal_resistance * point.busy_power
    row = cooling.at(supply).rise
    coldplate = outcome.temperature - supply - row - package - hot_spot
    return Warmth(supply, row, coldplate, package, hot_spot, jnp.asarray(chip.maximum_temperature))


def _operation(run: DesignedRun) -> Operation:
    chip = run.system.accelerator
    bound = landauer_energy(chip.bits_per_flop, chip.leakage.reference_temperature)
    return Operation(jnp.asarray(chip.energy_per_flop), bound)


def _nearby(run: TrainingRun, outcome: TrainingOutcome, factors: Array, clocks: Array) -> Nearby:
    """The grid of batches and clocks, every point at the loss of the plan."""
    factor, clock = (one.ravel() for one in jnp.meshgrid(factors, clocks, indexing="ij"))

    def at(factor: Scalar, clock: Scalar) -> Nearby:
        goal = TargetLoss(outcome.loss)
        changed = (run.plan.batch * factor, clock, goal)
        plan = eqx.tree_at(lambda plan: (plan.batch, plan.clock, plan.goal), run.plan, changed)
        found = evaluate(run.system, plan)
        smallest_batch = run.plan.layout.smallest_batch(plan.chips, run.system.workload.sequence)
        room = jnp.minimum(smallest_room(found.slack), jnp.log(jnp.min(plan.batch) / smallest_batch))
        energy = jnp.asarray(found.energy.total)
        return Nearby(factor, clock, found.time, energy, found.money, jnp.asarray(found.carbon), room)

    return jax.vmap(at)(factor, clock)


def smallest_room(slack: Slack) -> Scalar:
    """The smallest logarithm of limit over value; what the parameters can store is a warning, no limit [1]."""
    rooms = [getattr(slack, name) for name in Slack.__dataclass_fields__ if name != "information"]
    return jnp.min(jnp.stack([jnp.asarray(room) for room in rooms]))
