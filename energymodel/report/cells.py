"""Numbers with their intervals, and the columns that say how they are read."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from energymodel.readers.expressions import data_file

Part = TypeVar("Part")

Level = Literal["short", "full", "page", "data"]
"""Levels: on every surface; under --full; folded on a page, but on no terminal; in JSON, CSV and data frames alone."""


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
    - `digits`: "interval" of each cell; "rows", whose error is common, so that neighbors stay apart; "two", of
      numbers whose uncertainty is unknown; or "three" at least, of what people compare between answers.
    """

    name: str
    title: str = None  # type: ignore[assignment]
    unit: str = "1"
    kind: str = ""
    digits: str = "interval"
    level: Level = "short"

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", spaced(self.name) if self.title is None else self.title)
        object.__setattr__(self, "kind", self.kind or ("temperature" if self.unit == "K" else "amount"))

    @classmethod
    def of(cls, field: dataclasses.Field[Any]) -> "Column":
        """The column of a field whose metadata hold its unit, "text" of words, and perhaps title, kind and digits."""
        about = dict(field.metadata)
        unit, level = about.pop("unit"), "data" if about.pop("aside", False) else "short"
        look = {"kind": "words"} if unit == "text" else {"unit": unit}
        return cls(field.name, **look, **about, level=level)

    @property
    def changed(self) -> "Column":
        """The column of changes: differences of temperatures, ratios of all else."""
        if self.kind in ("temperature", "difference"):
            return dataclasses.replace(self, kind="difference")
        return self if self.kind == "words" else dataclasses.replace(self, unit="1", kind="change")


def declared(group: str) -> tuple[Column, ...]:
    """Columns of a group of `columns.toml`."""
    return tuple(Column(name, **about) for name, about in data_file(__file__, "columns.toml")[group].items())


def words(name: str, title: str | None = None, level: Level = "short") -> Column:
    """A column of words."""
    return Column(name, title, kind="words", level=level)  # type: ignore[arg-type]


def is_shown(level: Level, at: Level) -> bool:
    """Whether a surface at a level shows what is of another."""
    return get_args(Level).index(level) <= get_args(Level).index(at)


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


def attributes(record: object, unit: str, *names: str) -> dict[Column, Any]:
    """Numbers of a record with one unit, for `facts`."""
    return {Column(name, unit=unit): getattr(record, name) for name in names}


def finite(value: Any) -> Any:
    """A value, or nothing where it is a number that nobody knows."""
    return None if isinstance(value, float | np.number) and not math.isfinite(value) else value


def present(*parts: Part | None) -> list[Part]:
    """The tables, charts or sentences that there are."""
    return [part for part in parts if part is not None]
