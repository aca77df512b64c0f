"""The parameters at which the corrected formulas of "Engineering Optimization" reduce to what the document states.

The settings are those of docs/physics.md section E. Formulas of the composed model (`evaluate`) are compared in the
tests of `energymodel.system`.
"""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel import sources
from energymodel.performance.kernels import compute_time, roofline_time, token_rate
from energymodel.performance.network import link_bandwidth
from energymodel.performance.saturation import (
    compute_power,
    energy_optimal_batch,
    exponential_saturation,
    memory_power,
    memory_traffic_rate,
    proportional_split,
)
from energymodel.physics.chiller import chiller_power
from energymodel.physics.leakage import static_energy
from energymodel.physics.limits import landauer_multiple, operation_multiple
from energymodel.physics.switching import (
    busy_power,
    clock_at_power_cap,
    frequency_at_constant_voltage,
    switching_energy,
    switching_power,
    throughput_at_power,
    useful_power_share,
)
from energymodel.physics.thermal import temperature_slope
from energymodel.physics.voltage import voltage_fraction
from outcomes import outcome_of

AGREE = 1e-6
SHARP = 200.0
"""Overlap exponent that stands for infinity: exact to 1e-6 where the two largest terms are 10 % apart."""


def assert_agree(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=AGREE)


def relative_energy(batch, critical, half, idle_share):
    """Energy to a loss over the ideal [docs/physics.md A0.9]; time at an idle share of 1."""
    return (1.0 + batch / critical) * (1.0 + idle_share * half / batch)


def test_hardware_efficiency_is_the_landauer_multiple():
    assert_agree(landauer_multiple(1.769e-12, 2.871e-21), sources.stated_hardware_efficiency(1.769e-12, 2.871e-21))
    per_operation = sources.stated_minimum_energy(300.0, 1.0, 32.0)
    assert_agree(
        operation_multiple(1.769e-12, 32.0, 300.0), sources.stated_hardware_efficiency(1.769e-12, per_operation)
    )


def test_power_throughput_holds_without_idle_power():
    power, energy, share = jnp.asarray([10.0, 300.0]), 1e-12, 0.6
    literal = sources.stated_power_throughput(power, share, energy, 1e30)
    assert_agree(throughput_at_power(power, energy, 0.0, 1.0 / share), literal)


def test_power_throughput_is_the_capped_clock_at_constant_voltage_without_static_power():
    """P_s = 0 and floor 1: the clock, hence the throughput, is proportional to the cap until the clock limit."""
    dynamic, cap = 600.0, jnp.asarray([150.0, 420.0, 900.0])

    def power_of_clock(clock, kappa):
        return busy_power(0.0, kappa * clock, voltage_fraction(clock, 1.0, 0.6, 0.03))

    clock = clock_at_power_cap(power_of_clock, cap, 0.0, 1.0, jnp.asarray(dynamic))
    assert_agree(clock, sources.stated_power_throughput(cap, 1.0, dynamic, 1.0))


def test_instantaneous_power_is_busy_power_with_floor_one():
    clock, static, peak_rate, energy = jnp.asarray([0.3, 0.6, 1.0]), 140.0, 4e14, 1e-12
    voltage = voltage_fraction(clock, 1.0, 0.6, 0.03)
    literal = sources.stated_instantaneous_power(peak_rate * clock, 1.1, energy, static)
    assert_agree(busy_power(static, 1.1 * peak_rate * energy * clock, voltage), literal)


def test_throughput_at_a_power_inverts_the_instantaneous_power():
    throughput, overhead, energy, idle = jnp.asarray([0.0, 2e14]), 1.3, 1e-12, 90.0
    literal = sources.stated_instantaneous_power(throughput, overhead, energy, idle)
    assert_agree(throughput_at_power(literal, energy, idle, overhead), throughput)


def test_both_power_laws_together_leave_one_power():
    """docs/physics.md A2.4: alpha is not free, it follows from the power."""
    alpha, beta, idle = 0.6, 0.9, 50.0
    power = idle / (1.0 - alpha * beta)
    throughput = sources.stated_power_throughput(power, alpha, 1.0, 1e30)
    assert_agree(sources.stated_instantaneous_power(throughput, beta, 1.0, idle), power)
    assert_agree(useful_power_share(power, idle, beta), alpha)
    other = sources.stated_power_throughput(2.0 * power, alpha, 1.0, 1e30)
    assert abs(sources.stated_instantaneous_power(other, beta, 1.0, idle) - 2.0 * power) > 1.0


def test_temperature_rate_holds_for_the_heat_removed():
    temperature, coolant, resistance = jnp.asarray([308.15, 340.0]), 308.15, 0.06
    literal = sources.stated_temperature_rate(700.0, (temperature - coolant) / resistance, 250.0)
    assert_agree(temperature_slope(temperature, 700.0, coolant, resistance, 250.0), literal)


@pytest.mark.parametrize("excess", [-1e-3, 1e-3])
def test_limit_on_temperature_rate_is_a_limit_on_power_steps(excess):
    step = 250.0 * 2.0 * (1.0 + excess)  # heat capacity times the largest rate
    rate = sources.stated_temperature_rate(step, 0.0, 250.0)
    assert sources.stated_thermal_constraints_hold(300.0, 360.0, rate, 2.0) == (1.0 if excess < 0 else 0.0)


def test_batch_efficiency_is_kept_as_a_saturation_curve():
    batch = jnp.asarray([1e-3, 1.0, 3.0, 40.0])
    assert_agree(exponential_saturation(batch, 0.9, 1.0), sources.stated_batch_efficiency(batch, 0.9, 1.0))


def test_compute_power_is_proportional_far_below_saturation():
    work, half = 400.0, 1e6
    batch = jnp.asarray([1e-3, 0.5])
    assert_agree(compute_power(batch, work, half), sources.stated_compute_power(batch, work, half))


def test_memory_power_is_tangent_to_the_square_root_at_the_half_batch():
    """Without traffic of weights the corrected power goes from B to constant: as the square root of B at B_h only."""
    fixed, per_token, traffic, energy = 0.02, 1e-6, 2e5, 3e-11
    half = fixed / per_token

    def power(batch):
        return memory_power(memory_traffic_rate(batch, 0.0, traffic, fixed, per_token), energy)

    batch = half * jnp.asarray([0.999, 1.0, 1.001])
    assert_agree(power(batch), sources.stated_memory_power(batch, power(half), half))
    assert abs(power(4.0 * half) / sources.stated_memory_power(4.0 * half, power(half), half) - 1.0) > 0.1


def test_total_power_is_the_sum_of_the_corrected_parts_far_below_saturation():
    """At the batch that fixes the constants of both proportionalities."""
    batch, half = 0.5, 1e6
    memory = memory_power(memory_traffic_rate(batch, 3.5e11, 2e5, 0.2, 1e-6), 3e-11)
    literal = sources.stated_total_power(
        sources.stated_compute_power(batch, 400.0, half), sources.stated_memory_power(batch, memory, batch)
    )
    assert_agree(compute_power(batch, 400.0, half) + memory, literal)


def test_objective_is_the_energy_time_product():
    """Its best batch lies between those of energy and time [docs/physics.md A0.9]."""
    critical, half, idle_share = 4e6, 2.5e5, 0.3

    def objective(batch):
        return sources.stated_objective(
            1.0,
            batch,
            lambda power, batch: power * relative_energy(batch, critical, half, idle_share),
            lambda _, batch: relative_energy(batch, critical, half, 1.0),
        )

    energy, time = (energy_optimal_batch(critical, half, share, 1.0 - share) for share in (idle_share, 1.0))
    assert jax.grad(objective)(energy) < 0.0 < jax.grad(objective)(time)
    assert_agree(
        objective(energy),
        sources.stated_energy_time_product(
            relative_energy(energy, critical, half, idle_share), relative_energy(energy, critical, half, 1.0)
        ),
    )


def test_workload_shares_agree_at_exponent_one():
    powers = jnp.asarray([1.0, 2.0, 3.0])
    assert_agree(proportional_split(100.0, powers, 1.0), sources.stated_workload_share(100.0, powers, 6.0, 1.0))


def test_workload_shares_add_up_where_the_stated_ones_do_not():
    powers = jnp.asarray([1.0, 2.0, 3.0])
    assert_agree(jnp.sum(proportional_split(100.0, powers, 0.5)), 100.0)
    np.testing.assert_allclose(jnp.sum(sources.stated_workload_share(100.0, powers, 6.0, 0.5)), 169.3, atol=0.05)


def test_optimal_frequency_is_right_for_voltage_that_grows_as_the_root_of_frequency():
    """P = k (w sqrt f)^2 f = k w^2 f^2: the stated root, with w in the place of the voltage."""
    coefficient, root_voltage, maximum = 2.0, 0.7, 50.0
    power = jnp.asarray([100.0, 400.0, 1e5])

    def power_of_clock(frequency, k):
        return switching_power(k, root_voltage * jnp.sqrt(frequency), frequency, 1.0)

    frequency = clock_at_power_cap(power_of_clock, power, 1e-3, maximum, jnp.asarray(coefficient))
    assert_agree(frequency, sources.stated_optimal_frequency_as_fraction(maximum, power, coefficient, root_voltage))


def test_optimal_frequency_is_the_root_of_the_corrected_one():
    coefficient, power, voltage = 250.0 / 1.53e9, 150.0, 0.8
    literal = sources.stated_optimal_frequency_as_fraction(1.53e9, power, coefficient, voltage)
    assert_agree(literal**2, frequency_at_constant_voltage(power, coefficient, voltage))


def test_both_readings_of_optimal_frequency_agree_at_one_volt():
    assert_agree(
        sources.stated_optimal_frequency(1.53e9, 150.0, 1e-7, 1.0),
        sources.stated_optimal_frequency_as_fraction(1.53e9, 150.0, 1e-7, 1.0),
    )


def test_corrected_frequency_agrees_with_the_stated_one_at_unit_frequency():
    """f = sqrt f = 1 Hz: the only frequency at which both roots meet."""
    literal = sources.stated_optimal_frequency_as_fraction(10.0, 128.0, 200.0, 0.8)
    assert_agree(frequency_at_constant_voltage(128.0, 200.0, 0.8), literal)


def test_throughput_estimate_is_the_rate_with_unit_demands_and_perfect_overlap():
    for rates in [(3.0, 2.0, 5.0), (3.0, 4.0, 1.0), (2.0, 2.5, 2.3)]:
        assert_agree(token_rate(*rates, 1.0, 1.0, 1.0, SHARP), sources.stated_throughput_estimate(*rates))


def test_throughput_estimate_holds_after_division_by_demand():
    compute = sources.stated_compute_throughput(989.5e12, 0.4)
    memory = sources.stated_memory_throughput(3.35e12, 0.85)
    network = sources.stated_communication_throughput(45e9, 0.8)
    demands = (2.43e12, 1.2e10, 1.5e8)
    literal = sources.stated_throughput_estimate(compute / demands[0], memory / demands[1], network / demands[2])
    assert_agree(token_rate(compute, memory, network, *demands, SHARP), literal)


def test_step_time_is_the_longest_resource_time_with_perfect_overlap():
    longest = 1.0 / sources.stated_throughput_estimate(1.0 / 1.0, 1.0 / 0.6, 1.0 / 0.5)
    assert_agree(roofline_time(1.0, 0.6, 0.5, SHARP), longest)


def test_compute_throughput_is_the_inverse_time_of_an_operation():
    assert_agree(1.0 / compute_time(1.0, 989.5e12, 0.4), sources.stated_compute_throughput(989.5e12, 0.4))


def test_communication_throughput_is_the_bandwidth_of_one_lane():
    assert_agree(link_bandwidth(1.0, 50e9, 0.95, 0.8), sources.stated_communication_throughput(50e9, 0.95 * 0.8))


@pytest.mark.parametrize("time", [1.0, 3600.0])
def test_dynamic_energy_is_a_power(time):
    literal = sources.stated_dynamic_energy(1.6e-7, 0.85, 1.4e9, 0.8)
    power = switching_power(1.6e-7, 0.85, 1.4e9, 0.8)
    assert_agree(power, literal)
    assert_agree(switching_energy(power, time), literal * time)


def test_static_energy_holds_at_constant_leakage():
    assert_agree(static_energy(0.8, 25.0, 3600.0), sources.stated_static_energy(0.8, 25.0, 3600.0))


def test_cooling_energy_agrees_at_unit_coefficient_and_is_its_inverse_elsewhere():
    assert_agree(chiller_power(1e6, 1.0), sources.stated_cooling_energy(1.0, 1e6))
    assert_agree(chiller_power(1e6, 3.194), sources.stated_cooling_energy(1.0 / 3.194, 1e6))


def test_energy_estimate_is_the_sum_of_the_corrected_parts():
    """Busy all the time, at constant leakage and COP 1."""
    seconds = 1.0
    dynamic = switching_energy(switching_power(1.6e-7, 0.85, 1.4e9, 0.8), seconds)
    static = static_energy(0.85, 25.0, seconds)
    cooling = chiller_power(dynamic + static, 1.0)
    literal = sources.stated_energy_estimate(
        sources.stated_dynamic_energy(1.6e-7, 0.85, 1.4e9, 0.8),
        sources.stated_static_energy(0.85, 25.0, seconds),
        sources.stated_cooling_energy(1.0, dynamic + static),
    )
    assert_agree(dynamic + static + cooling, literal)


def test_indices_of_an_outcome_are_the_stated_ones():
    outcome = outcome_of("llama-3.1-405b-h100")
    energy, seconds = outcome.energy.total, outcome.time
    assert_agree(outcome.etp, sources.stated_energy_time_product(energy, seconds))
    assert_agree(outcome.ppw, sources.stated_performance_per_watt(outcome.tokens / seconds, outcome.power_average))
    useful = outcome.euf * energy
    assert_agree(outcome.euf, sources.stated_energy_utilization_factor(useful, energy))
    peak_rate = outcome.token_rate / outcome.mfu
    assert_agree(outcome.eei, sources.stated_energy_efficiency_index(outcome.token_rate, peak_rate, useful, energy))


@pytest.mark.parametrize("hold", [sources.stated_training_constraints_hold, sources.stated_design_constraints_hold])
def test_constraints_hold_where_all_log_ratio_slacks_are_positive(hold):
    """The model states a limit as ln(limit / value) >= 0, or ln(value / limit) >= 0 for a lower one."""
    lower = {"throughput": "minimum_throughput"}
    upper = {"loss": "target_loss", "power": "maximum_power", "batch": "maximum_batch"}
    names = [name for name in inspect.signature(hold).parameters if name in lower | upper]
    for signs in np.ndindex(*(2,) * len(names)):
        values = {name: 0.9 if sign else 1.1 for name, sign in zip(names, signs, strict=True)}
        limits = {(lower | upper)[name]: 1.0 for name in names}
        slack = [math.log(values[name] if name in lower else 1.0 / values[name]) for name in names]
        assert hold(**values, **limits) == float(min(slack) >= 0)


def test_stated_formulas_work_in_single_precision():
    with jax.enable_x64(False):
        energy = sources.stated_minimum_energy(300.0, 70e9, 1.4e12 * 2.6217)
        assert energy.dtype == jnp.float32
    np.testing.assert_allclose(energy, 737.6, rtol=1e-4)
