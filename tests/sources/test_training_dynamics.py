"""The parameters at which the corrected formulas of "Training Dynamics" reduce to what the document states.

The settings are those of docs/physics.md section E. Formulas of the composed model (`evaluate`) are compared in the
tests of `energymodel.system`.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel import sources
from energymodel.learning.critical_batch import exponential_training_time, per_token_progress, progress_rate
from energymodel.learning.loss_law import ChinchillaLaw, information_rate
from energymodel.learning.loss_ode import loss_rate
from energymodel.numerics import as_real
from energymodel.performance.saturation import energy_optimal_batch, saturating_throughput
from energymodel.physics.limits import (
    landauer_multiple,
    landauer_operation_energy,
    landauer_source_energy,
    source_bits_per_operation,
)
from energymodel.physics.switching import average_power, switching_energy

AGREE = 1e-6
SHARP = 200.0
"""Overlap exponent that stands for infinity: exact to 1e-6 where the two largest terms are 10 % apart."""


def assert_agree(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=AGREE)


@pytest.mark.parametrize("exponent", [0.3, 0.7, 1.0])
def test_per_sample_efficiency_is_the_limit_of_large_batches(exponent):
    critical, progress = 1e6, 1e-10
    batch = jnp.asarray([1e13, 1e15])
    base = progress * critical**exponent
    assert_agree(
        per_token_progress(batch, progress, critical, exponent),
        sources.stated_per_sample_efficiency(batch, base, exponent),
    )


def test_per_sample_efficiency_diverges_at_small_batches_where_the_corrected_one_saturates():
    assert sources.stated_per_sample_efficiency(1e-12, 1.0, 0.5) > 1e5
    assert_agree(per_token_progress(1e-12, 1.0, 1e6, 0.5), 1.0)


@pytest.mark.parametrize("utilization", [0.4, 0.8, 1.0])
def test_batch_throughput_is_the_limit_of_a_sharp_saturation(utilization):
    batch = jnp.asarray([1e3, 9e5, 1.1e6, 1e8])
    assert_agree(
        saturating_throughput(batch, 5e6, 1e6, utilization, SHARP),
        sources.stated_batch_throughput(batch, 5e6, 1e6, utilization),
    )


@pytest.mark.parametrize("floor", [0.0, 1.7])
def test_linear_training_time_is_the_limit_of_a_small_loss_drop(floor):
    initial, drop, per_token, rate = 10.0, 1e-6, 1e-11, 1e6
    literal = sources.stated_training_time_as_fraction(initial, initial - drop, per_token * (initial - floor), rate)
    assert_agree(exponential_training_time(initial, initial - drop, floor, per_token, rate), literal)


@pytest.mark.parametrize("loss", [0.3, 1.0, 4.0])
def test_loss_rate_is_the_limit_of_a_large_data_exponent_without_floor(loss):
    """docs/physics.md E: 1/beta -> 0, L_inf = 0; with b = 1 the stated efficiency is beta."""
    beta, rate = 1e7, 1e-3
    law = ChinchillaLaw(*map(as_real, (0.0, 0.0, 0.5, 1.0, beta)))
    assert_agree(loss_rate(loss, 1e9, rate, 0.0, 1.0, law), sources.stated_loss_rate(beta, rate, loss))


def test_loss_rate_and_stated_one_share_the_batch_penalty():
    beta, rate, batch, critical = 1e7, 1e-3, 3e6, 1e6
    law = ChinchillaLaw(*map(as_real, (0.0, 0.0, 0.5, 1.0, beta)))
    per_token = per_token_progress(batch, beta, critical, 1.0)
    assert_agree(loss_rate(2.0, 1e9, rate, batch, critical, law), sources.stated_loss_rate(per_token, rate, 2.0))


def test_stated_loss_rate_takes_the_logarithmic_time():
    """Integrated over half the loss, in small steps: ln 2 / (E T), not the document's linear time."""
    losses = jnp.linspace(10.0, 5.0, 20_001)
    pace = -1.0 / sources.stated_loss_rate(1e-11, 1e6, losses)
    seconds = jnp.sum(0.5 * (pace[1:] + pace[:-1])) * (5.0 / 20_000)
    assert_agree(seconds, exponential_training_time(10.0, 5.0, 0.0, 1e-11, 1e6))


def test_linear_training_time_is_28_percent_short_for_half_the_loss():
    """docs/physics.md A0.4."""
    literal = sources.stated_training_time_as_fraction(10.0, 5.0, 1e-10, 1e6)
    exact = exponential_training_time(10.0, 5.0, 0.0, 1e-11, 1e6)
    np.testing.assert_allclose(1.0 - literal / exact, 0.28, atol=0.005)


def test_printed_order_of_operations_agrees_at_unit_throughput_only():
    assert_agree(
        sources.stated_training_time(10.0, 5.0, 1e-10, 1.0),
        sources.stated_training_time_as_fraction(10.0, 5.0, 1e-10, 1.0),
    )
    ratio = sources.stated_training_time(10.0, 5.0, 1e-10, 1e3) / sources.stated_training_time_as_fraction(
        10.0, 5.0, 1e-10, 1e3
    )
    assert_agree(ratio, 1e6)


@pytest.mark.parametrize("duty", [0.0, 0.4, 1.0])
def test_total_energy_holds_where_power_does_not_depend_on_the_load(duty):
    assert_agree(switching_energy(average_power(300.0, 300.0, duty), 5e4), sources.stated_total_energy(300.0, 5e4))


def test_information_rate_is_a_rate_of_progress():
    assert_agree(progress_rate(1e-10, 1e6), sources.stated_information_rate(1e-10, 1e6))


def test_information_rate_in_bits_is_the_stated_one_without_batch_penalty():
    bits_per_token = 1e-10 / math.log(2.0)
    assert_agree(
        information_rate(bits_per_token, 1e6, 1.0) * math.log(2.0), sources.stated_information_rate(1e-10, 1e6)
    )


def test_least_energy_is_the_operation_bound_at_h_over_6_bits():
    """docs/physics.md A0.7: F = 6 N D, H = D h."""
    parameters, tokens, entropy, temperature = 70e9, 1.4e12, 1.8172, 300.0
    data = tokens * entropy / math.log(2.0)
    literal = sources.stated_minimum_energy(temperature, parameters, data)
    assert_agree(landauer_source_energy(parameters, data, temperature), literal)
    bits = source_bits_per_operation(entropy)
    assert_agree(landauer_operation_energy(6.0 * parameters * tokens, bits, temperature), literal)


def test_practical_efficiency_factor_is_the_landauer_multiple():
    minimum = 737.6
    assert_agree(landauer_multiple(sources.stated_practical_energy(minimum, 3e7), minimum), 3e7)


def relative_energy(batch, critical, half, idle_share):
    """Energy to a loss over the ideal [docs/physics.md A0.9]; time at an idle share of 1."""
    return (1.0 + batch / critical) * (1.0 + idle_share * half / batch)


def stated_energy(batch, scaling, utilization, time):
    """Energy of the source for a batch far below B_max, with either reading of its time."""
    efficiency = sources.stated_per_sample_efficiency(batch, 1.0, scaling)
    throughput = sources.stated_batch_throughput(batch, 1.0, 1e9, utilization)
    return sources.stated_total_energy(300.0, time(1.0, 0.0, efficiency, throughput))


@pytest.mark.parametrize(("scaling", "utilization"), [(0.8, 0.6), (0.6, 0.8), (0.7, 0.7)])
def test_stated_energy_has_no_stationary_batch(scaling, utilization):
    """A product of powers of B: its elasticity is the sum of the exponents at every batch."""
    for time, elasticity in [
        (sources.stated_training_time, scaling + utilization),
        (sources.stated_training_time_as_fraction, scaling - utilization),
    ]:
        for batch in (1e2, 1e5, 1e8):
            energy, slope = jax.value_and_grad(stated_energy)(batch, scaling, utilization, time)
            np.testing.assert_allclose(slope * batch / energy, elasticity, atol=1e-9)


@pytest.mark.parametrize(("scaling", "utilization"), [(0.8, 0.6), (0.6, 0.8)])
def test_stated_energy_is_the_corrected_one_between_critical_and_half_batch(scaling, utilization):
    """For B_c << B << B_h both are pure powers of B, at constant power."""
    batch = jnp.asarray([1e5, 1e6])
    literal = stated_energy(batch, scaling, utilization, sources.stated_training_time_as_fraction)
    corrected = (1.0 + batch / 1e-3) ** scaling * (1.0 + 1e14 / batch) ** utilization
    assert_agree(corrected[1] / corrected[0], literal[1] / literal[0])


@pytest.mark.parametrize(("scaling", "utilization"), [(0.8, 0.6), (0.6, 0.8)])
def test_optimal_batch_is_stationary_where_the_stated_one_is_not(scaling, utilization):
    critical, half, idle, work = 4e6, 2.5e5, 90.0, 210.0
    slope = jax.grad(lambda batch: jnp.log(relative_energy(batch, critical, half, idle / (idle + work))))
    best = energy_optimal_batch(critical, half, idle, work)
    np.testing.assert_allclose(slope(best) * best, 0.0, atol=1e-9)
    literal = sources.stated_optimal_batch(scaling, utilization, idle + work, 1e6)
    assert abs(slope(literal) * literal) > 1e-2


def test_energy_slope_is_that_of_the_printed_energy():
    for batch in (1e2, 1e5):
        slope = jax.grad(stated_energy)(batch, 0.8, 0.6, sources.stated_training_time)
        assert_agree(sources.stated_energy_slope(batch, 300.0, 1.0, 1.0, 0.8, 1.0, 1e9, 0.6), slope)
