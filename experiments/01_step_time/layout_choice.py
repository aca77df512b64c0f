"""What a chosen layout loses against the fastest measured one, with and without the rule of `optimize`.

The rule keeps the own layout unless another one is faster with a probability of 90 %, here by the errors that the step
times of both have of their own; `optimize` draws the constants besides (`energymodel.search.layout_choice`), so that it
leaves the own layout more seldom where they are uncertain.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from held_out_groups import Error
from scipy.special import ndtr

from energymodel.scenarios.step_population import row_scatter
from energymodel.search.layout_choice import SURE

FEWEST = 3  # layouts of a choice
FIXED = ("cluster", "model", "layers", "hidden", "kv_heads", "sequence", "chips", "batch_sequences", "fp8", "release")
"""What all layouts of a choice have in common."""
COLUMNS = ("any", "tuned", "fastest_predicted", "rule_from_any", "rule_from_tuned", "rule_from_best")
"""A layout drawn by chance, or from the fastest quarter; the one predicted to be the fastest; and what the rule chooses
if the own layout is one of these, or the fastest."""


def choices(errors: Iterable[Error]) -> list[list[Error]]:
    """Measured layouts of the same model, chips and batch."""
    groups: dict[tuple[str, ...], list[Error]] = defaultdict(list)
    for error in errors:
        groups[tuple(str(error.row.get(name)) for name in ("set", *FIXED))].append(error)
    return [own for own in groups.values() if len(own) >= FEWEST]


def losses(measured: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Times over that of the fastest, less one, in the order of `COLUMNS` [1].

    **Arguments:** logarithms of times of the same layouts.
    """
    excess, best = np.expm1(measured - np.min(measured)), np.argmin(predicted)
    chance = ndtr((predicted - predicted[best]) / (np.sqrt(2.0) * row_scatter()))
    chosen, order = np.where(chance >= SURE, excess[best], excess), np.argsort(measured)
    tuned = order[: max(1, len(order) // 4)]
    own = [np.mean(excess), np.mean(excess[tuned]), excess[best]]
    return np.array([*own, np.mean(chosen), np.mean(chosen[tuned]), chosen[order[0]]])


def regrets(errors: Iterable[Error], known: str) -> list[dict[str, Any]]:
    """Mean losses by set [%].

    **Arguments:**

    - `known`: of the errors: "group held out", "no row", "few rows" or "all rows".
    """
    by_set: dict[str, list[np.ndarray]] = defaultdict(list)
    for group in choices(errors):
        measured = np.log([float(error.row["step_time_s"]) for error in group])
        each = {"no row": [error.unfitted for error in group], "few rows": [error.few for error in group]}
        predicted = measured + np.array(each.get(known, [error.log for error in group])).T
        draws = predicted.reshape(-1, len(group))
        if len(draws):
            by_set[group[0].row["set"]].append(np.mean([losses(measured, draw) for draw in draws], axis=0))
    return [
        {"known": known, "set": name, "groups": len(own)}
        | dict(zip([f"{column}_percent" for column in COLUMNS], (100.0 * np.mean(own, axis=0)).tolist(), strict=True))
        for name, own in by_set.items()
    ]
