"""Which batch takes least energy, money and time, and how does the least energy grow with the tokens?

Prints seven tables, draws `batches` and `tokens` (SVG and PNG) and writes `result.json` beside this file.
"""

import json
from pathlib import Path
from typing import Any

import batch_curves
import dataset_ladder
import tradeoff_figures

FOLDER = Path(__file__).parent


def table(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns] + [
        [f"{row[key]:.5g}" if isinstance(row.get(key), float) else str(row.get(key, "")) for key in columns]
        for row in rows
    ]
    widths = [max(len(line[number]) for line in cells) for number in range(len(columns))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def main() -> None:
    result, curves = batch_curves.compute()
    tradeoff_figures.write(tradeoff_figures.batch_figure(curves), FOLDER, "batches")
    result |= dataset_ladder.compute()
    exponents = {row["line"]: row["exponent"] for row in result["exponents"]}
    figure = tradeoff_figures.ladder_figure(result["ladder"], result["runs"], exponents)
    tradeoff_figures.write(figure, FOLDER, "tokens")
    for name, rows in result.items():
        print(f"{name}\n{table(rows)}\n")
    text = json.dumps(result, indent=1) + "\n"
    (FOLDER / "result.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
