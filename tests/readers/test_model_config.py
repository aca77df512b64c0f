"""Does a config.json give the parameters of its model card, to the last one, and is what cannot be read refused?"""

import csv
import json
import os
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.errors import InputError
from energymodel.readers.model_config import model_of, read_model_config

FILES = os.environ.get("ENERGYMODEL_USER_FILES", "")


def llama(kind: str, layers: int, hidden: int, wide: int, heads: int, kv: int, vocabulary: int, **more: Any) -> dict:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": wide,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocabulary,
        "max_position_embeddings": 4096,
        **more,
    }


STATED = {
    "Llama-3.2-1B": (llama("llama", 16, 2048, 8192, 32, 8, 128256, tie_word_embeddings=True), 1_235_814_400),
    "Qwen3-0.6B": (llama("qwen3", 28, 1024, 3072, 16, 8, 151936, tie_word_embeddings=True), 596_049_920),
    "Qwen2.5-0.5B": (llama("qwen2", 24, 896, 4864, 14, 2, 151936, tie_word_embeddings=True), 494_032_768),
    "gemma-2b": (llama("gemma", 18, 2048, 16384, 8, 1, 256000), 2_506_172_416),
    "gemma-2-2b": (llama("gemma2", 26, 2304, 9216, 8, 4, 256000), 2_614_341_888),
    "gemma-3-1b": (llama("gemma3_text", 26, 1152, 6912, 4, 1, 262144), 999_885_952),
    "SmolLM3-3B": (llama("smollm3", 36, 2048, 11008, 16, 4, 128256), 3_075_098_624),
    "pythia-70m": (llama("gpt_neox", 6, 512, 2048, 8, 8, 50304), 70_426_624),
    "phi-2": (llama("phi", 32, 2560, 10240, 32, 32, 51200), 2_779_683_840),
    "opt-125m": (
        {
            "model_type": "opt",
            "num_hidden_layers": 12,
            "hidden_size": 768,
            "ffn_dim": 3072,
            "vocab_size": 50272,
            "num_attention_heads": 12,
            "max_position_embeddings": 2048,
        },
        125_239_296,
    ),
    "gpt2": (
        {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257},
        124_439_808,
    ),
    "bloom-560m": (
        {"model_type": "bloom", "n_layer": 24, "hidden_size": 1024, "n_head": 16, "vocab_size": 250880},
        559_214_592,
    ),
    "falcon-7b": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 32,
            "hidden_size": 4544,
            "num_attention_heads": 71,
            "vocab_size": 65024,
            "multi_query": True,
            "parallel_attn": True,
            "bias": False,
            "alibi": False,
        },
        6_921_720_704,
    ),
    "falcon-40b": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 60,
            "hidden_size": 8192,
            "num_attention_heads": 128,
            "vocab_size": 65024,
            "new_decoder_architecture": True,
            "num_kv_heads": 8,
            "bias": False,
        },
        41_303_293_952,
    ),
    "starcoder2-3b": (llama("starcoder2", 30, 3072, 12288, 24, 2, 49152), 3_030_371_328),
    "stablelm-2-1_6b": (llama("stablelm", 24, 2048, 5632, 32, 32, 100352, use_qkv_bias=True), 1_644_515_328),
    "OLMoE-1B-7B": (llama("olmoe", 16, 2048, 1024, 16, 16, 50304), 6_919_161_856),
    "OLMo-1B": (llama("olmo", 16, 2048, 8192, 16, 16, 50304, tie_word_embeddings=True), 1_176_764_416),
    "Qwen1.5-MoE-A2.7B": (
        llama("qwen2_moe", 24, 2048, 5632, 16, 16, 151936, shared_expert_intermediate_size=5632),
        14_315_784_192,
    ),
    "gpt-oss-120b": (llama("gpt_oss", 36, 2880, 2880, 64, 8, 201088, head_dim=64), 116_829_156_672),
    "command-r-v01": (llama("cohere", 40, 8192, 22528, 64, 64, 256000), 34_980_831_232),
    "DeepSeek-V2-Lite": (
        llama(
            "deepseek_v2",
            27,
            2048,
            10944,
            16,
            16,
            102400,
            kv_lora_rank=512,
            q_lora_rank=None,
            n_routed_experts=64,
            n_shared_experts=2,
            num_experts_per_tok=6,
            moe_intermediate_size=1408,
            first_k_dense_replace=1,
        ),
        15_706_484_224,
    ),
}


@pytest.mark.parametrize("name", STATED)
def test_parameters_are_those_of_the_model_card(name):
    config, parameters = STATED[name]
    found = model_of(config, name)
    assert found.parameters == parameters
    with jax.enable_x64(True):
        assert float(found.transformer.parameters) == parameters
        assert float(found.transformer.active_parameters) == found.active_parameters
        routed, replicated = found.transformer.routed_parameters, found.transformer.replicated_parameters
        assert float(routed + replicated + found.transformer.embeddings) == parameters


def test_a_nemotron_counted_tensor_by_tensor():
    h, f, a, kv, d, layers, vocabulary = 48, 80, 6, 2, 16, 3, 100
    config = llama("nemotron", layers, h, f, a, kv, vocabulary, head_dim=d)
    layer = h * a * d + 2 * h * kv * d + a * d * h + 2 * h * f + 2 * (h + h)
    assert model_of(config, "nemotron").parameters == layers * layer + 2 * vocabulary * h + 2 * h


def test_a_mixture_of_all_kinds_counted_tensor_by_tensor():
    """Latent attention, a dense layer first, shared experts, biases of the router: DeepSeek-V3 in small."""
    h, a, vocabulary, layers, experts = 64, 4, 100, 5, 8
    config = llama("deepseek_v3", layers, h, 96, a, a, vocabulary)
    config |= {"kv_lora_rank": 12, "q_lora_rank": 20, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 14}
    config |= {
        "n_routed_experts": experts,
        "n_shared_experts": 2,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 24,
    }
    config |= {"first_k_dense_replace": 2, "num_nextn_predict_layers": 1}
    queries = h * 20 + 20 + 20 * a * 16
    attention = queries + h * (12 + 6) + 12 + 12 * a * (10 + 14) + a * 14 * h
    expert = 3 * h * 24
    router = experts * h + experts
    layer = attention + 2 * h
    outside = 2 * vocabulary * h + h
    found = model_of(config, "small")
    mixed = layer + router + 2 * expert
    assert found.parameters == 2 * (layer + 3 * h * 96) + 3 * (mixed + experts * expert) + outside
    assert found.active_parameters == 2 * (layer + 3 * h * 96) + 3 * (mixed + 3 * expert) + outside
    assert any("num_nextn_predict_layers" in note for note in found.notes)


def test_windows_follow_the_file_or_the_class():
    gemma = llama("gemma3_text", 12, 1152, 6912, 4, 1, 262144, sliding_window=512)
    assert float(model_of(gemma, "g").transformer.local_layers) == pytest.approx(10 / 12)
    stated = gemma | {"layer_types": ["sliding_attention"] * 3 + ["full_attention"] * 9}
    assert float(model_of(stated, "g").transformer.local_layers) == 0.25
    qwen = llama("qwen2", 4, 64, 128, 4, 2, 100, sliding_window=512, use_sliding_window=False)
    assert float(model_of(qwen, "q").transformer.window) == 0.0


def test_a_text_model_within_another_is_read_with_its_class_defaults():
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560}}
    config["text_config"] |= {"intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    found = model_of(config | {"vision_config": {}}, "gemma-3-4b")
    assert found.parameters == 3_880_263_168
    assert any("text_config" in note for note in found.notes)
    assert any("num_attention_heads is left out" in note for note in found.notes)


def test_an_unknown_type_with_the_keys_of_a_llama_is_read_with_a_warning():
    config = llama("new_thing", 16, 2048, 8192, 32, 8, 128256, tie_word_embeddings=True)
    found = model_of(config, "new")
    assert found.parameters == STATED["Llama-3.2-1B"][1]
    assert any('"new_thing" is unknown' in note for note in found.notes)
    with pytest.raises(InputError, match='"new_thing" is unknown'):
        model_of({"model_type": "new_thing"}, "new")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "mamba2", "hidden_size": 8}, 'type "mamba2" cannot be read: its state-space'),
        ({"model_type": "qwen3_next"}, "linear attention"),
        ({"model_type": "t5"}, "no decoder alone"),
        ({"model_type": "llama", "block_configs": [{}]}, "unlike blocks .block_configs."),
        ({"model_type": "llama", "layer_types": ["linear_attention"]}, "linear attention keeps a state"),
        ({"model_type": "lama"}, 'Did you mean "llama"'),
        ({"model_type": ["llama"]}, "is ..llama.., no text"),
        ({}, "Is it the config.json of a model"),
        (llama("llama", 2, 64, 128, 5, 5, 100), "5 heads do not divide hidden_size 64"),
        (llama("llama", 2, 64, 128, 4, 8, 100), "8 heads of keys are more than 4"),
        (llama("llama", 2, 64, 128, 4, 4, 0), "vocab_size is 0, not a whole number from 1"),
        (llama("llama", 10**8, 64, 128, 4, 4, 100), "num_hidden_layers is 100000000"),
        (llama("llama", 2, 64, 128, 4, 4, 100, tie_word_embeddings="yes"), "neither true nor false"),
        (llama("mixtral", 2, 64, 128, 4, 4, 100, num_local_experts=4, num_experts_per_tok=8), "8 experts of 4"),
        (llama("qwen3_moe", 2, 64, 128, 4, 4, 100, mlp_only_layers=[7]), "names layer 7"),
        ({"model_type": "baichuan", "num_hidden_layers": 2}, "hidden_size is missing"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(config, words):
    with pytest.raises(InputError, match=words) as refused:
        model_of(config, "config.json")
    assert "\n" not in str(refused.value)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
KEYS = sorted({key for config, _ in STATED.values() for key in config} | {"layer_types", "text_config", "head_dim"})


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(STATED)), changes=st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=4))
def test_junk_in_known_keys_is_read_or_refused(name, changes):
    try:
        found = model_of({**STATED[name][0], **changes}, name)
    except InputError:
        return
    assert found.parameters >= found.active_parameters > 0


def test_a_file_is_read_with_the_sequence_asked_for(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(STATED["Qwen3-0.6B"][0] | {"torch_dtype": "bfloat16", "rope": float("inf")}))
    found = read_model_config(path, sequence=2048)
    assert (found.dtype, float(found.transformer.sequence), found.context) == ("bfloat16", 2048.0, 4096)
    with pytest.raises(InputError, match="sequence: 0 is not a number of tokens"):
        read_model_config(path, sequence=0)


@pytest.mark.slow
@pytest.mark.skipif(not FILES, reason="ENERGYMODEL_USER_FILES names no folder of real files")
def test_real_files_give_the_counts_of_an_independent_counter():
    folder = Path(FILES) / "hf"
    with open(folder / "truth.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["expect"] == "refuse":
            with pytest.raises(InputError, match="cannot be read"):
                read_model_config(folder / row["file"])
            continue
        found = read_model_config(folder / row["file"])
        counts = (found.parameters, found.active_parameters, found.embedding_parameters)
        assert counts == tuple(int(row[key]) for key in ("total", "active", "embedding")), row["file"]
