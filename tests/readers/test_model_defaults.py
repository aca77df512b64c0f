"""What does a config.json mean that leaves keys out, says null or has a dialect of its own, and what is refused?"""

import jax
import pytest

from energymodel.errors import InputError
from energymodel.readers.model_config import model_of
from energymodel.readers.model_families import class_defaults, families, same_as
from energymodel.readers.model_refusals import reasons

SPARSE = {
    # Each count is that of the model whose published file states these sizes in full.
    "gpt2": ({"model_type": "gpt2"}, 124_439_808),
    # The class of Llama has the sizes of Llama-7B: 32 (4 h^2 + 3 h 11008 + 2 h) + 2 h 32000 + h, h = 4096.
    "llama": ({"model_type": "llama"}, 6_738_415_616),
    # LLaVA 1.5 states the vocabulary of its text model and nothing else: the above with 64 more rows, twice.
    "llava": ({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}}, 6_738_939_904),
    "mixtral": ({"model_type": "mixtral"}, 46_702_792_704),
    "deepseek_v3": ({"model_type": "deepseek_v3"}, 671_026_419_200),
    # transformers 5 saves the experts of Qwen3-30B-A3B as num_local_experts.
    "qwen3_moe": (
        {
            "model_type": "qwen3_moe",
            "num_hidden_layers": 48,
            "num_local_experts": 128,
            "head_dim": 128,
            "rope_parameters": {"rope_type": "default"},
        },
        30_532_122_624,
    ),
    # null is what mistral's files write where heads divide the hidden size: Mistral 7B v0.1 by the defaults.
    "mistral": ({"model_type": "mistral", "head_dim": None, "sliding_window": None}, 7_241_732_096),
}


@pytest.mark.parametrize("name", SPARSE)
def test_what_is_left_out_is_the_default_of_the_class(name):
    config, parameters = SPARSE[name]
    found = model_of(config, name)
    assert found.parameters == parameters
    assert any("is left out and taken as" in note for note in found.notes)


def test_null_says_something_of_windows_and_heads():
    assert float(model_of({"model_type": "mistral"}, "m").transformer.window) == 4096.0
    assert float(model_of({"model_type": "mistral", "sliding_window": None}, "m").transformer.window) == 0.0
    # Without groups every query head has a head of keys; the default of the class would be 8.
    every = model_of({"model_type": "mistral", "num_key_value_heads": None}, "m")
    assert float(every.transformer.kv_heads) == 32.0


def of_sizes(kind, layers, hidden, wide, heads, keys, vocabulary, **more):
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": wide,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "vocab_size": vocabulary,
        **more,
    }


PUBLISHED = {
    "Phi-3.5-MoE": (
        of_sizes("phimoe", 32, 4096, 6400, 32, 8, 32064, attention_bias=True, lm_head_bias=True, num_local_experts=16),
        41_873_153_344,
    ),
    "Phi-3-small": (
        {
            "model_type": "phi3small",
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "ff_intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 100352,
        },
        7_392_272_384,
    ),
    "MiniCPM-2B": (of_sizes("minicpm", 40, 2304, 5760, 36, 36, 122753), 2_724_880_896),
    # intermediate_size is twice the width; biases of queries, keys and values alone.
    "Qwen-7B": (of_sizes("qwen", 32, 4096, 22016, 32, 32, 151936, kv_channels=128, no_bias=True), 7_721_324_544),
    "StarCoder": (
        {
            "model_type": "gpt_bigcode",
            "n_embd": 6144,
            "n_layer": 40,
            "n_head": 48,
            "n_inner": 24576,
            "n_positions": 8192,
            "vocab_size": 49152,
            "multi_query": True,
        },
        15_517_456_384,
    ),
    "Falcon-40B, older file": (
        {
            "model_type": "RefinedWeb",
            "n_layer": 60,
            "hidden_size": 8192,
            "n_head": 128,
            "n_head_kv": 8,
            "vocab_size": 65024,
            "bias": False,
            "parallel_attn": True,
        },
        41_303_293_952,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_dialects_give_the_parameters_of_the_model_card(name):
    config, parameters = PUBLISHED[name]
    found = model_of(config, name)
    assert found.parameters == parameters
    assert not any("unknown" in note for note in found.notes)
    with jax.enable_x64(True):
        assert float(found.transformer.parameters) == parameters


def test_a_shared_expert_without_a_gate_and_experts_after_dense_layers():
    h, wide, shared, a, layers, vocabulary, experts = 64, 24, 48, 4, 3, 100, 8
    config = of_sizes("granitemoeshared", layers, h, wide, a, a, vocabulary, num_local_experts=experts)
    found = model_of(config | {"num_experts_per_tok": 2, "shared_intermediate_size": shared}, "g")
    layer = 4 * h * h + 2 * h + experts * (h + 3 * h * wide) + 3 * h * shared
    assert found.parameters == layers * layer + 2 * vocabulary * h + h
    # transformers 5 lists which layers have experts.
    lite = of_sizes("dots1", layers, h, 96, a, a, vocabulary, n_routed_experts=experts, moe_intermediate_size=wide)
    lite |= {"num_experts_per_tok": 2, "n_shared_experts": 1, "mlp_layer_types": ["dense", "sparse", "sparse"]}
    found = model_of(lite | {"head_dim": 16}, "d")
    attention = 4 * h * h + 2 * 16 + 2 * h
    mixed = attention + experts * (h + 1 + 3 * h * wide) + 3 * h * wide
    assert found.parameters == attention + 3 * h * 96 + 2 * mixed + 2 * vocabulary * h + h


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "glm_moe_dsa"}, "chooses"),
        ({"model_type": "gemma4", "text_config": {}}, "not described"),
        ({"model_type": "wav2vec2"}, "images or sound"),
        ({"model_type": "gla"}, "linear attention"),
        ({"model_type": "new", "mamba_n_heads": 8}, r"state-space layers are no attention \(mamba_n_heads\)"),
        ({"model_type": "new", "index_topk": 2048}, r"chooses \(index_topk\)"),
        ({"model_type": "new", "attn_type_list": [0, 1]}, "linear attention"),
        ({"model_type": "llama", "layer_types": ["full_attention", "gated_delta"]}, "linear attention keeps a state"),
        ({"model_type": "llama", "layer_types": ["odd_attention"]}, 'kind "odd_attention" are not described'),
        ({"model_type": "opt", "hidden_size": 1024, "word_embed_proj_dim": 512}, "word_embed_proj_dim 512"),
        (of_sizes("new", 2, 64, None, 4, 4, 100), "intermediate_size is missing"),
        ({"model_type": "deepseek_v3", "moe_layer_freq": [0, 1]}, "moe_layer_freq is no list of 61 zeros and ones"),
    ],
)
def test_other_layers_are_refused_by_type_by_key_and_by_kind(config, words):
    with pytest.raises(InputError, match=words) as refused:
        model_of(config, "config.json")
    assert "\n" not in str(refused.value)


def test_what_looks_alike_and_is_attention_is_read():
    softmax = of_sizes("new", 2, 64, 128, 4, 4, 100, attn_type_list=[1, 1], mamba_n_heads=None, index_topk=0)
    assert model_of(softmax, "n").parameters == 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * 100 * 64 + 64


def test_tables_agree():
    assert not set(reasons()) & (set(families()) | set(same_as()))
    assert set(same_as().values()) <= set(families())
    assert set(class_defaults()) <= set(families())
