"""Which parts does a model have, by the `model_type` of its config.json?

What each class counts, and the values that a key takes when the file leaves it out, are facts of the modeling and
configuration classes of Hugging Face transformers 5.23.0.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Key:
    """A switch that the file may set, and what it is otherwise."""

    name: str
    otherwise: bool


Flag = bool | Key


@dataclasses.dataclass(frozen=True)
class Experts:
    """Keys and parts of a mixture of experts.

    - `count`, `active`, `width`: keys of routed experts, those that act on a token, and the width of one.
    - `shared`: key of the number of shared experts, each as wide as a routed one; or that number.
    - `shared_width`: key of the width of one shared expert of its own, which a gate scales.
    - `layers`: how the layers that have experts are told.
    - `dense_width`: key of the width of a dense layer.
    - `router_bias`: whether each expert has a number besides its row in the router; `bias` of the experts' products.
    """

    count: str = "num_local_experts"
    active: str = "num_experts_per_tok"
    width: str = "intermediate_size"
    shared: str | int = 0
    shared_width: str = ""
    layers: Literal["all", "after-first", "sparse-step", "interleaved"] = "all"
    dense_width: str = "intermediate_size"
    router_bias: Flag = False
    bias: Flag = False


@dataclasses.dataclass(frozen=True)
class Family:
    """Parts of a model of one `model_type`.

    - `defaults`: what keys are when the file leaves them out; `names`: keys that other families call otherwise.
    - `norm_vectors`: vectors of a norm, 2 with a bias, 0 where it has no weights; `norms` of a layer; `extra_norms`
      before the first layer.
    - `query_bias` of query, key and value, `output_bias`, `feed_forward_bias`, `head_bias`.
    - `query_norm`: norms of queries and keys, of one head for all ("head"), of each ("heads"), or of all together
      ("width").
    - `positions`: key of learned positions; `more_positions` than it says.
    - `window`: layers with a sliding window where no `layer_types` say so: all from `max_window_layers` on if
      `use_sliding_window`, every layer, or all but each n-th.
    """

    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    norm_vectors: int = 1
    norms: int = 2
    extra_norms: int = 0
    query_bias: Flag = Key("attention_bias", False)
    output_bias: Flag = Key("attention_bias", False)
    feed_forward_bias: Flag = Key("mlp_bias", False)
    head_bias: Flag = False
    gated: bool = True
    query_norm: Literal["none", "head", "heads", "width"] = "none"
    query_norm_if: Flag = True
    tied: bool = False
    positions: str = ""
    more_positions: int = 0
    experts: Experts | None = None
    latent: bool = False
    sinks: bool = False
    parallel: Flag = False
    window: Literal["none", "switched", "all"] | int = "none"


LLAMA = Family()
QWEN2 = Family(query_bias=True, output_bias=False, feed_forward_bias=False, window="switched")
QWEN3 = Family(
    feed_forward_bias=False, query_norm="head", window="switched", defaults={"head_dim": 128, "max_window_layers": 28}
)
PLAIN = Family(query_bias=False, output_bias=False, feed_forward_bias=False)
BIASED = Family(query_bias=True, output_bias=True, feed_forward_bias=True)
GPT2_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
DEEPSEEK_EXPERTS = Experts(
    count="n_routed_experts", width="moe_intermediate_size", shared="n_shared_experts", layers="after-first"
)
DEEPSEEK = Family(
    latent=True,
    feed_forward_bias=False,
    experts=DEEPSEEK_EXPERTS,
    defaults={"moe_layer_freq": 1, "v_head_dim": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
)
DEEPSEEK_V3 = replace(
    DEEPSEEK,
    experts=replace(DEEPSEEK_EXPERTS, router_bias=True),
    defaults={
        **DEEPSEEK.defaults,
        "n_shared_experts": 1,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "first_k_dense_replace": 3,
    },
)

FAMILIES: Mapping[str, Family] = {
    "llama": LLAMA,
    "mistral": replace(PLAIN, window="all", defaults={"num_key_value_heads": 8, "sliding_window": 4096}),
    "ministral": replace(PLAIN, window="all"),
    "mixtral": replace(
        PLAIN,
        window="all",
        experts=Experts(),
        defaults={"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "llama4_text": Family(
        feed_forward_bias=False,
        experts=Experts(shared=1, layers="interleaved", dense_width="intermediate_size_mlp"),
        defaults={
            "head_dim": 128,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "num_key_value_heads": 8,
            "interleave_moe_layer_step": 1,
            "intermediate_size_mlp": 16384,
            "vocab_size": 202048,
        },
    ),
    "qwen2": replace(QWEN2, defaults={"num_key_value_heads": 32, "sliding_window": 4096}),
    "qwen2_moe": replace(
        QWEN2,
        query_bias=Key("qkv_bias", True),
        experts=Experts(
            count="num_experts",
            width="moe_intermediate_size",
            shared_width="shared_expert_intermediate_size",
            layers="sparse-step",
        ),
        defaults={
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "num_key_value_heads": 16,
            "shared_expert_intermediate_size": 5632,
            "decoder_sparse_step": 1,
        },
    ),
    "qwen3": replace(QWEN3, defaults={**QWEN3.defaults, "num_key_value_heads": 32}),
    "qwen3_moe": replace(
        QWEN3,
        experts=Experts(count="num_experts", width="moe_intermediate_size", layers="sparse-step"),
        defaults={
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "num_key_value_heads": 4,
            "decoder_sparse_step": 1,
        },
    ),
    "gemma": Family(feed_forward_bias=False, tied=True, defaults={"head_dim": 256, "num_key_value_heads": 16}),
    "gemma2": Family(
        feed_forward_bias=False,
        tied=True,
        norms=4,
        window=2,
        defaults={"head_dim": 256, "num_key_value_heads": 4, "sliding_window": 4096},
    ),
    "gemma3_text": Family(
        feed_forward_bias=False,
        tied=True,
        norms=4,
        query_norm="head",
        window=6,
        defaults={
            "vocab_size": 262208,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "sliding_window": 4096,
            "max_position_embeddings": 131072,
        },
    ),
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK_V3,
    "kimi_k2": DEEPSEEK_V3,
    "glm4_moe": Family(
        output_bias=False,
        feed_forward_bias=False,
        query_norm="head",
        query_norm_if=Key("use_qk_norm", False),
        experts=replace(DEEPSEEK_EXPERTS, router_bias=True),
        defaults={
            "num_key_value_heads": 8,
            "n_shared_experts": 1,
            "n_routed_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 1408,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
            "head_dim": 128,
        },
    ),
    "gpt2": replace(BIASED, norm_vectors=2, gated=False, tied=True, positions="n_positions", names=GPT2_NAMES),
    "gpt_neox": Family(
        norm_vectors=2,
        gated=False,
        query_bias=Key("attention_bias", True),
        output_bias=Key("attention_bias", True),
        feed_forward_bias=True,
        parallel=Key("use_parallel_residual", True),
    ),
    "gptj": Family(
        norm_vectors=2,
        norms=1,
        gated=False,
        query_bias=False,
        output_bias=False,
        feed_forward_bias=True,
        head_bias=True,
        parallel=True,
        names=GPT2_NAMES,
    ),
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
        defaults={"ffn_dim": 3072},
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
    "phi": replace(BIASED, norm_vectors=2, norms=1, gated=False, head_bias=True, parallel=True, query_norm="none"),
    "phi3": replace(PLAIN, window="all"),
    "olmo": Family(norm_vectors=0, feed_forward_bias=False),
    "olmo2": Family(feed_forward_bias=False, query_norm="width"),
    "olmo3": Family(feed_forward_bias=False, query_norm="width", window=4, defaults={"sliding_window": 4096}),
    "olmoe": Family(
        feed_forward_bias=False,
        query_norm="width",
        experts=Experts(count="num_experts"),
        defaults={"num_experts": 64, "num_experts_per_tok": 8},
    ),
    "gpt_oss": Family(
        query_bias=Key("attention_bias", True),
        output_bias=Key("attention_bias", True),
        feed_forward_bias=False,
        sinks=True,
        window=2,
        experts=Experts(router_bias=True, bias=True),
        defaults={
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "head_dim": 64,
            "num_key_value_heads": 8,
            "sliding_window": 128,
            "vocab_size": 201088,
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "num_hidden_layers": 36,
            "num_attention_heads": 64,
            "max_position_embeddings": 131072,
        },
    ),
    "nemotron": Family(norm_vectors=2, gated=False),
    "stablelm": Family(
        norm_vectors=2,
        query_bias=Key("use_qkv_bias", False),
        output_bias=False,
        feed_forward_bias=False,
        query_norm="heads",
        query_norm_if=Key("qk_layernorm", False),
        parallel=Key("use_parallel_residual", False),
    ),
    "starcoder2": Family(
        norm_vectors=2,
        gated=False,
        tied=True,
        query_bias=Key("use_bias", True),
        output_bias=Key("use_bias", True),
        feed_forward_bias=Key("use_bias", True),
        window="all",
        defaults={"num_key_value_heads": 2},
    ),
    "cohere": Family(
        norms=1,
        feed_forward_bias=False,
        tied=True,
        parallel=True,
        query_norm="heads",
        query_norm_if=Key("use_qk_norm", False),
    ),
    "cohere2": Family(norms=1, feed_forward_bias=False, tied=True, parallel=True, window=4),
    "granite": LLAMA,
    "glm": Family(
        query_bias=Key("attention_bias", True), output_bias=False, feed_forward_bias=False, defaults={"head_dim": 128}
    ),
    "glm4": Family(
        query_bias=Key("attention_bias", False),
        output_bias=False,
        feed_forward_bias=False,
        norms=4,
        defaults={"head_dim": 128},
    ),
    "smollm3": Family(tied=True, defaults={"num_key_value_heads": 4}),
    "seed_oss": Family(
        query_bias=Key("attention_bias", True),
        output_bias=Key("attention_out_bias", False),
        defaults={"head_dim": 128, "num_key_value_heads": 8},
    ),
    "ernie4_5": Family(
        query_bias=Key("use_bias", False),
        output_bias=Key("use_bias", False),
        feed_forward_bias=Key("use_bias", False),
        tied=True,
        defaults={"head_dim": 128},
    ),
}
"""Parts by `model_type`."""

SAME_TEXT_MODEL: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "mistral3": "mistral",
    "phi4": "phi3",
    "glm4_moe_text": "glm4_moe",
}
"""Types whose text model is that of another."""

STATE_SPACE = "its state-space layers are no attention"
LINEAR = "its linear attention keeps a state instead of keys"
SEARCHED = "its layers have unlike blocks"
NO_DECODER = "it is no decoder alone"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("mamba", "mamba2", "falcon_mamba", "nemotron_h", "jamba", "bamba", "zamba", "zamba2", "falcon_h1", "plamo2"),
        STATE_SPACE,
    ),
    **dict.fromkeys(("granitemoehybrid", "recurrent_gemma", "lfm2", "lfm2_moe", "xlstm"), STATE_SPACE),
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "minimax", "minimax_text_01"),
        LINEAR,
    ),
    **dict.fromkeys(("minimax_text_01", "rwkv", "rwkv7", "kimi_linear", "gated_deltanet", "gla", "retnet"), LINEAR),
    **dict.fromkeys(("nemotron-nas", "deci"), SEARCHED),
    **dict.fromkeys(("t5", "umt5", "mt5", "bart", "mbart", "pegasus", "whisper", "t5gemma", "marian"), NO_DECODER),
    **dict.fromkeys(("bert", "roberta", "modernbert", "deberta-v2", "vit", "clip", "siglip"), NO_DECODER),
    "deepseek_v32": "the indexer of its sparse attention is not described",
    "mllama": "its cross-attention to images is not described",
    "gemma3n": "its nested blocks and embeddings of each layer are not described",
    "gemma3n_text": "its nested blocks and embeddings of each layer are not described",
}
"""Types that no shape describes, and why."""
