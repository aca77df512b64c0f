"""Work and power over unlike devices: closed forms of docs/physics.md A2.17, T1 and T5, and A100 beside H100."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.performance.saturation import proportional_split
from energymodel.scenarios.scenario import load_scenario
from energymodel.solver import RESULTS
from experiment import Experiment
from unlike_chips import arithmetic_load, cubic_chip

pytestmark = pytest.mark.slow

DEVICES = Experiment("11_power_allocation").devices
DeviceGroups, device_groups = DEVICES.DeviceGroups, DEVICES.device_groups
least_energy_split, least_time_split = DEVICES.least_energy_split, DEVICES.least_time_split

jitted_energy = eqx.filter_jit(least_energy_split)
jitted_time = eqx.filter_jit(least_time_split)


def cube_root_power_split(power, k, s):
    """Powers with the highest throughput for `k_i (P_i - s_i)^(1/3)`: `P_i - s_i` goes as `k_i^(3/2)`."""
    return s + (power - s.sum()) * k**1.5 / np.sum(k**1.5)


def cube_root_throughput(power, k, s):
    return jnp.sum(k * jnp.cbrt(cube_root_power_split(power, k, s) - s))


def least_energy(groups, tokens, step_time, least_on=0.0):
    # Arrays, because filter_jit would compile anew for every Python number.
    return jitted_energy(groups, *map(jnp.asarray, (tokens, step_time, least_on)))


def least_time(groups, tokens, power, least_on=0.0):
    return jitted_time(groups, *map(jnp.asarray, (tokens, power, least_on)))


def cubic_groups(rates, static, dynamic, count=None, minimum: float | list[float] = 0.05):
    """Devices of rate k phi and power s + kappa phi^3, off without any power."""
    lowest = np.broadcast_to(minimum, np.shape(rates))
    chips = [cubic_chip(s, d, m) for s, d, m in zip(static, dynamic, lowest, strict=True)]
    chip = jax.tree.map(lambda *leaves: jnp.stack(leaves), *chips)
    load = arithmetic_load(1.0 / np.asarray(rates), np.asarray(dynamic))
    ones = np.ones(len(chips))
    return DeviceGroups(chip, load, ones if count is None else count, 300.0 * ones, 0.0 * ones)


def ended(split):
    return bool(np.all(split.result == RESULTS.successful))


def test_devices_with_the_cube_law_share_a_power_like_the_closed_form():
    # Rate 4 k phi and power 10 + 64 phi^3: k tokens per second for the cube root of a dynamic watt.
    k, s = np.asarray([1.0, 2.0, 4.0]), np.full(3, 10.0)
    groups = cubic_groups(4.0 * k, s, np.full(3, 64.0))
    split = least_time(groups, 100.0, 90.0, 1.0)
    assert ended(split)
    rate = cube_root_throughput(90.0, k, s)
    np.testing.assert_allclose(split.device_power, cube_root_power_split(90.0, k, s), rtol=1e-6)
    np.testing.assert_allclose(split.step_time, 100.0 / rate, rtol=1e-9)
    np.testing.assert_allclose(split.share, proportional_split(1.0, 4.0 * k * split.clock), rtol=1e-12)
    slope = jax.grad(lambda power: -100.0 / cube_root_throughput(power, k, s))(90.0)
    np.testing.assert_allclose(split.price, slope, rtol=1e-6)


def test_groups_are_full_partly_on_and_off_by_their_energy_per_token():
    # P = 16 + 64 phi^3 is cheapest per token at phi = (16 / 128)^(1/3) = 0.5, 48 / k joules per token [T1].
    # Rates k = 8, 4, 2: the second group sets the price 48 / 4 = 12 J/token, the first works where its marginal
    # 3 * 64 phi^2 / 8 = 12, phi = sqrt(1/2), and the third, at 24 J/token, stays off.
    rates, count = np.asarray([8.0, 4.0, 2.0]), np.asarray([2.0, 4.0, 3.0])
    groups = cubic_groups(rates, np.full(3, 16.0), np.full(3, 64.0), count)
    first = 2.0 * 8.0 * np.sqrt(0.5)
    needed = first + 1.5 * 4.0 * 0.5  # one and a half of the second group's four devices
    split = least_energy(groups, 100.0, 100.0 / needed)
    assert ended(split)
    np.testing.assert_allclose(split.on, [1.0, 1.5 / 4.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(split.clock[:2], [np.sqrt(0.5), 0.5], rtol=1e-6)
    np.testing.assert_allclose(split.share, [first / needed, 3.0 / needed, 0.0], atol=1e-6)
    power = 2.0 * (16.0 + 64.0 * 0.5**1.5) + 1.5 * 24.0
    np.testing.assert_allclose(split.power, power, rtol=1e-8)
    np.testing.assert_allclose(split.energy, power * 100.0 / needed, rtol=1e-8)
    np.testing.assert_allclose(split.price, 12.0 * needed - power, rtol=1e-6)


@pytest.fixture(scope="module")
def mixed():
    """64 A100 beside 64 H100."""
    with jax.enable_x64(True):
        h100 = load_scenario("test-1b-h100")
        a100 = load_scenario("test-1b-h100", ["system.accelerator=a100-sxm4-80gb"])
        return device_groups([h100.system, a100.system], h100.plan, [64.0, 64.0])


def test_a100_beside_h100(mixed):
    tokens, full = 2.0**23, jnp.ones(2)
    fastest = tokens / float(jnp.sum(mixed.count * mixed.rate(full)))
    time = 1.2 * fastest
    split = least_energy(mixed, tokens, time)
    assert ended(split)
    np.testing.assert_allclose(split.step_time, time, rtol=1e-8)
    # All end at the same time.
    ends = tokens * split.share / (mixed.count * split.on * mixed.rate(split.clock))
    np.testing.assert_allclose(ends, time, rtol=1e-8)
    # The next token costs the same on both.
    power, rate = (jax.jvp(f, (split.clock,), (full,))[1] for f in (mixed.busy_power, mixed.rate))
    np.testing.assert_allclose(power[0] / rate[0], power[1] / rate[1], rtol=1e-6)
    # The other problem at this power gives the same split, and its price is the same exchange rate turned over.
    again = least_time(mixed, tokens, split.power)
    assert ended(again)
    np.testing.assert_allclose(again.step_time, time, rtol=1e-7)
    np.testing.assert_allclose(again.clock, split.clock, rtol=1e-5)
    np.testing.assert_allclose(again.price, time / (split.price + split.power), rtol=1e-5)
    # The price is the slope of the optimum.
    step = 1e-4
    ahead, behind = (least_energy(mixed, tokens, time * (1.0 + sign * step)).energy for sign in (1.0, -1.0))
    np.testing.assert_allclose(split.price, -(ahead - behind) / (2.0 * step * time), rtol=1e-5)


def test_infeasible_power_and_bad_groups_are_named(mixed):
    split = least_time(mixed, 2.0**23, 100.0)  # below the idle power of all
    assert np.all(split.result == RESULTS.infeasible)
    scenario = load_scenario("test-1b-h100")
    with pytest.raises(ValueError, match="1 counts for 2 systems"):
        device_groups([scenario.system, scenario.system], scenario.plan, [1.0])
