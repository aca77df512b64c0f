"""The `:::MLLOG` lines of MLPerf Training.

Each holds a time, a key, a value and how many samples were seen (`samples_count`). Between two such lines of training,
`(samples - samples before) / global_batch_size` steps took the time that passed: the mean step is given. An evaluation
takes no training time. Where there is no `samples_count`, `epoch_num` counts samples (BERT) or tokens (GPT-3) if it is
at least a batch; a number of epochs is no count of steps.
"""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.line_kinds import figure, made

MARK = ":::MLLOG"
_DECODER = json.JSONDecoder(parse_int=float)  # an integer of 5,000 digits is no error but infinite
_LOSSES = ("train_loss", "loss", "reduced_train_loss")


def steps(lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
    """Mean steps between two lines, and events, whatever stands before or behind the table of a line."""
    run = _Run()
    for line in lines:
        at = line.find(MARK)
        start = line.find("{", at) if at >= 0 else -1
        try:
            entry, _ = _DECODER.raw_decode(line, start) if start >= 0 else ({}, 0)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("key"), str):
            yield from run.read(entry["key"], entry.get("value"), entry)


class _Run:
    """What the lines so far say of those that follow."""

    def __init__(self) -> None:
        self.batch = self.length = NOT_SAID
        self.started = self.evaluating = self.metric = NOT_SAID
        self.time = self.samples = NOT_SAID  # the last line of training
        self.loss = NOT_SAID
        self.inside = False  # between the start and the end of an evaluation
        self.per_sample = NOT_SAID  # what `epoch_num` counts for each sample: 1 or its tokens

    def read(self, key: str, value: object, entry: dict[str, Any]) -> Iterator[LoggedStep | LogEvent]:
        """Take a line."""
        time = figure(entry.get("time_ms")) * 1e-3
        time = time if math.isfinite(time) else NOT_SAID
        samples = self.samples_of(entry.get("metadata"))
        if key == "global_batch_size":
            self.batch = figure(value)
        elif key == "max_sequence_length":
            self.length = figure(value)
        elif key == "run_start":
            self.started, self.time, self.samples, self.inside = time, time, 0.0, False
            yield LogEvent("start", time)
        elif key == "run_stop":
            yield LogEvent("stop", time, time - self.started)
        elif key == "eval_start":
            yield from self.trained(time, samples)
            self.inside, self.evaluating, self.metric = True, time, NOT_SAID
        elif key in ("eval_accuracy", "eval_loss"):
            self.metric = figure(value)
            if not self.inside:
                yield LogEvent("evaluation", time, NOT_SAID, self.metric, self.step(samples))
        elif key == "eval_stop":
            if self.inside:
                yield LogEvent("evaluation", time, time - self.evaluating, self.metric, self.step(samples))
            self.inside, self.time = False, time
        elif key in ("block_start", "epoch_start"):
            self.time = time
            self.samples = self.samples if math.isnan(samples) else samples
        elif not self.inside:
            statistics = value if key == "tracked_stats" and isinstance(value, dict) else {key: value}
            self.loss = next((figure(statistics[name]) for name in _LOSSES if name in statistics), self.loss)
            yield from self.trained(time, samples)

    def samples_of(self, metadata: object) -> float:
        """Samples so far."""
        if not isinstance(metadata, dict):
            return NOT_SAID
        count, epoch = figure(metadata.get("samples_count")), figure(metadata.get("epoch_num"))
        if not math.isnan(count) or not epoch >= self.batch:
            return count
        if math.isnan(self.per_sample):
            tokens = self.batch * self.length
            self.per_sample = self.length if tokens > 0 and epoch % tokens == 0 else 1.0
        return epoch / self.per_sample

    def step(self, samples: float) -> int | None:
        """Steps of so many samples."""
        count = samples / self.batch if self.batch > 0 else NOT_SAID
        return round(count) if 0 <= count < 1e15 else None

    def trained(self, time: float, samples: float) -> Iterator[LoggedStep]:
        """The mean step since the last line of training, if samples were seen."""
        step, count = self.step(samples), (samples - self.samples) / self.batch if self.batch > 0 else NOT_SAID
        if step is None or not (count > 0 or samples < self.samples):
            return
        values = {"step_time": (time - self.time) / count, "sequences": self.batch, "loss": self.loss}
        values["tokens"] = self.batch * self.length
        self.time, self.samples, self.loss = time, samples, NOT_SAID
        if record := made(step, time, values):
            yield record
