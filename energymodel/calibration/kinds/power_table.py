"""Times and powers of devices: settings with repeats, several cards, or logs of `nvidia-smi`."""

from collections.abc import Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path

import numpy as np

from energymodel.calibration.best_setting import Settings
from energymodel.calibration.calibration_case import CHIP, COLUMNS
from energymodel.calibration.device_power import MOST_IDLE, USUAL_IDLE, profiles
from energymodel.calibration.power_population import architecture_of
from energymodel.errors import InputError
from energymodel.readers.columns import Schema, TableChoices
from energymodel.readers.table import Measurements, Records, read_csv, read_table
from energymodel.scenarios.scenario import Scenario

PARTS = ("workload", "dataset", "network", "optimizer", "suite", "benchmark", "kernel", "arg")
ACTIVITY = "dram_active_frac"
SETTING = ("gpu", *PARTS, "batch", "power_limit_w", "clock_hz")
MOST_ABOVE = 1.5  # of its limit, that a device may draw at the lowest limits
STAMP = "%Y/%m/%d %H:%M:%S.%f"
NO_NAME = "this device"
OF_PRIOR = "that of the prior"
POWER_COLUMNS = COLUMNS["power"]
TIME, POWER = (next(column for column in POWER_COLUMNS if column.name == name) for name in ("time_s", "power_w"))


def power_table(source: Path | Records, choices: TableChoices) -> Measurements:
    """Read a file; a log with time stamps and without times becomes a row for each setting in a row.

    **Raises:** `InputError` that names file, line and column.
    """
    csv = read_csv(source, choices.where, name=choices.name)
    if "name" in csv.header and any(name.startswith("power.draw") for name in csv.header):  # of nvidia-smi
        choices = choices._replace(rename={"name": "gpu", **choices.rename})
    optional = Schema([column._replace(needed=False) for column in POWER_COLUMNS])
    targets, constants, _ = optional.matched(csv.path, csv.header, choices)
    names = {*(target.column.name for target in targets.values()), *constants}
    is_log = "timestamp" in names and "time_s" not in names
    columns = [column for column in POWER_COLUMNS if not (is_log and column.name == "time_s")]
    table = read_table(csv, columns, choices, fewest=1)
    return _settings_of_log(table) if is_log else table


def _settings_of_log(log: Measurements) -> Measurements:
    """A row for each stretch of a log in which no setting changes."""
    seconds = np.zeros(len(log))
    for row, word in enumerate(log.columns["timestamp"].tolist()):
        try:
            seconds[row] = datetime.strptime(word.strip(), STAMP).timestamp()
        except ValueError:
            words = f'"{word}" is not a time as nvidia-smi writes it, such as 2026/11/22 14:03:11.250.'
            raise log.error(row, words, "timestamp") from None
    settings, first, time, power = _settings_by_row(log, (*SETTING, "run")), [], [], []
    for _, stretch in groupby(range(len(log)), key=settings.__getitem__):
        rows = list(stretch)
        apart = np.diff(seconds[rows])
        if len(rows) < 2 or np.any(apart <= 0.0):
            raise log.error(
                rows[0],
                "one setting of a log needs two readings or more, in order of time. Log each setting alone, or give a "
                "column time_s.",
            )
        first.append(rows[0])
        time.append(np.sum(apart) + np.mean(apart))
        power.append(np.mean(log.columns["power_w"][rows]))
    note = (
        f"{len(log)} readings of a log are {len(first)} settings; the time of each is that from its first reading to "
        "its last: the same work must run at each of them."
    )
    return log.select(np.array(first)).having({"time_s": np.array(time), "power_w": np.array(power)}, [note])


def _settings_by_row(table: Measurements, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    present = [table.columns[name] for name in names if name in table.columns]
    return [tuple(str(column[row]) for column in present) for row in range(len(table))]


def averaged(table: Measurements) -> tuple[Measurements, float]:
    """Each setting once, at the first of its lines, with the mean time and power of its repeats and a note.

    Also the standard deviation of the logarithm of the energy of a repeat [1], 0 where nothing was measured twice.
    """
    repeats: dict[tuple[str, ...], list[int]] = {}
    for row, setting in enumerate(_settings_by_row(table, SETTING)):
        repeats.setdefault(setting, []).append(row)
    groups = list(repeats.values())
    if len(groups) == len(table):
        return table.having({}, ()), 0.0
    energy = np.log(table.columns["time_s"] * table.columns["power_w"])
    squares = sum(float(np.sum((energy[rows] - np.mean(energy[rows])) ** 2)) for rows in groups)
    noise = float(np.sqrt(squares / (len(table) - len(groups))))
    names = {"time_s", "power_w", "epochs"} & {*table.columns}
    means = {name: np.array([np.mean(table.columns[name][rows]) for rows in groups]) for name in names}
    note = (
        f"{len(table)} rows are {len(groups)} settings, each the mean of its repeats, whose energies differ by "
        f"{100 * noise:.2g} % (standard deviation)."
    )
    return table.select(np.array([rows[0] for rows in groups])).having(means, [note]), noise


def split_asked(table: Measurements) -> tuple[Measurements, Measurements]:
    """Rows that were measured, and rows without time and power, which are to be predicted.

    **Raises:** `InputError` for a row with one of both, if no row was measured, and for powers far above their limit.
    """
    time, power = (np.isfinite(table.columns[column.name]) for column in (TIME, POWER))
    for row in np.flatnonzero(time != power):
        missing = POWER if time[row] else TIME
        advice = f"Write {missing.meaning} in {missing.unit}, or leave time and power empty to have both predicted."
        raise table.error(row, f"empty. {advice}", missing.name)
    if not np.any(time):
        raise InputError(
            f"{table.path}: no row has {TIME.name} and {POWER.name}. Measure each workload and batch at the highest "
            "limit."
        )
    if "power_limit_w" not in table.columns and "clock_hz" not in table.columns:
        raise InputError(
            f'{table.path}, line 1: column "power_limit_w" [W] or "clock_hz" [Hz] is missing: the limit or clock that '
            "was set."
        )
    watt, limit = table.columns["power_w"], table.columns.get("power_limit_w", np.full(len(table), np.nan))
    for row in np.flatnonzero(np.isfinite(limit) & (watt > MOST_ABOVE * limit)):
        words = (
            f"{watt[row]:g} W at a limit of {limit[row]:g} W cannot be. Write both in W for one device, not for a node."
        )
        raise table.error(row, words, "power_w")
    return table.select(np.flatnonzero(time)), table.select(np.flatnonzero(~time))


def settings_of(table: Measurements, asked: Measurements, prior: Scenario | None, noise: float) -> Settings:
    """Measured settings with their profiles, and those that were asked about.

    The prior names the device of rows that name none, and has the idle power of a single device, if it knows it.

    **Raises:** `InputError` where only some rows name their device, and for a setting that was asked about whose
    device, workload and batch was not measured, or that has no limit or clock.
    """
    device, count = table.text("gpu", ""), len(table)
    blank = device == ""
    if np.any(blank) and not np.all(blank):
        raise table.error(int(np.argmax(blank)), "empty. Name the device of every row, or of none.", "gpu")
    names = (NO_NAME,) if np.any(blank) else tuple(dict.fromkeys(device.tolist()))
    architectures = tuple(map(architecture_of, names))
    if names == (NO_NAME,) and prior is not None:
        earlier = prior.tables.get("calibration", {}).get("power", {}).get("gpu", "")
        chip = prior.tables.get("system", {}).get("accelerator", "")
        chip = chip.get("preset", "") if isinstance(chip, Mapping) else chip
        architectures = (architecture_of(str(earlier)) or architecture_of(str(chip)),)
    settings, batch = _works(table), table.columns.get("batch", np.ones(count))
    workload = np.array([work for _, work, _ in settings])
    metered = table.columns.get("idle_power_w", np.full(count, np.nan))
    source = None if prior is None else prior.provenance.get(f"{CHIP}.idle_power")
    is_known = len(names) == 1 and np.all(np.isnan(metered)) and source is not None and not source.is_prior
    idle = np.full(count, float(prior.system.accelerator.idle_power)) if prior is not None and is_known else metered
    runs, is_profile = profiles(
        workload,
        batch,
        table.columns.get("power_limit_w", np.full(count, np.inf)),
        table.columns["time_s"],
        table.columns["power_w"],
        clock=table.columns.get("clock_hz"),
        idle_power=idle,
        device=device,
        memory_activity=table.columns.get(ACTIVITY),
    )
    epochs = table.columns.get("epochs", np.ones(count))
    epochs = np.where(np.isfinite(epochs), epochs, np.inf)
    measured = {setting: row for row, setting in enumerate(settings) if is_profile[row]}
    column = "power_limit_w" if runs.by_limit else "clock_hz"
    predicted = []
    for row, setting in enumerate(_works(asked)):
        if setting not in measured:
            words = f"{setting[1]}, batch {setting[2]:g}, was not measured"
            raise asked.error(row, f"{words}. Give a row with its time and power at the highest limit or clock.")
        profile, speed = measured[setting], float(asked.columns[column][row])
        if not np.isfinite(speed):
            raise asked.error(row, "empty. Write what is to be predicted.", column)
        highest = 1.0 if runs.by_limit else float(table.columns[column][profile])
        predicted.append((int(asked.lines[row]), profile, speed / highest))
    guesses = []
    for number in range(len(names)):
        rows = np.asarray(runs.device) == number
        guess = f"{100 * USUAL_IDLE:.0f} % of the highest limit: nothing that was measured is as low as an idle device"
        if np.min(runs.power[rows]) <= MOST_IDLE * runs.rated_power[rows][0]:
            guess = "just under the lowest power that was measured, an upper bound"
        own = OF_PRIOR if is_known and np.isclose(runs.idle_power[0], idle[0]) else guess
        guesses.append("" if np.any(np.isfinite(metered[rows])) else own)
    return Settings(runs, is_profile, workload, batch, names, epochs, noise, predicted, architectures, tuple(guesses))


def _works(table: Measurements) -> list[tuple[str, str, float]]:
    """Device, workload (put together from its columns) and batch of each row."""
    parts = [table.columns[name] for name in PARTS if name in table.columns]
    workload = ["/".join(words) for words in zip(*parts, strict=True)] if parts else ["all"] * len(table)
    batch = table.columns.get("batch", np.ones(len(table)))
    return list(zip(table.text("gpu", "").tolist(), workload, batch.tolist(), strict=True))
