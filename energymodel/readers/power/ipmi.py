"""What do samples of `ipmitool dcmi power reading` say of a node?

Each sample has lines `Instantaneous power reading: 2210 Watts` and `IPMI timestamp: Sun Jun  1 12:00:00 2025`. Where
the second is missing, a line with a date before the sample, such as the output of `date`, tells its time.
"""

import re
from collections.abc import Iterable, Iterator

from energymodel.readers.cells import MOST_SITE_POWER, between, number, time_within
from energymodel.readers.lines import NO_VALUE, Skipped
from energymodel.readers.log_records import NOT_SAID, PowerReading

POWER = re.compile(r"Instantaneous power reading:\s*(\d+(?:\.\d+)?)\s*Watts", re.ASCII)
STAMP = "IPMI timestamp:"
DEVICE = "node"


def is_ipmi(lines: list[str]) -> bool:
    """Whether a line is one of such samples."""
    return any(POWER.search(line) for line in lines)


def read_ipmi(lines: Iterable[str], name: str, skipped: Skipped) -> Iterator[PowerReading]:
    """Readings of the node."""
    before = power = NOT_SAID
    for line in lines:
        if found := POWER.search(line):
            yield from _reading(before, power, skipped)
            power = between(number(found[1]), 0.0, MOST_SITE_POWER)
            if STAMP not in line:
                continue
        time = time_within(line)
        if time != time:
            continue
        if STAMP in line:
            yield from _reading(time, power, skipped)
        else:
            yield from _reading(before, power, skipped)
            before = time
        power = NOT_SAID
    yield from _reading(before, power, skipped)


def _reading(time: float, power: float, skipped: Skipped) -> Iterator[PowerReading]:
    if power == power and time == time:
        yield PowerReading(time=time, device=DEVICE, power=power)
    elif power == power:
        skipped[NO_VALUE] += 1
