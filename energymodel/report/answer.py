"""Answers of commands in numbers, before any surface shows them.

A command asks its question, and a builder in `report.answers` makes an `Answer` of the result: numbers in SI with their
intervals, and words around them. A builder computes everything that is shown and formats nothing: digits, units,
intervals and marks of priors are chosen by `number`, for all surfaces alike. In a command:

```python
@command(Source)                                  # brings SCENARIO, --set, --json, -o, --full, --open, --device
def limits(run: Run) -> Any:                      # `run` has the source, the progress and what is to be shown
    return limits_answer(run.source.read(), ...)  # printed and written to the files; its result is the exit code
```

`terminal`, `page` and `data` render the answer; `drawing` lays out its charts, `painter` makes PNG and PDF of
them. A new command gets a function `NAME_answer(...) -> Answer` in `answers`, listed in its `__init__.pyi`, and an
answer in `tests/report/stored_answers.py`, for the test that compares all surfaces.

- Numbers that have one unit for all rows are columns, of `cells`. Where each line has a unit of its own, such as in an
  outcome, store a row for each plan and set `tall`: it is shown with a line for each column.
- Sentences hold numbers by name: `Sentence("It takes {time:i}.", {"time": (column, quantity)})`; ":i" brings the
  interval.
- Charts name columns of a table and have no data of their own. The first one stands in the summary and in a picture.
- `level` says where a column or a table is shown: everywhere, under --full and in folds of the page, or in files alone.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from energymodel.report.cells import Cell, Column, Level, Number, Quantity, as_cell, finite, is_shown, share

if TYPE_CHECKING:
    from energymodel.scenarios.scenario import Scenario

INTERVALS = "Intervals hold with a probability of 90 %, to first order in the uncertain numbers of the system."
"""What intervals mean, unless an answer says it otherwise."""


@dataclass(frozen=True)
class Table:
    """Columns and rows, whose values become cells by `as_cell`.

    - `tall`: shown with a line for each column; `labels` name the rows, and `kinds` say which hold changes or chances.
    - `short`: indices of the rows of the short form; all by default.
    - `bars`: column of shares that the terminal draws as bars.
    - `note`: a sentence below the table.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    tall: bool = False
    labels: Sequence[str] = ()
    kinds: Sequence[str] = ()
    short: Sequence[int] | None = None
    bars: str = ""
    note: str = ""
    level: Level = "short"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", [[as_cell(value) for value in row] for row in self.rows])

    @classmethod
    def of(cls, name: str, title: str, cells: Mapping[Column, Iterable[Any]], most: int = 0, **look: Any) -> "Table":
        """A table by column, each with its values in all rows.

        - `most`: rows of the short form; all by default.
        """
        rows = [*zip(*cells.values(), strict=True)]
        return cls(name, title, [*cells], rows, **{"short": range(min(most or len(rows), len(rows))), **look})

    @classmethod
    def facts(cls, name: str, title: str, cells: Mapping[Column, Any], level: Level = "short") -> "Table":
        """One row of values by column, shown with a line for each."""
        return cls(name, title, [*cells], [[*cells.values()]], tall=True, level=level)

    @classmethod
    def records(cls, name: str, title: str, records: Sequence[Any], most: int = 0, **look: Any) -> "Table":
        """A row for each record and a column for each of its fields with a unit; empty where a number is not finite."""
        fields = [field for field in dataclasses.fields(records[0]) if "unit" in field.metadata]
        cells = {Column.of(field): [finite(getattr(record, field.name)) for record in records] for field in fields}
        return cls.of(name, title, cells, most, **look)

    def without(self, names: Collection[str]) -> "Table":
        """The table without some columns."""
        kept = [index for index, column in enumerate(self.columns) if column.name not in names]
        if len(kept) == len(self.columns):
            return self
        rows = [[row[index] for index in kept] for row in self.rows]
        return dataclasses.replace(self, columns=[self.columns[index] for index in kept], rows=rows)

    def column(self, name: str) -> tuple[Column, list[Cell]]:
        """A column by name, and its cells."""
        index = [column.name for column in self.columns].index(name)
        return self.columns[index], [row[index] for row in self.rows]

    def column_of(self, row: int, column: Column) -> Column:
        """The column as a row of a tall table reads it."""
        kind = self.kinds[row] if self.kinds else ""
        if kind == "chance" and column.kind != "words":
            return dataclasses.replace(column, unit="1", kind="share", digits="two")
        return column.changed if kind == "change" else column

    def number(self, name: str, row: int = 0) -> Number:
        """A number for a sentence."""
        column, cells = self.column(name)
        cell = cells[row]
        if not isinstance(cell, Quantity):
            raise TypeError(f"{self.name}.{name}: row {row} holds no number")
        return self.column_of(row, column), cell

    def series(self, name: str, labels: str = "") -> list[tuple[str, Column, Quantity]]:
        """Numbers with their names: of a row of a tall table by its label, or of a column by a column of `labels`."""
        if not self.tall:
            column, cells = self.column(name)
            words = [name for name, column in zip(self.names, self.columns, strict=True) if column.kind == "words"]
            names = self.column(labels or words[0])[1] if labels or words else cells
            return [
                (str(label), column, cell)
                for label, cell in zip(names, cells, strict=True)
                if isinstance(cell, Quantity)
            ]
        index = list(self.labels).index(name) if self.labels else 0
        pairs = zip(self.columns, self.rows[index], strict=True)
        return [(c.title, self.column_of(index, c), cell) for c, cell in pairs if isinstance(cell, Quantity)]

    def drawn(self, name: str, only: Sequence[str], labels: str = "") -> list[tuple[str, Column, Quantity]]:
        """The numbers of `series` whose label, or column of a tall table, is among those named; all by default."""
        numbers = self.series(name, labels)
        names = {label: {label} for label, _, _ in numbers}
        for column in self.columns if self.tall else ():
            names.setdefault(column.title, set()).add(column.name)
        return [number for number in numbers if not only or names[number[0]] & set(only)]

    def priors(self, level: Level) -> list[tuple[str, str]]:
        """Titles of numbers that are priors and why, row by row, as far as their columns are shown at a level."""
        pairs = [
            pair for row in self.rows for pair in zip(self.columns, row, strict=True) if is_shown(pair[0].level, level)
        ]
        return [(column.title, cell.prior) for column, cell in pairs if isinstance(cell, Quantity) and cell.prior]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]


class Sentence(NamedTuple):
    """Words with places for numbers: "{energy}", or "{energy:i}" with the interval."""

    words: str
    numbers: Mapping[str, Number] = {}


@dataclass(frozen=True)
class Chart:
    """Columns of a table as a figure.

    - `kind`: "bars" (beside each other, with intervals), "stack" (parts of a whole), "plane" (points or lines),
      "intervals" (relative to each value), "tornado" (two changes per line), "flow" (from `x` to `series`) or
      "timeline" (boxes of ranks).
    - `x`: column of labels, or across; `y`: columns, or rows of a tall table, of amounts.
    - `series`, `label`, `hover`: columns that group, name and explain points, or words at the ends of bars.
    - `lines`: whether points are joined, or names of the series of which they are.
    - `base`: column of numbers where bars start.
    - `total`: column of the table `outcome` that the parts of a stack add up to.
    - `only`: names of the lines that are drawn, in their order; all by default.
    - `limit`: an amount with its name, drawn as a line; `diagonal`: name of the line where both axes are equal.
    """

    kind: str
    title: Sentence
    table: str
    x: str = ""
    y: Sequence[str] = ()
    subtitle: str = ""
    series: str = ""
    label: str = ""
    hover: Sequence[str] = ()
    lines: bool | Sequence[str] = False
    base: str = ""
    log: Sequence[str] = ()
    total: str = ""
    only: Sequence[str] = ()
    limit: tuple[float, str] | tuple[float, str, str] | None = None
    axis: str = ""
    diagonal: str = ""

    @classmethod
    def ranked(
        cls,
        table: Table,
        of: str,
        title: str,
        subtitle: str,
        axis: str,
        least: float = 0.0,
        most: int = 12,
        read: Callable[[float], Number] = share,
        **look: Any,
    ) -> "Chart | None":
        """Bars of the largest numbers of a sorted table, by its first column; nothing where all are below `least`.

        - `title`: with "{name}" and "{largest}" for the first of them, as `read` says it.
        """
        largest = [(label, cell.value) for label, _, cell in table.series(of) if abs(cell.value) >= least][:most]
        if not largest:
            return None
        title = title.replace("{name}", largest[0][0].removeprefix("system."))
        words = Sentence(title, {"largest": read(largest[0][1])})
        look = {"y": [of], "only": [label for label, _ in largest], **look}
        return cls("bars", words, table.name, table.names[0], subtitle=subtitle, axis=axis, **look)


OF_LEARNING = ("loss", "information", "information_rate", "energy_per_bit")
"""Outputs by the laws of pre-training, which are not those of fine-tuning."""


@dataclass(frozen=True)
class Answer:
    """Everything a command has to say: rendered alike on a terminal, on a page, in files and in notebooks.

    - `rows`: name of the table that CSV holds; by default the first, joined with other tables of one tall row.
    - `also`: what to do next, with the command for it.
    - `screen`: names of the tables that a terminal shows without --full; all short ones if there are none.
    - `inputs`: the scenario, which gives the same answer when it is read back.
    - `intervals`: what intervals mean.
    - `result`: "successful", or why the answer is not to be trusted, as `message` explains.
    """

    command: str
    title: str
    headline: Sentence
    sentences: Sequence[Sentence]
    tables: Sequence[Table]
    charts: Sequence[Chart] = ()
    notes: Sequence[Sentence] = ()
    warnings: Sequence[Sentence] = ()
    also: Sequence[tuple[str, str]] = ()
    screen: Sequence[str] = ()
    inputs: Mapping[str, object] = dataclasses.field(default_factory=dict)
    rows: str = ""
    result: str = "successful"
    message: str = ""
    intervals: str = INTERVALS

    @classmethod
    def of(cls, scenario: "Scenario", command: str, headline: Sentence, *told: Any, **parts: Any) -> "Answer":
        """The answer of a command about a scenario; `told` and `parts` are the other fields, from `sentences`."""
        answer = cls(command, scenario.title, headline, *told, inputs=scenario.named_tables, **parts)
        if not scenario.is_fine_tuned:
            return answer
        tables = [table.without(OF_LEARNING) for table in answer.tables]
        drawn = ({**vars(chart), "y": [name for name in chart.y if name not in OF_LEARNING]} for chart in answer.charts)
        charts = [Chart(**chart) for chart in drawn if chart["y"] and chart["x"] not in OF_LEARNING]
        return dataclasses.replace(answer, tables=tables, charts=charts)

    def table(self, name: str) -> Table:
        """A table by name."""
        return next(table for table in self.tables if table.name == name)
