"""Printed tables, figures and `result.json` of an experiment."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures import save

from energymodel.calibration.power_population import PowerPopulation
from energymodel.report import toml_text
from energymodel.scenarios.step_population import FOLDER as POPULATIONS
from energymodel.scenarios.step_population import Coordinates, write_normal

DIGITS = 9  # kept in result.json, so that the last bits of another machine change nothing

Tables = dict[str, list[dict[str, Any]]]


def accuracy(
    prediction: str, errors: Sequence[float] | np.ndarray, held_out: str, within: str, reference: str = ""
) -> dict[str, Any]:
    """A row of the table `accuracy`, from which the page "How far can I trust it" is made.

    **Arguments:**

    - `prediction`: what is predicted.
    - `errors`: relative errors, predicted over measured less one [1].
    - `held_out`: what the measurements that they are taken on share, and no fit has seen.
    - `within`: the range in which this was tested.
    - `reference`: what else predicts it, and how well.
    """
    sizes = np.abs(np.asarray(errors, np.float64))
    return {
        "prediction": prediction,
        "mean_error": float(np.mean(sizes)),
        "largest_error": float(np.max(sizes)),
        "count": int(sizes.size),
        "held_out": held_out,
        "range": within,
        "reference": reference,
    }


def write_population(population: PowerPopulation, name: str, title: str, folder: Path) -> None:
    """What some cards say of another, as a preset."""
    write_normal(POPULATIONS / f"{name}.csv", Coordinates(population.mean, population.covariance))
    words = {"title": title, "source": f"experiments/{folder.name}", "cards": list(population.cards)}
    text = toml_text.dumps({**words, "errors": dict(population.errors)})
    (POPULATIONS / f"{name}.toml").write_text(text, encoding="utf-8")


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as aligned text, columns in the order of their first appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return aligned([columns] + [[_cell(row.get(key)) for key in columns] for row in rows])


def aligned(cells: Sequence[Sequence[str]]) -> str:
    """Lines of cells as text, each column aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def keep(tables: Tables, folder: Path) -> None:
    """Print all tables and write them to `result.json`."""
    for name, rows in tables.items():
        print(f"{name}\n{table(rows)}\n")
    rounded = {
        name: [
            {key: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value for key, value in row.items()}
            for row in rows
        ]
        for name, rows in tables.items()
    }
    write(rounded, folder)


def write(result: Any, folder: Path) -> None:
    """Write `result.json`."""
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def draw(figure: Any, folder: Path, name: str) -> None:
    """Write a figure as PNG."""
    (folder / f"{name}.png").write_bytes(save(figure, "png"))
