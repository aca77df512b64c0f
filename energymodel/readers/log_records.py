"""What one line of a training log, or one power reading, says: the records that every reader of logs yields.

Each reader is a generator over lines that yields a record as soon as its line is read, so that a file of any length and
a file that still grows are read alike. What a line does not say is NaN.
"""

import math
from dataclasses import dataclass
from typing import Literal

NOT_SAID = math.nan


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One optimizer step, or the mean step since the line before, as a log states it."""

    step: int
    time: float = NOT_SAID
    """When the line was written, at the end of the step [s since 1970; logs without a zone are taken as UTC]."""
    step_time: float = NOT_SAID
    """Duration of the step [s]."""
    tokens: float = NOT_SAID
    """Tokens of the step in the whole run."""
    tokens_so_far: float = NOT_SAID
    """Tokens since the start of the run, this step included."""
    sequences: float = NOT_SAID
    """Sequences of the step in the whole run (the global batch)."""
    token_rate: float = NOT_SAID
    """Tokens per second of one device."""
    flops_rate: float = NOT_SAID
    """FLOP/s of one device, as the framework counts them."""
    loss: float = NOT_SAID
    """Training loss [nat per token]."""
    learning_rate: float = NOT_SAID
    grad_norm: float = NOT_SAID
    energy: float = NOT_SAID
    """Energy of one device in this step [J]."""
    power: float = NOT_SAID
    """Mean power of one device in this step [W]."""
    memory: float = NOT_SAID
    """Largest memory of one device [bytes]."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """What a log says between its steps."""

    kind: Literal["start", "stop", "evaluation", "checkpoint", "restart"]
    time: float = NOT_SAID
    """When [s since 1970]."""
    duration: float = NOT_SAID
    """How long it took, where the log says so [s]."""
    value: float = NOT_SAID
    """Loss or metric of an evaluation."""
    step: int | None = None
    """Number of the step after which it happened."""


@dataclass(frozen=True, slots=True)
class PowerReading:
    """One reading of one device (or of one node or host part, as `device` names it)."""

    time: float
    """When [s since 1970, or since the start where the file says no more; NaN where it says nothing]."""
    device: str
    """"0" to "7" of one host, "host:0" of several, "node" or "cpu" of a meter that sees no single device."""
    power: float = NOT_SAID
    """Power [W]: drawn now, as the meter averages it."""
    energy: float = NOT_SAID
    """Energy counter [J], rising since some start; a wrapped or restarted counter is carried on."""
    clock: float = NOT_SAID
    """Clock of the cores [Hz]."""
    temperature: float = NOT_SAID
    """Temperature of the chip [K]."""
    utilization: float = NOT_SAID
    """Share of time in which the device was busy [1]."""
    power_limit: float = NOT_SAID
    """Power limit that is set [W]."""
    throttled: float = NOT_SAID
    """1 where the device says that it slows its clock for power or heat, 0 where it says that it does not."""
    group: str = ""
    """Run of a table that holds several, each with devices of its own."""
    fresh: bool = False
    """Whether another run or window begins here, so that nothing is known of the time since the reading before."""


NODES = ("node", "psys")
"""Meters of all that a node draws."""
HOST_PARTS = ("cpu", "ram", "dram", "cores", "core", "uncore", "integrated gpu", "gpu", "package", "intel-rapl")
"""Meters of a part of a node that is no single chip; the "gpu" of CodeCarbon is the sum of all."""


def is_node(device: str) -> bool:
    """Whether a meter sees a whole node."""
    return _part(device) in NODES


def is_chip(device: str) -> bool:
    """Whether a meter sees a single chip."""
    return _part(device) not in (*NODES, *HOST_PARTS) and not device.startswith("intel-rapl")


def _part(device: str) -> str:
    part = device.rpartition(":")[2].partition(" (")[0].lower()
    return part.partition("-")[0] if part.startswith("package-") else part
