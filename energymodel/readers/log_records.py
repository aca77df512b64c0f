"""What one line of a training log, or one power reading, says: the records that every reader of logs yields.

Each reader is a generator over lines that yields a record as soon as its line is read, so that a file of any length and
a file that still grows are read alike. What a line does not say is NaN.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

NOT_SAID = math.nan


def reported(unit: str, title: str | None = None, default: Any = dataclasses.MISSING, **look: Any) -> Any:
    """A field of a record with its unit, "text" of words, and how a table shows it: as a `Column` of reports has it.

    - `title`: by default the name; `look`: kind and digits, and `aside` of what only files hold.
    """
    return dataclasses.field(default=default, metadata={"unit": unit, "title": title, **look})


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One optimizer step, or the mean step since the line before, as a log states it.

    - `time`: when its line was written, at its end [s since 1970; without a zone UTC]; `step_time`: its duration [s].
    - `tokens`: of the step in the whole run; `tokens_so_far`: since the start, this step included [token].
    - `sequences`: of the step in the whole run (the global batch).
    - `token_rate` [token/s] and `flops_rate` [FLOP/s, as the framework counts them]: of one device.
    - `loss`: of training [nat/token].
    - `energy` [J], mean `power` [W] and largest `memory` [B]: of one device in this step.
    """

    step: int
    time: float = NOT_SAID
    step_time: float = NOT_SAID
    tokens: float = NOT_SAID
    tokens_so_far: float = NOT_SAID
    sequences: float = NOT_SAID
    token_rate: float = NOT_SAID
    flops_rate: float = NOT_SAID
    loss: float = NOT_SAID
    learning_rate: float = NOT_SAID
    grad_norm: float = NOT_SAID
    energy: float = NOT_SAID
    power: float = NOT_SAID
    memory: float = NOT_SAID


@dataclass(frozen=True, slots=True)
class LogEvent:
    """What a log says between its steps.

    - `time`: when [s since 1970]; `duration`: how long it took, where the log says so [s].
    - `value`: loss or metric of an evaluation; `step`: number of the step after which it happened.
    """

    kind: Literal["start", "stop", "evaluation", "checkpoint", "restart"]
    time: float = NOT_SAID
    duration: float = NOT_SAID
    value: float = NOT_SAID
    step: int | None = None


@dataclass(frozen=True, slots=True)
class PowerReading:
    """One reading of one device (or of one node or host part, as `device` names it).

    - `time`: when [s since 1970, or since the start where the file says no more; NaN where it says nothing].
    - `device`: "0" to "7" of one host, "host:0" of several, "node" or "cpu" of a meter that sees no single device.
    - `power`: drawn now, as the meter averages it, and `power_limit` that is set [W].
    - `energy`: counter, rising since some start until it wraps around or restarts [J].
    - `clock` of the cores [Hz], `temperature` of the chip [K], `utilization`: share of time that it was busy [1].
    - `throttled`: 1 where the device says that it slows its clock for power or heat, 0 where it says it does not.
    - `chips`: number of those whose sum this is, where the file says so.
    - `group`: run of a table that holds several, each with devices of its own.
    - `fresh`: whether another run or window begins here, so that nothing is known of the time since the last reading.
    """

    time: float
    device: str
    power: float = NOT_SAID
    energy: float = NOT_SAID
    clock: float = NOT_SAID
    temperature: float = NOT_SAID
    utilization: float = NOT_SAID
    power_limit: float = NOT_SAID
    throttled: float = NOT_SAID
    chips: float = NOT_SAID
    group: str = ""
    fresh: bool = False


Record = LoggedStep | LogEvent | PowerReading
NODES = ("node", "psys")  # meters of all that a node draws
HOST_PARTS = ("cpu", "ram", "dram", "cores", "core", "uncore", "integrated gpu", "gpu", "package", "intel-rapl")
"""Meters of a part of a node that is no single chip; the "gpu" of CodeCarbon is the sum of all."""


def is_node(device: str) -> bool:
    """Whether a meter sees a whole node."""
    return part_of(device) in NODES


def is_chip(device: str) -> bool:
    """Whether a meter sees a single chip."""
    return part_of(device) not in (*NODES, *HOST_PARTS) and not device.startswith("intel-rapl")


def part_of(device: str) -> str:
    """What a device is, such as "gpu", without its host, run and number of the socket."""
    part = device.rpartition(":")[2].partition(" (")[0].lower()
    return part.partition("-")[0] if part.startswith("package-") else part
