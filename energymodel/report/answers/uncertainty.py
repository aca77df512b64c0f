"""What makes an output uncertain: elasticities, shares of its variance, and the tokens that the batch wastes."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.learning.critical_batch import PowerCriticalBatch
from energymodel.report.answer import FULL, Chart, Column, Sentence, Table, number, share, spaced, words
from energymodel.scenarios.priors import SYSTEM, distributions
from energymodel.scenarios.scenario import Scenario, leaf_paths
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.outcome_spread import OutcomeSpread, directions_of, in_float64, spread_along
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan

BARS = 12
SMALLEST = 5e-4  # elasticity that is shown
SMALLEST_SHARE = 0.005  # share of the variance of a cause that is shown
MODEL = "system.workload."  # another model is another question
ASSUMED, MEASURED = "assumed (prior)", "measured or published"


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
    output, order = spaced(of), sorted(by_path.items(), key=lambda pair: -abs(pair[1]))
    rows = [[path.removeprefix(SYSTEM), value] for path, value in order if abs(value) >= SMALLEST]
    columns = [words("number"), Column("elasticity", "percent per percent", digits="two")]
    table = Table("elasticities", f"What one percent changes: {output}", columns, rows, level=FULL)
    if not rows:
        return table, None
    change = {"change": number(rows[0][1] / 100.0, kind="change")}
    title = Sentence(f"1 % more {rows[0][0]} changes {output} by {{change}}", change)
    largest, axis = [row[0] for row in rows[:BARS]], f"{output}: percent per percent of the number"
    return table, Chart("bars", title, table.name, "number", ["elasticity"], subtitle, only=largest, axis=axis)


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
    largest = [cause for cause, part, _ in rows if part >= SMALLEST_SHARE][:BARS]
    if not largest:
        return table, None
    of_priors = share(sum(part for cause, part in shares.items() if directions.is_prior[cause]))
    title = Sentence(
        f"{{share}} of the variance of {output} comes from numbers that nobody measured", {"share": of_priors}
    )
    subtitle = f"Share of the variance of {output}, to first order"
    return table, Chart("bars", title, "causes", "number", ["share"], subtitle, "origin", only=largest, axis=axis)


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
    moved = []
    leaves = jax.tree.leaves((scenario.system, scenario.plan))
    paths = [*leaf_paths(scenario.system, "system"), *leaf_paths(scenario.plan, "plan")]
    values = {leaf_path: float(np.mean(leaf)) for leaf_path, leaf in zip(paths, leaves, strict=True)}
    spreads = distributions(scenario, values)
    for field in dataclasses.fields(law):
        spread = spreads.get(f"{path}.{field.name}")
        if spread is not None and spread.has_quantiles:
            ends = spread.quantiles(float(getattr(law, field.name)), _ENDS)
            others = [dataclasses.replace(law, **{field.name: np.asarray(end)}) for end in ends]
            with jax.enable_x64(True):
                moved.append([float(_law_numbers(other, batch, tokens, seen)[0]) - wasted for other in others])
    low = wasted - math.hypot(*(min(*ends, 0.0) for ends in moved), 0.0)
    high = wasted + math.hypot(*(max(*ends, 0.0) for ends in moved), 0.0)
    numbers = {name: number(value, "token") for name, value in {"batch": batch, "seen": seen}.items()}
    numbers["whole"] = number(critical, "token", digits="two")
    numbers["last"] = number(critical_last, "token", digits="two")
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
            index = len(beyond)
            ratios |= {f"value{index}": number(value, "token"), f"limit{index}": number(limit, "token")}
            ratios[f"times{index}"] = number(value / limit)
            text = f"{what} of {{value{index}}} {verb} {{times{index}}} times the largest tested ({{limit{index}}})"
            beyond.append(text)
    text = f"The law of the critical batch extrapolates: {', '.join(beyond)}. The interval widens with both."
    return [penalty, *([Sentence(text, ratios)] if beyond else [])]


@jax.jit
def _law_numbers(law: PowerCriticalBatch, batch: float, tokens: float, seen: float) -> tuple[Any, Any, Any]:
    """Logarithm of what a batch wastes of each token of the rest of a run, see `ContinuedLearning`; critical batch
    over the run and at its end [token].
    """
    end, unused = seen + tokens, jnp.asarray(jnp.nan)
    waste = [progress * (law.run_penalty(batch, progress, unused) - 1.0) for progress in (end, jnp.maximum(seen, 1.0))]
    log_waste = jnp.log((waste[0] - jnp.where(seen > 0.0, waste[1], 0.0)) / tokens)
    learned = end / (1.0 + jnp.exp(log_waste))
    return log_waste, law.run_level(learned, unused), law.instantaneous(learned, unused)
