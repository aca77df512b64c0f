"""Fine-tuning in words: optimizers, targets, samples with padding, and what is refused."""

import jax
import numpy as np
import pytest

from energymodel import InputError, evaluate, load_scenario
from energymodel.performance.adaptation import FineTuning
from energymodel.readers.training_config import read_training_config
from energymodel.report.answers.evaluate import evaluate_answer
from energymodel.scenarios.fine_tuning import adaptation_changes, lighter_memory, padded_samples, samples_of

AXOLOTL = {
    "lora": ("adapter: lora\nlora_r: 8\nlora_target_linear: true", {"tuning": "lora", "rank": 8, "padding": "packed"}),
    "qlora": ("adapter: qlora\nload_in_4bit: true\npeft_use_dora: true", {"tuning": "dora", "frozen_format": "nf4"}),
    "full": ("optimizer: paged_adamw_8bit", {"tuning": "full", "optimizer": "paged_adamw_8bit", "epochs": 3.0}),
    "deepspeed": ("deepspeed: zero3_bf16.json", {"tuning": None}),
}


@pytest.mark.parametrize(("text", "words"), AXOLOTL.values(), ids=AXOLOTL)
def test_axolotl_says_what_is_trained(tmp_path, text, words):
    path = tmp_path / "run.yaml"
    path.write_text(f"base_model: meta-llama/Llama-3.1-8B\nbf16: true\nsample_packing: true\nnum_epochs: 3\n{text}\n")
    run = read_training_config(path)
    assert {name: getattr(run, name) for name in words} == words


# Bytes of states of a trained weight: two moments in its type, in 8 bits with a scale of 4 bytes for 256, or in fp32.
@pytest.mark.parametrize(
    ("tuning", "optimizer", "states", "paged"),
    [
        ("full", "adamw_torch_fused", 4.0, 0.0),
        ("full", "adamw_8bit", 2.0 + 2 * 4 / 256, 0.0),
        ("full", "paged_adamw_8bit", 2.0 + 2 * 4 / 256, 1.0),
        ("full", "paged_adamw_32bit", 8.0, 1.0),
        ("full", "torch.optim.AdamW", 4.0, 0.0),
        ("lora", "adamw_torch", 8.0, 0.0),
        ("full", "adafactor", 0.01, 0.0),
        ("full", "lion_8bit", 1.0 + 4 / 256, 0.0),
    ],
)
def test_states_follow_from_the_name_of_the_optimizer(tuning, optimizer, states, paged):
    changes = adaptation_changes({"tuning": tuning, "optimizer": optimizer})
    adapted = load_scenario("test-1b-h100", changes).system.adaptation
    assert isinstance(adapted, FineTuning)
    assert float(adapted.optimizer_bytes) == pytest.approx(states, rel=1e-3)
    assert float(adapted.paged) == paged


def test_adapters_that_a_framework_names_alone_are_taken():
    assert "system.adaptation.rank=8.0" in adaptation_changes({"adapters": "lora, rank 8"})
    assert "system.adaptation=qlora" in adaptation_changes({"adapters": "QLoRA"})
    assert adaptation_changes({"adapters": "ptuning"}) == []


def test_targets_are_matrices():
    changes = adaptation_changes({"tuning": "lora", "targets": ("model.layers.q_proj", "c_fc", "lm_head")})
    adapted = load_scenario("test-1b-h100", changes).system.adaptation
    names = ("queries", "keys", "values", "attention_output", "gate", "up", "down", "embedding", "head")
    assert [name for name in names if float(getattr(adapted, name))] == ["queries", "up", "head"]


def test_padding_by_hand():
    # 3 epochs of 52,000 samples of 400 tokens; the longest of two has 400 (1 + 1/2) in the mean.
    assert padded_samples(52e3, 3.0, 400.0, 2048.0, "packed", 2.0) == (62.4e6, 2048.0, 1.0)
    longest = padded_samples(52e3, 3.0, 400.0, 2048.0, "longest", 2.0)
    np.testing.assert_allclose(longest, (93.6e6, 600.0, 2048.0 / 600.0), rtol=1e-12)
    assert padded_samples(52e3, 3.0, 400.0, 2048.0, "sequence", 2.0) == (319.488e6, 2048.0, 1.0)
    said = {"samples": "52k", "epochs": "3", "mean_length": "400", "padding": "packed"}
    assert samples_of(said, 2048.0, None) == padded_samples(52e3, 3.0, 400.0, 2048.0, "packed", 1.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"tuning": "lorra"}, 'tuning: unknown "lorra"'),
        ({"tuning": "full", "optimizer": "shampoo"}, 'the states of "shampoo" are not known'),
        ({"tuning": "lora", "targets": ("w_up",)}, 'target: "w_up" is no matrix'),
    ],
)
def test_unknown_words_are_refused(words, message):
    with pytest.raises(InputError, match=message):
        adaptation_changes(words)


@pytest.mark.parametrize(
    ("words", "sequence", "message"),
    [
        ({"samples": "52k", "mean_length": "400"}, None, "--sequence"),
        ({"samples": "52k"}, 2048.0, "--mean-length"),
        ({"samples": "52k", "mean_length": 400, "padding": "longest"}, 2048.0, "microbatch"),
        ({"samples": "52k", "mean_length": 4000}, 2048.0, "4,000 tokens are more than a sequence of 2,048"),
        ({"samples": "52k", "mean_length": 400, "padding": "none"}, 2048.0, 'unknown "none"'),
    ],
)
def test_samples_say_what_they_lack(words, sequence, message):
    with pytest.raises(InputError, match=message):
        samples_of(words, sequence, None)


def test_the_loss_of_fine_tuning_is_not_predicted():
    tuned = load_scenario("test-1b-h100", ["system.adaptation=lora"])
    assert "plan.batch" in tuned.optimize.fix
    with pytest.raises(InputError, match="the loss of fine-tuning is not predicted"):
        tuned.with_question(minimize="energy*loss")
    with pytest.raises(InputError, match="the loss of fine-tuning is not predicted"):
        tuned.with_question(limits={"loss": 2.0})
    with pytest.raises(InputError, match="the loss of fine-tuning is not predicted"):
        load_scenario("test-1b-h100", ["system.adaptation=lora", "plan.goal.loss=3 nat/token"])
    outcome = jax.jit(evaluate)(tuned.system, tuned.plan)
    answer = evaluate_answer(tuned, outcome, None)
    assert "loss" not in answer.table("outcome").names
    assert not [text for text in answer.sentences if "loss" in text.words]
    assert any("not predicted" in note.words for note in answer.notes)


def test_what_would_take_less_memory_is_said():
    assert lighter_memory(*vars_of("test-1b-h100")) == {}
    less = lighter_memory(*vars_of("test-1b-h100", "system.adaptation=full", "plan.layout.recomputation=full"))
    alone, together = list(less.values())[:-1], less["all of these"]
    assert [text.split(" ")[0] for text in less] == ["logits", "gradients", "optimizer", "all"]
    assert together < min(alone)
    (quantized,) = [
        text for text in lighter_memory(*vars_of("test-1b-h100", "system.adaptation=lora")) if "4 bits" in text
    ]
    assert quantized


def vars_of(*source):
    scenario = load_scenario(source[0], source[1:])
    return scenario.system, scenario.plan
