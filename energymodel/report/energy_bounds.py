"""Lower bounds on the energy of a run, set by physics, by technology and by its own hardware."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.learning.loss_law import FLOP_PER_PARAMETER_AND_TOKEN
from energymodel.physics.limits import (
    cmos_wall_energy,
    energy_per_bit,
    finite_time_landauer_energy,
    information_capacity,
    landauer_energy,
    landauer_model_energy,
    landauer_multiple,
    landauer_operation_energy,
    landauer_overwrite_energy,
    landauer_source_energy,
    margolus_levitin_rate,
    roofline_energy,
    source_bits_per_operation,
)
from energymodel.runtime.compilation import Compiled
from energymodel.system.chip_load import format_factors
from energymodel.system.evaluate import parameters_in_loss
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.step import training_step
from energymodel.system.training_system import TrainingSystem, as_designed

OPERATIONS_PER_JOULE = 4.7e15  # FLOP/J: geometric mean of the fp4 CMOS estimates of Ho et al. 2023
RELAXATION_SHARE = 0.1  # of a clock period: the example of docs/physics.md A0.7, tau = 10 tau_c; an assumption
_UNLIMITED_TOKENS = 1e20


class Bound(NamedTuple):
    """A lower bound on the energy of the run, and the multiple of it that the run uses."""

    key: str
    title: str
    energy: float
    multiple: float
    basis: str


class Bounds(NamedTuple):
    """The ladder of bounds of a run, and the operation rates that its energy and power allow."""

    energy: float
    temperature: float
    bounds: tuple[Bound, ...]
    energy_per_bit: float
    energy_per_bit_multiple: float
    operation_rate: float
    speed_limit_of_energy: float
    speed_limit_of_power: float
    information: float
    capacity: float


def run_bounds(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome) -> Bounds:
    """Bounds of a run from the scenario's own numbers [docs/physics.md A0.7, A0.8 and B8].

    Bits are erased at the coolant temperature. There are six operations per active parameter and token; a step
    overwrites the bits of the working weights; the entropy of the data is the floor of the loss law.
    """
    with jax.enable_x64(True):  # rates of operations are beyond float32
        return _run_bounds(system, plan, outcome)


def _run_bounds(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome) -> Bounds:
    temperature, energy = float(plan.coolant_temperature), float(np.asarray(outcome.energy.total))
    operations = FLOP_PER_PARAMETER_AND_TOKEN * float(system.workload.active_parameters) * float(outcome.tokens)
    minima = (*_erasure_minima(system, plan, outcome, operations), *_hardware_minima(system, plan, outcome, operations))
    information = float(outcome.information)
    bit_energy = float(energy_per_bit(energy, information))
    return Bounds(
        energy=energy,
        temperature=temperature,
        bounds=tuple(
            Bound(key, title, float(minimum), float(landauer_multiple(energy, minimum)), basis)
            for key, title, minimum, basis in minima
        ),
        energy_per_bit=bit_energy,
        energy_per_bit_multiple=float(landauer_multiple(bit_energy, landauer_energy(1.0, temperature))),
        operation_rate=operations / float(outcome.time),
        speed_limit_of_energy=float(margolus_levitin_rate(energy)),
        speed_limit_of_power=float(
            margolus_levitin_rate(float(outcome.power_average) * float(np.asarray(outcome.step_time.total)))
        ),
        information=information,
        capacity=float(information_capacity(float(system.workload.parameters), float(system.capacity_per_parameter))),
    )


_Minimum = tuple[str, str, Array, str]
"""Key, title, energy [J] and basis of a bound."""


def _erasure_minima(
    system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome, operations: float
) -> tuple[_Minimum, ...]:
    """What erasing bits takes: of the model, of every step, of the data, of every operation [Landauer 1961]."""
    temperature = float(plan.coolant_temperature)
    parameters, tokens = float(system.workload.parameters), float(outcome.tokens)
    weight_bits, capacity = 8.0 * float(system.software.weight_bytes), float(system.capacity_per_parameter)
    erased, entropy = float(system.accelerator.bits_per_flop), entropy_floor(system)
    period = 1.0 / (float(system.accelerator.reference_clock) * float(outcome.clock))
    return (
        (
            "landauer_model",
            "bits of the model",
            landauer_model_energy(float(outcome.information), parameters, capacity, temperature),
            f"min(information absorbed, {capacity:g} bit per parameter)",
        ),
        (
            "landauer_overwrite",
            "overwriting the weights every step",
            landauer_overwrite_energy(parameters, outcome.steps, weight_bits, temperature),
            f"{weight_bits:g} bit per parameter and step",
        ),
        (
            "landauer_source",
            "parameters x data (source's form)",
            landauer_source_energy(parameters, tokens * entropy / math.log(2.0), temperature),
            f"as {float(source_bits_per_operation(entropy)):.4g} bit per FLOP, at {entropy:.4g} nat/token",
        ),
        (
            "landauer_operation",
            "bits erased by operations",
            landauer_operation_energy(operations, erased, temperature),
            f"{erased:g} bit per FLOP",
        ),
        (
            "landauer_finite_time",
            "the same at the chip's clock",
            finite_time_landauer_energy(operations * erased, temperature, period, RELAXATION_SHARE * period),
            f"relaxation in {RELAXATION_SHARE:g} of a clock period, an assumption",
        ),
    )


def _hardware_minima(
    system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome, operations: float
) -> tuple[_Minimum, ...]:
    """What arithmetic takes in the best CMOS, and what operations and memory traffic take on this chip."""
    hardware = _hardware(system, plan)
    floor, byte_energy = float(hardware.lowest_voltage), float(system.accelerator.traffic_energy)
    traffic = (
        float(hardware.memory_joules) * float(plan.chips) * float(outcome.steps) / byte_energy if byte_energy else 0.0
    )
    return (
        (
            "cmos_wall",
            "CMOS wall, fp4 arithmetic",
            cmos_wall_energy(operations, OPERATIONS_PER_JOULE),
            f"{OPERATIONS_PER_JOULE:g} FLOP/J (Ho et al. 2023)",
        ),
        (
            "roofline",
            "roofline of this chip",
            roofline_energy(operations, float(hardware.flop_energy), traffic, byte_energy, floor),
            f"operations and memory traffic only, at {floor:.3g} of the reference voltage",
        ),
    )


def entropy_floor(system: TrainingSystem) -> float:
    """Loss at unlimited data and parameters [nat/token]; at unlimited data alone if the law has no floor."""
    learning = system.learning
    for name in ("loss_law", "law"):
        law = getattr(learning, name, None)
        if law is not None and hasattr(law, "entropy_floor"):
            return float(law.entropy_floor)
    return float(learning.loss(parameters_in_loss(system), _UNLIMITED_TOKENS))


class _Hardware(NamedTuple):
    """Inputs of the roofline bound."""

    flop_energy: Float[Array, ""]
    lowest_voltage: Float[Array, ""]
    memory_joules: Float[Array, ""]


@Compiled
def _hardware(system: TrainingSystem, plan: TrainingPlan) -> _Hardware:
    """Energy of an operation [J/FLOP], lowest voltage [1], and memory energy of a chip in a step of mean batch [J]."""
    system, plan = as_designed(system, plan)
    chip = system.accelerator
    step = training_step(system, plan, jnp.mean(plan.batch))
    return _Hardware(
        flop_energy=jnp.asarray(chip.energy_per_flop) * format_factors(chip, plan.layout).energy,
        lowest_voltage=chip.voltage(chip.minimum_clock),
        memory_joules=step.power.memory * step.time.total,
    )
