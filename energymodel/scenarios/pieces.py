"""Scenarios of a model, an accelerator, a number of chips and of tokens, with stated defaults for the rest."""

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from energymodel.errors import InputError
from energymodel.readers.model_config import SEQUENCE_NOTE
from energymodel.scenarios.clusters import UNFITTED, cluster_parts
from energymodel.scenarios.components import resolve
from energymodel.scenarios.files import MODEL_FILE, companions, merge, model_source
from energymodel.scenarios.fine_tuning import adaptation_changes, samples_of
from energymodel.scenarios.layers import recomputation_words
from energymodel.scenarios.question import BATCH
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.system.accelerator import Accelerator
from energymodel.system.layouts import FIELDS, fastest_layout
from energymodel.system.outputs import parse_number
from energymodel.system.plan import ParallelLayout
from energymodel.system.plan_rules import WHOLE, microbatch_tokens
from energymodel.units import format_quantity

LIQUID = 900.0  # W: chips of more power are cooled by liquid in their vendors' systems
BUILDING = 3.0  # power of the building over that of the chips: more than any plan draws, with
SMALLEST = 250.0  # W: of a chip, at least that counts, since host and fans draw as much
BATCH_COEFFICIENT, BATCH_EXPONENT = 0.2920, 0.3271
"""Of the best batch [token] by the operations of a run, `0.2920 C^0.3271` [DeepSeek-AI 2024, arXiv 2401.02954]."""
MOST_BATCH = 2.0**24  # token, as large runs have taken
DIVISIBLE = 2.0**17 * 3**2 * 5**3 * 7 * 11 * 13  # token per chip: whole micro-batches of most sequences
USUAL_SAMPLES = 16  # of a batch of fine-tuning, as the trainers' examples have
USUAL = {"embedding_balanced": 1.0}  # of a layout: embedding and output head may take slots of a pipeline


class Pieces(NamedTuple):
    """A scenario, what was assumed for it, one sentence each, and whether anything said how many tokens the run has."""

    scenario: Scenario
    assumed: tuple[str, ...]
    says_tokens: bool = True


def scenario_of_pieces(
    model: str,
    accelerator: str,
    chips: int | float | str,
    tokens: int | float | str,
    *,
    batch: int | float | str | None = None,
    sequence: int | float | str | None = None,
    framework: str | None = None,
    cluster: str | Path | None = None,
    changes: Sequence[str] = (),
    tuning: Mapping[str, Any] | None = None,
    name: str = "own",
) -> Pieces:
    """A scenario with stated defaults for all that is not given.

    Machine and software are the cluster of the accelerator and the framework that nobody has fitted, unless another
    one is given; prices, region and reliability those of most scenarios. The building is cooled by air below 900 W a
    chip, else by liquid, and is large enough. The batch is that of DeepSeek's law, and the layout the fastest that fits
    (`fastest_layout`), but for its fields that `changes` state. Searches keep a batch that is given, unless it is to
    vary.

    **Arguments:**

    - `model`: a preset, or the path of a `config.json`.
    - `accelerator`: a preset; `chips`: their number; `tokens` of the run, such as `"15 T"`.
    - `batch`, `sequence` of the training: tokens.
    - `framework`: a preset among software, Megatron-LM unless given; a cluster has its own.
    - `cluster`, `changes`: as in `load_scenario`.
    - `tuning`: words of fine-tuning, as `{"tuning": "qlora", "rank": 16, "optimizer": "paged_adamw_8bit"}`; then the
      framework is Hugging Face's Trainer unless given, and the batch 16 samples. `samples`, `mean_length`, `epochs` and
      `padding` say the tokens of the run instead of `tokens`; then the sequence is that of the longest sample.

    **Raises:** `InputError` for a name or a number that cannot be, and where no layout fits.
    """
    model, words = model_source(model), dict(tuning or {})
    given = {path.strip(): value for path, _, value in (change.partition("=") for change in changes)}
    micro = given.get("plan.layout.microbatch")
    whole = None if sequence is None else tokens_of(sequence, "sequence")
    samples = samples_of(words, whole, None if micro is None else whole_number_of("sequences", micro, "microbatch"))
    if samples is not None and whole is not None:
        words["longest"], tokens, sequence = samples.longest, samples.tokens, samples.sequence
        batch = None if batch is None else tokens_of(batch, "batch") * samples.sequence / whole
    if words.get("tuning") is not None:
        changes, framework = (
            [*adaptation_changes(words), *changes],
            framework or ("hugging-face" if cluster is None else None),
        )
        if batch is None and whole is not None:
            batch = max(USUAL_SAMPLES, whole_number_of("chips", chips)) * tokens_of(sequence or whole, "sequence")
    count, amount = whole_number_of("chips", chips), tokens_of(tokens, "tokens")
    tables = common_tables(accelerator, float(count), f"{title_of_model(model)} on {count:,} {accelerator}", name)
    length = {} if sequence is None else {"sequence": _tokens(tokens_of(sequence, "sequence"), "given", "given")}
    tables["system"]["workload"] = {"preset": model, **length}
    tables["plan"] = {"chips": float(count), "goal": {"tokens": _tokens(amount, "given", "given")}}
    asked, machine = _batch_asked(batch, changes), cluster_of(accelerator, cluster, framework)
    draft = _draft(tables, changes, machine)
    size = usual_batch(draft, amount) if asked is None else asked
    plan = eqx.tree_at(lambda plan: plan.batch, draft.plan, np.array([size]))
    given_fields = draft.tables["plan"]["layout"].keys() & set(FIELDS)
    fixed = USUAL | {name: float(getattr(plan.layout, name)) for name in given_fields}
    best = fastest_layout(draft.system, plan, {name: (value, value) for name, value in fixed.items()})
    source = "0.2920 C^0.3271 (DeepSeek-AI 2024), rounded"
    tables["plan"]["batch"] = _tokens(size, "prior", source) if asked is None else _tokens(size, "given", "given")
    idle = {"sequence_parallel": best.layout.tensor, "embedding_balanced": best.layout.pipeline}  # of one rank
    used = [name for name in FIELDS if float(idle.get(name, 2.0)) > 1.0]
    tables["plan"]["layout"] = {name: float(getattr(best.layout, name)) for name in used}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scenario = load_scenario(tables, tuple(changes), machine)
    parts = ("software", "reliability", "learning", "recipe")
    titles = (scenario.tables["system"][part].get("title", part) for part in parts)
    assumed = [
        surroundings(scenario),
        f"Assumed of the run: {'; '.join(titles)}.",
        *notes_of(caught, says_sequence=sequence is not None),
    ]
    if asked is None:
        assumed.append(f"The batch of {size:,.0f} tokens follows from the operations of the run (a prior).")
    chosen = ("batch",) if asked is None else ()
    if not given_fields or best.considered > 1:
        chosen = ("layout", *chosen)
        assumed.append(
            f"The layout was chosen, not given: the fastest of {best.fitting:,} that fit in memory, of "
            f"{best.considered:,} that divide chips and batch: {layout_words(scenario.plan.layout)}."
        )
    scenario = scenario if asked is None else keeping_batch(scenario)
    return Pieces(dataclasses.replace(scenario, chosen=chosen), tuple(assumed))


def surroundings(scenario: Scenario) -> str:
    """What no file of a model or a training says: node, network, building, tariff and grid, in one sentence."""
    tables, price, carbon = scenario.tables["system"], scenario.system.market.price, scenario.system.market.carbon
    node, network, building = (tables[part].get("title", part) for part in ("node", "network", "facility"))
    tariff = getattr(price, "electricity", None)
    money = f"{format_quantity(float(tariff), 'USD/J')}, " if tariff is not None else ""
    limit = format_quantity(float(scenario.system.facility.power_limit), "W")
    market, grid = tables["market"].get("title", "the market"), format_quantity(float(carbon.intensity), "kg/J")
    return (
        f"Assumed of the site (--set changes it): {node}; {network}; {building}, at most {limit}; prices of {market}, "
        f"{money}grid {grid}."
    )


def _batch_asked(batch: int | float | str | None, changes: Sequence[str]) -> float | None:
    """The batch of an argument, or of the last change of it, the largest of a schedule [token]."""
    knots = [change.partition("=")[2] for change in changes if _is_of_batch(change)]
    if knots:
        return max(tokens_of(knot, BATCH) for knot in knots[-1].strip(" []").split(","))
    return None if batch is None else tokens_of(batch, "batch")


def _is_of_batch(change: str) -> bool:
    return change.partition("=")[0].strip() == BATCH


def _draft(tables: Mapping[str, Any], changes: Sequence[str], machine: str | Path) -> Scenario:
    """The scenario of a batch that any layout divides, without the warnings that the final one gives again."""
    plan = {**tables["plan"], "batch": _tokens(DIVISIBLE * tables["plan"]["chips"], "given", "given")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        others = [change for change in changes if not _is_of_batch(change)]
        return load_scenario({**tables, "plan": plan}, others, machine)


def keeping_batch(scenario: Scenario) -> Scenario:
    """The scenario whose searches keep its batch, if that is constant, of whole micro-batches, and not to vary."""
    plan = scenario.plan
    count = float(np.max(plan.batch)) / microbatch_tokens(scenario.system, plan)
    if plan.knots > 1 or scenario.optimize.knots or BATCH in scenario.optimize.vary:
        return scenario
    return scenario.with_question(fix=[BATCH]) if abs(count - round(count)) <= WHOLE * count else scenario


def cluster_of(
    accelerator: str, cluster: str | Path | None, framework: str | None, usual: str = "megatron"
) -> str | Path:
    """The cluster, or that of an accelerator and a framework that nobody has fitted.

    **Raises:** `InputError` where both a cluster and a framework are asked for.
    """
    if cluster is not None and framework is not None:
        raise InputError(f"framework: {framework}, but cluster {cluster} has its own. Leave out one of them.")
    return f"{accelerator}{UNFITTED}{framework or usual}" if cluster is None else cluster


def usual_batch(scenario: Scenario, tokens: float) -> float:
    """Tokens of a step by DeepSeek's law, rounded to what many layouts divide [token].

    To whole sequences for each chip, above three to an even number of them, or to half, a quarter and so on of the
    chips.
    """
    sequences = float(scenario.plan.chips) * float(scenario.system.workload.sequence)
    flops = 6.0 * float(scenario.system.workload.active_parameters) * tokens
    each = min(BATCH_COEFFICIENT * flops**BATCH_EXPONENT, MOST_BATCH) / sequences
    if each >= 1.0:
        step = 2.0 ** max(0, math.floor(math.log2(each)) - 1)
        return round(each / step) * step * sequences
    count = round(float(scenario.plan.chips))
    most = (count & -count).bit_length() - 1  # factors of two among the chips
    return sequences / 2.0 ** min(round(-math.log2(each)), most)


def layout_words(layout: ParallelLayout) -> str:
    """Degrees, ZeRO stage and recomputation of a layout."""
    degrees = ("pipeline", "virtual_stages", "context", "expert")
    words = [f"{name.replace('_', ' ')} {size:g}" for name in degrees if (size := float(getattr(layout, name))) > 1.0]
    stage = round(float(layout.shard_optimizer + layout.shard_gradients + layout.shard_parameters))
    kind = recomputation_words(layout).replace("none", "no")
    words = [f"tensor {float(layout.tensor):g}", *words, f"micro-batch {float(layout.microbatch):g}", f"ZeRO {stage}"]
    return f"{', '.join(words)}, {kind} recomputation"


def common_tables(accelerator: str, chips: float, title: str, name: str) -> dict[str, Any]:
    """What scenarios on an accelerator share: all but the model and the plan.

    **Raises:** `InputError` for an accelerator that is unknown, or that has no node and network of its own.
    """
    rated = resolve(accelerator, Accelerator, "accelerator")["rated_power"]["value"]
    if missing := [part for part in ("node", "network") if part not in companions(accelerator)]:
        raise InputError(
            f"accelerator {accelerator}: no {missing[0]} belongs to it. State one in a scenario of your own."
        )
    building = f"{BUILDING * max(rated, SMALLEST) * chips / 1e6:.6g} MW"
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
