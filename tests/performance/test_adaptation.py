"""Fine-tuning: adapters of published counts, bytes of frozen and trained weights, and work without weight gradients."""

import dataclasses

import numpy as np
import pytest

from energymodel import load_scenario
from energymodel.performance.adaptation import FineTuning, WholeModel
from energymodel.scenarios.fine_tuning import adaptation_changes
from energymodel.system.division import divide
from energymodel.system.memory import chip_memory, reserved_memory

ONE_CARD = (
    *("system.workload=llama-3.1-8b", "system.workload.sequence=2048 token", "plan.chips=1", "plan.batch=4096 token"),
    *("plan.layout.microbatch=2", "plan.layout.recomputation=full"),
)


def tuned(*changes):
    return load_scenario("test-1b-h100", [*ONE_CARD, *changes])


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        # Unsloth prints 41,943,040 trainable parameters for rank 16 beside all seven matrices of Llama 3.1 8B.
        (("system.adaptation=lora",), 41_943_040),
        # PEFT prints 3,407,872 for rank 8 beside q_proj and v_proj.
        (
            (
                *("system.adaptation=lora", "system.adaptation.rank=8"),
                *(f"system.adaptation.{name}=0" for name in ("keys", "attention_output", "gate", "up", "down")),
            ),
            3_407_872,
        ),
    ],
)
def test_adapters_have_the_published_counts(changes, count):
    system = tuned(*changes).system
    adaptation, workload = system.adaptation, system.workload
    assert isinstance(adaptation, FineTuning)
    np.testing.assert_allclose(float(workload.layers * adaptation.adapters(workload).layer), count)
    np.testing.assert_allclose(float(adaptation.trained_weights(workload).trained * workload.parameters), count)


def test_weights_in_four_bits_by_hand():
    # 2 x 128,256 x 4,096 in 16 bits, 6,979,321,856 and 266,240 in norms in 4.127, and adapters of 41,943,040 in fp32.
    system = tuned("system.adaptation=qlora").system
    by_hand = 2 * 1_050_673_152 + 6_979_588_096 * 0.5159 + 41_943_040 * 4
    assert isinstance(system.adaptation, FineTuning)
    weight = system.adaptation.trained_weights(system.workload).weight
    np.testing.assert_allclose(float(weight * system.workload.parameters), by_hand, rtol=1e-4)


def test_frozen_weights_have_no_gradients_of_their_own():
    frozen, full = tuned("system.adaptation=lora").system, tuned("system.adaptation=full").system
    model = frozen.workload
    share = frozen.adaptation.flops_per_token(model, 1.0) / full.adaptation.flops_per_token(model, 1.0)
    # 4 of 6 operations, and six for each of 41,943,040 weights of adapters beside 8,030,261,248.
    np.testing.assert_allclose(float(share), 4 / 6 + 41_943_040 / 8_030_261_248, rtol=1e-6)


def test_pre_training_has_no_numbers_of_adaptation():
    assert load_scenario("test-1b-h100").system.adaptation == WholeModel()
    assert not dataclasses.fields(WholeModel)


@pytest.mark.parametrize(
    ("published", "words"),
    [
        # GiB of tensors in the README of torchtune, Llama 3.1 8B on one RTX 4090, two samples packed to 2,048 tokens.
        (16.2, {"tuning": "lora", "rank": 8, "trained_format": "bf16"}),
        (7.4, {"tuning": "qlora", "rank": 8, "trained_format": "bf16"}),
        (18.9, {"tuning": "full", "optimizer": "paged_adamw_8bit", "fused_backward": True}),
    ],
)
def test_published_memory_is_predicted_within_15_percent(published, words):
    run = tuned(*adaptation_changes({**words, "chunked_loss": True}))
    memory = chip_memory(run.system, run.plan, divide(run.system, run.plan, 4096.0))
    tensors = float(memory.total - reserved_memory(run.system, run.plan))
    np.testing.assert_allclose(tensors / 2**30, published, rtol=0.15)
