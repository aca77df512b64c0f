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

Every error below is a held-out error: no constant of the prediction was fitted to the measurement that it is compared
with, and *held out* says what was kept apart. Mean and largest error are those of the absolute value of predicted over
measured minus one. Expect errors of this size within the tested range; outside it the error grows, and by how much is
unknown. Priors are marked wherever they are printed, and `energymodel sensitivity` shows how much a result depends on
each, and what share of its variance comes from all of them.
"""
TAIL = """## Not compared with measurements

These experiments apply the model to questions of design. Their results are as accurate as the predictions above.
"""
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


def page(accuracies: dict[str, dict[str, Any]]) -> str:
    """The text of the page."""
    parts = [HEAD]
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
