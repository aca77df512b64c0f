"""The run of a plan as a configuration of a training framework states it: `scenario_of_training`, inverted."""

import dataclasses
import math
from itertools import product
from typing import Any

import numpy as np

from energymodel.errors import InputError
from energymodel.performance.workload import Transformer
from energymodel.readers.expressions import data_file
from energymodel.readers.training.config import Shape, TrainingConfig, settle
from energymodel.readers.training.interpreter import pages_of_models
from energymodel.scenarios.files import read_preset
from energymodel.scenarios.scenario import Scenario
from energymodel.scenarios.training_file import RULES, vector_parameters
from energymodel.system.plan import PRECISIONS, SCHEDULES, TokenBudget, TrainingPlan

WORDS = data_file(__file__, "layers.toml")
NUMBERS = [field.name for field in dataclasses.fields(Transformer)]
WHOLE = 1e-6  # relative rounding error of a count
UNWRITTEN = ("sequence", "flash", "expert_imbalance", "vector_parameters", "expert_vectors", "router")
OF_FILE = ("tokenizer", "accelerator", "adapters", "optimizer")
OF_FILE_WITH = {"expert_tensor": "tensor", "context_collective": "context", "precision_recipe": "precision"}
OF_FILE_WITH |= {"shard_size": "data"}
"""Fields that a plan leaves as they are in the configuration below: always, or while another field is as there."""
OFFLOADED = ("optimizer", "parameters", "activations", "gradients")


def planned_config(
    scenario: Scenario, plan: TrainingPlan, tokens: float, below: TrainingConfig | None = None
) -> TrainingConfig:
    """The run of a plan in the words of `TrainingConfig`, for `write_training_config`.

    Steps are rounded up. Norms and biases, of which a scenario holds the number of entries alone, are the most usual
    ones with that number.

    **Arguments:**

    - `scenario`: with the system of the run; `plan`: its own or another.
    - `tokens`: that the plan trains, where its goal is a loss [token].
    - `below`: the configuration that the scenario was made of, whose names and words of the model are kept.

    **Raises:** `InputError` for what no configuration file says: a share of a switch, a batch that changes, a count
    that is not whole.
    """
    layout = {field.name: float(getattr(plan.layout, field.name)) for field in dataclasses.fields(plan.layout)}
    degrees = {name: _count(layout[own], f"plan.layout.{own}") for own, name in RULES["layout"].items()}
    workload = scenario.system.workload
    sequence, batches = float(workload.sequence), np.ravel(plan.batch)
    if len(batches) > 1:
        raise InputError(
            f"plan.batch: it takes {len(batches)} values over the run, which no configuration is written for. "
            'Give one value, such as plan.batch="16 Mi tokens".'
        )
    if float(plan.trained_share) < 1.0 and not (below and below.adapters):
        raise InputError(
            f"plan.trained_share is {float(plan.trained_share):g}: how adapters make that share is for you to say in "
            "a configuration. Give it by --training, or set plan.trained_share to 1."
        )
    tokens = float(plan.goal.tokens) if isinstance(plan.goal, TokenBudget) else tokens
    share = layout["recompute_full"]
    is_part = 0.0 < share < 1.0 and layout["recompute_attention"] == 0.0
    precision = max(PRECISIONS, key=lambda name: layout[name])
    config = TrainingConfig(
        kind="plan",
        **{name: degree or None for name, degree in degrees.items()},
        chips=_count(float(plan.chips), "plan.chips"),
        batch_sequences=_count(float(batches[0]) / sequence, "plan.batch in sequences"),
        sequence=_count(sequence, "system.workload.sequence"),
        steps=max(1, math.ceil(tokens / float(batches[0]) * (1.0 - WHOLE))),
        precision=precision if layout[precision] else "bf16",
        sharding=int(_word(layout, "zero")),
        recomputation="full" if is_part else _word(layout, "recomputation"),
        recomputed_layers=_count(share * float(workload.layers), "layers recomputed in full") if is_part else None,
        schedule=_word(layout, "schedule"),
        sequence_parallel=_is_on(layout["sequence_parallel"], "sequence_parallel") and layout["tensor"] > 1.0,
        context_collective="all_to_all" if _is_on(layout["context_all_to_all"], "context_all_to_all") else None,
        embedding_balanced=_is_on(layout["embedding_balanced"], "embedding_balanced") or None,
        overlaps=("data", "tensor") if _is_on(layout["async_tensor"], "async_tensor") else ("data",),
        offload=tuple(part for part in OFFLOADED if _is_on(layout[f"offload_{part}"], f"offload_{part}")),
        cuda_graphs=_is_on(layout["cuda_graphs"], "cuda_graphs") or None,
        **_model(scenario, below),
    )
    config = settle(config)
    if below is None:
        return config
    kept = {name: getattr(below, name) for name in OF_FILE}
    kept |= {
        name: getattr(below, name)
        for name, other in OF_FILE_WITH.items()
        if getattr(config, name) is None and getattr(config, other) == getattr(below, other)
    }
    kept["overlaps"] = tuple(dict.fromkeys((*below.overlaps, *config.overlaps)))
    kept["offload"] = tuple(dict.fromkeys((*below.offload, *config.offload)))
    return dataclasses.replace(config, **kept)


def _count(value: float, name: str) -> int:
    if abs(value - round(value)) > WHOLE * max(abs(value), 1.0):
        raise InputError(f"{name} is {value:g}, which is not whole; a configuration file needs a whole number.")
    return round(value)


def _is_on(value: float, name: str) -> bool:
    if value not in (0.0, 1.0):
        raise InputError(f"plan.layout.{name} is {value:g}; in a configuration file it is off (0) or on (1).")
    return value == 1.0


def _word(layout: dict[str, float], key: str) -> str:
    """The short word for fields of a layout."""
    below = dict.fromkeys(SCHEDULES, 0.0) if key == "schedule" else {}
    choices = {word: below | switches for word, switches in WORDS[key].items() if word != "noun"}
    for word, switches in choices.items():
        if all(layout[name] == value for name, value in switches.items()):
            return word
    named = {name: layout[name] for switches in choices.values() for name in switches}
    states = ", ".join(f"{name} = {value:g}" for name, value in named.items())
    raise InputError(f"plan.layout: {states} is no {WORDS[key]['noun']} that a configuration names.")


def _model(scenario: Scenario, below: TrainingConfig | None) -> dict[str, Any]:
    """Names and words of the model, those of the configuration below where it has the same."""
    numbers = {name: float(getattr(scenario.system.workload, name)) for name in NUMBERS}
    shape = {word: numbers[word] for word in NUMBERS if word not in UNWRITTEN}
    shape = {word: value for word, value in shape.items() if value or word in ("gated", "tied")}
    mixture = {"active_experts", "shared_experts", "dense_layers", "dense_feed_forward", "alternating_dense"}
    if shape["experts"] > 1.0:
        shape["shared_feed_forward"] = numbers["shared_experts"] * numbers["feed_forward"]
    else:
        shape = {word: value for word, value in shape.items() if word not in mixture}
    if below is not None and below.model:
        if all(below.model.get(word, value) == value for word, value in shape.items()):
            return {"model_name": below.model_name, "preset": below.preset, "model": shape | below.model}
    elif below is not None and (below.preset is None or _is_preset(below.preset, shape)):
        return {"model_name": below.model_name, "preset": below.preset, "model": shape | _vectors(shape, numbers)}
    preset = next((preset for preset in pages_of_models() if _is_preset(preset, shape)), None)
    title = str(scenario.tables["system"]["workload"].get("title", "model"))
    name = pages_of_models()[preset] if preset else "-".join(title.split())
    return {"model_name": name, "preset": preset, "model": shape | _vectors(shape, numbers)}


def _is_preset(preset: str, shape: Shape) -> bool:
    table = read_preset("models", preset)
    return all(table[word]["value"] == value for word, value in shape.items() if word in table)


def _vectors(shape: Shape, numbers: dict[str, float]) -> Shape:
    """The most usual norms, biases, sinks and positions with as many entries as the model has beside its matrices."""
    choices = dict(RULES["usual_vectors"])
    choices["qk_norm"] = [word for word in choices["qk_norm"] if (word == "latent") == (numbers["kv_rank"] > 0.0)]
    choices["linear_bias"] = [1.0] if numbers["expert_vectors"] else choices["linear_bias"]
    choices["learned_positions"] = [0.0, numbers["sequence"]]
    for word in ("router_bias", "shared_gate"):
        choices[word] = choices[word] if numbers["experts"] > 1.0 else [0.0]
    if not numbers["vector_parameters"]:  # they are not counted
        choices = {word: values[:1] for word, values in choices.items()}
    ways = [dict(zip(choices, way, strict=True)) for way in product(*choices.values())]
    ways = [way for way in ways if way["qkv_bias"] >= way["linear_bias"]]
    nearest = min(ways, key=lambda way: abs(vector_parameters(shape | way) - numbers["vector_parameters"]))
    return {word: value for word, value in nearest.items() if value or word in ("linear_bias", "qkv_bias")}
