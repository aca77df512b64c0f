"""`trainer_state.json` of the Hugging Face Trainer and axolotl, and the dictionaries that they print."""

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from energymodel.readers.cells import number
from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.fields import amount, plain, stamp, step_of

PRINTED = re.compile(r"\{['\"][\w/ ()@.-]+['\"]:.{1,4000}?\}")
LONGEST_STATE = 2**28
"""Characters of a `trainer_state.json` that are read."""
BAR = re.compile(r"\|\s*(\d+)/(\d+)\s*\[")
KEYS = {
    "loss": "loss",
    "train/loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "num_input_tokens_seen": "tokens_so_far",
    "tokens_per_second_per_gpu": "token_rate",
    "tokens/train_per_sec_per_gpu": "token_rate",
    "train_tokens_per_second_per_gpu": "token_rate",
    "step_time": "step_time",
    "memory/max_active (gib)": "memory",
    "memory/max_allocated (gib)": "allocated",
}
GIB = ("memory",)


def is_hf_trainer(head: list[str]) -> bool:
    """Whether lines are of this kind."""
    return any('"log_history"' in line for line in head) or any(_printed(line) is not None for line in head)


def read_hf_trainer(lines: Iterable[str]) -> Iterator[LoggedStep | LogEvent]:
    """Steps and evaluations, of the file's table or of what is printed between other lines."""
    held: list[str] = []
    size, begun, is_table = 0, False, False
    step = 0
    for raw in lines:
        if not begun:
            begun, is_table = True, raw.strip() == "{" or raw.lstrip().startswith('{"')
        if is_table:
            held.append(raw)
            size += len(raw)
            if size > LONGEST_STATE:
                return
            continue
        line = plain(raw)
        bars = BAR.findall(line)
        if bars and len(bars[-1][0]) <= 12:
            step = max(step, int(bars[-1][0]))
        said = _printed(line)
        if said is not None:
            for record in _records(said, max(step, 1), stamp(line)):
                if isinstance(record, LoggedStep) and not bars:
                    step += 1
                yield record
    if held:
        yield from _of_table("\n".join(held))


def _of_table(text: str) -> Iterator[LoggedStep | LogEvent]:
    """The entries of `log_history`, each with its step."""
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        return
    history = state.get("log_history") if isinstance(state, dict) else None
    for entry in history if isinstance(history, list) else ():
        if isinstance(entry, dict):
            step = _number(entry.get("step"))
            if 0.0 <= step < 1e12:
                yield from _records(entry, int(step), NOT_SAID)


def _records(said: dict[Any, Any], step: int, time: float) -> Iterator[LoggedStep | LogEvent]:
    """The step, the evaluation or the end that an entry states."""
    if "eval_loss" in said or "eval_runtime" in said:
        yield LogEvent("evaluation", time, _number(said.get("eval_runtime")), _number(said.get("eval_loss")))
    elif "train_runtime" in said:
        yield LogEvent("stop", time, duration=_number(said.get("train_runtime")))
    elif any(name in said for name in ("loss", "train/loss")):
        found: dict[str, float] = {}
        for name, key in KEYS.items():
            if name in said and key != "allocated":
                found.setdefault(key, _number(said[name]) * (2.0**30 if key in GIB else 1.0))
        yield step_of(step, {"time": time, **found})


def _printed(line: str) -> dict[Any, Any] | None:
    """A dictionary of plain values within a line, read without running it."""
    found = PRINTED.search(line[:16384])
    if found is None or ("loss" not in found[0] and "runtime" not in found[0]):
        return None
    text = re.sub(r"\bnan\b", "None", found[0])
    try:
        said = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _number(value: Any) -> float:
    """A number, or text that is one, as newer versions print it."""
    if isinstance(value, bool):
        return NOT_SAID
    if isinstance(value, str):
        return amount(value) if value[-1:].isalpha() else number(value)
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return NOT_SAID
    return found if math.isfinite(found) else NOT_SAID
