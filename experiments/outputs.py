"""How does an experiment print its tables and keep its figures and `result.json`?"""

import json
from pathlib import Path
from typing import Any

from energymodel.report.figure import save

DIGITS = 9  # kept in result.json, so that the last bits of another machine change nothing

Tables = dict[str, list[dict[str, Any]]]


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as aligned text, columns in the order of their first appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns] + [[_cell(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(line[number]) for line in cells) for number in range(len(columns))]
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
    (folder / "result.json").write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")


def draw(figure: Any, folder: Path, name: str) -> None:
    """Write a figure as SVG and PNG."""
    for kind in ("svg", "png"):
        (folder / f"{name}.{kind}").write_bytes(save(figure, kind))
