"""Formulas of the two source documents for a run: as written, corrected, and by the whole model."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from symbols import LARGER, SLOWER, Symbols

from energymodel import sources
from energymodel.learning.critical_batch import exponential_training_time, per_token_progress
from energymodel.learning.loss_law import ChinchillaLaw, information_rate
from energymodel.learning.loss_ode import loss_rate
from energymodel.numerics import Numeric
from energymodel.performance.kernels import token_rate
from energymodel.performance.saturation import (
    compute_power,
    energy_optimal_batch,
    exponential_saturation,
    half_throughput_batch,
    memory_power,
    memory_traffic_rate,
    proportional_split,
    saturating_throughput,
)
from energymodel.physics.chiller import chiller_power
from energymodel.physics.leakage import static_energy
from energymodel.physics.limits import landauer_energy, landauer_multiple, landauer_operation_energy, operation_multiple
from energymodel.physics.switching import (
    busy_power,
    frequency_at_constant_voltage,
    switching_energy,
    switching_power,
    throughput_at_power,
    useful_power_share,
)
from energymodel.physics.thermal import temperature_slope
from energymodel.report.answers.limits import entropy_floor
from energymodel.scenarios.scenario import Scenario
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.training_system import parameters_in_loss

FLOP_PER_PARAMETER = 6.0


class Statement(NamedTuple):
    """A formula of a document with its value as written, corrected, and what the whole model gives, in `unit`."""

    document: str
    formula: str
    at: str
    unit: str
    printed: float
    corrected: float | None
    model: float


def statements(scenario: Scenario, outcome: TrainingOutcome, symbols: Symbols) -> list[Statement]:
    """All formulas of the two documents with the numbers of a run [docs/sources.md].

    Exponents and scales are those with which a formula goes through the run itself: it is then compared at a larger
    batch or a lower clock. Of the corrected forms, those with a value of their own are shown.
    """
    numbers = _Numbers(scenario, outcome, symbols)
    rows = []
    for document, formula, at, unit, printed, corrected, model in (
        *_training_dynamics(numbers),
        *_engineering(numbers),
    ):
        own = None if corrected is None else _number(corrected)
        rows.append(Statement(document, formula, at, unit, _number(printed), own, _number(model)))
    return rows


def _number(value: Numeric) -> float:
    return float(np.asarray(value))


Row = tuple[str, str, str, str, Numeric, Numeric | None, Numeric]


class _Numbers:
    """Symbols of the documents, in their letters where they have some."""

    def __init__(self, scenario: Scenario, outcome: TrainingOutcome, symbols: Symbols) -> None:
        self.system, self.plan, self.outcome = scenario.system, scenario.plan, outcome
        self.learned, self.stepped, self.batch = symbols.learned, symbols.stepped, symbols.batch
        learned, stepped, batch = self.learned, self.stepped, self.batch
        self.larger = LARGER * batch
        self.chips = jnp.asarray(scenario.plan.chips)
        self.rate = batch / stepped.time
        self.rate_larger = self.larger / stepped.time_larger
        self.token_time = (stepped.time - stepped.fixed_time) / batch
        self.half_batch = half_throughput_batch(stepped.fixed_time, self.token_time)
        self.critical_batch = batch * (1.0 / learned.elasticity - 1.0)
        self.per_token = learned.per_token / learned.penalty
        self.idle = jnp.asarray(scenario.system.accelerator.idle_power)
        self.busy = outcome.power_busy


def _training_dynamics(n: _Numbers) -> Iterator[Row]:
    """Efficiency, throughput, time, energy, information, bounds, optimum, dynamics."""
    name, more = "Training Dynamics", f"{LARGER:g} x the batch"
    learned, batch, out = n.learned, n.batch, n.outcome
    beta, gap = learned.elasticity, n.half_batch / batch
    alpha = n.per_token * batch**beta
    yield (
        *(name, "E(B) = α·B^(-β)", more, "nat/token"),
        sources.stated_per_sample_efficiency(n.larger, alpha, beta),
        per_token_progress(n.larger, n.per_token * (1.0 + batch / n.critical_batch), n.critical_batch, 1.0),
        learned.per_token / learned.penalty_larger,
    )
    gamma = gap / (1.0 + gap)
    fastest = 1.0 / n.token_time
    largest = batch * jnp.exp(jnp.log1p(gap) / gamma)
    yield (
        *(name, "T(B) = T₀·min(1, B/B_max)^γ", more, "token/s"),
        sources.stated_batch_throughput(n.larger, fastest, largest, gamma),
        saturating_throughput(n.larger, fastest, n.half_batch),
        n.rate_larger,
    )
    first, floor = math.log(float(n.system.workload.vocabulary)), entropy_floor(n.system)
    per_gap = n.per_token / (out.loss - floor)
    productive = out.tokens / out.token_rate
    yield (
        *(name, "Time = (L₀ - L*)/[E(B)·T(B)]", "the run", "s"),
        sources.stated_training_time_as_fraction(first, out.loss, n.per_token, n.rate),
        exponential_training_time(first, out.loss, floor, per_gap, n.rate),
        productive,
    )
    base = n.idle * n.chips
    yield (
        *(name, "W_total = W_base · Time", "the run", "J"),
        sources.stated_total_energy(base, out.time),
        None,
        out.energy.total,
    )
    yield (
        *(name, "I = E(B)·T(B), in bit/s", "its end", "bit/s"),
        sources.stated_information_rate(n.per_token, n.rate) / math.log(2.0),
        information_rate(learned.information, n.rate, 1.0 / learned.penalty),
        out.information / productive,
    )
    parameters, temperature = n.system.workload.parameters, n.plan.coolant_temperature
    data = out.tokens * floor / math.log(2.0)
    operations = FLOP_PER_PARAMETER * jnp.asarray(n.system.workload.active_parameters) * out.tokens
    printed = sources.stated_minimum_energy(temperature, parameters, data)
    bound = landauer_operation_energy(operations, n.system.accelerator.bits_per_flop, temperature)
    yield name, "E_min = k_B·T·ln(2)·N_params·H_data", "the run", "J", printed, bound, bound
    yield (
        *(name, "η = E_practical/E_min", "the run", "1"),
        out.energy.total / printed,
        landauer_multiple(out.energy.total, bound),
        out.landauer_multiple,
    )
    yield (
        *(name, "B* = (β·γ·W_base/T₀)^(1/(γ-β))", "its number", "token"),
        sources.stated_optimal_batch(beta, gamma, base, fastest),
        energy_optimal_batch(n.critical_batch, n.half_batch, n.idle, n.busy - n.idle),
        batch,
    )
    yield (
        *(name, "dL/dt = -E(B)·T(B)·L", "twice the tokens", "nat/(token s)"),
        sources.stated_loss_rate(n.per_token / out.loss, n.rate, learned.later_loss),
        _loss_rate(n),
        learned.later_rate,
    )


def _loss_rate(n: _Numbers) -> Numeric | None:
    """Slope of the loss by its equation, where the law of learning is one of size and data."""
    law = getattr(n.system.learning, "loss_law", None)
    if not isinstance(law, ChinchillaLaw):
        return None
    parameters = parameters_in_loss(n.system)
    return loss_rate(n.learned.later_loss, parameters, n.rate, n.batch, n.critical_batch, law)


def _engineering(n: _Numbers) -> Iterator[Row]:
    """Hardware, power, heat, batch, indices, clock, work, throughput, energy."""
    yield from _power_and_heat(n)
    yield from _batch_power(n)
    yield from _indices_and_work(n)
    yield from _energy(n)


NAME = "Engineering Optimization"


def _power_and_heat(n: _Numbers) -> Iterator[Row]:
    chip, out, stepped, temperature = n.system.accelerator, n.outcome, n.stepped, n.plan.coolant_temperature
    bits, slow = chip.bits_per_flop, f"{100 * SLOWER:g} % of the clock"
    operation = n.busy / (stepped.flops / stepped.time)  # [J/FLOP] of the whole chip
    yield (
        *(NAME, "η_hw = E_achieved/E_min", "an operation", "1"),
        sources.stated_hardware_efficiency(operation, landauer_energy(bits, temperature)),
        operation_multiple(operation, bits, temperature),
        out.landauer_multiple,
    )
    yield (
        *(NAME, "ETP = E_total · T_total", "the run", "J s"),
        sources.stated_energy_time_product(out.energy.total, out.time),
        None,
        out.etp,
    )
    per_token = n.chips * (n.busy - n.idle) / n.rate  # E_op with beta = 1 [J/token]
    share = useful_power_share(n.busy, n.idle, 1.0)
    rate, power = n.batch / stepped.time_slower, n.chips * stepped.busy_slower
    yield (
        *(NAME, "T(P) = min(α·P/E_op, B_max)", slow, "token/s"),
        sources.stated_power_throughput(power, share, per_token, n.rate / n.outcome.clock),
        throughput_at_power(power, per_token, n.chips * n.idle, 1.0),
        rate,
    )
    dynamic = jnp.asarray(n.busy - stepped.static_power) / (out.clock * stepped.voltage**2)
    yield (
        *(NAME, "P_inst = β·T(P)·E_op + P_idle", slow, "W"),
        sources.stated_instantaneous_power(rate, 1.0, per_token, n.chips * n.idle),
        n.chips * busy_power(stepped.static_power, dynamic * SLOWER * out.clock, stepped.voltage_slower),
        power,
    )
    resistance = (out.temperature - temperature) / n.busy
    yield (
        *(NAME, "dT/dt = (P_inst - P_cooling)/C", "the start", "K/s"),
        sources.stated_temperature_rate(n.busy, chip.idle_power, chip.heat_capacity),
        temperature_slope(temperature, n.busy - chip.idle_power, temperature, resistance, chip.heat_capacity),
        jnp.exp(-jnp.asarray(out.slack.ramp)) * n.system.facility.ramp_limit,
    )
    watts = n.busy - stepped.static_power
    hertz = out.clock * chip.reference_clock
    volts = stepped.voltage * chip.reference_voltage
    k = watts / (hertz * volts**2)
    printed = sources.stated_optimal_frequency_as_fraction(chip.reference_clock, watts, k, volts)
    yield (
        *(NAME, "f_opt = min(f_max, √(P_max/(k·V²)))", "its busy power", "Hz"),
        printed,
        frequency_at_constant_voltage(watts, k, volts),
        hertz,
    )


def _batch_power(n: _Numbers) -> Iterator[Row]:
    stepped, batch, larger = n.stepped, n.batch, n.larger
    more, efficiency = f"{LARGER:g} x the batch", n.rate * n.token_time
    scale = -batch / jnp.log1p(-efficiency)
    yield (
        *(NAME, "η_batch(B) = γ·(1 - exp(-B/B_opt))", more, "1"),
        sources.stated_batch_efficiency(larger, 1.0, scale),
        exponential_saturation(larger, 1.0, scale),
        n.rate_larger * n.token_time,
    )
    compute, memory = stepped.power
    printed = [sources.stated_compute_power(larger, compute, batch), sources.stated_memory_power(larger, memory, batch)]
    energy = memory * stepped.time
    traffic = memory_traffic_rate(
        larger,
        stepped.fixed_memory_energy,
        (energy - stepped.fixed_memory_energy) / batch,
        stepped.fixed_time,
        n.token_time,
    )
    corrected = [
        compute_power(larger, compute * (1.0 + n.half_batch / batch), n.half_batch),
        memory_power(traffic, 1.0),
    ]
    for formula, smaller, other, model in zip(
        ("P_compute ∝ B", "P_memory ∝ √B"), printed, corrected, stepped.power_larger, strict=True
    ):
        yield NAME, formula, f"{more}, a chip", "W", smaller, other, model
    yield (
        *(NAME, "P_total(B) = P_compute(B) + P_memory(B)", f"{more}, a chip", "W"),
        sources.stated_total_power(*printed),
        corrected[0] + corrected[1],
        stepped.power_larger[0] + stepped.power_larger[1],
    )


def _indices_and_work(n: _Numbers) -> Iterator[Row]:
    out, system, stepped = n.outcome, n.system, n.stepped
    useful = out.euf * out.energy.total
    yield (
        *(NAME, "EEI = (T_achieved/T_theoretical) · (E_min/E_actual)", "the run", "1"),
        sources.stated_energy_efficiency_index(out.token_rate, out.token_rate / out.mfu, useful, out.energy.total),
        None,
        out.eei,
    )
    yield (
        *(NAME, "PPW = T(P)/P_total", "the run", "token/J"),
        sources.stated_performance_per_watt(out.tokens / out.time, out.power_average),
        None,
        out.ppw,
    )
    yield (
        *(NAME, "EUF = E_useful/E_total", "the run", "1"),
        sources.stated_energy_utilization_factor(useful, out.energy.total),
        None,
        out.euf,
    )
    powers = jnp.asarray([1.0, 0.5]) * n.busy
    yield (
        *(NAME, "Σ W_i = Σ W_total·(P_i/P_total)^α, α = 1/2", "with a chip at half power", "1"),
        jnp.sum(sources.stated_workload_share(1.0, powers, jnp.sum(powers), 0.5)),
        jnp.sum(proportional_split(1.0, powers, 0.5)),
        1.0,
    )
    chip, link = system.accelerator, system.network.link
    rates = (
        sources.stated_compute_throughput(chip.peak_flops, chip.gemm_efficiency),
        sources.stated_memory_throughput(chip.memory_bandwidth, chip.memory_efficiency),
        sources.stated_communication_throughput(link.bandwidth(), 1.0),
    )
    per_chip = n.batch / n.chips
    memory_bytes = stepped.power[1] * stepped.time / chip.traffic_energy
    demands = (stepped.flops / per_chip, memory_bytes / per_chip, stepped.network_bytes / per_chip)
    exponent = chip.roofline_exponent
    yield (
        *(NAME, "T_est = min(T_compute, T_memory, T_communication)", "a chip", "token/s"),
        sources.stated_throughput_estimate(*rates),
        token_rate(*rates, *demands, exponent),
        n.rate / n.chips,
    )


def _energy(n: _Numbers) -> Iterator[Row]:
    out, chip, stepped = n.outcome, n.system.accelerator, n.stepped
    power, busy = stepped.power[0], stepped.time
    hertz, volts = out.clock * chip.reference_clock, stepped.voltage * chip.reference_voltage
    capacitance = power / (volts**2 * hertz)
    dynamic = switching_energy(switching_power(capacitance, volts, hertz, 1.0), busy)
    parts, steps = out.energy, out.steps * n.chips
    yield (
        *(NAME, "E_dynamic = C_eff · V² · f · α", "a chip's step", "J"),
        sources.stated_dynamic_energy(capacitance, volts, hertz, 1.0),
        dynamic,
        parts.dynamic / steps,
    )
    leaks = parts.static / (steps * volts * busy)
    yield (
        *(NAME, "E_static = V · I_leak · t", "a chip's step", "J"),
        sources.stated_static_energy(volts, leaks, busy),
        static_energy(volts, leaks, busy),
        parts.static / steps,
    )
    heat = parts.total - parts.cooling
    performance = heat / parts.cooling
    printed = sources.stated_cooling_energy(performance, heat)
    yield (
        *(NAME, "E_cooling = CoP · Q_thermal", "the run", "J"),
        printed,
        chiller_power(heat, performance),
        parts.cooling,
    )
    yield (
        *(NAME, "E_est = E_dynamic + E_static + E_cooling", "the run", "J"),
        sources.stated_energy_estimate(parts.dynamic, parts.static, parts.cooling),
        None,
        parts.total,
    )
