"""Models from the `config.json` of Hugging Face: their shape, and their parameters to the last one."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.performance.workload import Transformer
from energymodel.readers.expressions import evaluate
from energymodel.readers.model_families import (
    INSTEAD,
    class_defaults,
    experts_of,
    families,
    reason_of,
    reasons,
    same_as,
)
from energymodel.readers.text_file import read_json

TEXT = ("text_config", "llm_config", "language_config", "language_model_config", "thinker_config")
"""Keys below which a model of several modes keeps its text model."""
SEQUENCE_NOTE = "The training sequence is taken as"  # begins the note that stands where nobody says the sequence
USUAL_SEQUENCE = 8192
LARGEST = 10**9  # of a size: more is a mistake
MOST_LAYERS = 10_000
LOCAL = ("sliding_attention", "chunked_attention")
FURTHER_TOKENS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
NULL_SAYS = ("head_dim", "num_key_value_heads", "sliding_window", "q_lora_rank", "n_inner", "mlp_only_layers")
"""Keys whose null is a value of its own and does not stand for the default."""
COUNTS_OF_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Names of one key, each of which newer versions of transformers take for the others."""


class ModelConfig(NamedTuple):
    """A model as its `config.json` states it.

    - `model_type`, `name` of the file or `_name_or_path`; `context`: the longest sequence [token], 0 if not stated.
    - `transformer`: its shape, at the sequence asked for.
    - `embedding_parameters`: with the output head and learned positions [1].
    - `dtype` of the weights in the file, "" if not stated; `notes`: what was assumed, and what is not counted.
    """

    model_type: str
    name: str
    context: int
    transformer: Transformer
    embedding_parameters: int
    dtype: str
    notes: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """All parameters but those of multi-token prediction and of other modes [1]."""
        with jax.enable_x64(True):
            return round(float(self.transformer.parameters))

    @property
    def active_parameters(self) -> int:
        """Parameters that act on a token, all embeddings counted [1]."""
        with jax.enable_x64(True):
            return round(float(self.transformer.active_parameters))


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


class _Reader:
    """Keys of a model, with what its family takes where one is left out, and the model part by part.

    - `file`: what messages call it; `config`: the table of the (text) model, `outer` that of the file.
    """

    def __init__(self, table: Mapping[str, Any], name: str) -> None:
        self.file, self.outer, self.notes = name, table, list[str]()
        while key := next((key for key in TEXT if isinstance(table.get(key), Mapping)), None):
            self.notes.append(f"Only the text model ({key}) is counted.")
            table = table[key]
        if isinstance(table.get("vision_config"), Mapping):
            self.notes.append("The vision tower is not counted.")
        self.config = table
        kind = table.get("model_type", self.outer.get("model_type", ""))
        if not isinstance(kind, str) or not kind.isprintable():
            raise self.refuse(f'model_type is {kind!r}, no text. Give the type, such as "llama".')
        self.model_type = same_as().get(kind, kind)
        for type_name in (self.outer.get("model_type"), kind, self.model_type):
            if isinstance(type_name, str) and type_name in reasons():
                raise self.refuse(f'a model of type "{type_name}" cannot be read: {reasons()[type_name]}. {INSTEAD}')
        if reason := reason_of(table, self.names("layer_types") or []):
            raise self.refuse(f"it cannot be read: {reason}. {INSTEAD}")
        self.is_unknown = self.model_type not in families()
        self.family = self._unknown_family() if self.is_unknown else families()[self.model_type]
        self._work_out()

    def refuse(self, why: str) -> InputError:
        """What is wrong with the file, as an error to raise."""
        return InputError(f"{self.file}: {why}")

    def value(self, key: str) -> Any:
        """The value of a key, or what the family takes without it; None if neither says anything."""
        name = self._named(key)
        value = self.config.get(name)
        if value is not None or (name in self.config and name in NULL_SAYS):
            return value
        defaults = {**class_defaults().get(self.model_type, {}), **self.family.defaults}
        name = next((other for other in (name, key) if other in defaults), name)
        if (value := defaults.get(name)) is not None and name != "moe_layer_freq":
            note = f"{name} is left out and taken as {value}, the default of {self.model_type}."
            self.notes += [] if note in self.notes else [note]
        return value

    def _named(self, key: str) -> str:
        """The name under which the file has a key, or that of its family."""
        names = [self.family.names.get(key, key), key]
        if key in COUNTS_OF_EXPERTS and self.family.experts is not None:
            names += COUNTS_OF_EXPERTS
        return next((name for name in names if name in self.config), names[0])

    def count(self, key: str, otherwise: int | None = None, lowest: int = 1, largest: int = LARGEST) -> int:
        """A whole number of a key; without the key the other one.

        **Raises:** `InputError` if there is neither, or no such number.
        """
        value = self.value(key)
        if value is None and otherwise is not None:
            return otherwise
        if value is None:
            raise self.refuse(f"{self._named(key)} is missing. Is it the whole config.json of a model?")
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or value != int(value) or not lowest <= value <= largest:
            raise self.refuse(
                f"{self._named(key)} is {value!r}, not a whole number from {lowest} to {largest}. Correct it."
            )
        return int(value)

    def flag(self, switch: bool | Sequence[Any]) -> bool:
        """A switch of the family or of the file."""
        if isinstance(switch, bool):
            return switch
        value = self.config.get(switch[0])
        if value is not None and not isinstance(value, bool):
            raise self.refuse(f"{switch[0]} is {value!r}, neither true nor false. Correct it.")
        return switch[1] if value is None else value

    def names(self, key: str, length: int | None = None) -> list[str] | None:
        """The names that a key lists, as many as there are layers; None if it lists none."""
        value = self.config.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self.refuse(f'{key} is no list of names, such as "full_attention". Correct it.')
        if length is not None and len(value) != length:
            raise self.refuse(f"{key} names {len(value)} layers, and there are {length}. Correct it.")
        return value

    def indices(self, key: str, layers: int) -> list[int]:
        """Indices of layers that a key lists, the first being 0."""
        value = self.config.get(key)
        value = [] if value is None else value
        if not isinstance(value, list) or any(not isinstance(item, int) or isinstance(item, bool) for item in value):
            raise self.refuse(f"{key} is no list of indices of layers. Correct it.")
        if outside := [index for index in value if not 0 <= index < layers]:
            raise self.refuse(f"{key} names layer {outside[0]}, and there are {layers}. Correct it.")
        return sorted(set(value))

    def _unknown_family(self) -> SimpleNamespace:
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
        layers = "after-first" if self.config.get("first_k_dense_replace") else "all"
        experts = experts_of({"count": mixture, "width": wide, "shared": shared, "layers": layers})
        return SimpleNamespace(**vars(families()["*"]) | {"experts": experts})

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
        self.family = SimpleNamespace(**vars(family) | parts)
        self.config = {**self.config, **sizes}

    def model(self, sequence: int | None) -> ModelConfig:
        """The whole model."""
        family = self.family
        layers = self.count("num_hidden_layers", largest=MOST_LAYERS)
        hidden, heads = self.count("hidden_size"), self.count("num_attention_heads")
        kv_heads = self.count("num_key_value_heads", heads)
        if kv_heads > heads and not family.latent:
            raise self.refuse(f"{kv_heads} heads of keys are more than {heads} heads. Correct it.")
        vocabulary, context = self.count("vocab_size"), self.count("max_position_embeddings", 0)
        tied = self._tied()
        positions = hidden * (self.count(family.positions) + family.more_positions) if family.positions else 0
        attention, vectors = self._latent(hidden, heads) if family.latent else self._grouped(hidden, heads, kv_heads)
        vectors = layers * (vectors + family.norms * family.norm_vectors * hidden + (heads if family.sinks else 0))
        vectors += hidden * family.norm_vectors * (1 + family.extra_norms) + positions
        vectors += vocabulary if self.flag(family.head_bias) else 0
        blocks, of_blocks = self._blocks(layers, hidden)
        window, local = self._window(layers)
        shape = attention | blocks
        shape |= {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": heads if family.latent else kv_heads}
        shape |= {"vocabulary": vocabulary, "sequence": self._sequence(sequence, context), "tied": tied}
        shape |= {"gated": family.gated, "window": window, "local_layers": local}
        shape |= {"parallel_block": self.flag(family.parallel), "vector_parameters": vectors + of_blocks}
        for key in FURTHER_TOKENS:
            if self.config.get(key):
                self.notes.append(f"Modules of multi-token prediction ({key}) are not counted.")
        if isinstance(self.config.get("quantization_config", self.outer.get("quantization_config")), Mapping):
            self.notes.append("quantization_config is left aside: the plan says in which formats a run computes.")
        both = (self.config, self.outer)
        dtypes = [table[key] for table in both for key in ("dtype", "torch_dtype") if isinstance(table.get(key), str)]
        name = self.outer.get("_name_or_path") or self.config.get("_name_or_path")
        return ModelConfig(
            model_type=self.model_type,
            name=name if isinstance(name, str) else Path(self.file).stem,
            context=context,
            transformer=Transformer(**{name: np.asarray(float(value)) for name, value in shape.items()}),
            embedding_parameters=(1 if tied else 2) * vocabulary * hidden + positions,
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
        sequence = min(context, USUAL_SEQUENCE) if context else USUAL_SEQUENCE
        self.notes.append(f"{SEQUENCE_NOTE} {sequence} tokens, which config.json does not say.")
        return sequence

    def _blocks(self, layers: int, hidden: int) -> tuple[dict[str, int | float], int]:
        """Sizes of the feed-forward blocks, and their vectors in all layers without those of routed experts."""
        family, mixed = self.family, self._expert_layers(layers)
        dense = layers - len(mixed)
        products = 1 + int(family.gated)
        experts = family.experts if mixed else None
        usual = None if self.is_unknown else 4 * hidden  # of GPT-2 and its like; others say their width
        width = self.count(experts.dense_width if experts and dense else "intermediate_size", usual)
        vectors = dense * (products * width + hidden) * int(self.flag(family.feed_forward_bias))
        if experts is None:
            return {"feed_forward": width, "experts": 1, "active_experts": 1}, vectors
        narrow = self.count(experts.width)
        total, active = self.count(experts.count), self.count(experts.active)
        if active > total:
            raise self.refuse(f"{active} experts of {total} cannot act on a token. Correct it.")
        if total == 1:
            raise self.refuse(f"{experts.count} is 1; a mixture has two experts or more. Correct it.")
        if experts.shared_width:  # one shared expert, as many of the width of a routed one
            shared = self.count(experts.shared_width, 0, lowest=0) / narrow
        else:
            shared = experts.shared if isinstance(experts.shared, int) else self.count(experts.shared, 0, lowest=0)
        vectors += len(mixed) * (total if self.flag(experts.router_bias) else 0)
        vectors += len(mixed) * (hidden if experts.shared_width and experts.shared_gate else 0)
        return {
            "feed_forward": narrow,
            "experts": total,
            "active_experts": active,
            "shared_experts": shared,
            "alternating_dense": mixed != list(range(mixed[0], layers)),
            "dense_layers": dense,
            "dense_feed_forward": width if dense else 0.0,
            "expert_vectors": (products * narrow + hidden) * int(self.flag(experts.bias)),
            "router": True,
        }, vectors

    def _grouped(self, hidden: int, heads: int, kv_heads: int) -> tuple[dict[str, int | float], int]:
        """Sizes and vectors of attention by heads."""
        family = self.family
        if self.value("head_dim") is None and hidden % heads:
            raise self.refuse(f"{heads} heads do not divide hidden_size {hidden}, and head_dim is missing. Add it.")
        size = self.count("head_dim", hidden // heads)
        queries, keys = heads * size, kv_heads * size
        vectors = (queries + 2 * keys) * int(self.flag(family.query_bias)) + hidden * int(self.flag(family.output_bias))
        if self.flag(family.query_norm_if) and family.query_norm != "none":
            vectors += 2 * size * family.norm_vectors if family.query_norm == "head" else queries + keys
        return {"head_size": size}, vectors

    def _latent(self, hidden: int, heads: int) -> tuple[dict[str, int | float], int]:
        """Sizes and vectors of latent attention: norms of the latents, and biases."""
        names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
        rank, plain, rotated = (self.count(name) for name in names)
        value, queries = self.count("v_head_dim", hidden // heads), self.count("q_lora_rank", 0, lowest=0)
        vectors = rank + queries + (queries + rank + rotated + hidden) * int(self.flag(self.family.query_bias))
        sizes = {"head_size": plain + rotated, "value_head_size": value, "rope_head_size": rotated}
        return {**sizes, "kv_rank": rank, "query_rank": queries}, vectors

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
        is_off = rule == "switched" and not self.flag(("use_sliding_window", False))
        if (kinds is None and rule == "none") or is_off or self.value("sliding_window") is None:
            return 0, 0.0
        size = self.count("sliding_window")
        if kinds:
            self.names("layer_types", layers)
            return size, sum(kind in LOCAL for kind in kinds) / len(kinds)
        if rule == "switched":
            first = min(self.count("max_window_layers", layers, lowest=0), layers)
            return size, (layers - first) / layers
        if isinstance(rule, int):
            return size, 1.0 - (layers // self.count("sliding_window_pattern", rule)) / layers
        return size, float(rule == "all")
