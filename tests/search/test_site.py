"""The power of a site over compute, memory, network and cooling: closed form, prices, a real site."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.scenarios.scenario import load_scenario
from energymodel.search.site import (
    SiteChoice,
    SiteLoad,
    least_power,
    most_throughput,
    site_load,
    site_power,
    throughput,
)
from energymodel.solver import RESULTS
from unlike_chips import linear_chip

fastest, cheapest = eqx.filter_jit(most_throughput), eqx.filter_jit(least_power)
OVERLAP = 3.0
WARMEST = 313.15  # of class W40


def ended(split):
    return bool(np.all(split.result == RESULTS.successful))


@pytest.fixture(scope="module")
def linear():
    """Site in which every part is as fast as its power, and conversion and cooling take a fixed share on top."""
    with jax.enable_x64(True):
        facility = load_scenario(
            "test-1b-h100", ["system.facility=direct-liquid", "system.facility.cooling.weather=singapore-weather"]
        ).system.facility

        def losses(facility):
            stages = (facility.power_supply, facility.uninterruptible)
            return [x for stage in stages for x in (stage.fixed_loss, stage.quadratic_loss)] + [
                facility.distribution.resistance,
                facility.miscellaneous_fraction,
            ]

        facility = eqx.tree_at(losses, facility, [np.zeros(())] * 6)
        return SiteLoad(linear_chip(400.0), facility, 10.0, 1.0, 0.3, 0.5, 120.0, 80.0, 50.0, OVERLAP)


def on_top_of(site):
    """Power at the meter over that of the nodes, with the warmest coolant: without leakage and fans the cheapest."""
    building = site.facility.power(jnp.asarray(1.0), site.facility.cooling.at(jnp.asarray(WARMEST)))
    return float(building.total(1.0))


@pytest.mark.slow
def test_parts_share_the_power_by_the_closed_form(linear):
    # Times A_i / P_i with A = (1 x 400, 0.3 x 120, 0.5 x 80), joined by a 3-norm: P_i ~ A_i^(3/4), and
    # R = P_parts / (sum A_i^(3/4))^(4/3).
    weight = np.asarray([400.0, 36.0, 40.0]) ** (OVERLAP / (OVERLAP + 1.0))
    on_top, parts = on_top_of(linear), 220.0
    split = fastest(linear, jnp.asarray(10.0 * (parts + 50.0) * on_top))
    assert ended(split)
    np.testing.assert_allclose(split.choice.coolant_temperature, WARMEST, rtol=1e-6)
    parts_power = np.asarray([split.power.compute, split.power.memory, split.power.network]) / 10.0
    np.testing.assert_allclose(parts_power, parts * weight / weight.sum(), rtol=1e-6)
    rate = 10.0 * parts / weight.sum() ** (4.0 / 3.0)
    np.testing.assert_allclose(split.throughput, rate, rtol=1e-8)
    np.testing.assert_allclose(split.power.total, 10.0 * 270.0 * on_top, rtol=1e-8)
    # A watt at the meter is 1 / on_top at the chips, and R is proportional to the power of the parts.
    np.testing.assert_allclose(split.price, rate / (10.0 * parts) / on_top, rtol=1e-6)
    # Turned around: least power at this throughput, and the energy of one more token.
    again = cheapest(linear, split.throughput)
    assert ended(again)
    np.testing.assert_allclose(again.power.total, split.power.total, rtol=1e-8)
    np.testing.assert_allclose(again.price * split.price, 1.0, rtol=1e-6)


def test_a_part_at_full_width_leaves_the_rest_to_the_others(linear):
    # Memory of a tenth of the power per width: full at 12 W, where it would want more.
    site = eqx.tree_at(lambda s: (s.memory_time, s.memory_power), linear, (np.asarray(0.9), np.asarray(12.0)))
    split = fastest(site, jnp.asarray(10.0 * (220.0 + 12.0 + 50.0) * on_top_of(linear)))
    assert ended(split)
    np.testing.assert_allclose(split.choice.memory_width, 1.0, rtol=1e-6)
    weight = np.asarray([400.0, 40.0]) ** 0.75
    parts_power = np.asarray([split.power.compute, split.power.network]) / 10.0
    np.testing.assert_allclose(parts_power, 220.0 * weight / weight.sum(), rtol=1e-6)


@pytest.mark.slow
def test_a_real_site_under_its_limit():
    scenario = load_scenario("llama-3.1-405b-h100")
    site, limit = site_load(scenario.system, scenario.plan), 18e6
    split = fastest(site, jnp.asarray(limit))
    assert ended(split)
    np.testing.assert_allclose(split.power.total, limit, rtol=1e-8)
    assert split.choice.temperature <= site.chip.maximum_temperature * (1 + 1e-9)
    assert all(float(part) > 0 for part in split.power)
    # The price is the slope of the optimum.
    step = 1e-4
    more, less = (fastest(site, jnp.asarray(limit * (1.0 + sign * step))).throughput for sign in (1.0, -1.0))
    np.testing.assert_allclose(split.price, (more - less) / (2.0 * step * limit), rtol=1e-5)
    again = cheapest(site, split.throughput)
    assert ended(again)
    np.testing.assert_allclose(again.power.total, limit, rtol=1e-7)
    # No random setting within the limit is better.
    random = np.random.default_rng(0)
    draws = random.uniform([0.3, 0.1, 0.1, 291.2], [1.0, 1.0, 1.0, 300.1], (4000, 4))

    def settled(draw):
        guess = SiteChoice(draw[0], draw[1], draw[2], draw[3], jnp.asarray(330.0))
        cooling = site.facility.cooling
        resistance = site.chip.thermal_resistance + cooling.at(draw[3]).resistance
        coolant = guess.coolant_temperature + cooling.at(draw[3]).rise
        for _ in range(60):
            power = site_power(site, guess)
            heat = (power.compute + power.memory) / site.chips
            guess = guess._replace(temperature=coolant + resistance * heat)
        legal = (site_power(site, guess).total <= limit) & (guess.temperature <= site.chip.maximum_temperature)
        return jnp.where(legal, throughput(site, guess), 0.0)

    best = float(jnp.max(jax.jit(jax.vmap(settled))(draws)))
    assert 0.8 * split.throughput < best < split.throughput * (1.0 + 1e-9)
