"""Steps and events of the log of a training run, whichever framework wrote it.

Nine kinds are read, each by its module in `readers/logs`; the kind is recognized from the first line that only it
has. Logs are streamed: a file of any length and one that still grows are read alike.
"""

import dataclasses
import itertools
import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from energymodel.errors import InputError, suggest
from energymodel.readers.lines import LONGEST, Lines, too_long
from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.logs import hf_trainer, mlperf, scalars
from energymodel.readers.logs.line_kinds import LINE_KINDS, plain
from energymodel.readers.logs.scalars import join_scalars

__all__ = ["KINDS", "StepLog", "join_scalars", "log_kind", "read_steps", "steps_of"]

Record = LoggedStep | LogEvent
READERS: dict[str, Callable[[Iterable[str], str], Iterator[Record]]] = {
    **{name: LINE_KINDS[name].steps for name in ("megatron", "nemo", "torchtitan", "maxtext", "nanotron")},
    "hf-trainer": hf_trainer.steps,
    "mlperf": mlperf.steps,
    "tensorboard": scalars.tensorboard_steps,
    "wandb": scalars.wandb_steps,
}
KINDS = tuple(READERS)  # kinds of logs that are read
SIGNS = (
    *((kind.sign_words, kind.sign, name) for name, kind in LINE_KINDS.items()),
    (("{",), hf_trainer.PRINTED, "hf-trainer"),
    (("log_history",), re.compile(r'"log_history"\s*:'), "hf-trainer"),
)
"""Words of a line, and the pattern that tells a kind where it has them all."""
MOST_LINES = 200_000  # lines within which a log must show its kind
MOST_HELD = 2**26  # characters of them
_LINES = ("megatron", "torchtitan", "maxtext", "nanotron")
"""Kinds that say everything of a step in one line, with the same fields in each."""
REMEMBERED = 16  # steps within which a line may come late from a slower rank
LATE = 2.0  # seconds within which ranks print the same step, at least


class StepLog(Iterator[Record]):
    """The steps and events of a log, in order, each once; `kind` and `name` say where they come from.

    `left_out` counts what was read and not given, by reason; it is complete when the log has ended.
    """

    def __init__(
        self, records: Iterator[Record], kind: str, name: str, source: Iterator[str], left_out: Counter[str]
    ) -> None:
        self.kind, self.name, self.left_out = kind, name, left_out
        self._source, self._records = source, self._once(records)
        self._last: LoggedStep | None = None
        self._recent: OrderedDict[int, LoggedStep] = OrderedDict()
        self._events: list[LogEvent] = []  # since the last step
        self._pace = 0.0  # time between the last two lines [s]

    def __next__(self) -> Record:
        return next(self._records)

    def _once(self, records: Iterator[Record]) -> Iterator[Record]:
        """Leave out what several ranks print, tell restarts, and derive what two lines say together."""
        for record in records:
            if isinstance(record, LogEvent):
                if self._is_new(record):
                    yield record
                else:
                    self.left_out["events printed again"] += 1
            elif self._is_cut(record):
                self.left_out["half-written last lines"] += 1
            elif self._is_late(record):
                self.left_out["steps printed again by other ranks"] += 1
            else:
                is_told = any(event.kind == "restart" for event in self._events)
                if self._last is not None and record.step <= self._last.step and not is_told:
                    yield LogEvent("restart", record.time, step=record.step)
                yield self._step(record)
        if self._last is None:
            raise InputError(f'No step in "{self.name}", read as a log of {self.kind}. Give the log of a training run.')

    @property
    def _again(self) -> bool:
        """Whether the run has begun or ended since the last step."""
        return any(event.kind in ("restart", "start", "stop") for event in self._events)

    def _is_cut(self, record: LoggedStep) -> bool:
        """Whether the last line of a file that grows says less than the one before."""
        if self._last is None or self.kind not in _LINES or not isinstance(self._source, Lines):
            return False
        return self._source.unfinished and not _names(record) >= _names(self._last)

    def _is_new(self, event: LogEvent) -> bool:
        """Whether an event is new, and not what another rank prints of it; it is taken."""
        for before in self._events:
            values = (before.value, event.value)
            alike = before.step == event.step and (values[0] == values[1] or all(map(math.isnan, values)))
            passed = abs(event.time - before.time)
            together = alike and (math.isnan(passed) or passed <= LATE)
            if before.kind == event.kind and (event.kind == "restart" or together):
                return False
        self._events = [*self._events[-99:], event]
        return True

    def _is_late(self, record: LoggedStep) -> bool:
        """Whether another rank has printed this step, and it was not repeated after a restart."""
        before = self._recent.get(record.step)
        if self._last is None or before is None:
            return False
        passed = record.time - before.time
        if not math.isnan(passed):
            return passed <= (LATE if self._again else max(LATE, 0.5 * self._pace))
        if self._again or record.step == self._last.step:
            return not self._again
        return record.loss == before.loss or (math.isnan(record.loss) and math.isnan(before.loss))

    def _step(self, record: LoggedStep) -> LoggedStep:
        """A new step, with what follows from the one before."""
        last = self._last
        if last is not None and record.step > last.step and not self._again:
            count = record.step - last.step
            evaluations = (e.time for e in self._events if e.kind == "evaluation" and e.step == last.step)
            passed = record.time - max((time for time in evaluations if time > last.time), default=last.time)
            self._pace = passed if passed > 0 else self._pace
            if math.isnan(record.step_time) and passed > 0:
                record = dataclasses.replace(record, step_time=passed / count)
            tokens = (record.tokens_so_far - last.tokens_so_far) / count
            if math.isnan(record.tokens) and tokens > 0:
                record = dataclasses.replace(record, tokens=tokens)
        elif last is not None and record.step <= last.step:
            self._recent.clear()
        self._last, self._events = record, []
        self._recent[record.step] = record
        if len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)
        return record


def _names(record: LoggedStep) -> set[str]:
    """What a line says; what follows from two lines left aside."""
    names = {field.name for field in dataclasses.fields(record)} - {"step", "step_time", "tokens"}
    return {name for name in names if not math.isnan(getattr(record, name))}


def read_steps(path: str | Path, kind: str | None = None) -> StepLog:
    """The steps and events of a log, read as they are asked for.

    **Arguments:**

    - `path`: a file that a framework, TensorBoard or Weights & Biases wrote.
    - `kind`: one of `KINDS`; recognized from the content by default.

    **Returns:** an iterator of `LoggedStep` and `LogEvent` in SI units. A step that several ranks print is given once;
    a number that goes back is told by an event "restart" before it.

    **Raises:** `InputError` if the file cannot be read or its kind is not known; while it is read, if it holds no step.
    """
    return steps_of(_lines(Path(path)), kind or log_kind(path), str(path))


def steps_of(lines: Iterable[str], kind: str | None, name: str) -> StepLog:
    """The steps and events of lines that come from anywhere, such as a file that still grows.

    **Arguments:**

    - `lines`: whole lines; each record is given as soon as its line has come.
    - `kind`: one of `KINDS`, or None to recognize it, which takes lines until one tells.
    - `name`: what messages call it; of a TensorBoard scalar, the name of its file.

    **Raises:** as `read_steps`.
    """
    left_out: Counter[str] = lines.left_out if isinstance(lines, Lines) else Counter()
    source = lines if isinstance(lines, Lines) else _short(lines, left_out)
    held: list[str] = []
    if kind is None:
        kind = _recognized(source, name, held)
    elif kind not in KINDS:
        raise InputError(f'"{name}": unknown kind of log "{kind}". {suggest(kind, KINDS)}')
    return StepLog(READERS[kind](itertools.chain(held, source), name), kind, name, source, left_out)


def log_kind(path: str | Path) -> str:
    """The kind of a log, one of `KINDS`.

    **Raises:** `InputError` if it cannot be read or none of its first lines belongs to a known kind.
    """
    return _recognized(_lines(Path(path)), str(path), [])


def _lines(path: Path) -> Lines:
    return Lines(path, hf_trainer.LARGEST if path.suffix.lower() == ".json" else LONGEST)


def _short(lines: Iterable[str], left_out: Counter[str]) -> Iterator[str]:
    """Lines without their ends and without those that are too long, which are counted."""
    for line in lines:
        if len(line) > LONGEST:
            left_out[too_long()] += 1
        else:
            yield line.rstrip("\r\n")


def _recognized(lines: Iterator[str], name: str, held: list[str]) -> str:
    """The kind that a line tells; the lines up to it are held."""
    size, first = 0, True
    for line in lines:
        held.append(line)
        if kind := _kind_of(line, first):
            return kind
        first = first and not line.strip()
        size += len(line)
        if len(held) >= MOST_LINES or size > MOST_HELD:
            break
    if not held:
        raise InputError(f'"{name}" is empty, or its first line does not end. Give the log of a training run.')
    raise InputError(
        f'"{name}": no line is one of a training log that is known. Known kinds: {", ".join(KINDS)}; in Python, give '
        "one as kind= if it is one."
    )


def _kind_of(line: str, first: bool) -> str | None:
    """The kind that a line tells, if it does; headers tell it only on the first line."""
    if mlperf.MARK in line:
        return "mlperf"
    if first and "," in line and scalars.is_tensorboard(line):
        return "tensorboard"
    if first and "," in line and scalars.is_wandb(line):
        return "wandb"
    text = plain(line)
    signs = ((sign, kind) for words, sign, kind in SIGNS if all(word in text for word in words))
    return next((kind for sign, kind in signs if sign.search(text)), None)
