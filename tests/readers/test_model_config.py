"""Models from config.json: parameters to the last one, and refusals of what cannot be read."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import jax
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.errors import InputError
from energymodel.readers import model_config
from energymodel.readers.expressions import data_file
from energymodel.readers.model_config import families, model_of, read_model_config, reasons

FILES = os.environ.get("ENERGYMODEL_USER_FILES", "")


def llama(
    kind: str, layers: int, hidden: int, wide: int | None, heads: int, kv: int, vocabulary: int, **more: Any
) -> dict:
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


MODELS = yaml.safe_load(Path(__file__).with_name("models.yaml").read_text())
STATED = {name: model["config"] for name, model in MODELS["stated"].items()}


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in MODELS for name in MODELS[group]])
def test_parameters_are_those_of_the_model_card(group, name):
    config, parameters = MODELS[group][name]["config"], MODELS[group][name]["parameters"]
    model = model_of(config, name)
    assert model.parameters == parameters
    assert not any("unknown" in note for note in model.notes)
    assert group != "defaults" or any("is left out and taken as" in note for note in model.notes)
    with jax.enable_x64(True):
        assert float(model.transformer.parameters) == parameters
        assert float(model.transformer.active_parameters) == model.active_parameters
        sizes = model.transformer.sizes()
        assert float(sizes.routed + sizes.replicated + model.transformer.embeddings) == parameters


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
    model = model_of(config, "small")
    mixed = layer + router + 2 * expert
    assert model.parameters == 2 * (layer + 3 * h * 96) + 3 * (mixed + experts * expert) + outside
    assert model.active_parameters == 2 * (layer + 3 * h * 96) + 3 * (mixed + 3 * expert) + outside
    assert any("num_nextn_predict_layers" in note for note in model.notes)


def test_windows_follow_the_file_or_the_class():
    gemma = llama("gemma3_text", 12, 1152, 6912, 4, 1, 262144, sliding_window=512)
    assert float(model_of(gemma, "g").transformer.local_layers) == pytest.approx(10 / 12)
    listed = gemma | {"layer_types": ["sliding_attention"] * 3 + ["full_attention"] * 9}
    assert float(model_of(listed, "g").transformer.local_layers) == 0.25
    qwen = llama("qwen2", 4, 64, 128, 4, 2, 100, sliding_window=512, use_sliding_window=False)
    assert float(model_of(qwen, "q").transformer.window) == 0.0


def test_a_text_model_within_another_is_read_with_its_class_defaults():
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560}}
    config["text_config"] |= {"intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    model = model_of(config | {"vision_config": {}}, "gemma-3-4b")
    assert model.parameters == 3_880_263_168
    assert any("text_config" in note for note in model.notes)
    assert any("num_attention_heads is left out" in note for note in model.notes)


def test_an_unknown_type_with_the_keys_of_a_llama_is_read_with_a_warning():
    config = llama("new_thing", 16, 2048, 8192, 32, 8, 128256, tie_word_embeddings=True)
    model = model_of(config, "new")
    assert model.parameters == MODELS["stated"]["Llama-3.2-1B"]["parameters"]
    assert any('"new_thing" is unknown' in note for note in model.notes)
    with pytest.raises(InputError, match='"new_thing" is unknown'):
        model_of({"model_type": "new_thing"}, "new")


REFUSED = yaml.safe_load(Path(__file__).with_name("refused_models.yaml").read_text())


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused["words"])
def test_what_cannot_be_read_is_refused_in_one_line(refused):
    with pytest.raises(InputError, match=refused["words"]) as error:
        model_of(refused["config"], "{of}/config.json")
    assert str(error.value).startswith("{of}/config.json: ")
    assert "\n" not in str(error.value)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
KEYS = sorted({key for config in STATED.values() for key in config} | {"layer_types", "text_config", "head_dim"})


@settings(max_examples=120, deadline=None)
@given(name=st.sampled_from(sorted(STATED)), changes=st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=4))
def test_junk_in_known_keys_is_read_or_refused(name, changes):
    try:
        model = model_of({**STATED[name], **changes}, name)
    except InputError:
        return
    assert model.parameters >= model.active_parameters > 0


def test_a_file_is_read_with_the_sequence_asked_for(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(STATED["Qwen3-0.6B"] | {"torch_dtype": "bfloat16", "rope": float("inf")}))
    model = read_model_config(path, sequence=2048)
    assert (model.dtype, float(model.transformer.sequence), model.context) == ("bfloat16", 2048.0, 4096)
    with pytest.raises(InputError, match="sequence: 0 is not a number of tokens"):
        read_model_config(path, sequence=0)


def test_null_says_something_of_windows_and_heads():
    assert float(model_of({"model_type": "mistral"}, "m").transformer.window) == 4096.0
    assert float(model_of({"model_type": "mistral", "sliding_window": None}, "m").transformer.window) == 0.0
    # Without groups every query head has a head of keys; the default of the class would be 8.
    every = model_of({"model_type": "mistral", "num_key_value_heads": None}, "m")
    assert float(every.transformer.kv_heads) == 32.0


def test_a_shared_expert_without_a_gate_and_experts_after_dense_layers():
    h, wide, shared, a, layers, vocabulary, experts = 64, 24, 48, 4, 3, 100, 8
    config = llama("granitemoeshared", layers, h, wide, a, a, vocabulary, num_local_experts=experts)
    model = model_of(config | {"num_experts_per_tok": 2, "shared_intermediate_size": shared}, "g")
    layer = 4 * h * h + 2 * h + experts * (h + 3 * h * wide) + 3 * h * shared
    assert model.parameters == layers * layer + 2 * vocabulary * h + h
    # transformers 5 lists which layers have experts.
    lite = llama("dots1", layers, h, 96, a, a, vocabulary, n_routed_experts=experts, moe_intermediate_size=wide)
    lite |= {"num_experts_per_tok": 2, "n_shared_experts": 1, "mlp_layer_types": ["dense", "sparse", "sparse"]}
    model = model_of(lite | {"head_dim": 16}, "d")
    attention = 4 * h * h + 2 * 16 + 2 * h
    mixed = attention + experts * (h + 1 + 3 * h * wide) + 3 * h * wide
    assert model.parameters == attention + 3 * h * 96 + 2 * mixed + 2 * vocabulary * h + h


def test_what_looks_alike_and_is_attention_is_read():
    softmax = llama("new", 2, 64, 128, 4, 4, 100, attn_type_list=[1, 1], mamba_n_heads=None, index_topk=0)
    assert model_of(softmax, "n").parameters == 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * 100 * 64 + 64


def test_tables_agree():
    same_as = data_file(model_config.__file__, "model_families.toml")["same_as"]
    assert not set(reasons()) & (set(families()) | set(same_as))
    assert set(same_as.values()) <= set(families())
    assert set(data_file(model_config.__file__, "model_defaults.toml")) <= set(families())


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
        model = read_model_config(folder / row["file"])
        counts = (model.parameters, model.active_parameters, model.embedding_parameters)
        assert counts == tuple(int(row[key]) for key in ("total", "active", "embedding")), row["file"]
