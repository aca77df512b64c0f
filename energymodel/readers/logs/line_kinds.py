"""Logs of which a line says all of a step, as `lines.toml` describes them, and numbers and fields of their lines.

Nothing here raises on what a line may hold: what cannot be read is NaN or None.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from energymodel.readers.expressions import data_file
from energymodel.readers.lines import stamp
from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.units import whole_number

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
NUMBER = (
    r"(?:[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)\b)"
)
"""A number as logs print it: with thousands separators, an exponent, or no number at all."""
_NUMBER = re.compile(rf"\s*({NUMBER})", re.IGNORECASE)
_HUMAN = re.compile(rf"({NUMBER})\s*([KMBGTPE]?)(?![A-Za-z])", re.IGNORECASE)
SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
SAME = 0.04  # how far a batch in tokens may be from rate times time, each of three digits
ROUNDED = 1e5  # samples from which on a bar may round their number
POSITIVE = frozenset(
    ("step_time", "tokens", "tokens_so_far", "sequences", "token_rate", "flops_rate", "energy", "power", "memory")
)
"""Quantities that are above zero and finite, or else not said."""


def plain(line: str) -> str:
    """A line without colors."""
    return ANSI.sub("", line) if "\x1b" in line else line


def number(text: str) -> float:
    """The number that a text begins with, in whatever unit follows; NaN without one."""
    match = _NUMBER.match(text)
    return float(match[1].replace(",", "")) if match else NOT_SAID


def human(text: str) -> float:
    """`1.2K` -> 1200."""
    match = _HUMAN.match(text)
    return number(match[1]) * SUFFIXES[match[2].upper()] if match else NOT_SAID


def figure(value: object) -> float:
    """The number that a value of JSON is; NaN for everything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else NOT_SAID


def made(step: int | None, time: float, fields: Mapping[str, float]) -> LoggedStep | None:
    """A step of what a line says, without what cannot be; None without a number, or if nothing is left."""
    possible = {
        name: value
        for name, value in fields.items()
        if not math.isnan(value) and (name not in POSITIVE or 0.0 < value < math.inf)
    }
    if step is None or not (possible or (fields and not math.isnan(time))):
        return None
    return LoggedStep(step, time, **possible)


class LineKind:
    """A kind of log: words of the lines that are read, and patterns of its steps, fields and events."""

    def __init__(self, declared: Mapping[str, Any]) -> None:
        def pattern(text: str) -> re.Pattern[str]:
            return re.compile(text.replace("<number>", NUMBER))

        self.words, self.fields, self.sign_words = declared["words"], declared["fields"], declared["sign_words"]
        self.sign, self.unless = pattern(declared["sign"]), declared.get("unless", "\n")
        self.pairs = [pattern(text) for text in declared["pairs"]]
        self.unended, self.needed = declared.get("unended", ()), set(declared.get("needed", ()))
        self.number = human if declared.get("has_suffixes") else number
        self.is_dated, self.is_redrawn = declared.get("is_dated", True), declared.get("is_redrawn", False)
        self.carried = [(name, pattern(text), factor) for name, text, factor in declared.get("carried", ())]
        self.events = {kind: pattern(text) for kind, text in declared.get("events", {}).items()}

    def steps(self, lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
        """Steps and events of lines, as often as ranks print them.

        A checkpoint of Megatron is told at the next step, when its timer may have been printed, and a bar that is drawn
        again when the step has gone on.
        """
        run = _Run(self)
        for raw in lines:
            if any(word in raw for word in self.words):
                yield from run.read(plain(raw))
        yield from run.told()

    def fields_in(self, text: str) -> dict[str, float]:
        """Fields of a record that a text says, in SI; the first of two that say the same counts."""
        text = f"{text}|" if any(word in text for word in self.unended) else text
        values: dict[str, float] = {}
        for name, word in (pair for pattern in self.pairs for pair in pattern.findall(text)):
            field, factor = self.fields.get(" ".join(name.lower().split()), ("", 1.0))
            if field:
                values.setdefault(field, self.number(word.strip()) * factor)
        for field in [field for field in values if field.startswith("or ")]:
            values.setdefault(field.removeprefix("or "), values.pop(field))
        return values if not self.needed or self.needed & values.keys() else {}


class _Run:
    """What the lines so far say of those that follow."""

    def __init__(self, kind: LineKind) -> None:
        self.kind = kind
        self.carried: dict[str, float] = {}
        self.evaluation = self.evaluated = NOT_SAID  # time of the next evaluation [s], loss of the last one
        self.checkpoint: LogEvent | None = None
        self.saved: int | None = None  # the last checkpoint that was told: an asynchronous one ends many steps later
        self.drawn: LoggedStep | None = None

    def told(self, step: int | None = None) -> Iterator[LoggedStep | LogEvent]:
        """The checkpoint that waits, if one does, and the step that was drawn before another one."""
        if self.checkpoint is not None:
            self.saved = self.checkpoint.step
            yield self.checkpoint
            self.checkpoint = None
        if self.drawn is not None and step != self.drawn.step:
            yield self.drawn
            self.drawn = None

    def read(self, line: str) -> Iterator[LoggedStep | LogEvent]:
        """Steps of a line, each with the fields up to the next one; or what it says between steps."""
        matches = list(self.kind.sign.finditer(line)) if self.kind.unless not in line else []
        if not matches:
            yield from self.between(line)
            return
        start = 0
        for match, end in zip(matches, [*(match.start() for match in matches[1:]), len(line)], strict=True):
            time = stamp(line[start : match.start()]) if self.kind.is_dated else NOT_SAID
            step, start = whole_number(match["step"]), match.end()
            yield from self.told(step)
            values = self.kind.fields_in(line[start:end])
            if match.groupdict().get("evaluation"):
                yield LogEvent("evaluation", time, NOT_SAID, values.get("loss", NOT_SAID), step)
            elif self.kind.is_redrawn:
                yield from self.redrawn(step, values)
            elif record := made(step, time, self.complete(values)):
                yield record

    def complete(self, values: dict[str, float]) -> dict[str, float]:
        """What a step says with what lines before it said, and with its tokens.

        `global_batch_size` of nanotron counts sequences in the public versions and tokens in some forks; tokens of the
        step, from rate and time, tell which.
        """
        if not values:
            return {}
        carried = dict(self.carried)
        length = values.pop("length", carried.pop("length", NOT_SAID))
        tokens = values.pop("total_token_rate", NOT_SAID) * values.get("step_time", NOT_SAID)
        batch = values.get("sequences", NOT_SAID)
        if abs(batch - tokens) <= SAME * tokens:
            return carried | values | {"tokens": batch, "sequences": batch / length}
        return carried | {"tokens": tokens if math.isnan(batch * length) else batch * length} | values

    def redrawn(self, step: int | None, values: dict[str, float]) -> Iterator[LoggedStep | LogEvent]:
        """A bar that is drawn again, and the evaluation whose loss it tells for the first time."""
        samples, loss = values.pop("samples", NOT_SAID), values.pop("evaluation", NOT_SAID)
        if step and 0 < samples < ROUNDED and samples % step == 0:
            values["sequences"] = samples / step
        if step and {"loss", "step_time"} & values.keys():
            self.drawn = made(step, NOT_SAID, values) or self.drawn
        if step is not None and not math.isnan(loss) and loss != self.evaluated:
            self.evaluated = loss
            yield from self.told()
            yield LogEvent("evaluation", value=loss, step=step)

    def between(self, line: str) -> Iterator[LoggedStep | LogEvent]:
        """A line that is no step."""
        for name, pattern, factor in self.kind.carried:
            if match := pattern.search(line):
                self.carried[name] = number(match[1]) * factor
                return
        for kind, pattern in self.kind.events.items():
            if match := pattern.search(line):
                parts = match.groupdict("")
                duration, value = (number(parts.get(name, "")) for name in ("duration", "value"))
                step = whole_number(parts.get("step", ""))
                yield from self.event(kind, line, match.start(), step, duration, value)
                return

    def event(
        self, kind: Any, line: str, start: int, step: int | None, duration: float, value: float
    ) -> Iterator[LoggedStep | LogEvent]:
        """An event; a checkpoint that begins or ends waits, and times are those of the event before or after them."""
        time, waiting = stamp(line), self.checkpoint
        if kind == "saving" and (waiting is None or waiting.step != step):
            yield from self.told()
            self.checkpoint = LogEvent("checkpoint", stamp(line[:start]), step=step)
        elif kind == "saved" and waiting is None:
            self.checkpoint = LogEvent("checkpoint", time, step=step) if step != self.saved else None
        elif kind == "saved" and waiting is not None and not math.isnan(waiting.time):
            passed = time - waiting.time
            self.checkpoint = dataclasses.replace(waiting, duration=passed if passed >= 0 else NOT_SAID)
        elif kind == "save_time" and waiting is not None:
            self.checkpoint = dataclasses.replace(waiting, duration=duration * 1e-3)
        elif kind == "evaluation_time":
            self.evaluation = duration * 1e-3
        elif kind not in ("saving", "saved", "save_time"):
            if kind == "evaluation" and not math.isnan(self.evaluation):
                duration, self.evaluation = self.evaluation, NOT_SAID
            yield LogEvent(kind, time, duration, value, step)


LINE_KINDS = {name: LineKind(declared) for name, declared in data_file(__file__, "lines.toml").items()}
