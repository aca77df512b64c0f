"""Every accelerator trains a small model in its usual node, within what its data sheet and physics allow."""

import math
import tomllib
from pathlib import Path

import jax
import pytest

from energymodel.scenarios.files import companions
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.system.evaluate import evaluate_once
from preset_layout import names, read, value

DEVICES = [name for name in names("hardware") if name != "near-limit"]

DATA = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))


def small_run(name: str) -> Scenario:
    """A model of 1.2 billion parameters on two nodes, or on a block of a torus."""
    chips = 2 * value(read("nodes", companions(name)["node"]), "chips")
    if "tpu" in name:
        chips = value(read("nodes", companions(name)["node"]), "chips")
    layout = {"plan.layout.microbatch": 1, "plan.layout.recomputation": "full"}
    power = {"system.facility.power_limit": "1 MW"}
    return load_scenario("test-1b-h100", {"system.accelerator": name, "plan.chips": chips, **power, **layout})


@pytest.mark.parametrize("name", DEVICES)
def test_small_model_trains_in_the_usual_node(name):
    scenario = small_run(name)
    outcome = jax.device_get(evaluate_once(scenario.system, scenario.plan))
    chip = scenario.system.accelerator
    assert 0.02 < float(outcome.mfu) < 1.0
    assert float(outcome.memory_per_chip) < float(chip.memory_capacity)
    # A chip draws at least its static power and at most its limit, also averaged over the run.
    assert float(chip.idle_power) < float(outcome.power_busy) <= float(chip.rated_power) * (1 + 1e-6)
    assert float(chip.minimum_clock) <= float(outcome.clock) <= 1.0
    parts = [float(part) for part in jax.tree.leaves(outcome.step_time)]
    assert all(math.isfinite(part) and part >= 0.0 for part in parts)
    # No step is faster than the operations at the peak rate: 6 N D over the chips.
    least = 6 * 1.18e9 * 524288 / (float(scenario.plan.chips) * float(chip.peak_flops))
    assert sum(parts) > least


@pytest.mark.parametrize("name", DATA["listed"])
def test_rates_are_those_of_the_table(name):
    device = read("hardware", name)
    fields = ("peak_flops", "memory_capacity", "memory_bandwidth", "rated_power")
    for field, listed in zip(fields, DATA["listed"][name], strict=True):
        # A device reports up to 8 % more than its rated memory, or a little less: binary sizes, and error correction.
        tolerance = 0.08 if field == "memory_capacity" else 1e-6
        assert value(device, field) == pytest.approx(listed, rel=tolerance), field


@pytest.mark.parametrize("name", DATA["units"])
def test_peak_is_that_of_the_units_at_the_reference_clock(name):
    units, operations = DATA["units"][name]
    device = read("hardware", name)
    assert value(device, "peak_flops") == pytest.approx(units * operations * value(device, "reference_clock"), rel=5e-3)


def test_a_consumer_card_slows_down_at_a_power_cap():
    # Puget Systems, four RTX 3090: 280 W takes 5 % of the speed at 350 W, 230 W about 16 %.
    layout, speeds = {"plan.layout.microbatch": 1, "plan.layout.recomputation": "full"}, []
    for cap in ("350 W", "280 W", "230 W"):
        change = {"system.accelerator": "rtx-3090", "plan.chips": 4, "plan.power_cap": cap, **layout}
        run = load_scenario("test-1b-h100", change)
        speeds.append(1.0 / float(evaluate_once(run.system, run.plan).step_time.total))
    assert speeds[1] / speeds[0] == pytest.approx(0.95, abs=0.03)
    assert speeds[2] / speeds[0] == pytest.approx(0.84, abs=0.05)
