"""Scenarios of a model, an accelerator, a number of chips and of tokens, with stated defaults for the rest."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.readers.model_config import SEQUENCE_NOTE
from energymodel.scenarios.clusters import cluster_parts
from energymodel.scenarios.files import MODEL_FILE, companions, merge, model_source, read_preset
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.system.outputs import parse_number
from energymodel.system.plan import TrainingPlan
from energymodel.system.step import step_work
from energymodel.system.training_system import TrainingSystem

LIQUID = 900.0  # W: chips of more power are cooled by liquid in their vendors' systems
BUILDING = 3.0  # power of the building over that of the chips: more than any plan draws
FREE = 1.05  # memory over what the plan needs: a twentieth stays free
DEGREES = (1, 2, 4, 8), range(1, 65), (1, 2, 4, 8, 16, 32, 64)
"""Tensor, pipeline and expert parallelism that are tried."""
BATCH_COEFFICIENT, BATCH_EXPONENT = 0.2920, 0.3271
"""Of the best batch [token] by the operations of a run, `0.2920 C^0.3271` [DeepSeek-AI 2024, arXiv 2401.02954]."""
MOST_BATCH = 2.0**24  # token, as large runs have taken
RECOMPUTATIONS = ("selective", "full")


class Pieces(NamedTuple):
    """A scenario, what was assumed for it, one sentence each, and whether anything said how many tokens the run has."""

    scenario: Scenario
    assumed: tuple[str, ...]
    says_tokens: bool = True


class _Layout(NamedTuple):
    tensor: int
    pipeline: int
    expert: int
    recomputation: str

    @property
    def group(self) -> int:
        """Chips of a replica."""
        return self.tensor * self.pipeline


def scenario_of_pieces(
    model: str,
    accelerator: str,
    chips: int | float | str,
    tokens: int | float | str,
    *,
    batch: int | float | str | None = None,
    sequence: int | float | str | None = None,
    cluster: str | Path | None = None,
    changes: Sequence[str] = (),
    name: str = "own",
) -> Pieces:
    """A scenario with stated defaults for all that is not given.

    Node, network and power supplies are those that belong to the accelerator, software, prices, region and reliability
    those of most scenarios, or of a cluster. The building is cooled by air below 900 W a chip, else by liquid, and is
    large enough. The batch is that of DeepSeek's law, and the layout the one of fewest chips a replica that fits, with
    ZeRO 1: a start, from which `energymodel optimize` finds the best.

    **Arguments:**

    - `model`: a preset, or the path of a `config.json`.
    - `accelerator`: a preset; `chips`: their number; `tokens` of the run, such as `"15 T"`.
    - `batch`, `sequence` of the training: tokens.
    - `cluster`, `changes`: as in `load_scenario`.

    **Raises:** `InputError` for a name or a number that cannot be, and where no layout fits.
    """
    model = model_source(model)
    count, amount = whole_number_of("chips", chips), tokens_of(tokens, "tokens")
    tables = common_tables(accelerator, float(count), f"{title_of_model(model)} on {count:,} {accelerator}", name)
    length = {} if sequence is None else {"sequence": _tokens(tokens_of(sequence, "sequence"), "given", "given")}
    tables["system"]["workload"] = {"preset": model, **length}
    tables["plan"] = {"chips": float(count), "goal": {"tokens": _tokens(amount, "given", "given")}}
    facility = tables["system"]["facility"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scenario, layout, size = _first_fitting(
            tables, count, amount, batch, lambda made: load_scenario(made, tuple(changes), cluster)
        )
    parts = ("node", "network", "software", "market", "reliability", "learning", "recipe")
    titles = {part: scenario.tables["system"][part].get("title", "") for part in parts}
    assumed = [
        f"The building is {facility['preset']}, and may draw {facility['power_limit']}.",
        *notes_of(caught, says_sequence=sequence is not None),
        *(f"{part}: {title}" for part, title in titles.items() if title),
    ]
    if batch is None:
        assumed.append(f"The batch of {size:,.0f} tokens follows from the operations of the run (a prior).")
    assumed.append(
        f"The layout is the first that fits: tensor {layout.tensor}, pipeline {layout.pipeline}, expert "
        f"{layout.expert}, {layout.recomputation} recomputation, ZeRO 1. `energymodel optimize` finds a better one."
    )
    return Pieces(scenario, tuple(assumed))


def common_tables(accelerator: str, chips: float, title: str, name: str) -> dict[str, Any]:
    """What scenarios on an accelerator share: all but the model and the plan.

    **Raises:** `InputError` for an accelerator that is unknown, or that has no node and network of its own.
    """
    rated = float(read_preset("hardware", accelerator)["rated_power"]["value"])
    if missing := [part for part in ("node", "network") if part not in companions(accelerator)]:
        raise InputError(
            f"accelerator {accelerator}: no {missing[0]} belongs to it. State one in a scenario of your own."
        )
    building = f"{BUILDING * rated * chips / 1e6:.6g} MW"
    facility = {"preset": "air-cooled" if rated < LIQUID else "direct-liquid", "power_limit": building}
    system = merge(companions(accelerator), {"accelerator": accelerator, "facility": facility})
    return {"name": name, "base": "_common", "title": title, "system": system, "plan": {}}


def title_of_model(model: str) -> str:
    """A preset's name, or that of a file without its extension; of a `config.json` the folder's, which says more."""
    path = Path(model)
    if path.suffix != MODEL_FILE:
        return model
    return path.stem if path.stem != "config" or not path.parent.name else path.parent.name


def accelerator_of(cluster: str | Path) -> str:
    """The accelerator preset of a cluster.

    **Raises:** `InputError` for an unknown cluster, and one whose accelerator is no preset.
    """
    chip = cluster_parts(cluster)["system"]["accelerator"]
    name = chip.get("preset") if isinstance(chip, Mapping) else chip
    if not isinstance(name, str):
        raise InputError(
            f"cluster {cluster}: its accelerator is described by numbers alone. Name one by --accelerator."
        )
    return name


def notes_of(caught: Sequence[warnings.WarningMessage], *, says_sequence: bool) -> list[str]:
    """Warnings given while a scenario was made, once each; not of the usual sequence where another one is given."""
    notes = dict.fromkeys(str(warning.message) for warning in caught)
    return [note for note in notes if not (says_sequence and SEQUENCE_NOTE in note)]


def whole_number_of(things: str, value: int | float | str, name: str | None = None) -> int:
    """A count of things, as a number or a text.

    **Raises:** `InputError` for what is no whole number of at least 1.
    """
    count = parse_number(value, "1", name or things)
    if not (1.0 <= count <= 1e9 and count == int(count)):
        raise InputError(f"{name or things}: {value} is not a whole number of {things}. Give for example 64.")
    return int(count)


def tokens_of(tokens: int | float | str, what: str) -> float:
    """Tokens as a number; "15 T" means 15 T tokens.

    **Raises:** `InputError` for what is no positive number of tokens.
    """
    text = f"{tokens} token" if isinstance(tokens, str) and "tok" not in tokens.lower() else tokens
    amount = parse_number(text, "token", what)
    if not (math.isfinite(amount) and amount > 0.0):
        raise InputError(f'{what}: {tokens} is not a number of tokens. Give for example "15 T".')
    return amount


def _tokens(value: float, kind: str, source: str) -> dict[str, Any]:
    return {"value": value, "unit": "token", "kind": kind, "source": source}


def _first_fitting(
    tables: Mapping[str, Any],
    chips: int,
    tokens: float,
    batch: int | float | str | None,
    load: Callable[[dict[str, Any]], Scenario],
) -> tuple[Scenario, _Layout, float]:
    """The scenario in the layout of fewest chips a replica that fits, the layout, and its batch [token]."""

    def loaded(layout: _Layout, size: float, source: str) -> Scenario:
        plan = {**tables["plan"], "batch": _tokens(size, "prior", source)}
        plan["layout"] = {**layout._asdict(), "microbatch": 1, "zero": 1}
        return load({**tables, "plan": plan})

    workload = loaded(_Layout(1, 1, 1, RECOMPUTATIONS[0]), 2.0**30, "given").system.workload
    experts, layers, heads = (float(count) for count in (workload.experts, workload.layers, workload.heads))
    asked = None if batch is None else tokens_of(batch, "batch")
    flops = 6.0 * float(workload.active_parameters) * tokens
    wanted = min(BATCH_COEFFICIENT * flops**BATCH_EXPONENT, MOST_BATCH) if asked is None else asked
    layouts = [
        _Layout(tensor, pipeline, expert, recomputation)
        for tensor, pipeline, expert, recomputation in product(*DEGREES, RECOMPUTATIONS)
        if heads % tensor == layers % pipeline == experts % expert == chips % (tensor * pipeline) == 0.0
        and (chips / pipeline) % expert == 0.0
    ]
    refused = ""
    for layout in sorted(layouts, key=lambda way: (way.group, way.expert, way.recomputation == "full", way.pipeline)):
        sequences = chips / layout.group * float(workload.sequence)
        size = max(1.0, round(wanted / sequences)) * sequences if asked is None else asked
        source = "given" if size == wanted else "0.2920 C^0.3271 (DeepSeek-AI 2024), whole sequences"
        try:
            scenario = loaded(layout, size, source)
        except InputError as error:
            refused = f" The last one was refused: {error}"
            continue
        with jax.enable_x64(True):
            largest = np.asarray(float(np.max(np.asarray(scenario.plan.batch))))
            needed = float(_needed_memory(scenario.system, scenario.plan, largest))
        if needed * FREE <= float(scenario.system.accelerator.memory_capacity):
            return scenario, layout, size
    raise InputError(
        f"chips: in no layout of {chips:g} chips does the model fit into the memory. Give more chips, or state a "
        f"layout in a scenario of your own.{refused}"
    )


@jax.jit
def _needed_memory(system: TrainingSystem, plan: TrainingPlan, batch: jax.Array) -> jax.Array:
    return step_work(system, plan, batch).memory.total
