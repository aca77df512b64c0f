"""Models from the `config.json` of Hugging Face: their shape, and their parameters to the last one."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.performance.workload import NATURAL_IMBALANCE, Transformer
from energymodel.readers.expressions import data_file, work_out
from energymodel.readers.text_file import read_json

TEXT = ("text_config", "llm_config", "language_config", "language_model_config", "thinker_config")
"""Keys below which a model of several modes keeps its text model."""
SEQUENCE_NOTE = "The training sequence is taken as"  # begins the note that stands where nobody says the sequence
USUAL_SEQUENCE = 8192
LARGEST = 10**9  # of a size: more is a mistake
FURTHER_TOKENS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
NULL_SAYS = ("head_dim", "num_key_value_heads", "sliding_window", "q_lora_rank", "n_inner", "mlp_only_layers")
"""Keys whose null is a value of its own and does not stand for the default."""
COUNTS_OF_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Names of one key, each of which newer versions of transformers take for the others."""

LINEAR = "its linear attention keeps a state instead of keys"
INSTEAD = (
    "Take the nearest model of `energymodel presets list models` as --model, or describe the nearest shape in "
    "[system.workload] of a scenario."
)
ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention", "global", "local")


BUILTINS = (any, bool, dict, enumerate, int, isinstance, len, list, max, min, range, str, sum)


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
        self.config = table
        towers = (each.get("vision_config") for each in (table, self.outer))
        self.tower = next((dict(tower) for tower in towers if isinstance(tower, Mapping)), None)
        kind = table.get("model_type", self.outer.get("model_type", ""))
        if not isinstance(kind, str) or not kind.isprintable():
            raise self.refuse(f'model_type is {kind!r}, no text. Give the type, such as "llama".')
        self.model_type = _data("families")["same_as"].get(kind, kind)
        for type_name in (self.outer.get("model_type"), kind, self.model_type):
            if isinstance(type_name, str) and type_name in reasons():
                raise self.refuse(f'a model of type "{type_name}" cannot be read: {reasons()[type_name]}. {INSTEAD}')
        self.is_unknown = self.model_type not in families()
        reads = "" if self.is_unknown else families()[self.model_type].reads
        if reason := reason_of(table, self.names("layer_types") or [], reads):
            raise self.refuse(f"it cannot be read: {reason}. {INSTEAD}")
        self.family = self._unknown_family() if self.is_unknown else families()[self.model_type]
        self.words: dict[str, Any] = {
            "get": self.config.get,
            "has": self.config.__contains__,
            "count": self.count,
            "size": lambda key: None if self.value(key) is None else self.count(key),
            "flag": lambda key, otherwise=False: self.flag((key, otherwise) if isinstance(key, str) else key),
            "ceil": math.ceil,
            "names": self.names,
            "indices": self.indices,
            "value": self.value,
            **{each.__name__: each for each in BUILTINS},
        }
        self._work_out(self.family.words)
        self._work_out({name: {"refuse": when, "text": name} for name, when in self.family.refused.items()})
        self.family = SimpleNamespace(**vars(self.family) | self._work_out(self.family.parts))
        self.config = {**self.config, **self._work_out(self.family.sizes)}

    def refuse(self, why: str) -> InputError:
        """What is wrong with the file, as an error to raise."""
        return InputError(f"{self.file}: {why}")

    def value(self, key: str) -> Any:
        """The value of a key, or what the family takes without it; None if neither says anything."""
        name = self._named(key)
        value = self.config.get(name)
        if value is not None or (name in self.config and name in NULL_SAYS):
            return value
        defaults = {**_data("defaults").get(self.model_type, {}), **self.family.defaults}
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

    def _work_out(self, rules: Mapping[str, Any]) -> dict[str, Any]:
        """Words by expressions of those before, unless a condition refuses the file."""
        try:
            words = work_out(rules, {"instead": INSTEAD, **self.config, **self.words}, self.file)
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise self.refuse(f"values of its keys do not fit together ({error}). Correct them.") from None
        worked_out = {name: words.get(name) for name in rules}
        self.words |= worked_out
        return worked_out

    def model(self, sequence: int | None) -> ModelConfig:
        """The whole model."""
        self.words |= {"family": self.family, "is_unknown": self.is_unknown, "is_tied": self._is_tied, "mixed": ()}
        self.words["training_sequence"] = lambda context: self._sequence(sequence, context)
        mixture = self.family.experts is not None and self.count(self.family.experts.count, 0, lowest=0)
        attention = "latent" if self.family.latent else "grouped"
        for section in ("size", attention, *(("expert_layers",) if mixture else ()), "blocks"):
            self._work_out(_data("shape")[section])
        for section in ("mixture" if self.words["mixed"] else "dense", "window", "state"):
            self._work_out(_data("shape")[section])
        for section in (self.family.state if self.words["state_layers"] else "", self.family.sparse):
            self._work_out(_data("shape").get(section, {}))
        self._work_out(self.family.shape)
        self.notes += self.family.notes
        self._work_out(_data("shape")["whole"])
        for key in FURTHER_TOKENS:
            if self.config.get(key):
                self.notes.append(f"Modules of multi-token prediction ({key}) are not counted.")
        if isinstance(self.config.get("quantization_config", self.outer.get("quantization_config")), Mapping):
            self.notes.append("quantization_config is left aside: the plan says in which formats a run computes.")
        both = (self.config, self.outer)
        dtypes = [table[key] for table in both for key in ("dtype", "torch_dtype") if isinstance(table.get(key), str)]
        name = self.outer.get("_name_or_path") or self.config.get("_name_or_path")
        shape = {field.name: self.words[field.name] for field in fields(Transformer) if field.name in self.words}
        shape |= {"expert_imbalance": NATURAL_IMBALANCE} if shape["experts"] > 1.0 else {}
        model = ModelConfig(
            model_type=self.model_type,
            name=name if isinstance(name, str) else Path(self.file).stem,
            context=self.words["context"],
            transformer=Transformer(**{name: np.asarray(float(value)) for name, value in shape.items()}),
            embedding_parameters=self.words["embedding_parameters"],
            dtype=dtypes[0] if dtypes else "",
            notes=(),
        )
        if self.tower is not None:
            self.words["tower"] = self.tower
            tower = self._work_out(_data("shape")["vision"])["tower_parameters"]
            size = f"has about {tower:.2g} parameters, {tower / (tower + model.parameters):.1%} of the model, and "
            self.notes.append(f"The vision tower {size if tower else ''}is not counted: its work comes on top.")
        return model._replace(notes=tuple(self.notes))

    def _is_tied(self) -> bool:
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


def _data(name: str) -> dict[str, dict[str, Any]]:
    return data_file(__file__, f"model_{name}.toml")


@cache
def families() -> Mapping[str, SimpleNamespace]:
    """Parts by `model_type`, with the fields of `[family]`, and `experts` where there are any; "*" for other types."""
    tables = _data("families")
    return {
        name: SimpleNamespace(
            **tables["family"] | table | {"experts": experts_of(table["experts"]) if "experts" in table else None}
        )
        for name, table in tables.items()
        if name not in ("same_as", "family", "experts")
    }


def experts_of(table: Mapping[str, Any]) -> SimpleNamespace:
    """A mixture of experts with the fields of `[experts]`."""
    return SimpleNamespace(**_data("families")["experts"] | dict(table))


@cache
def reasons() -> Mapping[str, str]:
    """Why a model cannot be described, by its `model_type`."""
    return {name: why for why, row in _data("refusals").items() for name in row["types"].split()}


def _matching(column: str, text: str) -> str | None:
    rows = _data("refusals").items()
    return next((why for why, row in rows if column in row and re.fullmatch(row[column], text)), None)


def reason_of(config: Mapping[str, Any], layers: list[str], reads: str = "") -> str:
    """Why the keys or kinds of layers of a file cannot be described, with the key; "" if they can.

    What is off or empty says nothing, nor what a family reads, a pattern of keys and kinds.
    """
    for key, value in config.items():
        if value in (None, False, 0, [], {}) or not isinstance(key, str) or re.fullmatch(reads, key):
            continue
        # In attn_type_list 1 is attention with softmax.
        kinds = key == "attn_type_list" and isinstance(value, list) and any(kind != 1 for kind in value)
        is_linear = kinds or (key == "linear_attn_config" and isinstance(value, Mapping))
        if why := LINEAR if is_linear else _matching("keys", key):
            return f"{why} ({key})"
    if config.get("is_encoder_decoder") is True:
        return "it has an encoder (is_encoder_decoder)"
    other = next((kind for kind in layers if kind not in ATTENTION and not re.fullmatch(reads, kind)), None)
    if other is None:
        return ""
    why = _matching("layers", other) or f'its layers of kind "{other[:40]}" are not described'
    return f"{why} (layer_types)"
