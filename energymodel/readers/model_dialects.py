"""Which config.json say what they say in a way that no table of names describes?"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from energymodel.readers.config_keys import ConfigKeys
from energymodel.readers.model_families import FAMILIES
from energymodel.readers.model_parts import Family, Key
from energymodel.readers.model_refusals import INSTEAD

SAME_DIALECT = {"RefinedWeb": "falcon", "RefinedWebModel": "falcon"}
"""Older names of types."""


def dialect(keys: ConfigKeys) -> tuple[Mapping[str, Any], Family] | None:
    """Keys of a model in the words of other families, and its parts; None if its type has no dialect."""
    reader = {"falcon": _falcon, "qwen": _qwen, "transformer": _fla, "gpt_bigcode": _starcoder, "opt": _opt}.get(
        keys.model_type
    )
    return None if reader is None else reader(keys)


def _falcon(keys: ConfigKeys) -> tuple[Mapping[str, Any], Family]:
    """Falcon, whose keys choose between three forms of a layer."""
    config = keys.config
    older = config.get("model_type") == "RefinedWeb" and "n_head_kv" in config
    new = keys.flag(Key("new_decoder_architecture", older))
    parallel = keys.flag(Key("parallel_attn", True))
    stated = config.get("num_ln_in_parallel_attn")
    norms = 2 if not parallel or (new and stated is None) or stated == 2 else 1
    names = {"intermediate_size": "ffn_hidden_size"}
    if "num_hidden_layers" not in config and "n_layer" in config:
        names |= {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
    if new:
        names |= {"num_key_value_heads": "num_kv_heads" if "num_kv_heads" in config else "n_head_kv"}
        defaults = {}
    else:
        names |= {"num_key_value_heads": "heads_of_keys"}
        defaults = {"heads_of_keys": 1} if keys.flag(Key("multi_query", True)) else {}
    bias = Key("bias", False)
    return config, Family(
        norm_vectors=2,
        norms=norms,
        gated=False,
        tied=True,
        query_bias=bias,
        output_bias=bias,
        feed_forward_bias=bias,
        parallel=parallel,
        names=names,
        defaults=defaults,
    )


def _qwen(keys: ConfigKeys) -> tuple[Mapping[str, Any], Family]:
    """The first Qwen: `intermediate_size` is twice the width, and only queries, keys and values have biases."""
    wide = keys.count("intermediate_size")
    if wide % 2:
        raise keys.refuse(f"intermediate_size is {wide}; in Qwen it is twice a width, thus even. Correct it.")
    config = {key: value for key, value in keys.config.items() if key != "num_key_value_heads"}
    config |= {"intermediate_size": wide // 2, "head_dim": config.get("kv_channels")}
    bias = not keys.flag(Key("no_bias", True))
    return config, Family(query_bias=True, output_bias=bias, feed_forward_bias=bias)


def _fla(keys: ConfigKeys) -> tuple[Mapping[str, Any], Family]:
    """The transformer of flash-linear-attention: width 2/3 `hidden_ratio` times the hidden size, rounded up to 256."""
    config = dict(keys.config)
    if config.get("intermediate_size") is None:
        ratio, hidden = keys.count("hidden_ratio", 4), keys.count("hidden_size")
        config["intermediate_size"] = 256 * math.ceil(hidden * ratio * 2 // 3 / 256)
    names = {"num_attention_heads": "num_heads", "num_key_value_heads": "num_kv_heads"}
    norm = keys.flag(Key("qk_norm", False))
    return config, Family(
        query_bias=Key("qkv_bias", False),
        output_bias=False,
        feed_forward_bias=False,
        query_norm="head" if norm else "none",
        names=names,
    )


def _starcoder(keys: ConfigKeys) -> tuple[Mapping[str, Any], Family]:
    """The first StarCoder: GPT-2 with one head of keys, or with as many as of queries."""
    heads = 1 if keys.flag(Key("multi_query", True)) else None
    return {**keys.config, "num_key_value_heads": heads}, FAMILIES["gpt_bigcode"]


def _opt(keys: ConfigKeys) -> tuple[Mapping[str, Any], Family]:
    """OPT, which has no norm at its end where its norms stand behind the blocks."""
    narrow, family = keys.config.get("word_embed_proj_dim"), FAMILIES["opt"]
    if narrow is not None and narrow != keys.count("hidden_size"):
        raise keys.refuse(
            f"it cannot be read: its embedding has word_embed_proj_dim {narrow}, other than hidden_size. {INSTEAD}"
        )
    return keys.config, family if keys.flag(Key("do_layer_norm_before", True)) else replace(family, extra_norms=-1)


_READERS: Mapping[str, Callable[[ConfigKeys], tuple[Mapping[str, Any], Family]]] = {
    "falcon": _falcon,
    "qwen": _qwen,
    "transformer": _fla,
    "gpt_bigcode": _starcoder,
    "opt": _opt,
}
