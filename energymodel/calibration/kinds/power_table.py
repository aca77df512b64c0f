"""Times and powers of devices: settings with repeats, several cards, or logs of `nvidia-smi`."""

from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from energymodel.calibration.best_setting import Asked
from energymodel.calibration.measurements import COLUMNS, Measurements, TableChoices, read_table
from energymodel.errors import InputError
from energymodel.readers.columns import Schema
from energymodel.readers.table import read_csv

PARTS = ("workload", "dataset", "network", "optimizer", "suite", "benchmark", "kernel", "arg")
ACTIVITY = "dram_active_frac"
SETTING = ("gpu", *PARTS, "batch", "power_limit_w", "clock_hz")
POWER_COLUMNS = COLUMNS["power"]
TIME, POWER = (next(column for column in POWER_COLUMNS if column.name == name) for name in ("time_s", "power_w"))
MOST_ABOVE = 1.5  # of its limit, that a device may draw at the lowest limits
STAMP = "%Y/%m/%d %H:%M:%S.%f"


class Averaged(NamedTuple):
    """Settings, each once: the mean of its repeats. `noise` is the standard deviation of the logarithm of the energy of
    a repeat, `None` where nothing was measured twice; `notes` say what was averaged.
    """

    table: Measurements
    noise: float | None = None
    notes: tuple[str, ...] = ()


def power_table(path: Path, choices: TableChoices) -> Measurements:
    """Read a file; a log with time stamps and without times becomes a row for each setting in a row.

    **Raises:** `InputError` that names file, line and column.
    """
    csv = read_csv(path, choices.where)
    if "name" in csv.header and any(name.startswith("power.draw") for name in csv.header):  # of nvidia-smi
        choices = choices._replace(rename={"name": "gpu", **choices.rename})
    targets, constants, _ = Schema([column._replace(needed=False) for column in POWER_COLUMNS]).matched(
        csv.path, csv.header, choices
    )
    names = {*(target.column.name for target in targets.values()), *constants}
    if "timestamp" in names and TIME.name not in names:
        columns = [column for column in POWER_COLUMNS if column is not TIME]
        return _settings_of_log(read_table(csv, columns, choices, fewest=1))
    return read_table(csv, POWER_COLUMNS, choices, fewest=1)


def _settings_of_log(log: Measurements) -> Measurements:
    """A row for each stretch of a log in which no setting changes."""
    stamps = [
        _seconds(log.path, int(line), word) for line, word in zip(log.lines, log.columns["timestamp"], strict=True)
    ]
    seconds = np.array(stamps)
    columns = {name: values for name, values in log.columns.items() if name != "timestamp"}
    names = [name for name in (*SETTING, "run") if name in columns]
    first, time, power = [], [], []
    for rows in _stretches([columns[name] for name in names], len(log)):
        apart = np.diff(seconds[rows])
        if len(rows) < 2 or np.any(apart <= 0.0):
            raise InputError(
                f"{log.path}, line {log.lines[rows[0]]}: one setting of a log needs two readings or more, in order of "
                "time. Log each setting alone, or give a column time_s."
            )
        first.append(rows[0])
        time.append(float(seconds[rows[-1]] - seconds[rows[0]] + np.mean(apart)))
        power.append(float(np.mean(columns["power_w"][rows])))
    table = Measurements(log.path, {name: values[first] for name, values in columns.items()}, log.lines[first])
    note = (
        f"{len(log)} readings of a log are {len(first)} settings; the time of each is that from its first reading to "
        "its last: the same work must run at each of them."
    )
    columns = {**table.columns, "time_s": np.array(time), "power_w": np.array(power)}
    return Measurements(log.path, columns, table.lines, (note,))


def _stretches(columns: list[np.ndarray], count: int) -> Iterator[list[int]]:
    for _, rows in groupby(range(count), key=lambda row: tuple(str(column[row]) for column in columns)):
        yield list(rows)


def _seconds(path: str, line: int, word: str) -> float:
    try:
        return datetime.strptime(word.strip(), STAMP).timestamp()
    except ValueError:
        raise InputError(
            f'{path}, line {line}, column "timestamp": "{word}" is not a time as nvidia-smi writes it, such as '
            "2026/11/22 14:03:11.250."
        ) from None


def split_asked(table: Measurements) -> tuple[Measurements, Measurements]:
    """Rows that were measured, and rows without time and power, which are to be predicted.

    **Raises:** `InputError` for a row with one of both, or if no row was measured.
    """
    time, power = (np.isfinite(table.columns[column.name]) for column in (TIME, POWER))
    for row in np.flatnonzero(time != power):
        missing = POWER if time[row] else TIME
        raise InputError(
            f'{table.path}, line {table.lines[row]}, column "{missing.name}": empty. Write {missing.meaning} in '
            f"{missing.unit}, or leave time and power empty to have both predicted."
        )
    if not np.any(time):
        raise InputError(
            f"{table.path}: no row has {TIME.name} and {POWER.name}. Measure each workload and batch at the highest "
            "limit."
        )
    return table.select(np.flatnonzero(time)), table.select(np.flatnonzero(~time))


def labels_of(table: Measurements) -> np.ndarray:
    """The workload of each row, put together from its columns."""
    parts = [table.columns[name] for name in PARTS if name in table.columns]
    return np.array(["/".join(words) for words in zip(*parts, strict=True)] if parts else ["all"] * len(table))


def asked_settings(
    asked: Measurements, table: Measurements, workload: np.ndarray, is_profile: np.ndarray, *, by_limit: bool
) -> tuple[Asked, ...]:
    """Settings to be predicted, each with the row of its profile in the table of those that were measured.

    **Raises:** `InputError` for a row whose device, workload and batch was not measured, or that has no limit or clock.
    """

    def settings(rows: Measurements, words: np.ndarray) -> list[tuple[str, str, float]]:
        batch = rows.columns.get("batch", np.ones(len(rows)))
        return list(zip(rows.text("gpu", "").tolist(), words.tolist(), batch.tolist(), strict=True))

    rows = {setting: row for row, setting in enumerate(settings(table, workload)) if is_profile[row]}
    predicted = []
    for row, setting in enumerate(settings(asked, labels_of(asked))):
        line, column = int(asked.lines[row]), "power_limit_w" if by_limit else "clock_hz"
        if setting not in rows:
            raise InputError(
                f"{asked.path}, line {line}: {setting[1]}, batch {setting[2]:g}, was not measured. Give a row with its "
                "time and power at the highest limit or clock."
            )
        speed = float(asked.columns[column][row])
        if not np.isfinite(speed):
            raise InputError(f'{asked.path}, line {line}, column "{column}": empty. Write what is to be predicted.')
        profile = rows[setting]
        predicted.append(Asked(line, profile, speed if by_limit else speed / float(table.columns[column][profile])))
    return tuple(predicted)


def check_limits(table: Measurements) -> None:
    """Refuse powers far above their limit.

    **Raises:** `InputError` that names the line.
    """
    if "power_limit_w" not in table.columns:
        return
    power, limit = table.columns["power_w"], table.columns["power_limit_w"]
    for row in np.flatnonzero(np.isfinite(limit) & (power > MOST_ABOVE * limit)):
        raise InputError(
            f'{table.path}, line {table.lines[row]}, column "power_w": {power[row]:g} W at a limit of {limit[row]:g} W '
            "cannot be. Write both in W for one device, not for a node."
        )


def averaged(table: Measurements) -> Averaged:
    """Each setting once, at the first of its lines, with the mean time and power of its repeats."""
    names = [name for name in SETTING if name in table.columns]
    places: dict[tuple[str, ...], list[int]] = {}
    for row in range(len(table)):
        places.setdefault(tuple(str(table.columns[name][row]) for name in names), []).append(row)
    groups = list(places.values())
    if len(groups) == len(table):
        return Averaged(table)
    energy = np.log(table.columns["time_s"] * table.columns["power_w"])
    squares = sum(float(np.sum((energy[rows] - np.mean(energy[rows])) ** 2)) for rows in groups)
    noise = float(np.sqrt(squares / (len(table) - len(groups))))
    names = [name for name in ("time_s", "power_w", "epochs") if name in table.columns]
    means = {name: np.array([np.mean(table.columns[name][rows]) for rows in groups]) for name in names}
    first = table.select(np.array([rows[0] for rows in groups]))
    note = (
        f"{len(table)} rows are {len(groups)} settings, each the mean of its repeats, whose energies differ by "
        f"{100 * noise:.2g} % (standard deviation)."
    )
    averages = Measurements(table.path, {**first.columns, **means}, first.lines, table.notes)
    return Averaged(averages, noise, (note,))
