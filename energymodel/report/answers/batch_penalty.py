"""Tokens that the batch wastes, with their interval, and the distance from the data behind the law."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from energymodel.learning.critical_batch import PowerCriticalBatch
from energymodel.report.answer import Column, Quantity, Sentence
from energymodel.scenarios.priors import distributions
from energymodel.scenarios.scenario import Scenario, leaf_paths
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan

SHARES = (0.05, 0.95)
LAW = "critical_batch"
TOKENS = Column("", "", "token")
ABOUT = Column("", "", "token", digits="two")


def batch_sentences(scenario: Scenario, plan: TrainingPlan, outcome: TrainingOutcome) -> list[Sentence]:
    """The penalty of the largest batch with its 90 % interval, and how far batch and tokens are from tested ones.

    The numbers of the law count as independent: the interval is the root of the sum of squares of what each does to
    the logarithm of the tokens wasted. The tokens of a checkpoint, `system.tokens_seen`, count as in the model: a late
    batch wastes less than an early one. Empty for a law without a tested range.
    """
    path, law = _law_of(scenario.system.learning, "system.learning")
    batch, tokens, seen = float(np.max(plan.batch)), float(outcome.tokens), float(scenario.system.tokens_seen)
    if not isinstance(law, PowerCriticalBatch) or not math.isfinite(tokens):
        return []
    values = {f"{path}.{field.name}": float(getattr(law, field.name)) for field in dataclasses.fields(law)}
    known = {name: spread for name, spread in distributions(scenario, _values(scenario)).items() if name in values}
    with jax.enable_x64(True):
        wasted = _log_waste(law, batch, tokens, seen)
        moved = {
            name: [
                _log_waste(dataclasses.replace(law, **{name.rpartition(".")[2]: np.asarray(end)}), batch, tokens, seen)
                - wasted
                for end in spread.quantiles(values[name], SHARES)
            ]
            for name, spread in known.items()
            if spread.has_quantiles
        }
    low = wasted - math.hypot(*(min(*ends, 0.0) for ends in moved.values()), 0.0)
    high = wasted + math.hypot(*(max(*ends, 0.0) for ends in moved.values()), 0.0)
    ends = (math.exp(low), math.exp(high)) if moved else (None, None)
    learned, unused = (seen + tokens) / (1.0 + math.exp(wasted)), np.asarray(math.nan)
    whole, last = (float(of(learned, unused)) for of in (law.run_level, law.instantaneous))
    numbers = {name: (TOKENS, Quantity(value)) for name, value in {"batch": batch, "seen": seen}.items()}
    numbers |= {name: (ABOUT, Quantity(value)) for name, value in {"whole": whole, "last": last}.items()}
    numbers["wasted"] = Column("", "", kind="share", digits="two"), Quantity(math.exp(wasted), *ends)
    begun = " after {seen} seen" if seen > 0.0 else ""
    penalty = Sentence(
        f"A batch of {{batch}} takes {{wasted:i}} more tokens than a small one{begun}. The critical batch, which "
        "wastes about half of its tokens, is {whole} over the run and {last} at its end.",
        numbers,
    )
    tested = {
        "the batch": ("is", batch, float(law.tested_batch)),
        f"{'all tokens seen' if seen > 0.0 else 'the tokens of the run'}": (
            "are",
            seen + tokens,
            float(law.tested_tokens),
        ),
    }
    beyond, ratios = [], {}
    for what, (verb, value, limit) in tested.items():
        if value > limit:
            index = len(beyond)
            ratios |= {f"value{index}": (TOKENS, Quantity(value)), f"limit{index}": (TOKENS, Quantity(limit))}
            ratios[f"times{index}"] = Column("", ""), Quantity(value / limit)
            beyond.append(
                f"{what} of {{value{index}}} {verb} {{times{index}}} times the largest tested ({{limit{index}}})"
            )
    if not beyond:
        return [penalty]
    words = f"The law of the critical batch extrapolates: {', '.join(beyond)}. The interval widens with both."
    return [penalty, Sentence(words, ratios)]


def _law_of(learning: Any, path: str) -> tuple[str, Any]:
    """The law of the critical batch in a learning component, inside others where it is, with its path."""
    while not hasattr(learning, LAW) and hasattr(learning, "base"):
        learning, path = learning.base, f"{path}.base"
    return f"{path}.{LAW}", getattr(learning, LAW, None)


def _values(scenario: Scenario) -> dict[str, float]:
    """Numbers of the scenario by path; the mean of an array."""
    leaves = jax.tree.leaves((scenario.system, scenario.plan))
    paths = [*leaf_paths(scenario.system, "system"), *leaf_paths(scenario.plan, "plan")]
    return {path: float(np.mean(leaf)) for path, leaf in zip(paths, leaves, strict=True)}


def _log_waste(law: PowerCriticalBatch, batch: float, tokens: float, seen: float) -> float:
    """Logarithm of what a batch wastes of each token of the rest of a run, see `ContinuedLearning`."""

    def wasted(end: float) -> float:
        return end * float(law.run_penalty(batch, end, np.asarray(math.nan)) - 1.0) if end > 0.0 else 0.0

    return math.log((wasted(seen + tokens) - wasted(seen)) / tokens)
