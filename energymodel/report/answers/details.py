"""Where energy, time and money of a run go, and what makes its outputs uncertain: tables and charts of pages."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.economics.cost import Usage
from energymodel.learning.critical_batch import PowerCriticalBatch
from energymodel.report.answer import Chart, Sentence, Table
from energymodel.report.answers.plan_fields import part_fields, total
from energymodel.report.answers.run_tables import Run, Runs, parts_table
from energymodel.report.answers.timeline import step_parts
from energymodel.report.cells import FULL, Column, number, present, share, spaced, words
from energymodel.scenarios.scenario import SYSTEM, Scenario, distributions
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.outcome_spread import OutcomeSpread, directions_of, in_float64, spread_along
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
    energy, step = parts_table("energy", "Energy", runs), parts_table("step_time", "Time of one step", runs, FULL)
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
    table = Table("energy_flow", "Energy from the grid to bits", columns, rows, level=FULL)
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
    return Table("money_parts", "Money by what it pays for", [*columns, _SHARE], rows, level=FULL)


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
    table = Table("elasticities", f"What one percent changes: {spaced(of)}", columns, rows, level=FULL)
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
    table = Table("causes", f"What makes the {output} uncertain", columns, rows, level=FULL)
    of_priors = sum(part for cause, part in shares.items() if directions.is_prior[cause])
    title = f"{{largest}} of the variance of {output} comes from numbers that nobody measured"
    subtitle = f"Share of the variance of {output}, to first order"
    look = {"least": SMALLEST_SHARE, "read": lambda _: share(of_priors), "series": "origin"}
    return table, Chart.ranked(table, "share", title, subtitle, axis, **look)


_ENDS = (0.05, 0.95)
_LAW = "critical_batch"


def batch_sentences(scenario: Scenario, plan: TrainingPlan, outcome: TrainingOutcome) -> list[Sentence]:
    """The penalty of the largest batch with its 90 % interval, and how far batch and tokens are from tested ones.

    The numbers of the law count as independent: the interval is the root of the sum of squares of what each does to
    the logarithm of the tokens wasted. The tokens of a checkpoint, `system.tokens_seen`, count as in the model: a late
    batch wastes less than an early one. Empty for a law without a tested range.
    """
    learning: Any = scenario.system.learning
    path = "system.learning"
    while not hasattr(learning, _LAW) and hasattr(learning, "base"):  # the law stands inside others
        learning, path = learning.base, f"{path}.base"
    law, path = getattr(learning, _LAW, None), f"{path}.{_LAW}"
    batch, tokens, seen = float(np.max(plan.batch)), float(outcome.tokens), float(scenario.system.tokens_seen)
    if not isinstance(law, PowerCriticalBatch) or not math.isfinite(tokens):
        return []
    with jax.enable_x64(True):
        wasted, critical, critical_last = map(float, _law_numbers(law, batch, tokens, seen))
    moved, spreads = [], distributions(scenario, TrainingRun(scenario.system, scenario.plan).values)
    for field in dataclasses.fields(law):
        spread = spreads.get(f"{path}.{field.name}")
        if spread is not None and spread.has_quantiles:
            ends = spread.quantiles(float(getattr(law, field.name)), _ENDS)
            others = [dataclasses.replace(law, **{field.name: np.asarray(end)}) for end in ends]
            with jax.enable_x64(True):
                moved.append([float(_law_numbers(other, batch, tokens, seen)[0]) - wasted for other in others])
    low = wasted - math.hypot(*(min(*ends, 0.0) for ends in moved), 0.0)
    high = wasted + math.hypot(*(max(*ends, 0.0) for ends in moved), 0.0)
    numbers = {"batch": number(batch, "token"), "seen": number(seen, "token")}
    numbers |= {"whole": number(critical, "token", digits="two"), "last": number(critical_last, "token", digits="two")}
    numbers["wasted"] = share(tuple(map(math.exp, (wasted, low, high) if moved else (wasted,))))
    begun = " after {seen} seen" if seen > 0.0 else ""
    penalty = Sentence(
        f"A batch of {{batch}} takes {{wasted:i}} more tokens than a small one{begun}. The critical batch, which "
        "wastes about half of its tokens, is {whole} over the run and {last} at its end.",
        numbers,
    )
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


@jax.jit
def _law_numbers(law: PowerCriticalBatch, batch: Any, tokens: Any, seen: Any) -> tuple[Any, Any, Any]:
    """Logarithm of what a batch wastes of each token of the rest of a run, see `ContinuedLearning`; critical batch
    over the run and at its end [token].
    """
    end, unused = seen + tokens, jnp.asarray(jnp.nan)
    waste = [progress * (law.run_penalty(batch, progress, unused) - 1.0) for progress in (end, jnp.maximum(seen, 1.0))]
    log_waste = jnp.log((waste[0] - jnp.where(seen > 0.0, waste[1], 0.0)) / tokens)
    learned = end / (1.0 + jnp.exp(log_waste))
    return log_waste, law.run_level(learned, unused), law.instantaneous(learned, unused)
