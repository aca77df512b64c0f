"""`:::MLLOG` lines of MLPerf Training: blocks of steps between evaluations, with the samples seen.

A block gives one line: its mean step time, from its samples and the global batch. Where a log has no blocks, its
`tracked_stats` do.
"""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep

MARK = ":::MLLOG"
BEGINS, ENDS = ("block_start", "epoch_start"), ("block_stop", "epoch_stop")
RUN = {"run_start": "start", "run_stop": "stop"}


def is_mlperf(head: list[str]) -> bool:
    """Whether lines are of this kind."""
    return any(MARK in line for line in head)


def read_mlperf(lines: Iterable[str]) -> Iterator[LoggedStep | LogEvent]:
    """A step for each block, evaluations, start and end of the run."""
    batch = begun = samples_before = evaluating = NOT_SAID
    loss = NOT_SAID
    last_step = 0
    for raw in lines:
        event = _event(raw)
        if event is None:
            continue
        key, time, samples = str(event["key"]), 1e-3 * _number(event.get("time_ms")), _samples(event)
        value = event.get("value")
        if key == "global_batch_size":
            batch = _number(value)
        elif key in ("train_loss", "loss"):
            loss = _number(value)
        elif key in RUN:
            yield LogEvent("start" if key == "run_start" else "stop", time)
        elif key in BEGINS:
            begun, samples_before = time, samples
        elif key in ENDS and samples > samples_before and time > begun and batch > 0.0:
            step_time = (time - begun) * batch / (samples - samples_before)
            last_step = round(samples / batch)
            yield LoggedStep(last_step, time, step_time, sequences=batch, loss=loss)
            begun = NOT_SAID
        elif key == "eval_start":
            evaluating = time
        elif key == "eval_stop":
            yield LogEvent("evaluation", time, duration=time - evaluating)
        elif key == "tracked_stats" and math.isnan(begun) and isinstance(value, dict):
            yield from _tracked(value, event, time, batch, last_step)


def _tracked(
    value: dict[str, Any], event: dict[str, Any], time: float, batch: float, last_step: int
) -> Iterator[LoggedStep]:
    """The step that a line of statistics outside of blocks states."""
    rate = _number(value.get("throughput"))
    step_time = _number(value.get("train_step_time", value.get("step_time")))
    step_time = step_time if step_time > 0.0 else batch / rate if rate > 0.0 else NOT_SAID
    step = _number(_metadata(event).get("step"))
    if step_time > 0.0 and step > last_step:
        loss = _number(value.get("train_loss", value.get("reduced_train_loss", value.get("loss"))))
        yield LoggedStep(int(step), time, step_time, sequences=batch, loss=loss)


def _event(line: str) -> dict[str, Any] | None:
    """The table behind the mark; what stands before and behind it on the line is passed over."""
    _, mark, text = line.partition(MARK)
    at = text.find("{")
    if not mark or at < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text[at:])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("key"), str) else None


def _metadata(event: dict[str, Any]) -> dict[str, Any]:
    found = event.get("metadata")
    return found if isinstance(found, dict) else {}


def _samples(event: dict[str, Any]) -> float:
    said = _metadata(event)
    return _number(said.get("samples_count"))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NOT_SAID
    try:
        found = float(value)
    except OverflowError:
        return NOT_SAID
    return found if math.isfinite(found) else NOT_SAID
