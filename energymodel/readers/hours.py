"""Times of the rows of a table as public downloads write them, and the hours that rows make."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np

from energymodel.errors import InputError
from energymodel.readers.table import Measurements

HOUR = 3600.0
STEPS = (300.0, 900.0, 1800.0, HOUR)  # between rows [s]
FORMATS = (
    "", "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%Y %I:%M:%S %p",
    "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%d-%m-%Y %H:%M:%S", "%d-%m-%Y %H:%M", "%d%b%Y %H:%M:%S",
)  # fmt: skip
"""Of times; the empty one is ISO 8601. Of several that fit, the first by which rows follow each other."""


class HoursOfRows(NamedTuple):
    """Rows by hour.

    - `order`: of the rows by time; `hour`: of each row in that order, counted from the first.
    - `first`: beginning of the first hour; `months`: of each hour, counted from the first.
    """

    order: np.ndarray
    hour: np.ndarray
    first: datetime
    months: np.ndarray


def hours_of_rows(table: Measurements, column: str, *, local: bool = False, ends: bool = False) -> HoursOfRows:
    """Hours of rows at a constant distance of at most an hour.

    **Arguments:**

    - `column`: of times, or of ranges of them such as "01.01.2026 00:00 - 01.01.2026 01:00", whose beginning counts.
    - `local`: whether clocks are put forward and back by an hour, which rows go on over.
    - `ends`: whether times are those of the end of an hour.

    **Raises:** `InputError` that names the line where a time cannot be read, or an hour is missing or appears twice.
    """
    words = [str(word).split(" - ")[0].split(" – ")[0].strip() for word in table.columns[column]]
    refusal: InputError | None = None
    for form in FORMATS:
        try:
            times = [_time(word, form) for word in words]
        except ValueError:
            continue
        seconds = np.array([(time - times[0]).total_seconds() for time in times])
        order = (
            np.argsort(seconds, kind="stable") if not local else np.arange(len(times))[:: 1 if seconds[-1] >= 0 else -1]
        )
        steps = np.diff(seconds[order])
        step = float(np.median(steps))
        regular = (steps == step) | (local & np.isin(steps, (step - HOUR, step + HOUR)))
        if step in STEPS and np.all(regular):
            first = times[order[0]] - timedelta(seconds=step if ends else 0.0)
            start = first.replace(minute=0, second=0, microsecond=0)
            offset = (first - start).total_seconds()
            hour = ((offset + step * np.arange(len(times))) // HOUR).astype(int)
            each = [start + timedelta(hours=number) for number in range(hour[-1] + 1)]
            months = np.array([12 * (time.year - start.year) + time.month - start.month for time in each])
            return HoursOfRows(order, hour, start, months)
        row = int(np.argmin(regular)) if not np.all(regular) else 0
        words_of = f"{words[order[row + 1]]} follows {words[order[row]]}"
        refusal = refusal or table.error(
            int(order[row + 1]), f"{words_of}. Give each hour once, or parts of it.", column
        )
    if refusal is not None:
        raise refusal
    form = "2026-01-01 00:00, 01.01.2026 00:00 or 01/01/2026 12:00:00 AM"
    raise table.error(0, f'"{words[0]}" is no time that is known. Write {form}.', column)


def by_hour(table: Measurements, hours: HoursOfRows) -> Measurements:
    """Means of the rows of each hour; words are left out."""
    count = np.bincount(hours.hour)
    columns = {
        name: np.bincount(hours.hour, values[hours.order]) / count
        for name, values in table.columns.items()
        if values.dtype.kind == "f"
    }
    return Measurements(
        table.path, columns, table.lines[hours.order][np.searchsorted(hours.hour, range(len(count)))], table.notes
    )


def hour_of_year(time: datetime) -> int:
    """Hours from the beginning of its year."""
    return int((time - datetime(time.year, 1, 1)).total_seconds() // HOUR)


def _time(word: str, form: str) -> datetime:
    """A time without a zone; one with an offset in UTC."""
    time = datetime.strptime(word, form) if form else datetime.fromisoformat(word)
    return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time


def named_columns(header: Sequence[str]) -> str:
    """The columns of a file, to quote them."""
    return ", ".join(name for name in header if name)
