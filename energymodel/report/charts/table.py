"""What table stands behind a figure: as a person reads it, and with all digits in SI as CSV?"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from energymodel.report.charts.scale import SHARE, read
from energymodel.report.charts.svg import element, escape
from energymodel.report.data import csv_lines

Cell = str | float | None


class Column(NamedTuple):
    """A column of a table; `unit` is that of its numbers in SI, "%" for shares of one, empty for words."""

    title: str
    unit: str = ""
    difference: bool = False

    @property
    def heading(self) -> str:
        """Title with the unit in which CSV has the numbers."""
        return self.title if self.unit in ("", "1") else f"{self.title} [{'1' if self.unit == SHARE else self.unit}]"

    def shown(self, cell: Cell) -> str:
        """A cell as a person reads it."""
        if cell is None:
            return ""
        if isinstance(cell, str):
            return cell
        if not math.isfinite(cell):
            return "none"
        return read(cell, self.unit or "1", digits=4, difference=self.difference)


class Table(NamedTuple):
    """Columns and rows; a cell is a word, a number in SI, or None where nothing is known."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def csv(self) -> str:
        """The table with all digits, in SI."""
        return csv_lines([[column.heading for column in self.columns], *self.rows])

    def html(self) -> str:
        """The table as HTML; `data-csv` holds all digits of a number."""
        heads = [element("th", escape(one.title), scope="col", data_csv=one.heading) for one in self.columns]
        lines = [element("tr", *map(_cell, self.columns, row, _firsts(row))) for row in self.rows]
        head, body = element("thead", element("tr", *heads)), element("tbody", *lines)
        return element("table", head, body, class_="em-table")


def _firsts(row: Sequence[Cell]) -> list[bool]:
    return [place == 0 for place in range(len(row))]


def _cell(column: Column, cell: Cell, is_first: bool) -> str:
    if is_first and isinstance(cell, str):
        return element("th", escape(cell), scope="row")
    if isinstance(cell, float | int):
        return element("td", escape(column.shown(float(cell))), class_="em-number", data_csv=repr(float(cell)))
    return element("td", escape(column.shown(cell)), class_=None if column.unit == "" else "em-number")
