"""Do buildings have the PUE and the water that are published for them, and the slopes of their parts?"""

import equinox as eqx
import numpy as np
import pytest

from energymodel.scenarios.components import build
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.facility import Facility

LITERS_PER_KILOWATT_HOUR = 3.6e9  # m^3/J
# PUE over a year, as published. Meta 2023, environmental data (over its own data centers); Google, trailing twelve
# months (Oklahoma; recalled); Morrison et al. 2025, arXiv 2503.05804 (recalled).
PUBLISHED = {"llama-3.1-405b-h100": 1.08, "chinchilla-70b-tpu-v4": 1.10, "olmo-2-13b-h100": 1.20}


def facility(name, **cooling):
    return build({"preset": name, "cooling": cooling}, Facility, name, {})


def celsius(temperature):
    return 273.15 + temperature


def pue(building, load, coolant):
    power = building.power(load, building.cooling.at(coolant))
    return float(power.total(load) / power.equipment)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_run_stands_in_its_published_building(name, scenario, run):
    given = scenario(name)
    np.testing.assert_allclose(run(given.system, given.plan).pue, PUBLISHED[name], atol=0.015)


@pytest.mark.parametrize(
    ("weather", "published"),
    [
        ("mid-atlantic-weather", 1.08),  # Meta 2023, most sites in the United States
        ("texas-weather", 1.10),  # Google, Oklahoma (recalled)
        ("singapore-weather", 1.13),  # Google, Singapore (recalled); Meta expected 1.19 of its own in 2018
    ],
)
def test_hyperscale_buildings_follow_the_climate(weather, published):
    np.testing.assert_allclose(pue(facility("hyperscale", weather=weather), 900.0, celsius(27.0)), published, atol=0.01)


def test_water_is_what_operators_report():
    # Meta: 0.26 L/kWh in buildings of 2021; mean of data centers in the United States: 1.8 L/kWh (Shehabi et al. 2016).
    for name, low, high in [("hyperscale", 0.08, 0.3), ("air-cooled", 1.6, 2.0), ("colocation", 0.0, 0.0)]:
        power = facility(name).power(900.0, facility(name).cooling.at(celsius(25.0)))
        assert low <= power.water / power.equipment * LITERS_PER_KILOWATT_HOUR <= high


def test_immersed_and_water_cooled_nodes_need_no_chiller_where_it_is_cool():
    # An annual PUE of 1.036 at 24 °C without chillers (NREL, ESIF), of which conversion and lights are not cooling.
    building = facility("direct-liquid", weather="great-britain-weather")
    power = building.power(900.0, building.cooling.at(celsius(24.0)))
    np.testing.assert_allclose(power.cooling / power.equipment, 0.036, atol=0.01)


@pytest.mark.parametrize(("name", "warm"), [("air-cooled", 20.0), ("direct-liquid", 15.0), ("colocation", 20.0)])
def test_a_kelvin_saves_what_the_chiller_and_the_outside_save(name, warm):
    """The slope of PUE, from its parts one by one: less chilled, each watt of it cheaper, fans that speed up."""
    building = facility(name)
    cooling, load, step = building.cooling, 900.0, 0.01

    def parts(coolant):
        water, rise = coolant - cooling.coil_approach, cooling.at(coolant).return_rise

        def chiller(hour):
            spread = float(hour.spread) * np.sqrt(3.0) / np.pi
            margin = (water + np.asarray([rise, 0.0]) - cooling.rejection.source(hour)) / spread
            free = np.diff(np.logaddexp(0.0, margin)[::-1])[0] * spread / rise
            made = min(float(water), float(cooling.chiller.maximum_temperature))
            condenser = max(float(cooling.rejection.condenser(hour)), made + float(cooling.chiller.minimum_lift))
            x, c0, c2 = (float(getattr(cooling.chiller, n)) for n in ("load", "fixed_work", "quadratic_work"))
            part_load = x / (c0 + (1 - c0 - c2) * x + c2 * x**2)
            quality, exchange = float(cooling.chiller.quality), float(cooling.chiller.exchange)
            return (1.0 - free) * (condenser - made + exchange) / (quality * made * part_load)

        hours = [chiller(hour) for hour in cooling.weather.hours()]
        flow = np.exp(cooling.loop.flow_growth * 2.0 * np.logaddexp(0.0, (coolant - 295.15) / 2.0))
        return np.mean(hours), cooling.loop.mover_power_fraction * flow**3

    slope = (pue(building, load, celsius(warm) + step) - pue(building, load, celsius(warm) - step)) / (2 * step)
    (colder, few), (warmer, more) = parts(celsius(warm) - step), parts(celsius(warm) + step)
    by_chiller, by_fans = (warmer - colder) / (2 * step), (more - few) / (2 * step)
    assert by_chiller < 0.0 <= by_fans
    np.testing.assert_allclose(slope, by_chiller + by_fans, rtol=0.12)  # the rest: towers and dry coolers
    assert -0.02 < slope < 0.0


def test_half_the_load_pays_the_same_fixed_losses():
    # No-load loss of the supply for the building and lights: over half the equipment, twice the share, less what
    # conduction saves.
    building = facility("hyperscale")
    full, half = (building.power(load, building.cooling.at(celsius(25.0))) for load in (1000.0, 500.0))
    assert half.other == full.other
    difference = pue(building, 500.0, celsius(25.0)) - pue(building, 1000.0, celsius(25.0))
    fixed = float(building.miscellaneous_fraction * building.uninterruptible.rated_power) + 0.002 * 1500.0 / 0.99
    shares = [1.0 / float(power.equipment) for power in (half, full)]
    conduction = 0.006 / 1500.0 / 0.99 * (float(half.equipment) - float(full.equipment))
    np.testing.assert_allclose(difference, fixed * (shares[0] - shares[1]) + conduction, rtol=1e-3)
    assert 0.01 < difference < 0.05


def test_the_hottest_hour_sizes_the_building():
    for name in ("air-cooled", "hyperscale", "direct-liquid", "colocation", "immersion"):
        building = facility(name)
        air = building.cooling.at(celsius(25.0))
        assert building.hottest_power(900.0, air).total(900.0) > building.power(900.0, air).total(900.0)


def test_warm_air_costs_fans_and_leakage(scenario, run):
    """Beyond what the outside cools for nothing, warmer air costs more than it saves."""
    given = scenario("llama-3.1-405b-h100")

    def energy(degrees):
        plan = eqx.tree_at(lambda p: p.coolant_temperature, given.plan, np.asarray(celsius(degrees)))
        return run(given.system, plan).energy

    cool, warm = energy(23.0), energy(30.0)
    server = cool.total - cool.cooling - cool.other - cool.network
    assert 0.0035 < (warm.host - cool.host) / server / 7.0 < 0.005  # of server power per kelvin (Coroama 2025)
    assert warm.static > cool.static
    assert energy(34.0).total > energy(27.0).total


def test_an_air_cooled_node_draws_what_meters_saw(scenario, run):
    # Near idle 2.9 kW in air and 2.2 kW immersed (MLPerf Power 4.0, 4.1), 0.96 behind the supply.
    idle = {}
    for name in ("air-cooled", "immersion"):
        system = load_scenario("test-1b-h100", [f"system.facility={name}"]).system
        idle[name] = system.host_power(75.0, system.facility.cooling.at(celsius(10.0))) * 8
    np.testing.assert_allclose(idle["air-cooled"] - idle["immersion"], 700.0, rtol=1e-3)
    np.testing.assert_allclose((idle["immersion"] + 8 * 75.0) / 0.96, 2080.0, rtol=0.06)
    given = scenario("gpt3-175b-h100")
    outcome = run(given.system, given.plan)
    node = outcome.power_average / outcome.pue / given.plan.chips * 8
    np.testing.assert_allclose(node, 6849.0, rtol=0.05)  # metered mean of 64 nodes, alternating current


@pytest.mark.parametrize(("degrees", "named"), [(45.0, "exceeds"), (5.0, "is below")])
def test_coolant_beyond_the_class_of_the_equipment_breaks_a_limit(degrees, named, scenario, run):
    from energymodel.report.answers.evaluate import broken_limits
    from energymodel.report.answers.run_tables import Run
    from energymodel.report.number import sentence

    given = scenario("llama-3.1-405b-h100", f"plan.coolant_temperature={degrees} °C")
    outcome = run(given.system, given.plan)
    assert outcome.slack.coolant < 0.0
    message = next(
        line for line in map(sentence, broken_limits(given, Run(given.plan, outcome))) if line.startswith("coolant")
    )
    assert named in message
    assert f"{degrees:g} °C" in message
    liquid = scenario("llama-3.1-405b-h100", "plan.coolant_temperature=45 °C", "system.facility=immersion")
    assert run(liquid.system, liquid.plan).slack.coolant >= -1e-12
