"""Text of the DCGM exporter and tables of `dcgmi dmon`.

Times stand behind the values, in milliseconds, or in a line between the scrapes (such as the output of `date`), or
before each line (`ts`). Where they stand nowhere, `interval` is the time between samples; without it times are NaN.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from energymodel.readers.lines import UNREAD, number, reading_of, throttled_by_mask, time_of, time_within
from energymodel.readers.log_records import NOT_SAID, PowerReading
from energymodel.readers.power.table import NAMES

METRICS, COLUMNS = NAMES["dcgm"]["metrics"], NAMES["dcgm"]["columns"]
METRIC = re.compile(r"([A-Za-z_:][\w:]*)\{(.*)\}\s*(\S+)(?:\s+(-?\d+(?:\.\d+)?))?", re.ASCII)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"', re.ASCII)
ROW = re.compile(r"(.*?)(?:^|\s)(GPU(?:-C?I)?) +(\S+) +(.*)")
HEADER = re.compile(r"(?:^|\s)#\s?(?:Entity|GPU)\s+(.*)", re.IGNORECASE)
BLANK = 140737488355328.0  # DCGM's number for a value that it does not have; larger ones say why
NO_TIMES = "sample without a time; give interval="


def is_dcgm(lines: list[str]) -> bool:
    """Whether lines are metrics of DCGM or a table of `dcgmi dmon`."""
    starts = ("DCGM_FI_", "dcgm_", "# HELP DCGM_FI_", "# HELP dcgm_")
    return any(line.startswith(starts) or _columns_of(line) for line in lines)


def _columns_of(line: str) -> list[str]:
    """What each column of a table holds, "" for what is not read; nothing if the line is no header."""
    match = HEADER.search(line)
    columns = [COLUMNS.get(word.upper(), "") for word in match[1].split()] if match else []
    return columns if any(columns) else []


def read_dcgm(lines: Iterable[str], name: str, interval: float | int | None = None) -> Iterator[PowerReading | str]:
    """Readings of scrapes of the exporter, or of the rows of `dcgmi dmon`."""
    columns: list[str] = []
    scrape = Scrape(interval)
    samples: Counter[str] = Counter()
    for line in lines:
        if HEADER.search(line):
            columns = _columns_of(line) or columns
        elif columns and (row := ROW.fullmatch(line)):
            if row[2] == "GPU":  # slices of a GPU repeat it
                time = (
                    time_of(row[1]) if row[1].strip() else float(samples[row[3]] * interval) if interval else NOT_SAID
                )
                samples[row[3]] += 1
                texts = {key: text for key, text in zip(columns, row[4].split(), strict=False) if key}
                yield from _readings({row[3]: texts}, time)
        elif line.startswith("# HELP"):
            # A metric that is explained again begins the next scrape.
            if line.split(maxsplit=3)[2:3] and line.split(maxsplit=3)[2] in scrape.seen:
                yield from scrape.close()
        elif match := METRIC.fullmatch(line):
            if match[1] in METRICS:
                yield from scrape.add(*match.groups())
        elif not line.startswith("# TYPE"):
            time = time_within(line)
            if math.isnan(time):
                yield UNREAD
            else:
                yield from scrape.close()
                scrape.stated = time
    yield from scrape.close()


class Scrape:
    """What was read since the last scrape ended."""

    def __init__(self, interval: float | int | None) -> None:
        self.interval = interval
        self.count = 0
        self.host: str | None = None  # host whose devices have no host in their names
        self._begin()

    def _begin(self) -> None:
        self.seen: set[str] = set()
        self.lines: set[tuple[str, str]] = set()
        self.last = ""
        self.stated = self.time = NOT_SAID
        self.texts: dict[tuple[str, str], dict[str, str]] = {}

    def add(self, metric: str, labels: str, text: str, stamp: str | None) -> Iterator[PowerReading | str]:
        """Take a line; a scrape has the lines of a metric once, and together, so that others begin the next one."""
        if (metric in self.seen and metric != self.last) or (metric, labels) in self.lines:
            yield from self.close()
        self.seen.add(metric)
        self.lines.add((metric, labels))
        self.last = metric
        if stamp:
            self.time = time_of(stamp)  # OpenMetrics has seconds, Prometheus milliseconds
        label, key = dict(LABEL.findall(labels)), METRICS[metric]
        gpu = label.get("gpu") or label.get("uuid") or label.get("UUID")
        if gpu:
            texts = self.texts.setdefault((label.get("Hostname") or label.get("hostname") or "", gpu), {})
            of_slice = "GPU_I_ID" in label and key in ("utilization", "active")
            if not of_slice and (key not in texts or number(texts[key]) == 0):  # slices repeat the power of their GPU
                texts[key] = text

    def close(self) -> Iterator[PowerReading | str]:
        """Readings of a scrape that has ended."""
        if self.texts:
            time = self.stated if math.isnan(self.time) else self.time
            if math.isnan(time) and self.interval:
                time = float(self.count * self.interval)
            hosts = {host for host, _ in self.texts}
            if self.host is None:
                self.host = min(hosts) if len(hosts) == 1 else ""
            named = {f"{host}:{gpu}" if host and host != self.host else gpu: v for (host, gpu), v in self.texts.items()}
            yield from _readings(named, time)
            self.count += 1
        self._begin()


def _readings(devices: Mapping[str, Mapping[str, str]], time: float) -> Iterator[PowerReading | str]:
    """What a sample states of devices that it says power or energy of; zeros of these are not reported."""
    if math.isnan(time):
        yield NO_TIMES
    for device, texts in devices.items():
        values = {key: value for key, text in texts.items() if (value := number(text)) < BLANK}
        for key, other in (("power", "instant"), ("utilization", "active"), ("power_limit", "limit")):
            if key not in values or (values[key] == 0 and key != "utilization"):
                values[key] = values.get(other, NOT_SAID) * (100.0 if key == "utilization" else 1.0)
        yield reading_of(
            device,
            time,
            power=values["power"] or NOT_SAID,
            energy=values.get("energy", NOT_SAID) * 1e-3 or NOT_SAID,
            clock=values.get("clock", NOT_SAID) * 1e6,
            temperature=values.get("temperature", NOT_SAID),
            utilization=values["utilization"] * 0.01,
            power_limit=values["power_limit"],
            throttled=throttled_by_mask(texts["throttled"]) if "throttled" in texts else NOT_SAID,
        )
