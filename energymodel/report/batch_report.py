"""How many tokens does the batch waste, how sure is that, and how far is it from the data behind the law?"""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from energymodel.learning.critical_batch import PowerCriticalBatch
from energymodel.scenarios.scenario import Scenario, leaf_paths
from energymodel.scenarios.uncertain_numbers import distributions
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.units import format_quantity

SHARES = (0.05, 0.95)
LAW = "critical_batch"


def batch_lines(scenario: Scenario, plan: TrainingPlan, outcome: TrainingOutcome) -> list[str]:
    """The penalty of the largest batch with its 90 % interval, and how far batch and tokens are from tested ones.

    The numbers of the law count as independent: the interval is the root of the sum of squares of what each does to
    the logarithm of the tokens wasted. The tokens of a checkpoint, `system.tokens_seen`, count as in the model: a late
    batch wastes less than an early one. Empty for a law without a tested range.
    """
    path, law = _law_of(scenario.system.learning, "system.learning")
    batch, tokens, seen = float(np.max(plan.batch)), float(outcome.tokens), float(scenario.system.tokens_seen)
    if not isinstance(law, PowerCriticalBatch) or not math.isfinite(tokens):
        return []
    values = {f"{path}.{name}": float(getattr(law, name)) for name in _fields(law)}
    known = {one: found for one, found in distributions(scenario, _values(scenario)).items() if one in values}
    with jax.enable_x64(True):
        wasted = _log_waste(law, batch, tokens, seen)
        moved = {
            one: [
                _log_waste(dataclasses.replace(law, **{one.rpartition(".")[2]: np.asarray(end)}), batch, tokens, seen)
                - wasted
                for end in found.quantiles(values[one], SHARES)
            ]
            for one, found in known.items()
            if found.has_quantiles
        }
    low = wasted - math.hypot(*(min(*ends, 0.0) for ends in moved.values()), 0.0)
    high = wasted + math.hypot(*(max(*ends, 0.0) for ends in moved.values()), 0.0)
    spread = f" (90 % interval {_percent(low)} to {_percent(high)})" if moved else ""
    begun = f" after {format_quantity(seen, 'token')} seen" if seen > 0.0 else ""
    amount = format_quantity(batch, "token")
    learned, unused = (seen + tokens) / (1.0 + math.exp(wasted)), np.asarray(math.nan)
    whole, last = (format_quantity(float(of(learned, unused)), "token") for of in (law.run_level, law.instantaneous))
    lines = [
        f"A batch of {amount} takes {_percent(wasted)} more tokens than a small one{begun}{spread}. The critical "
        f"batch, which wastes about half of its tokens, is {whole} over the run and {last} at its end."
    ]
    beyond = [
        f"{what} of {format_quantity(value, 'token')} {'is' if what == 'the batch' else 'are'} "
        f"{value / tested:.3g} times the largest tested ({format_quantity(tested, 'token')})"
        for what, value, tested in (
            ("the batch", batch, float(law.tested_batch)),
            ("all tokens seen" if seen > 0.0 else "the tokens of the run", seen + tokens, float(law.tested_tokens)),
        )
        if value > tested
    ]
    if beyond:
        lines.append(f"The law of the critical batch extrapolates: {', '.join(beyond)}. The interval widens with both.")
    return lines


def _law_of(learning: Any, path: str) -> tuple[str, Any]:
    """The law of the critical batch in a learning component, inside others where it is, with its path."""
    while not hasattr(learning, LAW) and hasattr(learning, "whole"):
        learning, path = learning.whole, f"{path}.whole"
    return f"{path}.{LAW}", getattr(learning, LAW, None)


def _fields(law: PowerCriticalBatch) -> list[str]:
    return [field.name for field in dataclasses.fields(law)]


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


def _percent(log_waste: float) -> str:
    share = 100.0 * math.exp(log_waste)
    return f"{share:.2g} %" if share < 100.0 else f"{share:.0f} %"
