"""The page `docs/trust.md`, written from the `result.json` of every experiment.

An experiment that predicts measurements states its errors in the table `accuracy` of its `result.json`, with rows from
`outputs.accuracy`. Run this after an experiment: `python experiments/trust_page.py`.
"""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "trust.md"
HEAD = """# How far can I trust it?

<!-- Written by experiments/trust_page.py from the results of the experiments. Do not edit. -->

The mean error of **step time** is {least} to {most}, by set, for models that a fitted cluster has not run, and {unseen}
({median} in the median) where only accelerator and framework are known. **Memory**: {memory} of runs are
classified correctly as fitting or not. **Power** of a node over a run has a mean error of {power}, the **loss** of
another model size one of {loss}, and **chip hours** of published runs of other teams, which hold more than training,
one of {hours}. **Money**: an hour of an owned H100 costs {price:.2f} USD; Epoch AI estimates {estimate:.2f}. **Do not
trust it** where links are slower than rated (step times of such a cluster: {slow}), for chips that exist only as a
design (their rated power: {design}), or outside the ranges below.

![Predicted against measured step time, by set](../experiments/{steps}/predicted.png)

Above, a point is a measured step. Below, a thick line holds half of the steps of a set and a thin line 90 %. The dashed
lines are 10 and 30 % off. In color, other runs of the cluster are known, but none of the model or the size; in gray,
only accelerator and framework are known.

## How to read the tables

Every error is a held-out error: no constant of the prediction was fitted to the measurement that it is compared with,
and *held out* says what was kept apart. Mean and largest error are those of the absolute value of predicted over
measured minus one. Expect errors of this size within the tested range; outside it the error grows, and by how much is
unknown. Priors are marked wherever they are printed, and `energymodel sensitivity` shows how much a result depends on
each, and what share of its variance comes from all of them.
"""
TAIL = """## Not compared with measurements

These experiments apply the model to questions of design. Their results are as accurate as the predictions above.
"""
STEPS, UNKNOWN_SET = "01_step_time", "mt-nlg"  # of this set no row of the cluster is known
SLOW_RINGS = "nanotron-h100-ring"  # a cluster whose links were slow throughout
OWNED = "Llama-3.1-405B"  # a run of owned H100
COLUMNS = ("prediction", "mean error", "largest", "measured", "held out", "tested on", "other predictions")


def results() -> dict[str, dict[str, Any]]:
    """Result of each experiment by folder, in the order of their numbers."""
    return {
        path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*/result.json"))
    }


def question(name: str) -> str:
    """The question that the README of an experiment asks."""
    text = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    paragraph = next(part for part in text.split("\n\n") if part.startswith("**Question.**"))
    return " ".join(paragraph.removeprefix("**Question.**").split())


def row_of(accuracy: dict[str, Any]) -> str:
    """One row of the table of an experiment."""
    is_single = accuracy["count"] == 1
    cells = (
        accuracy["prediction"],
        percent(accuracy["mean_error"]),
        "" if is_single else percent(accuracy["largest_error"]),
        str(accuracy["count"]),
        accuracy["held_out"],
        accuracy["range"],
        accuracy["reference"],
    )
    return "| " + " | ".join(cells) + " |"


def percent(share: float) -> str:
    """A share as a percentage with two digits, such as 0.54 %, 5.3 % or 62 %."""
    size = 100.0 * share
    return f"{size:.2f} %" if size < 1.0 else f"{size:.1f} %" if size < 10.0 else f"{size:.0f} %"


def headline(stored: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The numbers with which the page begins."""

    def error(name: str, prediction: str) -> str:
        rows = stored[name]["accuracy"]
        return percent(next(row["mean_error"] for row in rows if row["prediction"].startswith(prediction)))

    sets = [row["mean_percent"] / 100 for row in stored[STEPS]["sets"] if row["set"] != UNKNOWN_SET]
    unseen, clusters = (stored["21_unseen_clusters"][key] for key in ("left_out", "clusters"))
    owned = next(row for row in stored["07_disclosed_runs"]["runs"] if row["model"] == OWNED)
    return {
        "steps": STEPS,
        "least": percent(min(sets)),
        "most": percent(max(sets)),
        "unseen": percent(unseen[0]["mean_percent"] / 100),
        "median": percent(unseen[0]["median_percent"] / 100),
        "memory": f"{stored[STEPS]['out_of_memory'][0]['accuracy_percent']:.1f} %",
        "power": error("04_metered_runs", "mean power of a node"),
        "loss": error("05_loss_law", "loss of a model"),
        "hours": error("07_disclosed_runs", "chip hours (or metered energy)"),
        "price": owned["usd_per_chip_hour_predicted"],
        "estimate": owned["usd_per_chip_hour"],
        "slow": percent(next(row["mean_percent"] / 100 for row in clusters if row["left_out"] == SLOW_RINGS)),
        "design": error("19_chip_design", "rated power of an accelerator by the laws"),
    }


def page(accuracies: dict[str, dict[str, Any]]) -> str:
    """The text of the page."""
    parts = [HEAD.format_map(headline(accuracies))]
    for name, result in accuracies.items():
        rows = result.get("accuracy", [])
        if rows:
            table = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|", *map(row_of, rows)]
            title = name[3:].replace("_", " ").capitalize()
            parts.append(f"## {title}\n\n{question(name)} (`experiments/{name}`)\n\n" + "\n".join(table) + "\n")
    designs = [
        f"- `experiments/{name}`: {question(name)}" for name, result in accuracies.items() if "accuracy" not in result
    ]
    if designs:
        parts.append(TAIL + "\n" + "\n".join(designs) + "\n")
    return "\n".join(parts)


def main() -> None:
    PAGE.write_text(page(results()), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(FOLDER.parent)}")


if __name__ == "__main__":
    main()
