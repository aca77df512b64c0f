"""Every accelerator trains a small model in its usual node, within what its data sheet and physics allow."""

import math

import jax
import pytest

from energymodel.scenarios.files import companions
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.system.evaluate import evaluate_once
from preset_layout import names, read, value

DEVICES = [name for name in names("hardware") if name != "near-limit"]

# hardware_specs.csv, copied by hand: dense bf16 (fp16 where the chip has no bf16), bytes, B/s, W.
LISTED = {
    "a100-pcie-80gb": (312e12, 80e9, 1.94e12, 300),
    "a40": (149.7e12, 48e9, 695.8e9, 300),
    "h100-nvl": (835.5e12, 94e9, 3.938e12, 400),
    "h200-sxm": (989.5e12, 141e9, 4.8e12, 700),
    "l40s": (362e12, 48e9, 860e9, 350),
    "mi300x": (1.3074e15, 192e9, 5.3e12, 750),
    "mi325x": (1.3074e15, 256e9, 6e12, 1000),
    "mi355x": (2.5e15, 288e9, 8e12, 1400),
    "gb300": (2.5e15, 287.5e9, 8e12, 1400),
    "tpu-v7": (2.307e15, 192e9, 7.37e12, 960),
    "v100-pcie-32gb": (112e12, 32e9, 897e9, 250),
    "p100-pcie-16gb": (19.05e12, 16e9, 732.2e9, 250),
}
# Multiprocessors, and FLOP that each does in a cycle in bf16 with fp32 accumulation: 1024 on professional cards from
# Ampere to Blackwell, half of that on GeForce, 4096 on H100, 2048 on A100.
UNITS = {
    "rtx-3090": (82, 512),
    "rtx-4090": (128, 512),
    "rtx-5090": (170, 512),
    "rtx-6000-ada": (142, 1024),
    "rtx-pro-6000": (188, 1024),
    "l4": (58, 1024),
    "l40s": (142, 1024),
    "a10": (72, 1024),
    "a40": (84, 1024),
    "a100-pcie-80gb": (108, 2048),
    "h100-nvl": (132, 4096),
    "h100-pcie": (114, 4096),
    "h100-sxm": (132, 4096),
    "rtx-6000-turing": (72, 1024),
    "rtx-8000": (72, 1024),
}


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


@pytest.mark.parametrize("name", LISTED)
def test_rates_are_those_of_the_table(name):
    device = read("hardware", name)
    fields = ("peak_flops", "memory_capacity", "memory_bandwidth", "rated_power")
    for field, listed in zip(fields, LISTED[name], strict=True):
        assert value(device, field) == pytest.approx(listed, rel=1e-6), field


@pytest.mark.parametrize("name", UNITS)
def test_peak_is_that_of_the_units_at_the_reference_clock(name):
    units, operations = UNITS[name]
    device = read("hardware", name)
    assert value(device, "peak_flops") == pytest.approx(units * operations * value(device, "reference_clock"), rel=5e-3)
