"""`scenario`: a file from pieces that other commands read, its defaults, and what is refused."""

import json

import jax
import numpy as np
import pytest

from cli.shell import run_json
from energymodel.errors import InputError
from energymodel.scenarios.pieces import BATCH_COEFFICIENT, BATCH_EXPONENT, scenario_of_pieces
from energymodel.scenarios.scenario import load_scenario
from energymodel.scenarios.training_file import scenario_of_training, vector_parameters
from energymodel.system.layouts import SEARCHED

CLUSTER = ("--accelerator", "h100-sxm", "--chips", "16", "--tokens", "50 G")


def test_the_batch_follows_from_the_operations_and_has_whole_sequences():
    made = scenario_of_pieces("test-1b", "h100-sxm", 16, "50 G")
    workload, plan = made.scenario.system.workload, made.scenario.plan
    law = BATCH_COEFFICIENT * (6.0 * float(workload.active_parameters) * 5e10) ** BATCH_EXPONENT
    batch, sequences = float(np.max(plan.batch)), 16.0 * float(workload.sequence)
    # 46.9 sequences for each chip are rounded to a multiple of 16.
    assert batch == 48.0 * sequences
    assert abs(batch - law) < 0.1 * law
    chosen = scenario_of_pieces("test-1b", "h100-sxm", 16, "50 G", batch="1 Mi", sequence="1024")
    assert float(np.max(chosen.scenario.plan.batch)) == 2.0**20
    assert float(chosen.scenario.system.workload.sequence) == 1024.0


def test_a_few_tokens_on_many_chips_divide_the_chips():
    plan = scenario_of_pieces("test-1b", "h100-sxm", 96, "10 M", sequence=8192).scenario.plan
    assert float(plan.batch[0]) / 8192.0 == 12.0  # the law asks for 11: 96 / 8 is the nearest


def test_a_large_model_is_divided_until_it_fits():
    # The layers of a pipeline of 16 or 32 ranks: 126 with embedding and output head in slots of their own.
    for chips in (1024, 16384):
        made = scenario_of_pieces("llama-3.1-405b", "h100-sxm", chips, "1 T", batch="12 Mi")
        assert made.scenario.chosen == ("layout",)
        assert float(made.scenario.plan.layout.pipeline) in (8.0, 16.0, 32.0)
        assert "The layout was chosen, not given" in made.assumed[-1]
    mixture = scenario_of_pieces("deepseek-v3", "h100-sxm", 2048, "1 T")
    assert mixture.scenario.chosen == ("layout", "batch")
    assert float(mixture.scenario.plan.layout.expert) > 1.0


def test_what_is_said_of_a_layout_stays():
    changes = ["plan.layout.microbatch=3", "plan.layout.recomputation=selective", "plan.batch=196608 token"]
    changes += ["plan.layout.zero=0", "plan.layout.tensor=4", "plan.layout.sequence_parallel=0"]
    layout = scenario_of_pieces("test-1b", "h100-sxm", 8, "50 G", changes=changes).scenario.plan.layout
    asked = {
        "microbatch": 3.0,
        "recompute_attention": 1.0,
        "shard_optimizer": 0.0,
        "tensor": 4.0,
        "sequence_parallel": 0.0,
    }
    assert {name: float(getattr(layout, name)) for name in asked} == asked
    stated = [f"plan.layout.{name}={float(getattr(layout, name))}" for name in SEARCHED]
    made = scenario_of_pieces("test-1b", "h100-sxm", 8, "50 G", batch="192 Ki", changes=stated)
    assert made.scenario.chosen == ()
    assert made.scenario.optimize.fix == ("plan.batch",)
    assert made.scenario.with_question(vary=["plan.batch=0.1:1 Mi token"]).optimize.fix == ()
    assert made.scenario.plan.layout == layout


def test_accelerator_and_framework_are_the_cluster_of_both():
    pair = "h100-sxm", "torchtitan"
    made = scenario_of_pieces("test-1b", pair[0], 8, "50 G", framework=pair[1])
    same = scenario_of_pieces("test-1b", pair[0], 8, "50 G", cluster=" + ".join(pair))
    assert made.scenario.tables == same.scenario.tables
    assert made.scenario.tables["system"]["software"]["title"].startswith("torchtitan")
    with pytest.raises(InputError, match="framework: fsdp, but cluster nanotron-h100 has its own"):
        scenario_of_pieces("test-1b", pair[0], 8, "50 G", framework="fsdp", cluster="nanotron-h100")


def test_a_config_of_a_user_is_a_model(tmp_path):
    config = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 512}
    config |= {"num_attention_heads": 4, "vocab_size": 1000, "tie_word_embeddings": False}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    tree = run_json("scenario", "--model", str(file), *CLUSTER, "--sequence", "512")
    assert tree["scenario"]["system"]["workload"]["vector_parameters"]["value"] == 4 * 2 * 256 + 256


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "lama-8b"}, 'Unknown preset "lama-8b" among models'),
        ({"accelerator": "h1000"}, 'Unknown preset "h1000" among hardware'),
        ({"chips": "12.5"}, "chips: 12.5 is not a whole number"),
        ({"chips": "many"}, "chips"),
        ({"tokens": "0"}, "tokens: 0 is not a number of tokens"),
        ({"tokens": "2 kg"}, "tokens"),
        ({"model": "llama-3.1-405b", "chips": "8"}, r"in no layout of 8 chips does the model fit.* GB of 78.59 GB"),
        ({"batch": "1000", "sequence": "2048"}, "plan.batch: 1 k tokens cannot be divided over 16 chips"),
        ({"framework": "torchtitam"}, 'Unknown framework "torchtitam". Did you mean "torchtitan"'),
    ],
)
def test_what_is_no_piece_is_refused(changes, words):
    pieces = {"model": "test-1b", "accelerator": "h100-sxm", "chips": "16", "tokens": "50 G"} | changes
    with pytest.raises(InputError, match=words):
        scenario_of_pieces(**pieces)


TITAN = """
[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 2
seq_len = 4096
steps = 1000

[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2

[activation_checkpoint]
mode = "full"
"""


def test_a_training_configuration_is_a_scenario(tmp_path):
    file = tmp_path / "train.toml"
    file.write_text(TITAN)
    arguments = ("scenario", "--training", str(file), "--accelerator", "h100-sxm", "--chips", "64")
    tree = run_json(*arguments, "--batch", "1 Mi")
    scenario = load_scenario(tree["scenario"])
    layout, workload = scenario.plan.layout, scenario.system.workload
    assert (float(layout.tensor), float(layout.microbatch), float(layout.recompute_full)) == (2.0, 2.0, 1.0)
    with jax.enable_x64(True):
        assert float(workload.parameters) == 8_030_261_248
    assert float(workload.sequence) == 4096.0
    assert tree["scenario"]["plan"]["goal"]["tokens"]["value"] == 1000 * 2**20
    assert "torchtitan" in tree["sentences"][0].lower()


def test_what_a_training_configuration_lacks_is_asked_for_by_name(tmp_path):
    file = tmp_path / "train.toml"
    file.write_text(TITAN)
    with pytest.raises(InputError, match=r"does not say.*chips.*Give.*--chips"):
        scenario_of_training(file, "h100-sxm")


def test_vectors_of_a_model_in_words():
    words = {"hidden": 8, "heads": 2, "kv_heads": 1, "head_size": 4, "layers": 3, "norm": "layer", "feed_forward": 16}
    words |= {
        "gated": 0,
        "linear_bias": 1,
        "qkv_bias": 1,
        "learned_positions": 5,
        "norms_per_layer": 2,
        "qk_norm": "none",
    }
    layer = 2 * 16 + (2 + 2) * 4 + 8 + 16 + 8  # norms, biases of queries and keys, of the output, of the block
    assert vector_parameters(words) == 3 * layer + 16 + 5 * 8
