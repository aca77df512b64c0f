"""Where energy, time and money of a run go, and what makes its outputs uncertain: tables and charts of pages."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.economics.cost import Usage
from energymodel.learning.critical_batch import PowerCriticalBatch, small_batch_excess
from energymodel.learning.learning_rate import RateLaw
from energymodel.report.answer import Chart, Sentence, Table
from energymodel.report.answers.plan_fields import part_fields, total
from energymodel.report.answers.run_tables import Run, Runs, parts_table
from energymodel.report.answers.timeline import step_parts
from energymodel.report.cells import Column, number, present, share, spaced, words
from energymodel.scenarios.checks import NO_LOSS
from energymodel.scenarios.scenario import SYSTEM, Scenario, distributions
from energymodel.search.training_run import TrainingRun, in_float64
from energymodel.sweeps.outcome_spread import OutcomeSpread, directions_of, spread_along
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem, as_designed

SMALLEST = 5e-4  # elasticity that is shown
SMALLEST_SHARE = 0.005  # share of the variance of a cause that is shown
MODEL = "system.workload."  # another model is another question
ASSUMED, MEASURED = "assumed (prior)", "measured or published"
_ROUNDING = 1e-9  # of the whole
_SHARE = Column("share", kind="share", digits="two")


def detail_parts(
    scenario: Scenario,
    runs: Runs,
    objective: str,
    subtitle: str = "Largest elasticities, the plan held",
    *,
    money: bool = True,
) -> tuple[list[Table], list[Chart], list[Sentence]]:
    """Tables, charts and notes of pages: money, the stream of energy, a step, elasticities, causes of uncertainty.

    - `money`: whether money by part is wanted.
    """
    last, costs = list(runs.values())[-1], money_table(scenario, runs) if money else None
    flow, flow_chart = energy_flow(last.outcome)
    passes, timeline, of_step = step_parts(scenario, last)
    moved, bars = elasticities(elasticities_of_plan(scenario, last.plan, objective), objective, subtitle)
    why, shares = causes(scenario, last.spread, "energy") if last.spread is not None else (None, None)
    paid = parts_chart(costs, "money", "Money of the run by what it pays for") if costs and costs.rows else None
    tables = [table for table in present(costs, flow, passes, moved, why) if table.rows]
    return tables, present(paid, flow_chart, timeline, bars, shares), [of_step]


def spent(runs: Runs) -> tuple[list[Table], list[Chart]]:
    """Energy and step time of runs by where they go."""
    energy, step = parts_table("energy", "Energy", runs), parts_table("step_time", "Time of one step", runs, "full")
    return [energy, step], [
        parts_chart(energy, "energy", "Energy of the run by where it goes"),
        parts_chart(step, "step_time", "Time of one step by term"),
    ]


def parts_chart(table: Table, of: str, subtitle: str) -> Chart:
    """Bars of the parts of a whole, one for each run."""
    amounts = [column.name for column in table.columns if column.kind not in ("words", "share", "change")]
    title, axis = largest_parts(table, spaced(of)), spaced(of)
    return Chart("stack", title, table.name, "part", amounts, subtitle, label="share", total=of, axis=axis)


def largest_parts(table: Table, of: str) -> Sentence:
    """What the largest two parts take: "Switching takes 37 % of the energy; host takes 31 %"."""
    largest, *rest = table.series("share", "part")
    numbers, (first, *_) = {f"{of} first": largest[1:]}, largest
    text = f"{first[:1].upper()}{first[1:]} {_takes(first)} {{{of} first}} of the {of}"
    if rest and rest[0][2].value >= 0.05:
        numbers[f"{of} second"] = rest[0][1:]
        text += f"; {rest[0][0]} {_takes(rest[0][0])} {{{of} second}}"
    return Sentence(text, numbers)


def _takes(label: str) -> str:
    plural = label.endswith("s") or " and " in label or "," in label
    return "take" if plural else "takes"


def energy_flow(outcome: TrainingOutcome) -> tuple[Table, Chart]:
    """Energy from the grid to the operations that the model needs."""
    parts = {field.name: max(field.value, 0.0) for field in part_fields(outcome.energy)}
    titles = {field.name: field.title for field in part_fields(outcome.energy)}
    energy, switching = total(outcome.energy), titles["dynamic"]
    useful = min(float(outcome.euf) * energy, parts["dynamic"])
    groups = {
        "chips": ("dynamic", "static", "idle_wait", "memory"),
        "grid": ("host", "network"),
        "building": ("delivery_loss", "cooling", "other"),
    }
    streams = [
        ("grid", "chips", sum(parts[name] for name in groups["chips"])),
        ("chips", switching, parts["dynamic"]),
        (switching, "operations of the model", useful),
        (switching, "recomputation and losses", parts["dynamic"] - useful),
        *(("chips", titles[name], parts[name]) for name in groups["chips"][1:]),
        *(("grid", titles[name], parts[name]) for name in groups["grid"]),
        ("grid", "building", sum(parts[name] for name in groups["building"])),
        *(("building", titles[name], parts[name]) for name in groups["building"]),
    ]
    rows = [[source, target, value, value / energy] for source, target, value in streams if value > _ROUNDING * energy]
    columns = [words("from"), words("to"), Column("amount", unit="J", digits="two"), _SHARE]
    of_model = {"share": share(useful / energy if energy else 0.0)}
    title = Sentence("{share} of the energy switches operations that the model needs", of_model)
    table = Table("energy_flow", "Energy from the grid to bits", columns, rows, level="full")
    subtitle = "Energy from the grid to the bits that are switched"
    return table, Chart("flow", title, table.name, "from", ["amount"], subtitle, "to", label="share", total="energy")


def bits_sentence(run: Run) -> Sentence | None:
    """What a bit that the model absorbs takes, beside Landauer's limit."""
    units = {"information": "bit", "energy_per_bit": "J/bit", "landauer_multiple": "1"}
    numbers = {name: number(run.quantity(name), unit, digits="two") for name, unit in units.items()}
    if not all(np.isfinite(cell.value) for _, cell in numbers.values()):
        return None
    return Sentence(
        "The model absorbs about {information}, at {energy_per_bit} for each bit. All operations together take about "
        "{landauer_multiple} times the energy that erasing their bits needs at minimum (Landauer's limit).",
        numbers,
    )


def money_table(scenario: Scenario, runs: Runs) -> Table:
    """Money of runs by what it pays for; no rows where the last run costs nothing."""
    return costs_table({label: money_parts(scenario, run.plan, run.outcome) for label, run in runs.items()})


def costs_table(parts: Mapping[str, Mapping[str, float]]) -> Table:
    """Costs of runs by part [USD], the largest of the last run first, with their shares of it; rounding left out."""
    totals = {label: sum(of.values()) for label, of in parts.items()}
    label, last = list(parts.items())[-1]
    columns = [words("part", "")]
    columns += [Column("money" if len(parts) == 1 else label, label, "USD", digits="two") for label in parts]
    rows = [
        [part, *(of[part] if of[part] > _ROUNDING * totals[run] else 0.0 for run, of in parts.items())]
        for part in sorted(last, key=lambda part: -last[part])
        if last[part] > _ROUNDING * totals[label]
    ]
    rows = [[*row, row[-1] / sum(row[-1] for row in rows)] for row in rows]
    return Table("money_parts", "Money by what it pays for", [*columns, _SHARE], rows, level="full")


def money_parts(scenario: Scenario, plan: TrainingPlan, outcome: TrainingOutcome) -> dict[str, float]:
    """Money of a run by what it pays for [USD]; the parts add up to the money of the outcome."""
    with jax.enable_x64(True):
        return {name: float(part) for name, part in costs(*as_designed(scenario.system, plan), outcome).items()}


def costs(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome) -> dict[str, Any]:
    """Money of a run as it was designed, by what it pays for [USD]; the parts add up to the money of the outcome.

    A price adds up what chips, energy, power and time cost, so that each is the price of it alone. What the price of
    the chips leaves over are links, storage and plant.
    """
    price, chips = system.market.price, plan.chips + system.spare_chips(plan.spares)

    def cost(chip_price: Any, chips: Any, energy: Any, power: Any) -> Any:
        return price.cost(Usage(chip_price, chips, outcome.time, energy, power))

    waiting, rent = cost(0.0, 0.0, 0.0, 0.0), cost(0.0, chips, 0.0, 0.0)
    parts = {
        "chips and servers": cost(system.accelerator.price, chips, 0.0, 0.0) - rent,
        "rent of chips": rent - waiting,
        "energy": cost(0.0, 0.0, outcome.energy.total, 0.0) - waiting,
        "peak power and building": cost(0.0, 0.0, 0.0, outcome.power_peak) - waiting,
        "value of time": waiting,
    }
    return {**parts, "links, storage and plant": outcome.money - sum(parts.values())}


def elasticities_of_plan(scenario: Scenario, plan: TrainingPlan, objective: str) -> dict[str, float]:
    """Elasticity `d ln y / d ln x` of an output or objective by each number x of the system but the model's.

    The plan stays. Absolute temperatures and zeros have no elasticity.
    """
    with jax.enable_x64(True):
        run = in_float64(TrainingRun(scenario.system, plan))
        paths = [
            path
            for path, value in run.values.items()
            if path.startswith(SYSTEM) and not path.startswith(MODEL) and np.isfinite(value) and value
            if scenario.provenance[path].unit != "K" or path in run.differences
        ]
        steps = np.zeros((len(paths), len(run.vector)))
        for step, path in zip(steps, paths, strict=True):
            step[run.places[path]] = run.vector[run.places[path]]
        return dict(zip(paths, map(float, spread_along(run, steps).relative(objective)), strict=True))


def elasticities(by_path: dict[str, float], of: str, subtitle: str) -> tuple[Table, Chart | None]:
    """Elasticities, the largest first, and bars of the largest; no chart where all are zero."""
    order = sorted(by_path.items(), key=lambda pair: -abs(pair[1]))
    rows = [[path.removeprefix(SYSTEM), value] for path, value in order if abs(value) >= SMALLEST]
    columns = [words("number"), Column("elasticity", "percent per percent", digits="two")]
    table = Table("elasticities", f"What one percent changes: {spaced(of)}", columns, rows, level="full")
    return table, elasticity_chart(table, "elasticity", spaced(of), subtitle)


def elasticity_chart(table: Table, name: str, output: str, subtitle: str) -> Chart | None:
    """The largest elasticities of an output, whose column has this name."""
    title, axis = f"1 % more {{name}} changes {output} by {{largest}}", f"{output}: percent per percent of the number"
    look = {"least": SMALLEST, "read": lambda elasticity: number(elasticity / 100.0, kind="change")}
    return Chart.ranked(table, name, title, subtitle, axis, **look)


def causes(scenario: Scenario, spread: OutcomeSpread, name: str) -> tuple[Table, Chart | None]:
    """Which uncertain numbers make an output uncertain, by their share of its variance."""
    with jax.enable_x64(True):
        directions = directions_of(scenario, in_float64(TrainingRun(scenario.system, scenario.plan)))
    output, moved, axis = spaced(name), spread.relative(name), "share of the variance"
    variance, shares = float((moved**2).sum()), {}
    if variance and len(moved) == len(directions.names):
        for cause, change in zip(directions.names, moved, strict=True):
            shares[cause] = shares.get(cause, 0.0) + float(change) ** 2 / variance
    rows = [
        [cause.removeprefix(SYSTEM), part, ASSUMED if directions.is_prior[cause] else MEASURED]
        for cause, part in sorted(shares.items(), key=lambda pair: -pair[1])
    ]
    columns = [words("number"), Column("share", axis, kind="share"), words("origin", "")]
    table = Table("causes", f"What makes the {output} uncertain", columns, rows, level="full")
    of_priors = sum(part for cause, part in shares.items() if directions.is_prior[cause])
    title = f"{{largest}} of the variance of {output} comes from numbers that nobody measured"
    subtitle = f"Share of the variance of {output}, to first order"
    look = {"least": SMALLEST_SHARE, "read": lambda _: share(of_priors), "series": "origin"}
    return table, Chart.ranked(table, "share", title, subtitle, axis, **look)


_ENDS = (0.05, 0.95)
_LAW = "critical_batch"
_RATIOS = np.geomspace(1e-4, 10.0, 2001)  # batches over the critical one, among which the best is looked for
_AS_GOOD = 0.01  # of the tokens: batches that take so many more than the best are as good
_TESTED_EXCESS = 2.0  # tokens that a small batch adds, up to which this was measured


def learning_sentences(scenario: Scenario, plan: TrainingPlan, outcome: TrainingOutcome) -> list[Sentence]:
    """What the batch of a plan does to the loss, and the best learning rate at it; of fine-tuning nothing is known."""
    if scenario.is_fine_tuned:
        return [Sentence(f"{NO_LOSS[0].upper()}{NO_LOSS[1:]}")]
    return [*batch_sentences(scenario, plan, outcome), rate_sentence(scenario, plan)]


def critical_batch_law(scenario: Scenario) -> tuple[Any, str]:
    """The law of the critical batch, which may stand inside others, and its path."""
    learning: Any = scenario.system.learning
    path = "system.learning"
    while not hasattr(learning, _LAW) and hasattr(learning, "base"):
        learning, path = learning.base, f"{path}.base"
    return getattr(learning, _LAW, None), f"{path}.{_LAW}"


def batch_sentences(scenario: Scenario, plan: TrainingPlan, outcome: TrainingOutcome) -> list[Sentence]:
    """Tokens that the largest batch takes beside the best one, and how far batch and tokens are from tested ones.

    The numbers of the law count as independent: intervals are roots of the sum of squares of what each does. The tokens
    of a checkpoint, `system.tokens_seen`, count as in the model: a late batch wastes less than an early one. Empty for
    a law without a tested range.
    """
    law, path = critical_batch_law(scenario)
    batch, tokens, seen = float(np.max(plan.batch)), float(outcome.tokens), float(scenario.system.tokens_seen)
    if not isinstance(law, PowerCriticalBatch) or not math.isfinite(tokens):
        return []

    def uncertain(law: PowerCriticalBatch) -> Any:
        cost = _batch_cost(law, batch, tokens, seen)
        return jnp.stack([cost.wasted, jnp.log(cost.best)])

    with jax.enable_x64(True):
        cost = BatchCost(*map(float, _batch_cost(law, batch, tokens, seen)))
    (wasted, *ends), logs = _with_ends(scenario, law, path, jax.jit(uncertain))
    numbers = {
        "batch": number(batch, "token"),
        "seen": number(seen, "token"),
        "wasted": share((max(wasted, 0.0), *(max(end, 0.0) for end in ends))),
        "best": number(tuple(map(math.exp, logs)), "token"),
        "low": number(cost.as_good_from, "token", digits="two"),
        "high": number(cost.as_good_to, "token", digits="two"),
        "whole": number(cost.critical, "token", digits="two"),
        "last": number(cost.critical_last, "token", digits="two"),
        "excess": share(cost.excess),
        "tested": share(_TESTED_EXCESS),
    }
    begun = " after {seen} seen" if seen > 0.0 else ""
    two_sided = float(law.small_batch_share) > 0.0
    text = f"A batch of {{batch}} takes {{wasted:i}} more tokens than {'the best one' if two_sided else 'a small one'}"
    text += f"{begun}. " if not two_sided else f"{begun}, {{best:i}}; from {{low}} to {{high}} it is within 1 %. "
    text += "The critical batch, which wastes about half of its tokens, is {whole} over the run and {last} at its end."
    if cost.excess > _TESTED_EXCESS:
        text += " Nothing was measured at so small a batch: it adds {excess} of the tokens, tested up to {tested}."
    penalty = Sentence(text, numbers)
    all_tokens = "all tokens seen" if seen > 0.0 else "the tokens of the run"
    tested = {"the batch": ("is", batch, law.tested_batch), all_tokens: ("are", seen + tokens, law.tested_tokens)}
    beyond, ratios = [], {}
    for what, (verb, value, most) in tested.items():
        if value > (limit := float(most)):
            ratios |= {f"{what} value": number(value, "token"), f"{what} limit": number(limit, "token")}
            ratios[f"{what} times"] = number(value / limit)
            many = f"{{{what} times}} times the largest tested ({{{what} limit}})"
            beyond.append(f"{what} of {{{what} value}} {verb} {many}")
    text = f"The law of the critical batch extrapolates: {', '.join(beyond)}. The interval widens with both."
    return [penalty, *([Sentence(text, ratios)] if beyond else [])]


def rate_sentence(scenario: Scenario, plan: TrainingPlan) -> Sentence:
    """The best peak learning rate at the batch of a plan, with its interval, and what another rate of the run costs."""
    recipe = scenario.system.recipe

    def log_best(law: RateLaw) -> Any:
        return jnp.log(dataclasses.replace(recipe, best_rate=law).best_peak(parameters, plan.batch))[None]

    with jax.enable_x64(True):
        parameters = scenario.system.workload.active_layer_parameters
        (log_rate,) = _with_ends(scenario, recipe.best_rate, "system.recipe.best_rate", log_best)
        added, batch = float(recipe.learning_rate.mismatch()), float(np.exp(np.mean(np.log(plan.batch))))
    ratio = float(recipe.learning_rate.ratio)
    numbers = {
        "best": number(tuple(map(math.exp, log_rate))),
        "batch": number(batch, "token"),
        "ratio": number(ratio),
        "added": number(added, "nat/token", digits="two"),
    }
    text = "The best peak learning rate of AdamW at a batch of {batch} is about {best:i}"
    text += "." if ratio == 1.0 else "; that of the run, {ratio} times the best, adds {added} to the loss."
    return Sentence(text, numbers)


def _with_ends(
    scenario: Scenario, component: Any, path: str, numbers: Callable[[Any], Any]
) -> list[tuple[float, float, float]]:
    """Numbers of a component, each with the ends of its 90 % interval."""
    spreads, moved = distributions(scenario, TrainingRun(scenario.system, scenario.plan).values), []
    with jax.enable_x64(True):
        middle = np.asarray(numbers(component))
        for field in dataclasses.fields(component):
            spread = spreads.get(f"{path}.{field.name}")
            if spread is not None and spread.has_quantiles:
                ends = spread.quantiles(float(getattr(component, field.name)), _ENDS)
                others = [dataclasses.replace(component, **{field.name: np.asarray(end)}) for end in ends]
                moved.append([np.asarray(numbers(other)) - middle for other in others])
    below = np.sqrt(sum(np.minimum(np.min(ends, axis=0), 0.0) ** 2 for ends in moved))
    above = np.sqrt(sum(np.maximum(np.max(ends, axis=0), 0.0) ** 2 for ends in moved))
    return [*zip(*(np.asarray(of).tolist() for of in (middle, middle - below, middle + above)), strict=True)]


class BatchCost(NamedTuple):
    """Tokens that a batch takes more than the best one [1], the best one and those within 1 % of it, critical batches
    over the run and at its end [token], and what the law of small batches adds [1].
    """

    wasted: Any
    best: Any
    as_good_from: Any
    as_good_to: Any
    critical: Any
    critical_last: Any
    excess: Any


@jax.jit
def _batch_cost(law: PowerCriticalBatch, batch: Any, tokens: Any, seen: Any) -> BatchCost:
    """Of the rest of a run at constant batches, see `ContinuedLearning`."""
    end, unused = seen + tokens, jnp.asarray(jnp.nan)

    def needed(batch: Any) -> Any:
        """Tokens over effective ones."""
        whole, before = (
            progress * (law.run_penalty(batch, progress, unused) - 1.0) for progress in (end, jnp.maximum(seen, 1.0))
        )
        return 1.0 + (whole - jnp.where(seen > 0.0, before, 0.0)) / tokens

    critical = law.run_level(end, unused)
    batches = critical * _RATIOS
    at_batches, own = needed(batches), needed(batch)
    lowest = jnp.min(at_batches)
    as_good = jnp.where(at_batches <= (1.0 + _AS_GOOD) * lowest, batches, jnp.nan)
    learned = end / jnp.maximum(own, 1.0)
    return BatchCost(
        wasted=own / lowest - 1.0,
        best=batches[jnp.argmin(at_batches)],
        as_good_from=jnp.nanmin(as_good),
        as_good_to=jnp.nanmax(as_good),
        critical=law.run_level(learned, unused),
        critical_last=law.instantaneous(learned, unused),
        excess=small_batch_excess(batch, critical, law.small_batch_share),
    )
