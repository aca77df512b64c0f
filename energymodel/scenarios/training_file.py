"""Scenarios from the configurations of training frameworks, and plans as such configurations."""

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from energymodel.errors import InputError
from energymodel.performance.workload import NATURAL_IMBALANCE, Transformer
from energymodel.readers.expressions import data_file, evaluate, work_out
from energymodel.readers.training import interpreter
from energymodel.readers.training.config import MODEL_WORDS, Shape, settle
from energymodel.readers.training.interpreter import FIELDS
from energymodel.readers.training_config import KINDS, TrainingConfig, read_training_config
from energymodel.scenarios.files import model_source, names, read_preset
from energymodel.scenarios.fine_tuning import adaptation_changes, samples_of
from energymodel.scenarios.layers import SHORT_WORDS, recomputation_words, short_word
from energymodel.scenarios.pieces import (
    Pieces,
    cluster_of,
    common_tables,
    keeping_batch,
    notes_of,
    surroundings,
    tokens_of,
    whole_number_of,
)
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.system.outputs import parse_number
from energymodel.system.plan import PRECISIONS, TokenBudget, TrainingPlan

RULES = data_file(__file__, "training_file.toml")
SHAPE = {"layers", "hidden", "heads", "head_size", "feed_forward", "vocabulary"}
"""Words with which a file describes a model of its own."""


def scenario_of_training(
    path: str | Path,
    accelerator: str,
    *,
    model: str | None = None,
    vocabulary: int | float | str | None = None,
    chips: int | float | str | None = None,
    tokens: int | float | str | None = None,
    batch: int | float | str | None = None,
    sequence: int | float | str | None = None,
    microbatch: int | float | str | None = None,
    framework: str | None = None,
    cluster: str | Path | None = None,
    changes: Sequence[str] = (),
    tokens_otherwise: int | float | str | None = None,
    tuning: Mapping[str, Any] | None = None,
    name: str = "own",
) -> Pieces:
    """The run of a training configuration as a scenario: its layout, batch, sequence, formats and model.

    The other defaults are those of `scenario_of_pieces`; the framework is that of the file unless one is given.
    Arguments replace what the file says.

    **Arguments:**

    - `path`: see `read_training_config`; `accelerator`: a preset.
    - `model`: a preset or a `config.json`; `vocabulary`: where the file leaves it to a tokenizer.
    - `chips`, `tokens`, `batch` [token], `sequence` [token], `microbatch` [sequences]: where the file is silent.
    - `framework`: whose file it is, where that is not recognized, or a preset of software.
    - `cluster`, `changes`: as in `scenario_of_pieces`.
    - `tuning`: as in `scenario_of_pieces`, instead of what the file says.
    - `tokens_otherwise`: of the run, where neither the file nor `tokens` says them.

    **Raises:** `InputError` that names what the file does not say and how to give it, and as `load_scenario`.
    """
    length, size, amount = (
        None if value is None else tokens_of(value, name)
        for name, value in (("sequence", sequence), ("batch", batch), ("tokens", tokens))
    )
    micro = None if microbatch is None else whole_number_of("sequences", microbatch, "microbatch")
    model = None if model is None else model_source(model)
    # Some frameworks have the name of a software preset, which then is that of the run.
    is_software = framework is not None and framework in names("software")
    kind = framework if framework in KINDS else None
    config = read_training_config(path, None if is_software else kind, _automatic(size, length, micro), kind)
    framework = None if kind is not None and not (is_software and config.kind != kind) else framework
    if micro is not None and config.micro_batch != micro:
        config = dataclasses.replace(config, micro_batch=micro, accumulation=None)
    if chips is not None:
        config = config.on(whole_number_of("chips", chips))
    answers = {"model": model, "vocabulary": vocabulary or model, "chips": chips, "batch": batch, "sequence": sequence}
    length = config.sequence if length is None else length
    sequences = config.batch_schedule[-1][1] if config.batch_schedule else config.batch_sequences
    if size is None and sequences is not None and length is not None:
        size = float(sequences) * float(length)
    words = {**vars(config), **(tuning or {})}
    samples = samples_of(words, length, config.micro_batch)
    if samples is not None and length is not None:
        words["longest"], amount, size = samples.longest, samples.tokens, size and size * samples.sequence / length
        length = samples.sequence
    if amount is None:
        amount = config.tokens
        if config.steps and size is not None and (amount is None or batch is not None):
            amount = config.steps * size
    says_tokens = amount is not None
    if amount is None and tokens_otherwise is not None:
        amount = tokens_of(tokens_otherwise, "tokens")
    missing = [item for item in config.missing() if item in RULES["ask"] and answers[item] is None]
    missing += ["tokens"] if amount is None else []
    if missing or config.chips is None or length is None or size is None or amount is None:
        missing = missing or ["chips"]
        asked, hint = ", ".join(RULES["ask"][item] for item in missing), ""
        if "model" in missing:
            hint = _hint(config, Path(path).stem)
        raise InputError(f"{path}: the file does not say {', '.join(missing)}. Give {asked}.{hint}")

    def of_file(value: float, unit: str) -> dict[str, Any]:
        source = f"{Path(path).name}: {config.kind}"
        return {"value": float(value), "unit": unit, "kind": "specification", "source": source}

    tables = common_tables(
        accelerator, float(config.chips), f"{Path(path).stem} on {config.chips:,} {accelerator}", name
    )
    workload = _workload(config, model, vocabulary, str(path))
    tables["system"]["workload"] = {**workload, "sequence": of_file(length, "token")}
    software = framework or interpreter.framework(config.kind)["software"]
    tables["plan"] |= {
        "chips": of_file(config.chips, "1"),
        "batch": of_file(size, "token"),
        "goal": {"tokens": of_file(amount, "token")},
        "layout": _layout(config, accelerator, software),
    }
    units = {"gradient_bytes": " B", "optimizer_bytes": " B", "node_dispatch": ""}
    values = {name: getattr(config, name) for name in units}
    settings = [f"system.software.{name}={value:g}{units[name]}" for name, value in values.items() if value is not None]
    settings += adaptation_changes(words, config.model.get("layers") or None)
    machine = cluster_of(accelerator, cluster, framework, software)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scenario = load_scenario(tables, (*settings, *changes), machine)
    assumed = (*_assumed(config, accelerator), surroundings(scenario), *notes_of(caught, says_sequence=True))
    return Pieces(keeping_batch(scenario), assumed, says_tokens)


def _automatic(batch: float | None, sequence: float | None, micro: int | None) -> dict[str, int | None] | None:
    """Values for the keys that a DeepSpeed file leaves to its trainer; None unless all of them are given."""
    if batch is None or sequence is None or micro is None:
        return None
    sequences = batch / sequence
    if sequences != int(sequences) or sequences % micro:
        raise InputError(
            f"batch: {batch:g} tokens are {sequences:g} sequences of {sequence:g} tokens, no multiple of the "
            f"micro-batch of {micro}. Give a batch that is."
        )
    return {"train_batch_size": int(sequences), "train_micro_batch_size_per_gpu": micro}


def _hint(config: TrainingConfig, stem: str) -> str:
    """What helps to find the model: its name, or the preset that the name of the file suggests."""
    if config.model_name:
        return f" The file names {config.model_name}, whose shape it does not hold and no preset has."
    words = stem.replace("_", "-").split("-")
    preset = interpreter.preset_of("-".join(words[:3])) or interpreter.preset_of("-".join(words[:2]))
    hint = f" The name of the file suggests {preset}." if preset else ""
    if config.kind in ("megatron-bridge", "primus"):
        return " The shape is in the recipe below the file, which is not read." + hint
    return hint


def _workload(config: TrainingConfig, model: str | None, vocabulary: Any, path: str) -> dict[str, Any]:
    """The table of the model: the one that is asked for, a preset of the same shape, or the words of the file."""
    if model is not None:
        return {"preset": model}
    if config.preset is not None and not config.model.keys() >= SHAPE:
        return {"preset": config.preset}
    words = dict(config.model)
    if vocabulary is not None:
        words["vocabulary"] = parse_number(vocabulary, "1", "vocabulary")
    fields = {field.name: field for field in dataclasses.fields(Transformer)}
    numbers = {name: field.default for name, field in fields.items() if field.default is not dataclasses.MISSING}
    numbers |= {"kv_heads": words.get("heads", 0), "active_experts": 1}
    numbers |= {name: value for name, value in words.items() if name in fields and not isinstance(value, str)}
    if float(words.get("experts", 1)) > 1:
        shared = float(words.get("shared_feed_forward", 0) or 0)
        numbers |= {"router": 1, "shared_experts": shared / float(words["feed_forward"])}
        numbers["expert_imbalance"] = words.get("expert_imbalance") or NATURAL_IMBALANCE
        numbers["expert_vectors"] = _vectors(words)["expert_vectors"]
    numbers["vector_parameters"] = vector_parameters(words)
    origin = {"kind": "specification", "source": Path(path).name}
    quantities = {
        name: {"value": float(value), "unit": fields[name].metadata["unit"], **origin}
        for name, value in numbers.items()
        if value is not None
    }
    component = read_preset("models", "_transformer")["component"]
    return {"component": component, "title": config.model_name or Path(path).stem, **quantities}


def vector_parameters(words: Mapping[str, int | float | str]) -> float:
    """Entries of norms, biases, sinks and learned positions of a model in the words of `MODEL_WORDS` [1].

    A bias of experts belongs to them and is not counted here.
    """
    return _vectors(words)["vector_parameters"]


def _vectors(words: Mapping[str, int | float | str]) -> dict[str, Any]:
    defaults = {"norms_per_layer": 2.0, "experts": 1.0, "kv_heads": words.get("heads", 0.0)}
    numbers = {name: value for name, value in words.items() if value is not None}
    texts = {name: str(words.get(name)) for name in ("norm", "qk_norm")}
    return work_out(RULES["vectors"], {**dict.fromkeys(MODEL_WORDS, 0.0), **defaults, **numbers, **texts})


def _layout(config: TrainingConfig, accelerator: str, software: str) -> dict[str, Any]:
    """The layout as a plan states it, for presets of an accelerator and of software."""
    presets = {"accelerator": read_preset("hardware", accelerator), "software": read_preset("software", software)}
    words = work_out(RULES["layout"], {**vars(config), **presets})
    return {name: words[name] for name in RULES["layout"] if words[name] is not None}


def _assumed(config: TrainingConfig, accelerator: str) -> list[str]:
    """Sentences on what was read, and what was not."""
    silent = {"recomputation": "none", "sharding": "ZeRO stage 0", "precision": "bf16"}
    words = {
        **vars(config),
        "accelerator": read_preset("hardware", accelerator),
        "usual": ", ".join(f"{name} ({value})" for name, value in silent.items() if getattr(config, name) is None),
        "host_memory": ", ".join(f"{share:.0%} of the {part}" for part, share in config.offload.items()),
        "unread": ", ".join(config.ignored),
        "tuning": config.tuning or bool(adaptation_changes(vars(config))),
    }
    sentences = [text.format_map(words) for text, applies in RULES["assumed"].items() if evaluate(applies, words)]
    read = f"Read as {config.kind}; the software is the preset of its framework."
    return [read, *(f"{note}." for note in config.notes), *sentences]


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
    return settle(TrainingConfig(**fields, **_planned_model(scenario, below)))


def _planned_model(scenario: Scenario, below: TrainingConfig | None) -> dict[str, Any]:
    """Names and words of the model, those of the configuration below where it has the same."""
    workload, unwritten = scenario.system.workload, RULES["unwritten"]
    numbers = {field.name: float(getattr(workload, field.name)) for field in dataclasses.fields(Transformer)}
    left_out = unwritten["always"] + (unwritten["dense"] if numbers["experts"] <= 1.0 else [])
    left_out += unwritten["stateless"] if not numbers["state_layers"] else []
    left_out += [name for name, value in numbers.items() if not value and name not in ("gated", "tied")]
    left_out += [] if numbers["expert_latent"] < 1.0 else ["expert_latent"]
    shape: Shape = {name: value for name, value in numbers.items() if name not in left_out}
    if numbers["experts"] > 1.0:
        shape["shared_feed_forward"] = numbers["shared_experts"] * numbers["feed_forward"]
    presets = {name: read_preset("models", name) for name in RULES["pages"]}
    values = {name: {word: table[word]["value"] for word in table.keys() & shape} for name, table in presets.items()}
    preset = next((name for name in presets if values[name].items() <= shape.items()), None)
    title = str(scenario.tables["system"]["workload"].get("title", "model"))
    name, model = RULES["pages"][preset] if preset else "-".join(title.split()), _planned_vectors(shape, numbers)
    is_same = below is not None and all(below.model.get(word, value) == value for word, value in shape.items())
    if below is not None and is_same and below.preset in (None, preset):
        name, model = below.model_name, below.model or model
    words = {**shape, **model}
    is_counted = vector_parameters(words) == numbers["vector_parameters"]
    notes = () if is_counted else ("norms and biases are assumed: the scenario does not say them",)
    return {"model_name": name, "preset": preset, "model": words, "notes": notes}


def _planned_vectors(shape: Shape, numbers: dict[str, float]) -> Shape:
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
