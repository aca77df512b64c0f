"""Tables as grids of words: what a terminal and a page show alike."""

from collections.abc import Sequence
from typing import NamedTuple

from energymodel.report.answer import Table
from energymodel.report.cells import Cell, Column, Level, is_shown, words
from energymodel.report.number import Layout, interval, layout_of_column, text


class Words(NamedTuple):
    """A cell in words, with its interval."""

    text: str
    ends: str
    cell: Cell

    @classmethod
    def of(cls, cell: Cell, column: Column, layout: Layout | None = None) -> "Words":
        """The words of a cell of a column."""
        return cls(text(cell, column, layout), interval(cell, column, layout), cell)


class Grid(NamedTuple):
    """Columns and lines as they are shown, and whether the titles of the columns say anything."""

    columns: Sequence[Column]
    lines: Sequence[Sequence[Words]]
    has_heads: bool


def grid(table: Table, level: Level, *, tall: bool = False) -> Grid:
    """A table at a level, whose first column has the titles of the lines where it is tall."""
    indices = [index for index, column in enumerate(table.columns) if is_shown(column.level, level)]
    columns = [table.columns[index] for index in indices]
    if not (table.tall or tall):
        layouts = [layout_of_column([row[index] for row in table.rows], table.columns[index]) for index in indices]
        short = table.short if table.short is not None and level == "short" else range(len(table.rows))
        looks = [*zip(indices, columns, layouts, strict=True)]
        lines = [[Words.of(table.rows[row][index], column, layout) for index, column, layout in looks] for row in short]
        return Grid(columns, lines, any(column.title for column in columns))
    lines = [
        [Words.of(row[index], table.column_of(number, column)) for number, row in enumerate(table.rows)]
        for index, column in zip(indices, columns, strict=True)
    ]
    titled = [
        [Words(column.title, "", None), *line]
        for column, line in zip(columns, lines, strict=True)
        if any(cell.text for cell in line)
    ]
    labels = [Column(label, label, "") for label in table.labels or [""] * len(table.rows)]
    return Grid([words("", ""), *labels], titled, len(table.rows) > 1)
