"""All that the page draws of a plan: its outcome, where money and heat go, the roofline, and plans near it.

Everything is one function of the numbers of a run, so that a single compiled program serves every slider.
"""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from energymodel.numerics import Scalar
from energymodel.physics.limits import landauer_energy
from energymodel.report.answers.details import costs
from energymodel.runtime.compilation import compiler_options
from energymodel.runtime.operations import with_barriers
from energymodel.search.training_run import TrainingRun, in_float64
from energymodel.system.chip_load import OperatingPoint, format_factors, operating_point
from energymodel.system.evaluate import evaluate
from energymodel.system.outcome import Slack, TrainingOutcome
from energymodel.system.plan import TargetLoss
from energymodel.system.step import StepWork, step_work
from energymodel.system.training_system import DesignedRun, TrainingSystem, as_designed

CLOCKS, BATCHES = 8, 7
"""Clocks and batches of the plans that the front is taken from."""


class Roofline(NamedTuple):
    """Work of a chip under its roofs: of the matrix products of a layer, of all its kernels, and of a whole step."""

    intensity: Float[Array, " works"]  # operations over bytes of memory [FLOP/B]
    rate: Float[Array, " works"]  # operations over time [FLOP/s]
    peak: Scalar  # of the chip in the number formats of the plan, at the clock of the run [FLOP/s]
    bandwidth: Scalar  # that kernels get from the memory [B/s]


class Warmth(NamedTuple):
    """How the hottest chip gets its temperature, from that of the coolant by rises that add up to it [K]."""

    supply: Scalar
    row: Scalar
    coldplate: Scalar
    package: Scalar
    hot_spot: Scalar
    limit: Scalar  # of the accelerator


class Operation(NamedTuple):
    """Energy of an operation of the chip at clock 1 [J/FLOP], and the Landauer bound of the bits that it erases."""

    energy: Scalar
    bound: Scalar


class Nearby(NamedTuple):
    """Plans with other batches and clocks that reach the same loss, each with what it takes."""

    batch_factor: Float[Array, " plans"]
    clock: Float[Array, " plans"]
    time: Float[Array, " plans"]
    energy: Float[Array, " plans"]
    money: Float[Array, " plans"]
    carbon: Float[Array, " plans"]
    slack: Float[Array, " plans"]  # smallest logarithm of limit over value; negative where a plan violates a limit


class View(NamedTuple):
    """All that is drawn of a plan; `money` is what each part costs [USD]."""

    outcome: TrainingOutcome
    money: Mapping[str, Scalar]
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
    point = operating_point(designed.system, designed.plan, work.coolant, work.load, sum(work.traffic.exposed))
    return View(
        outcome=outcome,
        money=costs(designed.system, designed.plan, outcome),
        roofline=_roofline(designed, work, point, outcome),
        warmth=_warmth(designed, outcome, point),
        operation=_operation(designed.system),
        nearby=_nearby(run, outcome, factors, clocks),
    )


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


def _operation(system: TrainingSystem) -> Operation:
    chip = system.accelerator
    bound = landauer_energy(chip.bits_per_flop, chip.leakage.reference_temperature)
    return Operation(jnp.asarray(chip.energy_per_flop), bound)


def _nearby(run: TrainingRun, outcome: TrainingOutcome, factors: Array, clocks: Array) -> Nearby:
    """The grid of batches and clocks, every point at the loss of the plan."""

    def at(factor: Scalar, clock: Scalar) -> Nearby:
        changed = (run.plan.batch * factor, clock, TargetLoss(outcome.loss))
        plan = eqx.tree_at(lambda plan: (plan.batch, plan.clock, plan.goal), run.plan, changed)
        near = evaluate(run.system, plan)
        smallest_batch = run.plan.layout.smallest_batch(plan.chips, run.system.workload.sequence)
        # what the parameters can store is a warning, no limit
        slacks = [getattr(near.slack, name) for name in Slack.__dataclass_fields__ if name != "information"]
        slack = jnp.stack([*map(jnp.asarray, slacks), jnp.log(jnp.min(plan.batch) / smallest_batch)])
        energy, carbon = jnp.asarray(near.energy.total), jnp.asarray(near.carbon)
        return Nearby(factor, clock, near.time, energy, near.money, carbon, jnp.min(slack))

    return jax.vmap(at)(*(grid.ravel() for grid in jnp.meshgrid(factors, clocks, indexing="ij")))


class Evaluator:
    """The view of any run that has the structure of this one, compiled once; numbers are float64.

    A layout is numbers, so that another layout is the same program.
    """

    def __init__(self, run: TrainingRun) -> None:
        results: list = []

        def flat_view(vector: Array, factors: Array, clocks: Array) -> Float[Array, " results"]:
            leaves, structure = jax.tree.flatten(view_of(build(vector), factors, clocks))
            results[:] = [structure, [np.shape(leaf) for leaf in leaves]]
            # One array comes back: a hundred of them would take as long to fetch as to compute.
            return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])

        with jax.enable_x64(True):
            _, build = ravel_pytree(in_float64(run))
            examples = [jax.ShapeDtypeStruct((size,), np.float64) for size in (run.vector.size, BATCHES, CLOCKS)]
            lowered = jax.jit(with_barriers(flat_view), compiler_options=compiler_options()).lower(*examples)
            self._program = lowered.compile()
        self._structure, self._shapes = results
        self._ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]

    def __call__(
        self,
        vector: Float[np.ndarray, " numbers"],
        factors: Float[np.ndarray, " batches"],
        clocks: Float[np.ndarray, " clocks"],
    ) -> View:
        """The view at a vector of numbers, as NumPy numbers.

        **Arguments:**

        - `factors`, `clocks`: `BATCHES` and `CLOCKS` of them, as in `view_of`.
        """
        with jax.enable_x64(True):
            numbers = np.asarray(self._program(vector, factors, clocks))
        parts = np.split(numbers, self._ends)
        shaped = [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]
        return jax.tree.unflatten(self._structure, shaped)
