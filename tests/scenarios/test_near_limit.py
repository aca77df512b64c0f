"""The near-limit accelerator: each formula by hand, and the whole device adds up."""

import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from energymodel.errors import InputError
from energymodel.scenarios import near_limit
from energymodel.scenarios.files import read_preset
from energymodel.scenarios.near_limit import (
    leakage_ratio,
    leakage_temperature_sensitivity,
    near_limit_accelerator,
    operation_energy,
)
from energymodel.scenarios.scenario import load_scenario
from energymodel.sweeps.scenario_axes import scenario_axis
from energymodel.system.evaluate import evaluate_once

BY_HAND = yaml.safe_load(Path(__file__).with_name("near_limit.yaml").read_text(encoding="utf-8"))


def read(name):
    return read_preset("hardware", name)


@pytest.fixture
def preset():
    return read("near-limit")


@pytest.fixture
def device(preset):
    return near_limit_accelerator(preset, read(preset["template"]))


@pytest.mark.parametrize(("formula", "inputs", "expected", "within"), BY_HAND)
def test_formulas_by_hand(formula, inputs, expected, within):
    np.testing.assert_allclose(getattr(near_limit, formula)(*inputs), expected, rtol=within)


def test_subthreshold_slope_is_sixty_millivolt_per_decade():
    # At n = 1 and 300 K the leakage falls tenfold with ln(10) x 25.852 mV = 59.53 mV.
    ratios = [leakage_ratio(voltage, 300.0, 1.0, 1.0) for voltage in (0.3, 0.35953)]
    assert ratios[0] / ratios[1] == pytest.approx(10, rel=2e-4)


def test_leakage_temperature_sensitivity_is_the_derivative():
    low, high = (leakage_ratio(0.3, 338.15 + step, 1.2, 300.0) for step in (-1e-3, 1e-3))
    assert math.log(high / low) / 2e-3 == pytest.approx(leakage_temperature_sensitivity(0.3, 338.15, 1.2), rel=1e-6)


def test_device_by_hand(device):
    # H100: dynamic 800 - 140 - 0.4 x 3.35e12 x 8 x 3.9e-12 (= 41.808) = 618.192 W, memory share 0.067629.
    # Dynamic power (50 - 50 x 70/700) / (1 + 0.056376 + 0.067629) = 40.0354 W.
    # Operation: 1000 x 32 x 1.380649e-23 x 338.15 x 0.693147 = 1.03555e-16 J.
    # Matrix units full at efficiency 0.8164: peak 40.0354 / (1.03555e-16 x 0.8164) = 4.7356e17 FLOP/s.
    assert device["peak_flops"]["value"] == pytest.approx(4.7356e17, rel=3e-5)
    # 4.7356e17 / (989.4e12 / 3.35e12 = 295.343) = 1.6034e15 B/s.
    assert device["memory_bandwidth"]["value"] == pytest.approx(1.6034e15, rel=5e-5)
    # 3.9e-12 x 1.03555e-16 / (618.192 / (0.8164 x 989.4e12) = 7.65340e-13) = 5.2769e-16 J/bit.
    assert device["memory_energy"]["value"] == pytest.approx(5.2769e-16, rel=1e-4)
    # 0.056376 x 40.0354 = 2.2570 W.
    assert device["leakage"]["power"]["value"] == pytest.approx(2.2570, rel=2e-4)


def test_parts_add_up_to_rated_power(device, preset):
    memory = device["reference_memory_utilization"]["value"] * device["memory_bandwidth"]["value"] * 8
    memory *= device["memory_energy"]["value"]
    energy = operation_energy(1000.0, 32.0, preset["temperature"]["value"])
    total = device["leakage"]["power"]["value"] + device["fixed_power"]["value"] + memory
    total += device["peak_flops"]["value"] * device["gemm_efficiency"]["value"] * energy
    assert total == pytest.approx(preset["rated_power"]["value"], rel=1e-12)
    assert device["idle_power"]["value"] < device["leakage"]["power"]["value"] + device["fixed_power"]["value"]


def test_device_has_the_layout_of_an_accelerator(device):
    template = read("h100-sxm")

    def layout(tables, path=()):
        for name, table in tables.items():
            if isinstance(table, dict) and "value" not in table:
                yield from layout(table, (*path, name))
            else:
                yield (*path, name), table.get("unit") if isinstance(table, dict) else None

    assert list(layout(device)) == list(layout(template))
    assert device["component"] == "Accelerator"
    assert device["title"] != template["title"]
    assert template == read("h100-sxm")  # the template is not changed


def test_halving_the_landauer_multiple_doubles_the_rate(preset, device):
    preset["landauer_multiple"]["value"] /= 2
    changed = near_limit_accelerator(preset, read(preset["template"]))
    assert changed["peak_flops"]["value"] == pytest.approx(2 * device["peak_flops"]["value"])


def test_lower_voltage_leaks_more_and_leaves_less_power(preset, device):
    preset["reference_voltage"]["value"] = 0.2
    changed = near_limit_accelerator(preset, read(preset["template"]))
    assert changed["leakage"]["power"]["value"] > device["leakage"]["power"]["value"]
    assert changed["peak_flops"]["value"] < device["peak_flops"]["value"]


@pytest.mark.parametrize("change", ["landauer_multiple=1e308", "bits_per_flop=1e308 bit/FLOP", "rated_power=1e308 W"])
def test_numbers_from_which_no_accelerator_follows(change):
    with pytest.raises(InputError, match=r"system\.accelerator"):
        load_scenario("near-limit-hardware", [f"system.accelerator.{change}"])


def test_a_chosen_number_is_an_axis_of_a_sweep():
    scenario = load_scenario("near-limit-hardware")
    axis = scenario_axis(scenario, "system.accelerator.landauer_multiple", "1, 2, 10")
    assert axis.labels == ("landauer_multiple = 1", "landauer_multiple = 2", "landauer_multiple = 10")
    # An operation takes twice or ten times the energy, so that the power allows as many fewer.
    np.testing.assert_allclose(axis.values.peak_flops[0] / axis.values.peak_flops, [1.0, 2.0, 10.0], rtol=1e-12)
    with pytest.raises(InputError, match="between 1 and"):
        scenario_axis(scenario, "system.accelerator.landauer_multiple", "0, 2")


def test_reversible_circuits_take_the_heat_of_their_ramps():
    # Nothing but the switching of operations changes at clock 1: 2 x 0.05 (1 - 0.05) = 0.095 of it remains.
    own, reversible = (
        evaluate_once(scenario.system, scenario.plan)
        for scenario in (
            load_scenario("near-limit-hardware"),
            load_scenario("near-limit-hardware", ["system.accelerator.charging=adiabatic"]),
        )
    )
    assert float(reversible.energy.dynamic / own.energy.dynamic) == pytest.approx(0.095, rel=1e-4)
    assert float(reversible.time) == pytest.approx(float(own.time))
