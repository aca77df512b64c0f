"""Formats that a chip lacks: refused by name wherever a person asks for them, and never offered."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.calibration.step_prediction import predict
from energymodel.errors import InputError
from energymodel.scenarios.files import names, read_preset
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.sensitivity import next_values
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.scenario_axes import scenario_axis
from energymodel.system.chip_load import format_factors
from energymodel.system.evaluate import evaluate
from energymodel.system.layouts import candidates
from energymodel.system.plan import ParallelLayout
from energymodel.system.plan_rules import formats_of
from energymodel.system.step import step_work

H100 = "llama-3.1-405b-h100"
LACKING = r"has no fp4; it has: bf16, fp8, tf32, fp32"


def test_formats_of_known_devices():
    # Data sheets: NVIDIA A100 and V100, H100, B200; Google TPU v4; AMD MI250X.
    expected = {
        "v100-sxm2-32gb": {"fp32"},
        "a100-sxm4-80gb": {"tf32", "fp32"},
        "h100-sxm": {"fp8", "tf32", "fp32"},
        "h800-sxm": {"fp8", "tf32", "fp32"},
        "b200-sxm": {"fp8", "fp4", "tf32", "fp32"},
        "tpu-v4": {"tf32", "fp32"},
        "mi250x": {"tf32", "fp32"},
        "mi355x": {"fp8", "fp4", "fp32"},
        "rtx-3090": {"tf32", "fp32"},
        "rtx-4090": {"fp8", "tf32", "fp32"},
    }
    for name, formats in expected.items():
        device = read_preset("hardware", name)
        rates = {entry for entry in ("fp8", "fp4", "tf32", "fp32") if device[f"peak_flops_{entry}"]["value"] > 0.0}
        assert rates == formats, name
    assert {"gb200", "gb300", "b200-sxm", "b300-sxm", "rtx-5090", "rtx-pro-6000", "mi350x", "mi355x", "dgx-spark"} == {
        name for name in names("hardware") if read_preset("hardware", name).get("peak_flops_fp4", {}).get("value")
    }


def test_a_lacking_format_is_refused_and_not_offered():
    scenario = load_scenario(H100)
    with pytest.raises(InputError, match=LACKING):
        scenario_axis(scenario, "plan.layout.fp4", "0, 1")
    with pytest.raises(InputError, match=r"cluster megatron-bridge-h100\.fp4: .*" + LACKING):
        predict(
            [{"cluster": "megatron-bridge-h100", "model": "llama-3.1-8b", "chips": 8, "batch_sequences": 8, "fp4": 1}]
        )
    run = TrainingRun(scenario.system, scenario.plan)
    assert not np.any(candidates(run.system, run.plan.layout, 1024.0).fp4)
    assert next_values(scenario, "plan.layout.fp4") == (None, None)
    assert next_values(scenario, "plan.layout.fp8") == (None, 1.0)
    chip = load_scenario(H100).system.accelerator
    assert formats_of(chip) == ("bf16", "fp8", "tf32", "fp32")
    assert formats_of(dataclasses.replace(chip, peak_flops_fp4=jnp.asarray(4e15)))[2] == "fp4"


def test_evaluate_refuses_outside_jit_and_gains_nothing_inside():
    scenario = load_scenario(H100)
    plan = eqx.tree_at(lambda plan: plan.layout.fp4, scenario.plan, np.asarray(1.0))
    with pytest.raises(InputError, match=LACKING):
        evaluate(scenario.system, plan)
    chip = scenario.system.accelerator
    for lacking in (ParallelLayout(fp4=1.0), ParallelLayout(fp4=0.3)):
        np.testing.assert_allclose(jax.jit(format_factors)(chip, lacking), 1.0, rtol=1e-6)
    v100 = dataclasses.replace(chip, peak_flops_tf32=0.0)
    assert format_factors(v100, ParallelLayout(tf32=1.0)) == format_factors(v100, ParallelLayout(fp32=1.0))


def test_a_chip_without_fp32_takes_as_long_as_one_with_it_where_nothing_is_in_fp32():
    chip = load_scenario("test-1b-h100").system.accelerator
    without = eqx.tree_at(lambda chip: (chip.peak_flops_fp32, chip.peak_flops_tf32), chip, (np.zeros(()),) * 2)
    for layout in (ParallelLayout(), ParallelLayout(fp8=1.0), ParallelLayout(fp4=0.5)):
        np.testing.assert_array_equal(format_factors(without, layout), format_factors(chip, layout))
        assert format_factors(without, layout).wide_slowdown == 1.0


def test_attention_and_output_head_keep_their_energy_in_bf16():
    scenario = load_scenario(H100)
    system, plan = scenario.system, scenario.plan
    fp8 = eqx.tree_at(lambda plan: plan.layout.fp8, plan, np.asarray(1.0))
    wide, narrow = (step_work(system, entry, float(entry.batch[0])) for entry in (plan, fp8))
    saved = wide.load.switching_energy - narrow.load.switching_energy
    weights = wide.layer.flops - wide.layer.attention_flops
    per_operation = system.accelerator.energy_per_flop / system.software.product_efficiency
    np.testing.assert_allclose(saved, 0.45 * weights * per_operation, rtol=1e-12)  # fp8_energy_ratio is 0.55
    assert narrow.head.switching_energy == wide.head.switching_energy
