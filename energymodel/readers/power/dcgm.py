"""Text of the DCGM exporter and tables of `dcgmi dmon`.

Times stand behind the values, in milliseconds, or in a line between the scrapes (such as the output of `date`), or
before each line (`ts`). Where they stand nowhere, `interval` is the time between samples; without it times are NaN.
"""

import re
from collections.abc import Iterable, Iterator

from energymodel.readers.cells import MOST_POWER, between, kelvin, number, throttled_by_mask, time_of, time_within
from energymodel.readers.lines import NO_VALUE, UNREAD, Skipped
from energymodel.readers.log_records import NOT_SAID, PowerReading
from energymodel.readers.power.names import NAMES

METRICS, COLUMNS = NAMES["dcgm"]["metrics"], NAMES["dcgm"]["columns"]
METRIC = re.compile(r"([A-Za-z_:][\w:]*)\{(.*)\}\s*(\S+)(?:\s+(-?\d+(?:\.\d+)?))?", re.ASCII)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"', re.ASCII)
ROW = re.compile(r"(.*?)(?:^|\s)(GPU(?:-C?I)?) +(\S+) +(.*)")
HEADER = re.compile(r"(?:^|\s)#\s?(?:Entity|GPU)\s+(.*)", re.IGNORECASE)
BLANK = 140737488355328.0
"""DCGM's number for a value that it does not have; larger ones say why."""
NO_TIMES = "sample without a time; give interval="


def is_dcgm(lines: list[str]) -> bool:
    """Whether lines are metrics of DCGM or a table of `dcgmi dmon`."""
    if any(line.startswith(("DCGM_FI_", "dcgm_", "# HELP DCGM_FI_", "# HELP dcgm_")) for line in lines):
        return True
    return any((match := HEADER.search(line)) and columns_of(match[1]) for line in lines)


def columns_of(text: str) -> list[str]:
    """What each column of a table holds, "" for what is not read; nothing if none is known."""
    columns = [COLUMNS.get(word.upper(), "") for word in text.split()]
    return columns if any(columns) else []


def read_dcgm(
    lines: Iterable[str], name: str, skipped: Skipped, interval: float | int | None = None
) -> Iterator[PowerReading]:
    """Readings of scrapes of the exporter, or of the rows of `dcgmi dmon`."""
    columns: list[str] = []
    scrape = Scrape(interval)
    samples: dict[str, int] = {}
    for line in lines:
        if match := HEADER.search(line):
            columns = columns_of(match[1]) or columns
            continue
        if columns and (row := ROW.fullmatch(line)):
            if reading := _row(row, columns, samples, interval, skipped):
                yield reading
            continue
        if line.startswith("#"):
            # A metric that is explained again begins the next scrape.
            word = line.split(maxsplit=3)
            if word[1:2] == ["HELP"]:
                if word[2:3] and word[2] in scrape.seen:
                    yield from scrape.close(skipped)
                continue
            if word[1:2] == ["TYPE"]:
                continue
        elif match := METRIC.fullmatch(line):
            metric, labels, value, stamp = match.groups()
            if metric in METRICS:
                if scrape.ends(metric, labels):
                    yield from scrape.close(skipped)
                scrape.add(metric, labels, value, stamp)
            continue
        time = time_within(line)
        if time == time:
            yield from scrape.close(skipped)
            scrape.stated = time
        else:
            skipped[UNREAD] += 1
    yield from scrape.close(skipped)


def _row(
    row: re.Match[str], columns: list[str], samples: dict[str, int], interval: float | int | None, skipped: Skipped
) -> PowerReading | None:
    """What a row of `dcgmi dmon` says; slices of a GPU repeat it."""
    if row[2] != "GPU":
        return None
    values = {key: value for key, value in zip(columns, row[4].split(), strict=False) if key}
    count = samples[row[3]] = samples.get(row[3], -1) + 1
    time = time_of(row[1]) if row[1].strip() else float(count * interval) if interval else NOT_SAID
    reading = reading_of(row[3], time, values)
    if reading is None:
        skipped[NO_VALUE] += 1
    elif time != time:
        skipped[NO_TIMES] += 1
    return reading


class Scrape:
    """What was read since the last scrape ended."""

    def __init__(self, interval: float | int | None) -> None:
        self.interval = interval
        self.count = 0
        self.seen: set[str] = set()
        self.lines: set[tuple[str, str]] = set()
        self.last = ""
        self.stated = self.time = NOT_SAID
        self.values: dict[tuple[str, str], dict[str, str]] = {}
        self.host: str | None = None
        """Host whose devices have no host in their names."""

    def ends(self, metric: str, labels: str) -> bool:
        """Whether a line belongs to the next scrape: a scrape has the lines of a metric once, and together."""
        return (metric in self.seen and metric != self.last) or (metric, labels) in self.lines

    def add(self, metric: str, labels: str, value: str, stamp: str | None) -> None:
        """Keep what a line says."""
        self.seen.add(metric)
        self.lines.add((metric, labels))
        self.last = metric
        if stamp:
            self.time = time_of(stamp)  # OpenMetrics has seconds, Prometheus milliseconds
        label = dict(LABEL.findall(labels))
        gpu = label.get("gpu") or label.get("uuid") or label.get("UUID")
        if not gpu:
            return
        values = self.values.setdefault((label.get("Hostname") or label.get("hostname") or "", gpu), {})
        key = METRICS[metric]
        if "GPU_I_ID" in label and key in ("utilization", "active"):
            return
        if key not in values or number(values[key]) == 0:  # slices repeat the power of their GPU
            values[key] = value

    def close(self, skipped: Skipped) -> Iterator[PowerReading]:
        """Readings of a scrape that has ended."""
        if self.values:
            time = self.time if self.time == self.time else self.stated
            if time != time and self.interval:
                time = float(self.count * self.interval)
            if time != time:
                skipped[NO_TIMES] += 1
            hosts = {host for host, _ in self.values}
            if self.host is None:
                self.host = min(hosts) if len(hosts) == 1 else ""
            for (host, gpu), values in self.values.items():
                device = f"{host}:{gpu}" if host and host != self.host else gpu
                if reading := reading_of(device, time, values):
                    yield reading
                else:
                    skipped[NO_VALUE] += 1
            self.count += 1
        self.seen, self.lines, self.values, self.last = set(), set(), {}, ""
        self.time = self.stated = NOT_SAID


def reading_of(device: str, time: float, values: dict[str, str]) -> PowerReading | None:
    """What a sample states of a device, if it says power or energy; zero power, energy or clock is not reported."""

    def value(key: str, factor: float, largest: float) -> float:
        read = number(values.get(key, ""))
        return between(read * factor, 0.0, largest) if read < BLANK else NOT_SAID

    power = value("power", 1.0, MOST_POWER) or NOT_SAID
    power = power if power == power else value("instant", 1.0, MOST_POWER) or NOT_SAID
    energy = value("energy", 1e-3, 1e12) or NOT_SAID
    if power != power and energy != energy:
        return None
    busy = value("utilization", 0.01, 1.0)
    limit = value("power_limit", 1.0, MOST_POWER) or NOT_SAID
    return PowerReading(
        time=time,
        device=device,
        power=power,
        energy=energy,
        clock=value("clock", 1e6, 1e11) or NOT_SAID,
        temperature=kelvin(value("temperature", 1.0, 300.0)),
        utilization=busy if busy == busy else value("active", 1.0, 1.0),
        power_limit=limit if limit == limit else value("limit", 1.0, MOST_POWER) or NOT_SAID,
        throttled=throttled_by_mask(values["throttled"]) if "throttled" in values else NOT_SAID,
    )
