"""Which parts does a model have, by the `model_type` of its config.json?

What each class counts is a fact of the modeling classes of Hugging Face transformers 5.23.0, or of the code that a
model comes with; sizes that a file leaves out are in `model_defaults.toml`.
"""

from collections.abc import Mapping
from dataclasses import replace

from energymodel.readers.model_parts import Experts, Family, Key

LLAMA = Family()
PLAIN = Family(query_bias=False, output_bias=False, feed_forward_bias=False)
BIASED = Family(query_bias=True, output_bias=True, feed_forward_bias=True)
ATTENTION_ALONE = Family(feed_forward_bias=False)
QWEN2 = Family(query_bias=True, output_bias=False, feed_forward_bias=False, window="switched")
QWEN3 = Family(feed_forward_bias=False, query_norm="head", window="switched")
GPT2_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
GPT2 = replace(BIASED, norm_vectors=2, gated=False, tied=True, positions="n_positions", names=GPT2_NAMES)
GPTJ = Family(
    norm_vectors=2,
    norms=1,
    gated=False,
    query_bias=False,
    output_bias=False,
    feed_forward_bias=True,
    head_bias=True,
    parallel=True,
    names=GPT2_NAMES,
)
SPARSE_STEP = Experts(count="num_experts", width="moe_intermediate_size", layers="sparse-step")
DEEPSEEK_EXPERTS = Experts(
    count="n_routed_experts", width="moe_intermediate_size", shared="n_shared_experts", layers="after-first"
)
CORRECTED = replace(DEEPSEEK_EXPERTS, router_bias=True)
"""DeepSeek's experts with the correction of the router that balances their load."""
DEEPSEEK = Family(
    latent=True,
    feed_forward_bias=False,
    experts=DEEPSEEK_EXPERTS,
    defaults={"v_head_dim": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
)
DEEPSEEK_V3 = replace(DEEPSEEK, experts=CORRECTED)
GRANITE_MOE = Family(feed_forward_bias=False, experts=Experts())
STABLELM = Family(
    norm_vectors=2,
    query_bias=Key("use_qkv_bias", False),
    output_bias=False,
    feed_forward_bias=False,
    query_norm="heads",
    query_norm_if=Key("qk_layernorm", False),
    parallel=Key("use_parallel_residual", False),
)

FAMILIES: Mapping[str, Family] = {
    "llama": LLAMA,
    "mistral": replace(PLAIN, window="all"),
    "ministral": replace(PLAIN, window="all"),
    "ministral3": replace(PLAIN, window="all"),
    "mixtral": replace(PLAIN, window="all", experts=Experts()),
    "llama4_text": Family(
        feed_forward_bias=False, experts=Experts(shared=1, layers="interleaved", dense_width="intermediate_size_mlp")
    ),
    "qwen2": QWEN2,
    "qwen2_moe": replace(
        QWEN2,
        query_bias=Key("qkv_bias", True),
        experts=replace(SPARSE_STEP, shared_width="shared_expert_intermediate_size"),
    ),
    "qwen3": QWEN3,
    "qwen3_moe": replace(QWEN3, experts=SPARSE_STEP),
    "mimo": QWEN2,
    "gemma": replace(ATTENTION_ALONE, tied=True),
    "gemma2": replace(ATTENTION_ALONE, tied=True, norms=4, window=2),
    "gemma3_text": replace(ATTENTION_ALONE, tied=True, norms=4, query_norm="head", window=6),
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK_V3,
    "kimi_k2": DEEPSEEK_V3,
    "minicpm3": Family(latent=True, tied=True),
    "glm4_moe_lite": replace(DEEPSEEK_V3, defaults={"first_k_dense_replace": 1}),
    "glm4_moe": Family(
        output_bias=False,
        feed_forward_bias=False,
        query_norm="head",
        query_norm_if=Key("use_qk_norm", False),
        experts=CORRECTED,
    ),
    "dots1": replace(ATTENTION_ALONE, query_norm="head", experts=CORRECTED),
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gpt_neo": Family(
        norm_vectors=2,
        gated=False,
        tied=True,
        positions="max_position_embeddings",
        query_bias=False,
        output_bias=True,
        feed_forward_bias=True,
        names={"num_hidden_layers": "num_layers", "num_attention_heads": "num_heads"},
    ),
    "gpt_neox": Family(
        norm_vectors=2,
        gated=False,
        query_bias=Key("attention_bias", True),
        output_bias=Key("attention_bias", True),
        feed_forward_bias=True,
        parallel=Key("use_parallel_residual", True),
    ),
    "gptj": GPTJ,
    "codegen": GPTJ,
    "opt": Family(
        norm_vectors=2,
        gated=False,
        tied=True,
        positions="max_position_embeddings",
        more_positions=2,
        query_bias=Key("enable_bias", True),
        output_bias=Key("enable_bias", True),
        feed_forward_bias=Key("enable_bias", True),
        names={"intermediate_size": "ffn_dim"},
    ),
    "bloom": replace(
        BIASED,
        norm_vectors=2,
        extra_norms=1,
        gated=False,
        tied=True,
        names={
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "max_position_embeddings": "seq_length",
        },
    ),
    "phi": replace(
        BIASED,
        norm_vectors=2,
        norms=1,
        gated=False,
        head_bias=True,
        parallel=True,
        query_norm="head",
        query_norm_if=Key("qk_layernorm", False),
    ),
    "phi3": replace(PLAIN, window="all"),
    "phi3small": replace(BIASED, norm_vectors=2, tied=True, names={"intermediate_size": "ff_intermediate_size"}),
    "phimoe": Family(
        norm_vectors=2, feed_forward_bias=False, head_bias=Key("lm_head_bias", False), window="all", experts=Experts()
    ),
    "olmo": replace(ATTENTION_ALONE, norm_vectors=0),
    "olmo2": replace(ATTENTION_ALONE, query_norm="width"),
    "olmo3": replace(ATTENTION_ALONE, query_norm="width", window=4),
    "olmoe": replace(ATTENTION_ALONE, query_norm="width", experts=Experts(count="num_experts")),
    "flex_olmo": replace(ATTENTION_ALONE, query_norm="width", experts=Experts(count="num_experts")),
    "gpt_oss": Family(
        query_bias=Key("attention_bias", True),
        output_bias=Key("attention_bias", True),
        feed_forward_bias=False,
        sinks=True,
        window=2,
        experts=Experts(router_bias=True, bias=True),
    ),
    "nemotron": Family(norm_vectors=2, gated=False),
    "arcee": Family(gated=False),
    "stablelm": STABLELM,
    "stablelm_epoch": STABLELM,
    "starcoder2": Family(
        norm_vectors=2,
        gated=False,
        tied=True,
        query_bias=Key("use_bias", True),
        output_bias=Key("use_bias", True),
        feed_forward_bias=Key("use_bias", True),
        window="all",
    ),
    "cohere": replace(
        ATTENTION_ALONE, norms=1, tied=True, parallel=True, query_norm="heads", query_norm_if=Key("use_qk_norm", False)
    ),
    "cohere2": replace(ATTENTION_ALONE, norms=1, tied=True, parallel=True, window=4),
    "granite": LLAMA,
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": replace(
        GRANITE_MOE, experts=Experts(shared_width="shared_intermediate_size", shared_gate=False)
    ),
    "glm": replace(ATTENTION_ALONE, query_bias=Key("attention_bias", True), output_bias=False),
    "glm4": replace(ATTENTION_ALONE, query_bias=Key("attention_bias", True), output_bias=False, norms=4),
    "smollm3": Family(tied=True),
    "seed_oss": Family(query_bias=Key("attention_bias", True), output_bias=Key("attention_out_bias", False)),
    "ernie4_5": Family(
        query_bias=Key("use_bias", False),
        output_bias=Key("use_bias", False),
        feed_forward_bias=Key("use_bias", False),
        tied=True,
    ),
    "exaone": replace(PLAIN, names={"num_hidden_layers": "num_layers"}),
    "exaone4": replace(PLAIN, query_norm="head"),
    "minimax_m2": replace(PLAIN, query_norm="width", experts=Experts(router_bias=True)),
    "hunyuan_v1_dense": replace(ATTENTION_ALONE, query_norm="head"),
    "internlm": Family(query_bias=Key("bias", True), output_bias=Key("bias", True), feed_forward_bias=False),
    "internlm2": Family(query_bias=Key("bias", True), output_bias=Key("bias", True), feed_forward_bias=False),
    "baichuan": PLAIN,
    "minicpm": Family(tied=True, feed_forward_bias=False),
}
"""Parts by `model_type`."""

SAME_TEXT_MODEL: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "llava": "llama",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "minicpmo": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_omni_moe_text": "qwen3_moe",
    "mistral3": "mistral",
    "phi3_v": "phi3",
    "phi4": "phi3",
    "phi4mm": "phi3",
    "phi4_multimodal": "phi3",
    "cwm": "llama",
    "glm4v_moe_text": "glm4_moe",
    "glm4_moe_text": "glm4_moe",
}
"""Types whose text model is that of another."""
