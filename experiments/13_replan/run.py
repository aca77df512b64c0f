"""The gain of planning a run anew from its course, against the plan made once.

Prints four tables, draws `replan` and writes `result.json` beside this file.
"""

import sys
from pathlib import Path
from typing import Any

import forecast
import numpy as np
import power_limits
from figures import BLUE, GRAY, GREEN, ORANGE, add_axes, new_figure

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent
POLICIES = {
    "highest": "highest limit",
    "planned_once": "planned once",
    "replanned": "planned anew",
    "in_the_end": "last epoch",
}


def figure(tables: outputs.Tables) -> Any:
    """Forecasts of time and energy along the metered run, and excess energy by device and way to plan."""
    drawn = new_figure(7.2, 3.2)
    axes = add_axes(drawn, 1, 2, 1)
    rows = tables["forecasts"]
    share = [100.0 * row["share_of_run"] for row in rows]
    axes.axhline(0.0, color=GRAY, linewidth=0.9)
    for key, color, label in (("time", BLUE, "time"), ("energy", ORANGE, "energy at the nodes")):
        axes.plot(share, [100.0 * row[f"{key}_error"] for row in rows], "o-", color=color, label=label, linewidth=1.2)
        low, high = ([100.0 * row[f"{key}_{end}"] for row in rows[1:]] for end in ("low", "high"))
        axes.fill_between(share[1:], low, high, color=color, alpha=0.15, linewidth=0)
    constant = [100.0 * row["constant_power_error"] for row in rows[1:]]
    axes.plot(share[1:], constant, "x--", color=GRAY, label="energy, mean power so far", linewidth=1.0)
    axes.set_xlabel("share of the run that has been measured [%]")
    axes.set_ylabel("forecast over measured - 1 [%]")
    axes.set_title("GPT-3 175B on 512 H100", fontsize=9, loc="left")
    axes.legend(fontsize=8)
    axes = add_axes(drawn, 1, 2, 2)
    summary = tables["power_limits_summary"]
    width = 0.8 / len(POLICIES)
    for number, (key, label) in enumerate(POLICIES.items()):
        places = np.arange(len(summary)) + (number - 0.5 * (len(POLICIES) - 1)) * width
        color = (GRAY, ORANGE, BLUE, GREEN)[number]
        axes.bar(places, [100.0 * row[key] for row in summary], width, color=color, label=label)
    axes.set_xticks(np.arange(len(summary)), [row["gpu"] for row in summary])
    axes.set_ylabel("energy above the best limit [%]")
    axes.set_title(f"Power limit, {power_limits.EPOCHS} epochs, mean", fontsize=9, loc="left")
    axes.legend(fontsize=8)
    return drawn


def compute() -> outputs.Tables:
    """All tables."""
    tables = {"forecasts": forecast.compute()} | power_limits.compute()
    later = tables["forecasts"][1:]
    # Tokens at a moment are its share of the run, for lack of a log: the forecast of the time is no test.
    tables["accuracy"] = [
        outputs.accuracy(
            f"energy of a whole run at the nodes, {100.0 * row['share_of_run']:.0f} % of it measured",
            [row["energy_error"]],
            "the rest of the run",
            "GPT-3 175B on 512 H100",
            f"mean power so far: {100.0 * abs(row['constant_power_error']):.2f} %; "
            f"planned once: {100.0 * abs(tables['forecasts'][0]['energy_error']):.1f} %",
        )
        for row in (later[0], later[2])
    ]
    return tables


def main() -> None:
    tables = compute()
    outputs.draw(figure(tables), FOLDER, "replan")
    outputs.keep(tables, FOLDER)


if __name__ == "__main__":
    main()
