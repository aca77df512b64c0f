"""Columns of the tables that users bring: names, units, ranges, and how their headings are found.

Headings are compared without regard to case, blanks and dashes count as `_`, and a unit may stand in brackets or at the
end: `power [W]`, `time (ms)`, `step_time_ms`.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from energymodel.constants import ZERO_CELSIUS
from energymodel.errors import InputError
from energymodel.readers.expressions import data_file

LISTED_NAMES = 12
TEXT = "text"
COUNTS = ("1", "token", "sequence")  # units of what is counted, which headings give in thousands or millions
UNITS: Mapping[str, Mapping[str, float]] = data_file(__file__, "units.toml")
"""SI value of the units of headings and cells, in lower case where case says nothing, by what they measure."""
OF_CELSIUS = ("c", "°c", "degc", "celsius")
MAGNITUDES = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "bn": 1e9, "t": 1e12} | {
    f"{word}{plural}": value
    for word, value in (("thousand", 1e3), ("million", 1e6), ("billion", 1e9), ("trillion", 1e12))
    for plural in ("", "s")
}
_BRACKETS = re.compile(r"(.*?)\s*[\[(]\s*([^\])]+?)\s*[\])]")
_WITH_UNIT = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z%°]+)")


class Column(NamedTuple):
    """A column of a table.

    - `name`: with the unit as suffix where it has one, as in `power_w`.
    - `unit`: of its numbers, SI; "text" for words.
    - `meaning`: in a few words.
    - `needed`: whether a table without it is refused; `empty`: whether cells may be empty then.
    - `others`: names under which public files have it.
    - `default`: where it is left out; NaN if that is computed, or nothing.
    - `lowest`, `highest`: that a number may be; `zero`: whether it may be 0.
    """

    name: str
    unit: str
    meaning: str
    needed: bool = False
    others: tuple[str, ...] = ()
    default: float = math.nan
    lowest: float = 0.0
    highest: float = math.inf
    zero: bool = False
    empty: bool = False

    def check(self, value: float) -> float:
        """The value, if it is in the range.

        **Raises:** `InputError` that names value, unit and range.
        """
        quantity = f"{value:g}" if self.unit == "1" else f"{value:g} {self.unit}"
        if value < self.lowest or (value == 0.0 and not self.zero):
            bound = f"at least {self.lowest:g}" if self.lowest > 0.0 or self.zero else "above 0"
            raise InputError(f"{quantity} cannot be; {self.meaning} is {bound}.")
        if value > self.highest:
            advice = " Divide percentages by 100." if self.highest == 1.0 else ""
            raise InputError(f"{quantity} cannot be; {self.meaning} is at most {self.highest:g}.{advice}")
        return value


def declared_columns(path: Path) -> dict[str, Any]:
    """Columns of a TOML file by group, `[group.name]`; what is no group of tables stays as it is."""

    def columns(group: Any) -> Any:
        if not isinstance(group, dict) or not all(isinstance(table, dict) for table in group.values()):
            return group
        return tuple(
            Column(**{"name": name, **table, "others": tuple(table.get("others", ()))}) for name, table in group.items()
        )

    return {group: columns(content) for group, content in tomllib.loads(path.read_text("utf-8")).items()}


class TableChoices(NamedTuple):
    """How a person wants a table to be read.

    - `rename`: their name of a column, and ours (with another unit where it has one, as in `step_time_ms`).
    - `constants`: columns that the table lacks, with one word for all rows.
    - `ignore`: columns to be left out; "all" stands for all that are not known.
    - `where`: words that a row must have in some columns to be taken.
    - `skip_bad_rows`: leave out rows that cannot be read instead of refusing the table.
    - `cluster`: preset or file of the cluster of all rows.
    - `clusters`: names of clusters beside the presets.
    - `name`: what messages call rows that are in no file.
    """

    rename: Mapping[str, str] = {}
    constants: Mapping[str, str] = {}
    ignore: Sequence[str] = ()
    where: Mapping[str, str] = {}
    skip_bad_rows: bool = False
    cluster: str = ""
    clusters: Sequence[str] = ()
    name: str = "table"


AS_WRITTEN = TableChoices()  # nothing renamed, ignored or left out


def plain_name(name: str) -> str:
    """A name of a column as names are compared."""
    return re.sub(r"[\s\-]+", "_", name.strip().lower())


def unit_value(unit: str, target: str) -> tuple[float, float] | None:
    """Factor and offset that convert a unit of a heading or a cell to an SI unit; None if it does not measure that."""
    factor = UNITS.get(target, {}).get(unit, UNITS.get(target, {}).get(unit.lower()))
    if factor is None and target in COUNTS:
        factor = MAGNITUDES.get(unit.lower())
    if factor is None:
        return (1.0, 0.0) if unit.lower() == target.lower() else None
    return factor, ZERO_CELSIUS if unit.lower() in OF_CELSIUS else 0.0


def unit_factor(unit: str) -> float:
    """SI value of a unit of power, energy, frequency, time or share; NaN for an unknown one."""
    values = (UNITS[kind].get(unit, UNITS[kind].get(unit.lower())) for kind in ("W", "J", "Hz", "s", "1"))
    return next((value for value in values if value is not None), math.nan)


def column_index(path: str, header: Sequence[str], name: str, option: str) -> int:
    """Index of the column that an option names as the file does.

    **Raises:** `InputError` that suggests the nearest name.
    """
    if name not in header:
        near = difflib.get_close_matches(name, header, n=1, cutoff=0.4)
        advice = f'Did you mean "{near[0]}"?' if near else f"The file has {_listed(header)}."
        raise InputError(f'{path}, line 1: {option}: there is no column "{name}". {advice}')
    return header.index(name)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED_NAMES]) + (" ..." if len(names) > LISTED_NAMES else "")


class Target(NamedTuple):
    """The column that a heading means, and the factor and offset of its numbers."""

    column: Column
    factor: float = 1.0
    offset: float = 0.0

    def in_si(self, word: str) -> str:
        """A cell in the unit of the column; what is no number stays as it is."""
        if (self.factor, self.offset) == (1.0, 0.0):
            return word
        try:
            return repr(float(word) * self.factor + self.offset)
        except ValueError:
            return word


class Schema:
    """Declared columns, found by their headings.

    **Arguments:**

    - `columns`: that are read.
    - `notes`: names of columns that are known and not read. With them every other column is refused.
    """

    def __init__(self, columns: Sequence[Column], notes: Collection[str] | None = None) -> None:
        self.columns = tuple(columns)
        self.notes = frozenset(notes or ())
        self.strict = notes is not None
        self.names = {plain_name(other): column for column in columns for other in column.others}
        self.names |= {plain_name(column.name): column for column in columns}  # the schema's own names win
        self.stems = {stem: column for name, column in self.names.items() if (stem := _stem(name, column.unit))}

    def target(self, heading: str) -> Target | None:
        """What a heading means, if it is known.

        **Raises:** `InputError` for a column in the unit of something else.
        """
        plain = plain_name(heading)
        if plain in self.names:
            return Target(self.names[plain])
        column, unit = self._column_and_unit(heading)
        if column is None or column.unit == TEXT or plain in self.notes:
            return None
        value = unit_value(unit, column.unit)
        if value is not None:
            return Target(column, *value)
        if _BRACKETS.fullmatch(heading.strip()) or any(unit_value(unit, other) for other in (*UNITS, *COUNTS)):
            raise InputError(
                f'column "{heading}" has the unit "{unit}"; {column.meaning}: read in {column.unit}. Convert the '
                f'numbers and call it "{column.name}".'
            )
        return None

    def _column_and_unit(self, heading: str) -> tuple[Column | None, str]:
        """The column that a heading means if its last word, or what stands in brackets, is a unit; and that word."""
        brackets = _BRACKETS.fullmatch(heading.strip())
        *parts, unit = brackets.groups() if brackets else re.split(r"[_\s-]+", heading.strip())
        stem = plain_name("_".join(parts))
        return self.names.get(stem) or self.stems.get(stem), unit

    def warning(self, heading: str) -> str:
        """That a column is left out whose name is a known one's with another unit, `node_power_kg`; "" for others."""
        column, unit = self._column_and_unit(heading)
        if column is None or column.unit == TEXT or self._is_note(heading):
            return ""
        return (
            f'Column "{heading}" is not read: "{unit}" is no unit of {column.meaning}. If it is that, convert it to '
            f'{column.unit} and call it "{column.name}".'
        )

    def nearest(self, heading: str) -> str:
        """A sentence that names the nearest known column, or the unit that is missing."""
        plain = plain_name(heading)
        if plain in self.stems:
            column = self.stems[plain]
            return f'Its unit is missing: call it "{plain}{column.name[column.name.rindex("_") :]}".'
        near = difflib.get_close_matches(plain, self.names, n=1, cutoff=0.5)
        if not near:
            near = [
                name for name in self.names if len(plain) > 2 and (plain in name or (len(name) > 3 and name in plain))
            ]
        if not near:
            return "No known column is near."
        name = self.names[near[0]].name
        return f'Did you mean "{near[0]}"{f", which means {name}" if name != near[0] else ""}?'

    def matched(
        self, path: str, header: Sequence[str], choices: TableChoices
    ) -> tuple[dict[int, Target], dict[str, tuple[Target, str]], tuple[str, ...]]:
        """Targets of the columns of a file by index, targets and words of constant columns, and names that are unused.

        **Raises:** `InputError` that names every unknown column with its nearest known one, and two columns of one
        meaning, a needed column that is missing, and names in `choices` that do not exist.
        """
        constants = self._constants(choices)
        for name in choices.rename:
            column_index(path, header, name, "--rename")
        ignored = {plain_name(name) for name in choices.ignore}
        for name in choices.ignore:
            if name != "all" and plain_name(name) not in map(plain_name, header):
                column_index(path, header, name, "--ignore-columns")
        targets: dict[int, Target] = {}
        unused: list[str] = []
        unknown: list[str] = []
        for index, name in enumerate(header):
            if not name or plain_name(name) in ignored:
                unused += [name] if name else []
                continue
            try:
                target = self.target(choices.rename.get(name, name))
            except InputError as error:
                raise InputError(f"{path}, line 1: {error}") from None
            if target is not None and target.column.name not in constants:
                targets[index] = target
            elif target is not None or self._is_note(choices.rename.get(name, name)):
                unused.append(name)
            else:
                unknown.append(name)
        if unknown and self.strict and "all" not in ignored:
            self._refuse_unknown(path, unknown)
        self._refuse_doubles(path, header, targets)
        names = {*(target.column.name for target in targets.values()), *constants}
        for column in self.columns:
            if column.needed and column.name not in names:
                hint = f"The file has {_listed([name for name in header if name])}"
                raise InputError(
                    f'{path}, line 1: column "{column.name}" is missing: {column.meaning} [{column.unit}]. {hint}; say '
                    f"which it is with --rename THEIRS={column.name}."
                )
        return targets, constants, (*unused, *unknown)

    def _is_note(self, heading: str) -> bool:
        plain = plain_name(heading)
        return plain in self.notes or any(name.endswith("_") and plain.startswith(name) for name in self.notes)

    def _constants(self, choices: TableChoices) -> dict[str, tuple[Target, str]]:
        constants: dict[str, tuple[Target, str]] = {}
        for name, word in choices.constants.items():
            target = self.target(name)
            if target is None:
                raise InputError(f'--column {name}: unknown column "{name}". {self.nearest(name)}')
            constants[target.column.name] = (target, word)
        for theirs, ours in choices.rename.items():
            if self.target(ours) is None and not self._is_note(ours):
                raise InputError(f'--rename {theirs}={ours}: unknown column "{ours}". {self.nearest(ours)}')
        return constants

    def _refuse_unknown(self, path: str, unknown: Sequence[str]) -> None:
        listed = [f'"{name}": {self.nearest(name)}' for name in unknown]
        advice = (
            "Correct the name, say what it means with --rename THEIRS=OURS, or leave it out with --ignore-columns NAME "
            "(all: every unknown one)."
        )
        if len(unknown) == 1:
            raise InputError(f"{path}, line 1: unknown column {listed[0]} {advice}")
        raise InputError(f"{path}, line 1: {len(unknown)} unknown columns. {advice}", *listed)

    @staticmethod
    def _refuse_doubles(path: str, header: Sequence[str], targets: Mapping[int, Target]) -> None:
        first: dict[str, str] = {}
        for index, target in targets.items():
            name = first.setdefault(target.column.name, header[index])
            if name != header[index]:
                raise InputError(
                    f'{path}, line 1: columns "{name}" and "{header[index]}" both mean {target.column.name}. Leave one '
                    f'out: --ignore-columns "{header[index]}".'
                )


def _stem(name: str, unit: str) -> str:
    """A name without the unit at its end; "" if it ends with none."""
    stem, _, suffix = name.rpartition("_")
    return stem if unit not in (TEXT, *COUNTS) and unit_value(suffix, unit) is not None else ""


def number(word: str, target: Target) -> float:
    """The number in a cell, in SI, with or without a unit; NaN where it may be empty.

    **Raises:** `InputError` that says what is wrong, and the next step.
    """
    column = target.column
    if word.startswith("["):  # nvidia-smi: [N/A], [Not Supported]
        word = ""
    if not word and (not column.needed or column.empty):
        return math.nan
    factor, offset = target[1:]
    unit = _WITH_UNIT.fullmatch(word)
    if unit and (value := unit_value(unit[2], column.unit)) is not None and column.unit not in COUNTS:
        word, (factor, offset) = unit[1], value
    try:
        value = float(word)
    except ValueError:
        wrong = f"{word!r} is not a number" if word else "empty"
        raise InputError(f"{wrong}. Write {column.meaning} in {column.unit}, without a unit.") from None
    if not math.isfinite(value):
        raise InputError(f"{word} is not finite. Leave out rows without a measurement.")
    return column.check(value * factor + offset)


def column_lines(columns: Sequence[Column]) -> list[str]:
    """A line for each column: name, unit, whether it is needed or its default, meaning, and the other names for it."""
    lines = []
    for column in columns:
        default = "optional" if math.isnan(column.default) else f"default {column.default:g}"
        stems = sorted({stem for name in column.others if (stem := _stem(name, column.unit))})
        others = [f"{', '.join(stems)} with a unit such as {', '.join(list(UNITS[column.unit])[:4])}"] if stems else []
        others += [name for name in column.others if not _stem(name, column.unit)]
        also = f"; also called {', '.join(others)}" if others else ""
        lines.append(f"{column.name} [{column.unit}], {'needed' if column.needed else default}: {column.meaning}{also}")
    return lines
