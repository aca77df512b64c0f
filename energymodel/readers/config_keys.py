"""Keys of a `config.json`, of which any may be missing or hold anything."""

import math
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.model_families import Family, Flag, class_defaults

LARGEST = 10**9  # of a size: more is a mistake
MOST_LAYERS = 10_000
NULL_SAYS = ("head_dim", "num_key_value_heads", "sliding_window", "q_lora_rank", "n_inner", "mlp_only_layers")
"""Keys whose null is a value of its own and does not stand for the default."""
COUNTS_OF_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Names of one key, each of which newer versions of transformers take for the others."""


class ConfigKeys:
    """Keys of a model, with what its family takes where one is left out.

    - `file`: what messages call it; `config`: the table of the (text) model, `outer` that of the file.
    - `model_type`, `family`: which parts it has; `notes`: what was assumed, one sentence each.
    """

    def __init__(self, table: Mapping[str, Any], name: str) -> None:
        self.file = name
        self.outer = self.config = table
        self.model_type = ""
        self.family = Family()
        self.notes: list[str] = []

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
            self.note(f"{name} is left out and taken as {value}, the default of {self.model_type}.")
        return value

    def note(self, sentence: str) -> None:
        """Say something once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

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
        if value is None:
            if otherwise is None:
                raise self.refuse(f"{self._named(key)} is missing. Is it the whole config.json of a model?")
            return otherwise
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or value != int(value) or not lowest <= value <= largest:
            raise self.refuse(
                f"{self._named(key)} is {value!r}, not a whole number from {lowest} to {largest}. Correct it."
            )
        return int(value)

    def flag(self, switch: Flag) -> bool:
        """A switch of the family or of the file."""
        if isinstance(switch, bool):
            return switch
        name, otherwise = switch
        value = self.config.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.refuse(f"{name} is {value!r}, neither true nor false. Correct it.")
        return otherwise if value is None else value

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
        if value is None:
            return []
        if not isinstance(value, list) or not all(
            isinstance(item, int) and not isinstance(item, bool) for item in value
        ):
            raise self.refuse(f"{key} is no list of indices of layers. Correct it.")
        if outside := [index for index in value if not 0 <= index < layers]:
            raise self.refuse(f"{key} names layer {outside[0]}, and there are {layers}. Correct it.")
        return sorted(set(value))
