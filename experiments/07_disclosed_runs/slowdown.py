"""The slowdown of a team's training against a tuned benchmark, held out by team.

From runs whose scenario has no published rate of its own. One constant, `system.production_slowdown`, is the median. A
law with one constant as well, `s = (1 + D / (20 N))^k`, says that hours hold the more beside the run itself the further
it goes beyond the tokens D that are optimal for N parameters, 20 a parameter [Hoffmann et al. 2022].
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

OPTIMAL = 20.0  # tokens per parameter
SHUFFLES = 1000
Run = tuple[float, float]  # slowdown, tokens per parameter


def needed(row: dict[str, Any]) -> float | None:
    """The slowdown at which a run is predicted exactly [1]: by hours, or by metered energy where no hours are stated.

    Hours and energy are proportional to it. `None` if the scenario of the run has the rate that its team published.
    """
    if row["slowdown"] == 1.0:
        return None
    error = row["energy_error"] if row["chip_hours_error"] is None else row["chip_hours_error"]
    return row["slowdown"] / (1.0 + error)


def middle(groups: Sequence[Sequence[Run]]) -> float:
    """Median over organizations of the geometric mean of their slowdowns [1]."""
    return float(np.exp(np.median([np.mean(np.log([slowdown for slowdown, _ in group])) for group in groups])))


def exponent(groups: Sequence[Sequence[Run]]) -> float:
    """Exponent k of the law by least squares of ln s, each organization with the same weight [1]."""
    products = [
        np.mean([[np.log(s) * np.log1p(r / OPTIMAL), np.log1p(r / OPTIMAL) ** 2] for s, r in group], axis=0)
        for group in groups
    ]
    above, below = np.sum(products, axis=0)
    return float(above / below)


def law(ratio: float, k: float) -> float:
    """Slowdown of a run of so many tokens per parameter [1]."""
    return float((1.0 + ratio / OPTIMAL) ** k)


def shuffled_share(groups: Sequence[Sequence[Run]]) -> float:
    """Share of shuffles of tokens per parameter among the runs that predict held-out organizations as well [1]."""
    generator, ratios = np.random.default_rng(0), [ratio for group in groups for _, ratio in group]

    def error(shuffled: Sequence[float]) -> float:
        rest = iter(shuffled)
        mixed = [[(slowdown, next(rest)) for slowdown, _ in group] for group in groups]
        errors = []
        for index, group in enumerate(mixed):
            k = exponent([*mixed[:index], *mixed[index + 1 :]])
            errors += [abs(law(ratio, k) / slowdown - 1.0) for slowdown, ratio in group]
        return float(np.mean(errors))

    own = error(ratios)
    return float(np.mean([error(generator.permutation(ratios).tolist()) <= own for _ in range(SHUFFLES)]))


def fit(runs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Both constants and the spread of ln(hours) about held-out predictions; each run, predicted without its team."""
    groups: dict[str, dict[str, Run]] = defaultdict(dict)
    for row in runs:
        value = needed(row)
        if value is not None:
            groups[row["organization"]][row["model"]] = value, row["tokens_per_parameter"]
    held_out = []
    for name, group in groups.items():
        others = [list(other.values()) for key, other in groups.items() if key != name]
        without, k = middle(others), exponent(others)
        for model, (value, ratio) in group.items():
            row = {"model": model, "organization": name, "slowdown": value, "tokens_per_parameter": ratio}
            row |= {"without": without, "error": without / value - 1.0}
            held_out.append(row | {"law_without": law(ratio, k), "law_error": law(ratio, k) / value - 1.0})
    values = [list(group.values()) for group in groups.values()]
    constants = [
        {
            "name": name,
            "value": value,
            "spread_of_logarithm": float(np.sqrt(np.mean(np.log1p([row[error] for row in held_out]) ** 2))),
            "runs": len(held_out),
            "organizations": len(values),
        }
        for name, value, error in (
            ("production_slowdown", middle(values), "error"),
            ("tokens_exponent", exponent(values), "law_error"),
        )
    ]
    constants[1]["shuffled_share"] = shuffled_share(values)
    return constants, held_out
