"""The answer of `limits`: the energy of a run above its lower bounds, and the rates that its energy allows."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.learning.loss_law import FLOP_PER_PARAMETER_AND_TOKEN
from energymodel.physics import limits as physics
from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers.details import bits_sentence, energy_flow
from energymodel.report.answers.run_tables import Run, outcome_table, prior_count, priors_table
from energymodel.report.cells import Column, Quantity, present, words
from energymodel.report.number import plain
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.outcome_spread import DEVIATIONS, OutcomeSpread
from energymodel.system.chip_load import format_factors
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.step import training_step
from energymodel.system.training_system import TrainingSystem, as_designed, parameters_in_loss

OPERATIONS_PER_JOULE = 4.7e15  # FLOP/J: geometric mean of the fp4 CMOS estimates of Ho et al. 2023
REFRACTION = 1.468  # group index of silica fiber at 1550 nm [ITU-T G.652]
RELAXATION_SHARE = 0.1  # of a clock period: the example of docs/physics.md A0.7, tau = 10 tau_c; an assumption
_UNLIMITED_TOKENS = 1e20
_MULTIPLE = Column("multiple", "the run is, times")
_OF_OPERATIONS = ("landauer_operation", "landauer_finite_time")


def limits_answer(scenario: Scenario, outcome: TrainingOutcome, spread: OutcomeSpread) -> Answer:
    """The bounds of a run from the scenario's own numbers [docs/physics.md A0.7, A0.8 and B8]."""
    with jax.enable_x64(True):  # rates of operations are beyond float32
        table, rates = bounds_table(scenario, outcome, spread), rates_table(scenario, outcome, spread)
    run, (flow_table, flow) = Run(scenario.plan, outcome, spread), energy_flow(outcome)
    numbers = {row[4]: (_MULTIPLE, row[2]) for row in table.rows}
    numbers |= {column.name: rates.number(column.name) for column in rates.columns}
    numbers["energy"] = Column("", "", "J"), run.quantity("energy")
    sentences = (
        "The run takes {energy:i}. Bits are erased at {temperature}.",
        "That is {roofline} times what operations and memory traffic alone take on its chip, and {cmos_wall} times "
        "what arithmetic takes in the best CMOS that is projected.",
        "It is {landauer_operation} times Landauer's limit for the bits that the operations erase.",
        "Information absorbed: {information}, {share} of what the parameters can store; {energy_per_bit}, "
        "{energy_per_bit_multiple} times k_B T ln 2.",
        "Speed limit of operations (Margolus and Levitin): {speed_limit_of_energy} with the energy of the run, "
        "{speed_limit_of_step_energy} with that of one step; the run does {operation_rate}.",
        "Light in fiber goes {light_distance} in the latency of a link, {link_latency}: a wider machine waits longer.",
    )
    outputs = dataclasses.replace(outcome_table({"run": run}), level="full")
    return Answer.of(
        scenario,
        "limits",
        Sentence("How far the run is from the bounds of physics, technology and its own chip"),
        [Sentence(text, numbers) for text in sentences],
        [table, rates, outputs, flow_table, priors_table(scenario)],
        charts=[ladder_chart(table), flow],
        notes=present(bits_sentence(run), prior_count(scenario)),
        rows="bounds",
    )


def bounds_table(scenario: Scenario, outcome: TrainingOutcome, spread: OutcomeSpread) -> Table:
    """Lower bounds and the multiples of them that the run takes.

    Those of the bits that operations erase are as uncertain as the outcome's multiple of Landauer's limit, whose bits
    per operation are uncertain; the others as the energy.
    """
    energy, bounds = float(np.asarray(outcome.energy.total)), energy_bounds(scenario.system, scenario.plan, outcome)
    multiples: list[Any] = []
    for key, (_, bound, _) in bounds.items():
        name = "landauer_multiple" if key in _OF_OPERATIONS else "energy"
        multiples.append(_uncertain(float(physics.landauer_multiple(energy, bound)), spread, name))
    titles, energies, bases = zip(*bounds.values(), strict=True)
    cells = {
        words("bound"): [*titles, "the run"],
        Column("energy", "energy", "J", digits="two"): [*energies, energy],
        _MULTIPLE: [*multiples, 1.0],
        words("basis"): [*bases, ""],
        words("key", level="data"): [*bounds, "run"],
    }
    return Table.of("bounds", "Lower bounds on energy", cells, len(bounds))


def _uncertain(value: float, spread: OutcomeSpread, name: str) -> Quantity:
    """A number whose logarithm is as uncertain as that of an output."""
    return Quantity.around(value, DEVIATIONS * spread.deviation(name))


def rates_table(scenario: Scenario, outcome: TrainingOutcome, spread: OutcomeSpread) -> Table:
    """What a bit takes, and how fast operations could be."""
    system, temperature = scenario.system, float(scenario.plan.coolant_temperature)
    energy, information = float(np.asarray(outcome.energy.total)), float(outcome.information)
    capacity = float(physics.information_capacity(system.workload.parameters, system.capacity_per_parameter))
    of_bit = float(physics.energy_per_bit(energy, information))
    multiple = float(physics.landauer_multiple(of_bit, physics.landauer_energy(1.0, temperature)))
    step_energy = float(outcome.power_average) * float(np.asarray(outcome.step_time.total))
    rate = _operations(system, outcome) / float(outcome.time)
    whole_run, one_step = (float(physics.margolus_levitin_rate(of)) for of in (energy, step_energy))
    latency = float(system.network.link.latency)
    way = float(physics.light_distance(latency, REFRACTION))
    stored = _uncertain(information / capacity, spread, "information")
    cells = {
        Column("temperature", "erasure at", "K"): temperature,
        Column("information", "information absorbed", "bit"): _uncertain(information, spread, "information"),
        Column("capacity", "storage capacity", "bit"): capacity,
        Column("share", "share of the capacity", kind="share"): stored,
        Column("energy_per_bit", "energy of a bit", "J/bit"): _uncertain(of_bit, spread, "energy_per_bit"),
        Column("energy_per_bit_multiple", "times k_B T ln 2"): _uncertain(multiple, spread, "energy_per_bit"),
        Column("operation_rate", "rate of operations", "FLOP/s", digits="two"): rate,
        Column("speed_limit_of_energy", "speed limit of the energy", "1/s", digits="two"): whole_run,
        Column("speed_limit_of_step_energy", "speed limit of a step", "1/s", digits="two"): one_step,
        Column("link_latency", "latency of a link between nodes", "s"): latency,
        Column("light_distance", "way of light in it", "m", digits="two"): way,
    }
    return Table.facts("rates", "What a bit takes, and rates of operations", cells, "full")


def ladder_chart(table: Table) -> Chart:
    """Energy of the run above its lower bounds, on a logarithmic axis."""
    *bounds, _ = positive = [row for row in table.rows if row[1].value > 0.0]
    nearest = max(bounds, key=lambda row: row[1].value)
    title = Sentence(
        f"The run takes {{times}} times the nearest bound: {nearest[0]}", {"times": (_MULTIPLE, nearest[2])}
    )
    names, subtitle = [row[0] for row in [positive[-1], *bounds]], "Lower bounds on the energy of the run"
    return Chart("bars", title, "bounds", "bound", ["energy"], subtitle, log=["energy"], only=names, axis="energy")


def _operations(system: TrainingSystem, outcome: TrainingOutcome) -> float:
    """Operations that the model needs [FLOP]: six per active parameter and token."""
    return FLOP_PER_PARAMETER_AND_TOKEN * float(system.workload.active_parameters) * float(outcome.tokens)


def energy_bounds(
    system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome
) -> dict[str, tuple[str, Float[Array, ""], str]]:
    """Title, energy [J] and basis of lower bounds on the energy of a run, by key.

    What erasing bits takes [Landauer 1961], what arithmetic takes in the best CMOS, and the roofline of the chip. Bits
    are erased at the coolant temperature; a step overwrites the bits of the working weights; the entropy of the data
    is the floor of the loss law.
    """
    temperature, operations = float(plan.coolant_temperature), _operations(system, outcome)
    parameters, tokens = float(system.workload.parameters), float(outcome.tokens)
    weight_bits, capacity = 8.0 * float(system.software.weight_bytes), float(system.capacity_per_parameter)
    erased, entropy = float(system.accelerator.bits_per_flop), entropy_floor(system)
    period = 1.0 / (float(system.accelerator.reference_clock) * float(outcome.clock))
    flop_energy, floor, memory_joules = map(float, _hardware(system, plan))
    byte_energy = float(system.accelerator.traffic_energy)
    traffic = memory_joules * float(plan.chips) * float(outcome.steps) / byte_energy if byte_energy else 0.0
    of_model = physics.landauer_model_energy(float(outcome.information), parameters, capacity, temperature)
    overwritten = physics.landauer_overwrite_energy(parameters, outcome.steps, weight_bits, temperature)
    of_source = physics.landauer_source_energy(parameters, tokens * entropy / math.log(2.0), temperature)
    of_operation = plain(float(physics.source_bits_per_operation(entropy)))
    once = physics.landauer_operation_energy(operations, erased, temperature)
    in_time = physics.finite_time_landauer_energy(operations * erased, temperature, period, RELAXATION_SHARE * period)
    best_cmos = physics.cmos_wall_energy(operations, OPERATIONS_PER_JOULE)
    roofline = physics.roofline_energy(operations, flop_energy, traffic, byte_energy, floor)
    absorbed = f"min(information absorbed, {capacity:g} bit per parameter)"
    source = f"as {of_operation} bit per FLOP, at {plain(entropy)} nat/token"
    relaxation = f"relaxation in {RELAXATION_SHARE:g} of a clock period, an assumption"
    chip = f"operations and memory traffic only, at {plain(floor)} of the reference voltage"
    every_step = f"{weight_bits:g} bit per parameter and step"
    return {
        "landauer_model": ("bits of the model", of_model, absorbed),
        "landauer_overwrite": ("overwriting the weights every step", overwritten, every_step),
        "landauer_source": ("parameters x data (source's form)", of_source, source),
        "landauer_operation": ("bits erased by operations", once, f"{erased:g} bit per FLOP"),
        "landauer_finite_time": ("the same at the chip's clock", in_time, relaxation),
        "cmos_wall": ("CMOS wall, fp4 arithmetic", best_cmos, f"{OPERATIONS_PER_JOULE:g} FLOP/J (Ho et al. 2023)"),
        "roofline": ("roofline of this chip", roofline, chip),
    }


def entropy_floor(system: TrainingSystem) -> float:
    """Loss at unlimited data and parameters [nat/token]; at unlimited data alone if the law has no floor."""
    learning = system.learning
    for name in ("loss_law", "law"):
        law = getattr(learning, name, None)
        if law is not None and hasattr(law, "entropy_floor"):
            return float(law.entropy_floor)
    return float(learning.loss(parameters_in_loss(system), _UNLIMITED_TOKENS))


@Compiled
def _hardware(system: TrainingSystem, plan: TrainingPlan) -> Array:
    """Energy of an operation [J/FLOP], lowest voltage [1], and memory energy of a chip in a step of mean batch [J]."""
    system, plan = as_designed(system, plan)
    chip = system.accelerator
    step = training_step(system, plan, jnp.mean(plan.batch))
    flop_energy = jnp.asarray(chip.energy_per_flop) * format_factors(chip, plan.layout).energy
    return jnp.stack([flop_energy, chip.voltage(chip.minimum_clock), step.power.memory * step.time.total])
