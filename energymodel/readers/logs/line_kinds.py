"""Logs of which a line says all of a step: torchtitan, MaxText and nanotron, as `lines.toml` describes them.

torchtitan counts tokens per second of one device (`tps`, in old versions `wps`) and states no step time: it follows
from the times of the lines. `total_weights` of MaxText counts the tokens of the step in the whole run; its first steps
time their dispatch alone. nanotron prints three digits, with K, M, B (or G), T for powers of a thousand.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from energymodel.readers.cells import stamp
from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.text import DECLARED, NUMBER, made, number, pattern, plain, step_fields, whole

SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
SAME = 0.04  # how far a batch in tokens may be from rate times time, each of three digits
_HUMAN = re.compile(rf"({NUMBER})\s*([KMBGTPE]?)(?![A-Za-z])", re.IGNORECASE)


def human(text: str) -> float:
    """`1.2K` -> 1200."""
    match = _HUMAN.match(text)
    return number(match[1]) * SUFFIXES[match[2].upper()] if match else NOT_SAID


def _of_nanotron(values: dict[str, float], length: float) -> dict[str, float]:
    """Tokens and sequences: `global_batch_size` counts sequences in the public versions and tokens in some forks, and
    tokens of the step, from rate and time, tell which.
    """
    if not {"step_time", "loss"} & values.keys():
        return {}
    tokens = values.pop("total_token_rate", NOT_SAID) * values.get("step_time", NOT_SAID)
    batch = values.pop("batch", NOT_SAID)
    if abs(batch - tokens) <= SAME * tokens:
        return values | {"tokens": batch, "sequences": batch / length}
    return values | {"tokens": tokens if math.isnan(batch * length) else batch * length, "sequences": batch}


class LineKind(NamedTuple):
    """A kind of log: words of the lines that are read, and patterns of its steps, fields and events."""

    name: str
    words: tuple[str, ...]
    sign: re.Pattern[str]
    field: re.Pattern[str]
    events: dict[Any, re.Pattern[str]]
    length: re.Pattern[str]

    def steps(self, lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
        """Steps and events of lines, as often as ranks print them."""
        length, is_nanotron = NOT_SAID, self.name == "nanotron"
        for raw in lines:
            if not any(word in raw for word in self.words):
                continue
            line = plain(raw)
            if match := self.sign.search(line):
                step, time = whole(match["step"]), stamp(line[: match.start()])
                fields = self.field.findall(line, match.end())
                values = step_fields(self.name, fields, human if is_nanotron else number)
                if match.groupdict().get("evaluation"):
                    yield LogEvent("evaluation", time, NOT_SAID, values.get("loss", NOT_SAID), step)
                elif record := made(step, time, _of_nanotron(values, length) if is_nanotron else values):
                    yield record
                continue
            for kind, sign in self.events.items():
                if match := sign.search(line):
                    parts = match.groupdict("")
                    duration, value = number(parts.get("duration", "")), number(parts.get("value", ""))
                    yield LogEvent(kind, stamp(line), duration, value, whole(parts.get("step", "")))
                    break
            else:
                match = self.length.search(line)
                length = number(match[1]) if match else length


def _declared(name: str) -> LineKind:
    patterns = DECLARED[name]

    sign, field, length = (pattern(patterns.get(key, "(?!)")) for key in ("sign", "field", "length"))
    events = {kind: pattern(text) for kind, text in patterns["events"].items()}
    return LineKind(name, tuple(patterns["words"]), sign, field, events, length)


LINE_KINDS = {name: _declared(name) for name in ("maxtext", "torchtitan", "nanotron")}
