"""The batches of lowest energy, money and time, and the growth of that energy with the tokens.

Prints seven tables, draws `batches` and `tokens` and writes `result.json` beside this file.
"""

import sys
from pathlib import Path

import batch_curves
import dataset_ladder

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
import tradeoff_figures

FOLDER = Path(__file__).parent


def main() -> None:
    result, curves = batch_curves.compute()
    outputs.draw(tradeoff_figures.batch_figure(curves), FOLDER, "batches")
    result |= dataset_ladder.compute()
    exponents = {row["line"]: row["exponent"] for row in result["exponents"]}
    figure = tradeoff_figures.ladder_figure(result["ladder"], result["runs"], exponents)
    outputs.draw(figure, FOLDER, "tokens")
    for name, rows in result.items():
        print(f"{name}\n{outputs.table(rows)}\n")
    outputs.write(result, FOLDER)


if __name__ == "__main__":
    main()
