"""The slowdown of a team's training against a tuned benchmark, held out by team.

One constant, `system.production_slowdown`, from runs whose scenario has no published rate of its own.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np


def needed(row: dict[str, Any]) -> float | None:
    """The slowdown at which a run is predicted exactly [1]: by hours, or by metered energy where no hours are stated.

    Hours and energy are proportional to it. `None` if the scenario of the run has the rate that its team published.
    """
    if row["slowdown"] == 1.0:
        return None
    error = row["energy_error"] if row["chip_hours_error"] is None else row["chip_hours_error"]
    return row["slowdown"] / (1.0 + error)


def middle(groups: Sequence[Sequence[float]]) -> float:
    """Median over organizations of the geometric mean of their slowdowns [1]."""
    return float(np.exp(np.median([np.mean(np.log(group)) for group in groups])))


def fit(runs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The slowdown and the spread of ln(hours) about held-out predictions; each run, predicted without its team."""
    groups: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in runs:
        value = needed(row)
        if value is not None:
            groups[row["organization"]].append((row["model"], value))
    held_out = [
        {"model": model, "organization": name, "slowdown": value, "without": without, "error": without / value - 1.0}
        for name, group in groups.items()
        for without in [middle([[slowdown for _, slowdown in other] for key, other in groups.items() if key != name])]
        for model, value in group
    ]
    values = [[value for _, value in group] for group in groups.values()]
    spread = np.sqrt(np.mean(np.log1p([row["error"] for row in held_out]) ** 2))
    constant = {
        "name": "production_slowdown",
        "value": middle(values),
        "spread_of_logarithm": float(spread),
        "runs": len(held_out),
        "organizations": len(values),
    }
    return [constant], held_out
