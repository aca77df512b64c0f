"""Do both precisions agree, and is every output finite, whatever the inputs?"""

import equinox as eqx
import jax
import numpy as np
import pytest

from energymodel.scenarios.files import names

QUICK = ("llama-3.1-405b-h100",)
SCENARIOS = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
    for name in names("scenarios")
    if not name.startswith("_")
]
LLAMA = "llama-3.1-405b-h100"
GROUPS = ("energy", "step_time")  # compared with their total
SLACKS = "slack"  # logarithms: compared with one


def compare(single, double):
    """Differences of float32 from float64 in the measure of each output: relative, of the total, or absolute."""
    entries = jax.tree_util.tree_leaves_with_path(double)
    differences = {}
    for (path, exact), rough in zip(entries, jax.tree.leaves(single), strict=True):
        assert exact.dtype == np.float64
        assert rough.dtype == np.float32
        group = path[0].name
        size = getattr(double, group).total if group in GROUPS else 1.0 if group == SLACKS else abs(exact)
        differences[jax.tree_util.keystr(path)] = abs(float(rough) - float(exact)) / (float(size) or 1.0)
    return differences


@pytest.mark.parametrize("name", SCENARIOS)
def test_float32_agrees_with_float64(name, scenario, run):
    given = scenario(name)
    with jax.enable_x64(False):
        single = jax.device_get(run(given.system, given.plan))
    with jax.enable_x64(True):
        double = jax.device_get(run(given.system, given.plan))
    wrong = {path: difference for path, difference in compare(single, double).items() if not difference < 1e-4}
    assert wrong == {}


ZEROS = {
    "launch_overhead": lambda s: s.accelerator.launch_overhead,
    "overhead_time": lambda s: s.accelerator.overhead_time,
    "fixed_power": lambda s: s.accelerator.fixed_power,
    "idle_power": lambda s: s.accelerator.idle_power,
    "leakage": lambda s: s.accelerator.leakage.power,
    "leakage_feedback": lambda s: s.accelerator.leakage.temperature_sensitivity,
    "memory_energy": lambda s: s.accelerator.memory_energy,
    "thermal_resistance": lambda s: s.accelerator.thermal_resistance,
    "gemm_edge": lambda s: s.accelerator.gemm_edge,
    "gate": lambda s: s.accelerator.gate.fraction,
    "wake_energy": lambda s: s.accelerator.gate.wake_energy,
    "scale_up_latency": lambda s: s.node.scale_up.latency,
    "scale_out_latency": lambda s: s.network.link.latency,
    "lane_power": lambda s: s.node.scale_up.lane_power,
    "packet_overhead": lambda s: s.network.link.overhead,
    "hop_energy": lambda s: s.network.hop_energy,
    "static_power": lambda s: s.network.static_power,
    "overhead_power": lambda s: s.node.overhead_power,
    "straggler_variation": lambda s: s.reliability.straggler_variation,
    "restart_time": lambda s: s.reliability.restart_time,
    "other_stages": lambda s: s.other_stages,
    "mixture_exponent": lambda s: s.mixture_exponent,
    "absorbed_overhead": lambda s: s.learning.absorbed_overhead,
    "interest_rate": lambda s: s.market.price.interest_rate,
    "carbon_intensity": lambda s: s.market.carbon.intensity,
    "resistance": lambda s: s.facility.distribution.resistance,
    "fixed_loss": lambda s: s.facility.power_supply.fixed_loss,
    "transformer_loss": lambda s: s.facility.transformer_loss,
    "flash": lambda s: s.workload.flash,
}


@pytest.mark.parametrize("precision", [32, 64])
def test_outputs_stay_finite_without_what_may_be_zero(precision, scenario, run):
    given = scenario(LLAMA)
    systems = {name: eqx.tree_at(where, given.system, np.asarray(0.0)) for name, where in ZEROS.items()}
    systems["no failures"] = eqx.tree_at(
        lambda s: (s.reliability.checkpoint_time, s.reliability.restart_time), given.system, [np.asarray(0.0)] * 2
    )
    systems["all"] = given.system
    for where in ZEROS.values():
        systems["all"] = eqx.tree_at(where, systems["all"], np.asarray(0.0))
    wrong = {}
    with jax.enable_x64(precision == 64):
        for name, system in systems.items():
            wrong[name] = unsound(run(system, given.plan))
    assert {name: paths for name, paths in wrong.items() if paths} == {}


@pytest.mark.parametrize("precision", [32, 64])
def test_outputs_stay_finite_for_extreme_plans(precision, scenario, extreme_plans, run):
    given = scenario(LLAMA)
    with jax.enable_x64(precision == 64):
        wrong = {name: unsound(run(given.system, plan)) for name, plan in extreme_plans(given.plan).items()}
    assert {name: paths for name, paths in wrong.items() if paths} == {}


def unsound(outcome):
    """Outputs that are not finite, and energies and times below zero."""
    entries = jax.tree_util.tree_leaves_with_path(jax.device_get(outcome))
    return [
        f"{jax.tree_util.keystr(path)} = {value:g}"
        for path, value in entries
        if not np.isfinite(value) or (path[0].name in GROUPS and value < 0.0)
    ]
