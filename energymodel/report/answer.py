"""Answers of commands in numbers, before any surface shows them.

A command asks its question, and a builder in `report.answers` makes an `Answer` of the result: numbers in SI with their
intervals, and words around them. A builder computes everything that is shown and formats nothing: digits, units,
intervals and marks of priors are chosen by `number`, for all surfaces alike. In a command:

    def command(source: Source, show: Delivery) -> int:      # `Delivery` brings --json, -o, --full and --open
        show.check()                                         # before the work: can the files be written?
        ...
        return show.deliver(limits_answer(result))           # prints, writes the files, gives the exit code

`terminal`, `page` and `data` render the answer; `drawing` lays out its charts, `painter` makes PNG and PDF of
them. To move a command: write `answers/NAME.py` with `NAME_answer(...) -> Answer`, give the command a `Delivery`, add
an answer to `tests/report/stored_answers.py`, for the test that compares all surfaces, and delete the old functions.

- Numbers that have one unit for all rows are columns. Where each line has a unit of its own, such as in an outcome,
  store a row for each plan and set `tall`: it is shown with a line for each column.
- Sentences hold numbers by name: `Sentence("It takes {time:i}.", {"time": (column, quantity)})`; ":i" brings the
  interval.
- Charts name columns of a table and have no data of their own. The first one stands in the summary and in a picture.
- `level` says where a column or a table is shown: everywhere, under --full and in folds of the page, or in files alone.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from energymodel.scenarios.scenario import Scenario

Part = TypeVar("Part")

SHORT, FULL, PAGE, DATA = range(4)
"""Levels: on every surface; under --full; folded on a page, but on no terminal; in JSON, CSV and data frames alone."""
INTERVALS = "Intervals hold with a probability of 90 %, to first order in the uncertain numbers of the system."
"""What intervals mean, unless an answer says it otherwise."""
CHANGE, CHANCE = "change", "chance"
"""Kinds of rows of a tall table whose numbers are no amounts: changes against another row, and probabilities."""


class Quantity(NamedTuple):
    """A number in SI, its 90 % interval where it is known, and why it is assumed where it is a prior.

    - `unit`, `kind`: of the number, where the rows of a column differ in them.
    """

    value: float
    low: float | None = None
    high: float | None = None
    prior: str = ""
    unit: str = ""
    kind: str = ""

    def mapped(self, function: Callable[[float], float]) -> "Quantity":
        """An increasing function of the number, with its interval."""
        low, high = (None if end is None else function(end) for end in (self.low, self.high))
        return Quantity(function(self.value), low, high)

    @classmethod
    def around(cls, value: float, half: float | None) -> "Quantity":
        """A number whose logarithm has an interval of this half-width; no interval where none is known."""
        return cls(value) if half is None else cls(value, value * math.exp(-half), value * math.exp(half))

    def column(self, column: "Column") -> "Column":
        """The column as this number reads it."""
        if not self.unit:
            return column
        usual = "temperature" if self.unit == "K" else column.kind
        return dataclasses.replace(column, unit=self.unit, kind=self.kind or usual)


Cell = Quantity | str | None


def _usual_kind(unit: str) -> str:
    return "temperature" if unit == "K" else "amount"


def as_cell(value: Any) -> Cell:
    """A value as a cell: a number or `(value, low, high)` as a quantity, a truth as "yes" or "no"."""
    if value is None or isinstance(value, Quantity | str):
        return value
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return Quantity(*value) if isinstance(value, tuple) else Quantity(value if isinstance(value, int) else float(value))


def spaced(name: str) -> str:
    """A name as a person reads it."""
    return name.replace("_", " ")


@dataclass(frozen=True)
class Column:
    """Name, title and unit of the numbers of a column.

    - `name`: its key in JSON, CSV and data frames, which never changes.
    - `title`: by default the name in words.
    - `kind`: by default "temperature" of K, or "amount"; else "count", "share" (of one), "change" (a ratio less one),
      "difference" (of temperatures), "hours" (of chips; in s) or "words".
    - `digits`: "interval" of each cell; "rows", whose error is common, so that neighbors stay apart; or "two", of
      numbers whose uncertainty is unknown.
    """

    name: str
    title: str = None  # type: ignore[assignment]
    unit: str = "1"
    kind: str = ""
    digits: str = "interval"
    level: int = SHORT

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", spaced(self.name) if self.title is None else self.title)
        object.__setattr__(self, "kind", self.kind or _usual_kind(self.unit))

    @property
    def changed(self) -> "Column":
        """The column of changes: differences of temperatures, ratios of all else."""
        if self.kind in ("temperature", "difference"):
            return dataclasses.replace(self, kind="difference")
        return self if self.kind == "words" else dataclasses.replace(self, unit="1", kind="change")


def words(name: str, title: str | None = None, level: int = SHORT) -> Column:
    """A column of words."""
    return Column(name, title, kind="words", level=level)  # type: ignore[arg-type]


Number = tuple[Column, Quantity]
"""A number for a sentence."""


def number(value: Any, unit: str = "1", kind: str = "", digits: str = "interval") -> Number:
    """A number for a sentence, or `(value, low, high)`."""
    cell = as_cell(value)
    assert isinstance(cell, Quantity)
    return Column("", "", unit, kind, digits), cell


def share(value: Any) -> Number:
    """A share for a sentence, with two digits where it has no interval."""
    return number(value, kind="share", digits="two")


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
    level: int = SHORT

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", [[as_cell(value) for value in row] for row in self.rows])

    @classmethod
    def facts(cls, name: str, title: str, cells: Mapping[Column, Any], level: int = SHORT) -> "Table":
        """One row of values by column, shown with a line for each."""
        return cls(name, title, [*cells], [[*cells.values()]], tall=True, level=level)

    @classmethod
    def records(
        cls, name: str, title: str, columns: Sequence[Column], of: Iterable[object], most: int = 0, **look: Any
    ) -> "Table":
        """A row for each record, whose attributes have the names of the columns; empty where a number is not finite.

        - `most`: rows of the short form; all by default.
        """
        rows = [[finite(getattr(record, column.name)) for column in columns] for record in of]
        return cls(name, title, columns, rows, short=range(min(most or len(rows), len(rows))), **look)

    def column(self, name: str) -> tuple[Column, list[Cell]]:
        """A column by name, and its cells."""
        index = [column.name for column in self.columns].index(name)
        return self.columns[index], [row[index] for row in self.rows]

    def column_of(self, row: int, column: Column) -> Column:
        """The column as a row of a tall table reads it."""
        kind = self.kinds[row] if self.kinds else ""
        if kind == CHANCE and column.kind != "words":
            return dataclasses.replace(column, unit="1", kind="share", digits="two")
        return column.changed if kind == CHANGE else column

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

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]


class Sentence(NamedTuple):
    """Words with places for numbers: "{energy}", or "{energy:i}" with the interval."""

    words: str
    numbers: Mapping[str, Number] = {}


def attributes(record: object, unit: str, *names: str) -> dict[Column, Any]:
    """Numbers of a record with one unit, for `facts`."""
    return {Column(name, unit=unit): getattr(record, name) for name in names}


def finite(value: Any) -> Any:
    """A value, or nothing where it is a number that nobody knows."""
    return None if isinstance(value, float | np.number) and not math.isfinite(value) else value


def present(*parts: Part | None) -> list[Part]:
    """The tables, charts or sentences that there are."""
    return [part for part in parts if part is not None]


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
    - `whole`: column of the table `outcome` that the parts of a stack add up to.
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
    whole: str = ""
    only: Sequence[str] = ()
    limit: tuple[float, str] | tuple[float, str, str] | None = None
    axis: str = ""
    diagonal: str = ""


@dataclass(frozen=True)
class Answer:
    """Everything a command has to say: rendered alike on a terminal, on a page, in files and in notebooks.

    - `rows`: name of the table that CSV holds; by default the first, joined with other tables of one tall row.
    - `also`: what to do next, with the command for it.
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
    inputs: Mapping[str, object] = dataclasses.field(default_factory=dict)
    rows: str = ""
    result: str = "successful"
    message: str = ""
    intervals: str = INTERVALS

    @classmethod
    def of(cls, scenario: "Scenario", command: str, headline: Sentence, *told: Any, **parts: Any) -> "Answer":
        """The answer of a command about a scenario; `told` and `parts` are the other fields, from `sentences`."""
        return cls(command, scenario.title, headline, *told, inputs=scenario.named_tables, **parts)

    def table(self, name: str) -> Table:
        """A table by name."""
        return next(table for table in self.tables if table.name == name)
