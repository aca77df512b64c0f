"""Logs of Hugging Face trainers, also of axolotl and TRL, which are built on them.

Either `trainer_state.json`, whose `log_history` numbers its entries but tells no time: each step gets the mean of
`train_runtime` without its evaluations. Or what it prints, `{'loss': 1.2, 'grad_norm': 1.1, 'epoch': 0.1}`, which has
no number: step and time are those of the progress bar before it; without bar, entries are counted.
"""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping

from energymodel.errors import InputError
from energymodel.readers.lines import stamp
from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.line_kinds import NUMBER, figure, made, number, plain
from energymodel.readers.logs.scalars import EVALUATION, TOTAL_RATE, field_of
from energymodel.units import whole_number

LARGEST = 2**28  # characters of a trainer_state.json, which is read at once
PRINTED = re.compile(
    r"""\{\s*["'](?:loss|eval_|train_runtime|grad_norm)"""
    r"""|\{(?=[^{}]{0,4000}["']epoch["']\s*:)(?=[^{}]{0,4000}["'](?:loss|eval_\w{1,80}|train_runtime)["']\s*:)"""
)
_PAIR = re.compile(rf"""["']([^"'{{}}]{{1,100}})["']\s*:\s*["']?({NUMBER})""", re.IGNORECASE)
_BAR = re.compile(
    r"(?:^|[\s:\]])\d{1,3}%\|[^|]*\|\s*(\d+)/(\d+)\s*\[((?:\d+:)?\d+:\d+)<[^,\]]*(?:,\s*([\d.]+)\s*(s/it|it/s))?"
)
ROUGH = 20.0  # seconds below which the bar's clock, of whole seconds, is too rough and its rate is taken


def steps(lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
    """Steps and events of a file of either form.

    **Raises:** `InputError` if a trainer_state.json is no JSON or too large.
    """
    source = iter(lines)
    first = next((line for line in source if line.strip()), "")
    if first.lstrip().startswith("{") and not PRINTED.match(first.lstrip()):
        yield from _state(itertools.chain((first,), source), name)
    else:
        bars = _Bars()
        for raw in itertools.chain((first,), source):
            if "{" in raw or "%|" in raw:
                yield from bars.read(plain(raw))


def _state(lines: Iterable[str], name: str) -> Iterator[LoggedStep | LogEvent]:
    """Steps of trainer_state.json."""
    parts, size = [], 0
    for line in lines:
        parts.append(line)
        size += len(line)
        if size > LARGEST:
            raise InputError(f'"{name}" holds more than {LARGEST} characters, the most that is read.')
    try:
        table = json.loads("\n".join(parts), parse_int=float)
    except RecursionError as error:
        raise InputError(f'"{name}" nests its tables too deeply to be read.') from error
    except ValueError as error:
        raise InputError(f'"{name}" is no valid JSON: {" ".join(str(error).split())[:200]}.') from error
    history = table.get("log_history") if isinstance(table, dict) else None
    entries = [
        # Newer versions print numbers as texts.
        {
            str(key): number(value) if isinstance(value, str) else figure(value)
            for key, value in entry.items()
            if isinstance(value, str | int | float)
        }
        for entry in (history if isinstance(history, list) else [])
        if isinstance(entry, dict)
    ]
    mean, ends = NOT_SAID, [entry for entry in entries if "train_runtime" in entry]
    if len(ends) == 1 and ends[0].get("step", NOT_SAID) > 0:
        evaluations = sum(value for entry in entries if (value := entry.get("eval_runtime", 0.0)) > 0)
        mean = (ends[0]["train_runtime"] - evaluations) / ends[0]["step"]
    for entry in entries:
        if 0 <= entry.get("step", NOT_SAID) < 1e15:
            yield from _entry(entry, int(entry["step"]), NOT_SAID, mean)


def _entry(entry: Mapping[str, float], step: int, time: float, step_time: float) -> Iterator[LoggedStep | LogEvent]:
    """What one entry says."""
    if "train_runtime" in entry:
        yield LogEvent("stop", time, entry["train_runtime"], step=step)
        return
    if any(key.startswith("eval_") for key in entry):
        losses = [value for key, value in entry.items() if key.startswith("eval_") and key.endswith("loss")]
        value = entry.get("eval_loss", losses[0] if losses else NOT_SAID)
        yield LogEvent("evaluation", time, entry.get("eval_runtime", NOT_SAID), value, step)
        return
    values: dict[str, float] = {}
    for key, value in entry.items():
        field, scale = field_of(key) or ("", 1.0)
        if field == "memory":
            values[field] = max(values.get(field, 0.0), value * scale)
        elif field not in ("", EVALUATION, TOTAL_RATE):
            values.setdefault(field, value * scale)
    if "loss" in values or "grad_norm" in values:
        record = made(step, time, {"step_time": step_time} | values)
        yield from () if record is None else (record,)


class _Bars:
    """The progress bars so far: of training, and of evaluations between."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[int, float, float]] = {}
        """Steps of a bar in all -> step, clock [s] and rate [s] when it was last drawn."""
        self.total: int | None = None
        self.last: int | None = None
        self.step, self.clock = 0, NOT_SAID

    def read(self, line: str) -> Iterator[LoggedStep | LogEvent]:
        """Take a line: bars, and an entry that is printed between them."""
        printed = PRINTED.search(line)
        start = printed.start() if printed else len(line)
        self._drawn(line[:start])
        if printed is None:
            return
        text, _, after = line[start : start + 20_000].partition("}")
        entry = {key: number(value) for key, value in _PAIR.findall(text)}
        trained = ("loss" in entry or "grad_norm" in entry) and not any(key.startswith("eval_") for key in entry)
        step, step_time = self._advanced() if trained else (self.step, NOT_SAID)
        yield from _entry(entry, step, stamp(line[:start]), step_time)
        self._drawn(after)

    def _drawn(self, text: str) -> None:
        """Take the bars of a text."""
        for match in _BAR.finditer(text):
            step, total = whole_number(match[1]), whole_number(match[2])
            if step is None or not total:
                continue
            clock = 0.0
            for part in match[3].split(":"):
                clock = clock * 60 + number(part)
            rate = number(match[4]) if match[4] else NOT_SAID
            self.seen[total] = (step, clock, 1 / rate if match[5] == "it/s" and rate > 0 else rate)
            self.last = total
            if len(self.seen) > 1000:
                self.seen = {total: self.seen[total]}

    def _advanced(self) -> tuple[int, float]:
        """Step and step time of an entry of training."""
        bar = self.seen.get(self.total) if self.total is not None else None
        if (bar is None or bar[0] == self.step) and self.last is not None and self.last != self.total:
            self.total, self.clock = self.last, NOT_SAID
            bar = self.seen[self.total]
        if bar is None or bar[0] == self.step:
            self.step += 1
            return self.step, NOT_SAID if bar is None else bar[2]
        step, clock, rate = bar
        passed = clock - self.clock
        if step > self.step and passed >= ROUGH:
            rate = passed / (step - self.step)
        self.step, self.clock = step, clock
        return step, rate
