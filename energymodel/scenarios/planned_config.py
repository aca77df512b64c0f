"""The run of a plan as a configuration of a training framework states it: `scenario_of_training`, inverted."""

import dataclasses
import math
from itertools import product
from typing import Any

import numpy as np

from energymodel.performance.workload import Transformer
from energymodel.readers.expressions import work_out
from energymodel.readers.training.config import Shape, TrainingConfig, settle
from energymodel.readers.training.interpreter import FIELDS
from energymodel.scenarios.files import read_preset
from energymodel.scenarios.layers import SHORT_WORDS, recomputation_words, short_word
from energymodel.scenarios.scenario import Scenario
from energymodel.scenarios.training_file import RULES, vector_parameters
from energymodel.system.plan import PRECISIONS, TokenBudget, TrainingPlan


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
    workload, rules = scenario.system.workload, RULES["planned"]
    layout = {field.name: float(getattr(plan.layout, field.name)) for field in dataclasses.fields(plan.layout)}
    words: dict[str, Any] = {
        **{function.__name__: function for function in (abs, int, len, max, round, math.ceil)},
        "union": lambda *parts: tuple(dict.fromkeys(part for several in parts for part in several)),
        **{name: float(getattr(plan, name)) for name in ("chips", "trained_share")},
        **{name: float(getattr(workload, name)) for name in ("sequence", "layers")},
        **layout,
        **{key: short_word(layout, key) for key in SHORT_WORDS},
        "recomputes": recomputation_words(plan.layout),
        "precisions": {name: layout[name] for name in PRECISIONS},
        "batches": np.ravel(plan.batch).tolist(),
        "tokens": float(plan.goal.tokens) if isinstance(plan.goal, TokenBudget) else tokens,
        "stated": below or TrainingConfig("plan"),
    }
    work_out(rules, words)
    fields = {name: words[name] for name in rules.keys() & FIELDS.keys() if words[name] is not None}
    return settle(TrainingConfig(**fields, **_model(scenario, below)))


def _model(scenario: Scenario, below: TrainingConfig | None) -> dict[str, Any]:
    """Names and words of the model, those of the configuration below where it has the same."""
    workload, unwritten = scenario.system.workload, RULES["unwritten"]
    numbers = {field.name: float(getattr(workload, field.name)) for field in dataclasses.fields(Transformer)}
    left_out = unwritten["always"] + (unwritten["dense"] if numbers["experts"] <= 1.0 else [])
    left_out += [name for name, value in numbers.items() if not value and name not in ("gated", "tied")]
    shape: Shape = {name: value for name, value in numbers.items() if name not in left_out}
    if numbers["experts"] > 1.0:
        shape["shared_feed_forward"] = numbers["shared_experts"] * numbers["feed_forward"]
    presets = {name: read_preset("models", name) for name in RULES["pages"]}
    values = {name: {word: table[word]["value"] for word in table.keys() & shape} for name, table in presets.items()}
    preset = next((name for name in presets if values[name].items() <= shape.items()), None)
    title = str(scenario.tables["system"]["workload"].get("title", "model"))
    name, model = RULES["pages"][preset] if preset else "-".join(title.split()), _vectors(shape, numbers)
    is_same = below is not None and all(below.model.get(word, value) == value for word, value in shape.items())
    if below is not None and is_same and below.preset in (None, preset):
        name, model = below.model_name, below.model or model
    words = {**shape, **model}
    is_counted = vector_parameters(words) == numbers["vector_parameters"]
    notes = () if is_counted else ("norms and biases are assumed: the scenario does not say them",)
    return {"model_name": name, "preset": preset, "model": words, "notes": notes}


def _vectors(shape: Shape, numbers: dict[str, float]) -> Shape:
    """The most usual norms, biases, sinks and positions with as many entries as the model has beside its matrices."""
    if not numbers["vector_parameters"]:  # they are not counted
        return dict(RULES["uncounted"]["gated" if numbers["gated"] else "plain"])
    usual = RULES["usual_vectors"]
    choices = {**usual, "learned_positions": [*usual["learned_positions"], numbers["sequence"]]}
    choices["qk_norm"] = ["latent", "none"] if numbers["kv_rank"] else choices["qk_norm"]
    ways = [dict(zip(choices, way, strict=True)) for way in product(*choices.values())]
    possible = [way for way in ways if way["qkv_bias"] >= way["linear_bias"] >= float(numbers["expert_vectors"] > 0.0)]
    nearest = min(possible, key=lambda way: abs(vector_parameters(shape | way) - numbers["vector_parameters"]))
    return {word: value for word, value in nearest.items() if value or word in ("linear_bias", "qkv_bias")}
