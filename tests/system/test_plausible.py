"""Impossible outcomes are refused with their name, their value and the number to look at."""

import re

import equinox as eqx
import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.numerics import Real, real
from energymodel.ranges import ABOVE_ZERO, EXTENTS
from energymodel.scenarios.files import names
from energymodel.system.plausible import USUAL, Number, _extremity, _numbers, check_outcome

SMALL = "test-1b-h100"


@pytest.fixture(scope="module")
def case(scenario):
    return scenario(SMALL)


@pytest.fixture(scope="module")
def outcome(case, run):
    with jax.enable_x64(True):
        return jax.device_get(run(case.system, case.plan))


def changed(tree, where, value):
    """The same tree with another number, in the precision of the old one."""
    return eqx.tree_at(where, tree, np.asarray(value, np.asarray(where(tree)).dtype))


def test_outcomes_that_can_be_pass_and_rounding_is_no_fault(case, outcome):
    check_outcome(case.system, case.plan, outcome)
    almost = changed(outcome, lambda o: o.step_time.data, -1e-16 * float(outcome.step_time.total))
    check_outcome(case.system, case.plan, changed(almost, lambda o: o.pue, 1.0 - 1e-15))


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (lambda o: o.money, np.nan, "The outcome money is nan USD: some number is too large"),
        (lambda o: o.energy.cooling, np.inf, "The outcome energy.cooling is inf J"),
        (lambda o: o.energy.idle_wait, -5e6, "The outcome energy.idle_wait is -1.389 kWh, which is negative."),
        (lambda o: o.step_time.data, -0.01, "The outcome step_time.data is -10 ms, which is negative."),
        (lambda o: o.mfu, 1.2, "The outcome mfu is 1.2, more than the whole peak rate. Look at system.production_slo"),
        (lambda o: o.euf, 1.001, "The outcome euf is 1.001, more than the whole energy."),
        (lambda o: o.pue, 0.98, "The outcome pue is 0.98, below 1: less than the equipment alone."),
        (lambda o: o.landauer_multiple, 0.5, "below 1: less than Landauer's bound. Look at system.accelerator.bits_p"),
        (lambda o: o.power_peak, 10.0, "The outcome power_peak, 10 W, is below power_average"),
    ],
)
def test_an_outcome_that_cannot_be_is_refused(case, outcome, where, value, message):
    with pytest.raises(em.InputError, match=re.escape(message)):
        check_outcome(case.system, case.plan, changed(outcome, where, value))


def test_the_message_names_the_numbers_that_are_out_of_proportion(case, outcome):
    system = changed(case.system, lambda s: s.accelerator.launch_overhead, 1e11)
    with pytest.raises(em.InputError, match=r"look at system\.accelerator\.launch_overhead = 3171 years"):
        check_outcome(system, case.plan, jax.tree.map(np.float32, changed(outcome, lambda o: o.time, np.inf)))
    cold = changed(outcome, lambda o: o.energy.cooling, -5e6)
    with pytest.raises(em.InputError, match=r"Look at the numbers that differ from those of a preset\.$"):
        check_outcome(case.system, case.plan, cold)
    system = changed(case.system, lambda s: s.software.communicated_bytes, 1e20)
    system = changed(system, lambda s: s.accelerator.launch_overhead, 1e11)
    with pytest.raises(
        em.InputError, match=r"Look at \S+launch_overhead = 3171 years and \S+communicated_bytes = 1e20 B\."
    ):
        check_outcome(system, case.plan, cold)


@pytest.mark.parametrize("name", names("scenarios"))
def test_no_number_of_a_preset_is_out_of_proportion(scenario, name):
    case = scenario(name)
    numbers = [*_numbers(case.system, "system"), *_numbers(case.plan, "plan")]
    assert {entry.describe() for entry in numbers if _extremity(entry) > USUAL} == set()


class Sized(eqx.Module):
    power: Real = real("W", within=ABOVE_ZERO)
    size: Real = real("B", 4.0, within=ABOVE_ZERO)


@pytest.mark.parametrize(
    ("name", "value", "extremity"),
    [  # of the 24 orders of magnitude from 1 mB to 1e21 B, and of the 21 from 1 uW to 1e15 W, by counting them
        ("size", 1e21, 1.0),
        ("size", 1e9, 0.0),
        ("size", 1e18, 0.75),
        ("size", 1.0, 0.75),
        ("size", 1e-3, 1.0),
        ("power", 1e15, 1.0),
        ("power", 1e8, 1.0 / 3.0),
        ("power", 1e-6, 1.0),
        ("size", 4.0, 0.0),  # the default
        ("size", 0.0, 0.0),
    ],
)
def test_how_near_a_number_lies_to_an_end_goes_by_orders_of_magnitude(name, value, extremity):
    assert (EXTENTS["B"], EXTENTS["W"]) == ((1e-3, 1e21), (1e-6, 1e15))
    field = Sized.__dataclass_fields__[name]
    assert _extremity(Number(name, value, field)) == pytest.approx(extremity, abs=1e-12)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (lambda s: s.software.data_overlap, 1.5, "system.software.data_overlap: 1.5 is impossible; give a share"),
        (lambda s: s.accelerator.gate.fraction, 3.0, "system.accelerator.gate.fraction: 3 is impossible"),
        (lambda s: s.facility.transformer_loss, 8.0, "system.facility.transformer_loss: 8 is impossible"),
        (lambda s: s.accelerator.bits_per_flop, 1e15, "system.accelerator.bits_per_flop: 1 Pbit/FLOP is impossible"),
        (lambda s: s.accelerator.busy_power, np.nan, "system.accelerator.busy_power: nan W is not a finite number"),
    ],
)
def test_python_refuses_what_the_command_line_refuses(case, where, value, message):
    with pytest.raises(em.InputError, match=re.escape(message)):
        em.evaluate(changed(case.system, where, value), case.plan)


def test_the_energy_time_product_is_finite_in_float32(outcome):
    large = jax.tree.map(np.float32, outcome)
    large = changed(changed(large, lambda o: o.energy.static, 3e30), lambda o: o.time, 2e20)
    assert large.energy.total.dtype == np.float32
    np.testing.assert_allclose(large.etp, 6e50, rtol=1e-6)
    large = jax.tree.map(jax.numpy.asarray, large)
    np.testing.assert_allclose(large.etp, 6e50, rtol=1e-6)
