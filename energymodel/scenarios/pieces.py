"""How do a model, an accelerator, a number of chips and of tokens become a scenario?"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
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
ROOM = 1.05  # of the memory, left free
MOST_TENSOR, MOST_PIPELINE, MOST_EXPERT = 8, 64, 64
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
    count = parse_number(chips, "1", "chips")
    amount = tokens_of(tokens, "tokens")
    if not (count >= 1.0 and count == int(count)):
        raise InputError(f"chips: {chips} is not a whole number of chips. Give for example 64.")
    tables = common_tables(accelerator, count, f"{title_of_model(model)} on {count:,.0f} {accelerator}", name)
    length = {} if sequence is None else {"sequence": _quantity(sequence, "sequence")}
    tables["system"]["workload"] = {"preset": model, **length}
    tables["plan"] = {"chips": count, "goal": {"tokens": _quantity(tokens, "tokens")}}
    facility = tables["system"]["facility"]
    assumed = [f"The building is {facility['preset']}, and may draw {facility['power_limit']}."]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found, layout, tokens_of_batch = _first_fitting(tables, count, amount, batch, (tuple(changes), cluster))
    assumed += told_of(told, says_sequence=sequence is not None)
    system = found.tables["system"]
    parts = ("node", "network", "software", "market", "reliability", "learning", "recipe")
    assumed += [f"{part}: {system[part].get('title', '')}" for part in parts if system[part].get("title")]
    if batch is None:
        assumed.append(f"The batch of {tokens_of_batch:,.0f} tokens follows from the operations of the run (a prior).")
    assumed.append(
        f"The layout is the first that fits: tensor {layout.tensor}, pipeline {layout.pipeline}, expert "
        f"{layout.expert}, {layout.recomputation} recomputation, ZeRO 1. `energymodel optimize` finds a better one."
    )
    return Pieces(found, tuple(assumed))


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
    parts = cluster_parts(cluster)["system"]
    stated = parts["accelerator"]
    name = stated.get("preset") if isinstance(stated, Mapping) else stated
    if not isinstance(name, str):
        raise InputError(
            f"cluster {cluster}: its accelerator is described by numbers alone. Name one by --accelerator."
        )
    return name


def told_of(warned: Sequence[warnings.WarningMessage], *, says_sequence: bool) -> list[str]:
    """What was warned of while a scenario was made, once each; not the usual sequence where another one is given."""
    sentences = dict.fromkeys(str(one.message) for one in warned)
    return [one for one in sentences if not (says_sequence and SEQUENCE_NOTE in one)]


def tokens_of(given: int | float | str, what: str) -> float:
    """Tokens as a number; "15 T" means 15 T tokens.

    **Raises:** `InputError` for what is no positive number of tokens.
    """
    text = f"{given} token" if isinstance(given, str) and "tok" not in given.lower() else given
    amount = parse_number(text, "token", what)
    if not (math.isfinite(amount) and amount > 0.0):
        raise InputError(f'{what}: {given} is not a number of tokens. Give for example "15 T".')
    return amount


def _quantity(given: int | float | str, what: str) -> dict[str, Any]:
    return {"value": tokens_of(given, what), "unit": "token", "kind": "given", "source": "given"}


def _first_fitting(
    tables: Mapping[str, Any],
    chips: float,
    tokens: float,
    batch: int | float | str | None,
    laid_over: tuple[Sequence[str], str | Path | None],
) -> tuple[Scenario, _Layout, float]:
    """The scenario in the layout of fewest chips a replica that fits, the layout, and its batch [token].

    Changes and a cluster are laid over each.
    """
    plain = _with_layout(tables, _Layout(1, 1, 1, RECOMPUTATIONS[0]), None, None)
    workload = load_scenario(plain, *laid_over).system.workload
    experts, layers, heads = (float(one) for one in (workload.experts, workload.layers, workload.heads))
    asked = None if batch is None else tokens_of(batch, "batch")
    flops = 6.0 * float(workload.active_parameters) * tokens
    wanted = min(BATCH_COEFFICIENT * flops**BATCH_EXPONENT, MOST_BATCH) if asked is None else asked
    refused = ""
    for layout in _layouts(chips, experts, layers, heads):
        data = chips / layout.group
        each = data * float(workload.sequence)
        size = asked if asked is not None else max(1.0, round(wanted / each)) * each
        try:
            scenario = load_scenario(_with_layout(tables, layout, size, wanted), *laid_over)
        except InputError as error:
            refused = str(error)
            continue
        if _room(scenario) >= 0.0:
            return scenario, layout, size
    reason = f" The last one was refused: {refused}" if refused else ""
    raise InputError(
        f"chips: in no layout of {chips:g} chips does the model fit into the memory. Give more chips, or state a "
        f"layout in a scenario of your own.{reason}"
    )


def _layouts(chips: float, experts: float, layers: float, heads: float) -> Iterator[_Layout]:
    """Layouts of few chips a replica first; selective recomputation before full."""
    tensors = [2**power for power in range(4) if 2**power <= MOST_TENSOR and heads % 2**power == 0.0]
    pipelines = [one for one in range(1, MOST_PIPELINE + 1) if layers % one == 0.0]
    spread = [2**power for power in range(7) if 2**power <= min(experts, MOST_EXPERT) and experts % 2**power == 0.0]
    found = [
        _Layout(tensor, pipeline, expert, recomputation)
        for tensor in tensors
        for pipeline in pipelines
        for expert in (spread if experts > 1.0 else [1])
        for recomputation in RECOMPUTATIONS
        if chips % (tensor * pipeline) == 0.0 and (chips / pipeline) % expert == 0.0
    ]
    order = {name: place for place, name in enumerate(RECOMPUTATIONS)}
    return iter(sorted(found, key=lambda one: (one.group, one.expert, order[one.recomputation], one.pipeline)))


def _with_layout(
    tables: Mapping[str, Any], layout: _Layout, batch: float | None, wanted: float | None
) -> dict[str, Any]:
    """The tables with a layout, and a batch that is given or follows from the law."""
    degrees = {"tensor": layout.tensor, "pipeline": layout.pipeline, "expert": layout.expert, "microbatch": 1}
    source = "given" if wanted is None or batch == wanted else "0.2920 C^0.3271 (DeepSeek-AI 2024), whole sequences"
    size = {"value": 2.0**30 if batch is None else batch, "unit": "token", "kind": "prior", "source": source}
    plan = {**tables["plan"], "batch": size}
    plan["layout"] = {**degrees, "zero": 1, "recomputation": layout.recomputation}
    return {**tables, "plan": plan}


def _room(scenario: Scenario) -> float:
    """Logarithm of the memory of a chip over what the plan needs, with some left free."""
    with jax.enable_x64(True):
        batch = float(np.max(np.asarray(scenario.plan.batch)))
        return float(_memory_room(scenario.system, scenario.plan, jnp.asarray(batch))) - math.log(ROOM)


@jax.jit
def _memory_room(system: TrainingSystem, plan: TrainingPlan, batch: jax.Array) -> jax.Array:
    return jnp.log(system.accelerator.memory_capacity / step_work(system, plan, batch).memory.total)
