"""`emissions.csv` of CodeCarbon, versions 2 and 3.

A row holds the duration [s] and the energies [kWh] since the start of its run. With `flush()` a run has several rows,
which are cumulative. Each run begins with a reading of its own, so that nothing is said of the time between runs. A run
that overlaps another one gets devices of its own. Emissions and `water_consumed` are not read: they are estimates from
the energy and the place.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from energymodel.errors import InputError
from energymodel.readers.lines import MOST_SITE_POWER, UNREAD, between, cells, number, reading_of, time_of
from energymodel.readers.log_records import NOT_SAID, PowerReading
from energymodel.readers.power.table import NAMES

KWH = 3.6e6
SAME_START = 2.0  # rows of one run give the same start within this time: stamps are whole seconds [s]


@dataclass
class Run:
    """What has been read of a run."""

    name: str
    start: float
    stop: float
    number: int
    sums: dict[str, float] = field(default_factory=dict)


def is_codecarbon(lines: list[str]) -> bool:
    """Whether lines begin with the header of such a table."""
    return any(_columns(line) for line in lines[:20])


def _columns(line: str) -> dict[str, int]:
    names = {name.lower(): index for index, name in reversed(list(enumerate(cells(line))))}
    complete = {"timestamp", "duration"} <= names.keys() and {"energy_consumed", "gpu_energy"} & names.keys()
    return names if complete else {}


def read_codecarbon(lines: Iterable[str], name: str) -> Iterator[PowerReading | str]:
    """Readings "gpu", "cpu", "ram" and "node" (their sum): the start of each run, and each of its rows.

    **Raises:** `InputError` without a header.
    """
    columns: dict[str, int] = {}
    runs: list[Run] = []
    for line in lines:
        if header := _columns(line):
            columns = header
            continue
        row = cells(line)
        is_whole = columns and len(row) >= sum(1 for name in columns if name)
        texts = {key: row[index] for key, index in columns.items() if index < len(row)} if is_whole else {}
        time, duration = time_of(texts.get("timestamp", "")), between(number(texts.get("duration", "")), 0.0, 1e10)
        if not time > 0 or not duration > 0:
            yield UNREAD
            continue
        run = _run_of(runs, texts.get("run_id", ""), time, duration)
        run.stop = time
        yield from list(_readings(texts, run, time, duration)) or [PowerReading(time, "")]
    if not columns:
        raise InputError(f"{name}: no header with timestamp, duration and energy_consumed. Give emissions.csv whole.")


def _run_of(runs: list[Run], name: str, time: float, duration: float) -> Run:
    """The run that a row goes on with, or a new one, with a number of its own while another one goes on."""
    for run in runs:
        if run.name == name and time >= run.stop and abs(run.start - (time - duration)) <= SAME_START:
            return run
    busy = {run.number for run in runs if run.stop > time - duration + SAME_START}
    free = next(index for index in range(len(busy) + 1) if index not in busy)
    runs[:] = [*(run for run in runs if run.number != free), Run(name, time - duration, time, free)]
    return runs[-1]


def _readings(texts: dict[str, str], run: Run, time: float, duration: float) -> Iterator[PowerReading]:
    """Readings of a row; without a number for a part whose energy fell."""
    for part, names in NAMES["codecarbon"].items():
        energy, power, busy = (number(texts.get(name, "")) for name in names)
        energy = between(energy * KWH, 0.0, MOST_SITE_POWER * duration)
        chips = number(texts.get("gpu_count", "")) if part == "gpu" else NOT_SAID
        if math.isnan(energy) or (part == "gpu" and energy == 0 and not chips > 0):
            continue
        device = f"{part} (parallel run {run.number + 1})" if run.number else part
        if part not in run.sums:
            yield PowerReading(time=run.start, device=device, energy=0.0, chips=chips, fresh=True)
        elif energy < run.sums[part]:
            yield PowerReading(time, device)
            continue
        run.sums[part] = energy
        power, busy = power or NOT_SAID, busy * 0.01 or NOT_SAID
        reading = reading_of(device, time, MOST_SITE_POWER, energy=energy, power=power, utilization=busy)
        yield replace(reading, chips=chips)
