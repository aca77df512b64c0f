"""Models from the `config.json` of Hugging Face: their shape, and their parameters to the last one."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.performance.workload import Transformer
from energymodel.readers.config_keys import COUNTS_OF_EXPERTS, MOST_LAYERS, ConfigKeys
from energymodel.readers.expressions import evaluate
from energymodel.readers.model_families import Experts, Family, families, same_as
from energymodel.readers.model_refusals import ENCODER, INSTEAD, reason_of_keys, reason_of_layer, reasons
from energymodel.readers.text_file import read_json

TEXT = ("text_config", "llm_config", "language_config", "language_model_config", "thinker_config")
"""Keys below which a model of several modes keeps its text model."""
SEQUENCE_NOTE = "The training sequence is taken as"
"""Begins the note that stands where nobody says the sequence."""
USUAL_SEQUENCE = 8192
_LOCAL = ("sliding_attention", "chunked_attention")


class ModelConfig(NamedTuple):
    """A model as its `config.json` states it.

    - `model_type`, `name` of the file or `_name_or_path`; `context`: the longest sequence [token], 0 if not stated.
    - `transformer`: its shape, at the sequence asked for.
    - `parameters`, `active_parameters` (that act on a token, all embeddings counted), `embedding_parameters` (with the
      output head and learned positions) [1]. Modules of multi-token prediction and of other modes are not counted.
    - `dtype` of the weights in the file, "" if not stated; `notes`: what was assumed, and what is not counted.
    """

    model_type: str
    name: str
    context: int
    transformer: Transformer
    parameters: int
    active_parameters: int
    embedding_parameters: int
    dtype: str
    notes: tuple[str, ...]


def read_model_config(path: str | Path, sequence: int | None = None) -> ModelConfig:
    """Read a `config.json`; see `model_of`."""
    return model_of(read_json(Path(path)), str(path), sequence)


def model_of(table: Mapping[str, Any], name: str, sequence: int | None = None) -> ModelConfig:
    """The model of the table of a `config.json`.

    **Arguments:**

    - `name`: what messages call the file.
    - `sequence`: tokens of a training sequence; by default 8,192, or the context where that is shorter.

    **Raises:** `InputError` for a model that no shape describes, a key that is missing or has no such value.
    """
    return _Reader(table, name).model(sequence)


class _Parts(NamedTuple):
    """Parameters of the parts of a layer, and of the whole [1]."""

    attention: int
    attention_vectors: int
    dense: int
    dense_vectors: int
    expert: int
    expert_vectors: int


class _Reader(ConfigKeys):
    """A model from its keys, part by part."""

    def __init__(self, table: Mapping[str, Any], name: str) -> None:
        super().__init__(table, name)
        self.config = self._text_of(table)
        kind = self.config.get("model_type", self.outer.get("model_type", ""))
        if not isinstance(kind, str) or not kind.isprintable():
            raise self.refuse(f'model_type is {kind!r}, no text. Give the type, such as "llama".')
        self.model_type = same_as().get(kind, kind)
        self._refuse_unlike()
        self.is_unknown = self.model_type not in families()
        self.family = self._unknown_family() if self.is_unknown else families()[self.model_type]
        self._work_out()

    def _text_of(self, table: Mapping[str, Any]) -> Mapping[str, Any]:
        for key in TEXT:
            if isinstance(table.get(key), Mapping):
                self.notes.append(f"Only the text model ({key}) is counted.")
                return self._text_of(table[key])
        if isinstance(table.get("vision_config"), Mapping):
            self.notes.append("The vision tower is not counted.")
        return table

    def _refuse_unlike(self) -> None:
        for kind in (self.outer.get("model_type"), self.config.get("model_type"), self.model_type):
            if isinstance(kind, str) and kind in reasons():
                raise self.refuse(f'a model of type "{kind}" cannot be read: {reasons()[kind]}. {INSTEAD}')
        if reason := reason_of_keys(self.config):
            raise self.refuse(f"it cannot be read: {reason[1]} ({reason[0]}). {INSTEAD}")
        if self.config.get("is_encoder_decoder") is True:
            raise self.refuse(f"it cannot be read: {ENCODER} (is_encoder_decoder). {INSTEAD}")
        for kind in self.names("layer_types") or ():
            if why := reason_of_layer(kind):
                raise self.refuse(f"it cannot be read: {why} (layer_types). {INSTEAD}")

    def _unknown_family(self) -> Family:
        """The family of a type that is not known, if it has the keys of a Llama."""
        if not {"hidden_size", "num_hidden_layers", "num_attention_heads"} <= set(self.config):
            kinds = set(families()) - {"*"}
            hint = suggest(self.model_type, kinds) if self.model_type else "Is it the config.json of a model?"
            raise self.refuse(f'model_type "{self.model_type}" is unknown. {hint}')
        self.notes.append(
            f'The model_type "{self.model_type}" is unknown: it is read as a Llama, and parts that a Llama lacks are '
            "not counted."
        )
        mixture = next((key for key in COUNTS_OF_EXPERTS if self.config.get(key)), None)
        if mixture is None:
            return families()["*"]
        wide = "moe_intermediate_size" if self.config.get("moe_intermediate_size") else "intermediate_size"
        shared = "n_shared_experts" if self.config.get("n_shared_experts") else 0
        first = "after-first" if self.config.get("first_k_dense_replace") else "all"
        experts = Experts(count=mixture, width=wide, shared=shared, layers=first)
        return dataclasses.replace(families()["*"], experts=experts)

    def _work_out(self) -> None:
        """What a family says by expressions: its words, its parts, and keys in the words of other families."""
        family = self.family
        names: dict[str, Any] = {
            "get": self.config.get,
            "has": self.config.__contains__,
            "count": self.count,
            "size": lambda key: None if self.value(key) is None else self.count(key),
            "flag": lambda key, otherwise: self.flag((key, otherwise)),
            "bool": bool,
            "ceil": math.ceil,
        }
        for name, expression in family.words.items():
            names[name] = evaluate(expression, names)
        for sentence, condition in family.refused.items():
            if evaluate(condition, names):
                raise self.refuse(sentence.format_map({"instead": INSTEAD, **self.config}))
        parts = {name: evaluate(expression, names) for name, expression in family.parts.items()}
        sizes = {key: evaluate(expression, names) for key, expression in family.sizes.items()}
        self.family = dataclasses.replace(family, **parts)
        self.config = {**self.config, **sizes}

    def model(self, sequence: int | None) -> ModelConfig:
        """The whole model."""
        family = self.family
        layers = self.count("num_hidden_layers", largest=MOST_LAYERS)
        hidden, heads = self.count("hidden_size"), self.count("num_attention_heads")
        kv_heads = self.count("num_key_value_heads", heads)
        if kv_heads > heads and not family.latent:
            raise self.refuse(f"{kv_heads} heads of keys are more than {heads} heads. Correct it.")
        vocabulary = self.count("vocab_size")
        context = self.count("max_position_embeddings", 0)
        tied = self._tied()
        expert_layers = self._expert_layers(layers)
        shape, parts = self._parts(layers, hidden, heads, kv_heads, expert_layers)
        experts, active = int(shape["experts"]), int(shape["active_experts"])
        mixed, plain = len(expert_layers), layers - len(expert_layers)
        positions = hidden * (self.count(family.positions) + family.more_positions) if family.positions else 0
        outside = hidden * family.norm_vectors * (1 + family.extra_norms) + positions
        outside += vocabulary if self.flag(family.head_bias) else 0
        vectors = layers * parts.attention_vectors + plain * parts.dense_vectors + outside
        router = mixed * hidden * experts if mixed else 0
        extra, shared = 0, 0
        if mixed and family.experts is not None:
            extra = experts if self.flag(family.experts.router_bias) else 0
            extra += hidden if family.experts.shared_width and family.experts.shared_gate else 0
            shared = round(shape["shared_experts"] * parts.expert)
            vectors += mixed * extra
        embedding = (1 if tied else 2) * vocabulary * hidden
        every = layers * parts.attention + plain * parts.dense + mixed * shared + router + vectors + embedding
        routed = parts.expert + parts.expert_vectors
        used = self._sequence(sequence, context)
        window, local = self._window(layers)
        shape |= {
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "kv_heads": heads if family.latent else kv_heads,
            "vocabulary": vocabulary,
            "sequence": used,
            "tied": tied,
            "gated": family.gated,
            "dense_layers": plain if mixed else 0,
            "window": window,
            "local_layers": local,
            "parallel_block": self.flag(family.parallel),
            "vector_parameters": vectors,
            "expert_vectors": parts.expert_vectors,
            "router": bool(mixed),
        }
        transformer = Transformer(**{name: np.asarray(float(value)) for name, value in shape.items()})
        self._note_others()
        both = (self.config, self.outer)
        dtypes = [table[key] for table in both for key in ("dtype", "torch_dtype") if isinstance(table.get(key), str)]
        name = self.outer.get("_name_or_path") or self.config.get("_name_or_path")
        return ModelConfig(
            model_type=self.model_type,
            name=name if isinstance(name, str) else Path(self.file).stem,
            context=context,
            transformer=transformer,
            parameters=every + mixed * experts * routed,
            active_parameters=every + mixed * active * routed,
            embedding_parameters=embedding + positions,
            dtype=dtypes[0] if dtypes else "",
            notes=tuple(self.notes),
        )

    def _tied(self) -> bool:
        for table in (self.config, self.outer):
            value = table.get("tie_word_embeddings")
            if value is not None:
                if not isinstance(value, bool):
                    raise self.refuse(f"tie_word_embeddings is {value!r}, neither true nor false. Correct it.")
                return value
        ties = "tied" if self.family.tied else "not tied"
        self.notes.append(f"tie_word_embeddings is left out: embedding and head are {ties}, as in {self.model_type}.")
        return self.family.tied

    def _sequence(self, asked: int | None, context: int) -> int:
        if asked is not None:
            if asked < 1:
                raise InputError(f"sequence: {asked} is not a number of tokens. Give for example 8192.")
            return asked
        used = min(context, USUAL_SEQUENCE) if context else USUAL_SEQUENCE
        self.notes.append(f"{SEQUENCE_NOTE} {used} tokens, which config.json does not say.")
        return used

    def _parts(
        self, layers: int, hidden: int, heads: int, kv_heads: int, expert_layers: list[int]
    ) -> tuple[dict[str, int | float], _Parts]:
        """Numbers of the shape, and parameters of the parts of a layer."""
        family, shape = self.family, {}
        if family.latent:
            attention, vectors = self._latent(hidden, heads, shape)
        else:
            attention, vectors = self._grouped(hidden, heads, kv_heads, shape)
        vectors += family.norms * family.norm_vectors * hidden
        vectors += heads if family.sinks else 0
        gates = 2 + int(family.gated)
        experts = family.experts if expert_layers else None
        some_dense = len(expert_layers) < layers
        usual = None if self.is_unknown else 4 * hidden  # of GPT-2 and its like; others say their width
        width = self.count(experts.dense_width if experts and some_dense else "intermediate_size", usual)
        biased = self.flag(family.feed_forward_bias)
        dense, dense_vectors = gates * hidden * width, ((gates - 1) * width + hidden) * int(biased)
        expert = expert_vectors = 0
        if experts:
            narrow = self.count(experts.width)
            total, active = self.count(experts.count), self.count(experts.active)
            if active > total:
                raise self.refuse(f"{active} experts of {total} cannot act on a token. Correct it.")
            expert = gates * hidden * narrow
            expert_vectors = ((gates - 1) * narrow + hidden) * int(self.flag(experts.bias))
            shape |= {"feed_forward": narrow, "experts": total, "active_experts": active}
            shape |= {"shared_experts": self._shared(experts, narrow)}
            if total == 1:
                raise self.refuse(f"{experts.count} is 1; a mixture has two experts or more. Correct it.")
            first = expert_layers == list(range(expert_layers[0], layers))
            shape |= {"alternating_dense": float(not first), "dense_feed_forward": width if some_dense else 0.0}
        else:
            shape |= {"feed_forward": width, "experts": 1, "active_experts": 1}
        return shape, _Parts(attention, vectors, dense, dense_vectors, expert, expert_vectors)

    def _shared(self, experts: Experts, width: int) -> int | float:
        """Shared experts, as many of the width of a routed one."""
        if experts.shared_width:
            return self.count(experts.shared_width, 0, lowest=0) / width
        return experts.shared if isinstance(experts.shared, int) else self.count(experts.shared, 0, lowest=0)

    def _grouped(self, hidden: int, heads: int, kv_heads: int, shape: dict[str, int | float]) -> tuple[int, int]:
        """Weights and vectors of attention by heads."""
        if self.value("head_dim") is None and hidden % heads:
            raise self.refuse(f"{heads} heads do not divide hidden_size {hidden}, and head_dim is missing. Add it.")
        size = self.count("head_dim", hidden // heads)
        queries, keys = heads * size, kv_heads * size
        vectors = (queries + 2 * keys) * int(self.flag(self.family.query_bias))
        vectors += hidden * int(self.flag(self.family.output_bias))
        if self.flag(self.family.query_norm_if):
            head = 2 * size * self.family.norm_vectors
            vectors += {"none": 0, "head": head}.get(self.family.query_norm, queries + keys)
        shape["head_size"] = size
        return 2 * hidden * (queries + keys), vectors

    def _latent(self, hidden: int, heads: int, shape: dict[str, int | float]) -> tuple[int, int]:
        """Weights and vectors of latent attention."""
        names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
        rank, plain, rotated = (self.count(name) for name in names)
        value = self.count("v_head_dim", hidden // heads)
        queries = self.count("q_lora_rank", 0, lowest=0)
        size = plain + rotated
        weights = queries * (hidden + heads * size) if queries else hidden * heads * size
        weights += hidden * (rank + rotated) + rank * heads * (plain + value) + heads * value * hidden
        vectors = rank + queries  # norms of the latents
        if self.flag(self.family.query_bias):
            vectors += queries + rank + rotated + hidden
        shape |= {"head_size": size, "value_head_size": value, "rope_head_size": rotated}
        shape |= {"kv_rank": rank, "query_rank": queries}
        return weights, vectors

    def _expert_layers(self, layers: int) -> list[int]:
        """Indices of the layers that have experts."""
        experts = self.family.experts
        if experts is None or not self.count(experts.count, 0, lowest=0):
            return []
        indices = range(layers)
        if (kinds := self.names("mlp_layer_types", layers)) is not None:
            return [index for index in indices if kinds[index] != "dense"]
        if isinstance(pattern := self.config.get("moe_layer_freq"), list):
            if len(pattern) != layers or not all(item in (0, 1) for item in pattern):
                raise self.refuse(f"moe_layer_freq is no list of {layers} zeros and ones. Correct it.")
            return [index for index in indices if pattern[index]]
        if experts.layers == "after-first":
            first, step = self.count("first_k_dense_replace", 0, lowest=0), self.count("moe_layer_freq", 1)
            return [index for index in indices if index >= first and index % step == 0]
        if experts.layers == "interleaved":
            step = self.count("interleave_moe_layer_step", 1)
            return self.indices("moe_layers", layers) or [index for index in indices if (index + 1) % step == 0]
        if experts.layers == "sparse-step":
            step, dense = self.count("decoder_sparse_step", 1), self.indices("mlp_only_layers", layers)
            return [index for index in indices if index not in dense and (index + 1) % step == 0]
        return list(indices)

    def _window(self, layers: int) -> tuple[int, float]:
        """Tokens of the sliding window, and the share of the layers that have it."""
        kinds, rule = self.names("layer_types"), self.family.window
        if kinds is None and rule == "none":
            return 0, 0.0
        if rule == "switched" and not self.flag(("use_sliding_window", False)):
            return 0, 0.0
        if self.value("sliding_window") is None:
            return 0, 0.0
        size = self.count("sliding_window")
        if kinds:
            if len(kinds) != layers:
                raise self.refuse(f"layer_types names {len(kinds)} layers, and there are {layers}. Correct it.")
            return size, sum(kind in _LOCAL for kind in kinds) / len(kinds)
        if rule == "switched":
            first = min(self.count("max_window_layers", layers, lowest=0), layers)
            return size, (layers - first) / layers
        if isinstance(rule, int):
            step = self.count("sliding_window_pattern", rule)
            return size, 1.0 - (layers // step) / layers
        return size, float(rule == "all")

    def _note_others(self) -> None:
        """Say what a file has that is not counted."""
        for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"):
            if self.config.get(key):
                self.notes.append(f"Modules of multi-token prediction ({key}) are not counted.")
        if isinstance(self.config.get("quantization_config", self.outer.get("quantization_config")), Mapping):
            self.notes.append("quantization_config is left aside: the plan says in which formats a run computes.")
