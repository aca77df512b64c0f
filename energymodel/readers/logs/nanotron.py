"""What do the lines of nanotron say?

`iteration: 10 / 100 | consumed_tokens: 2.62M | elapsed_time_per_iteration_ms: 1.2K | tokens_per_sec: 218K | ...`, with
three digits and K, M, B (or G), T for powers of a thousand. `global_batch_size` counts sequences in the public versions
and tokens in some forks: tokens of the step, from rate and time, tell which.
"""

import math
import re
from collections.abc import Iterable, Iterator

from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.text import NUMBER, bar_fields, made, number, plain, stamp, whole

SIGN = re.compile(r"\biteration:\s*([\d,]+)\s*/\s*[\d,.KMBGT]+\s*\|")
SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
FIELDS: dict[str, tuple[str, float]] = {
    "elapsed_time_per_iteration_ms": ("step_time", 1e-3),
    "time_per_iteration_ms": ("step_time", 1e-3),
    "consumed_tokens": ("tokens_so_far", 1.0),
    "tokens_per_sec_per_gpu": ("token_rate", 1.0),
    "lm_loss": ("loss", 1.0),
    "loss": ("loss", 1.0),
    "lr": ("learning_rate", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "model_tflops_per_gpu": ("flops_rate", 1e12),
    "cuda_max_memory_reserved": ("memory", 1.0),
}
SAME = 0.04
"""How far a batch in tokens may be from rate times time, each of three digits."""
_VALUE = re.compile(rf"({NUMBER})\s*([KMBGTPE]?)(?![A-Za-z])", re.IGNORECASE)
_LENGTH = re.compile(r"\bsequence_length\s*[=:]\s*(\d+)")
_SAVED = re.compile(r"\bsaving checkpoint at\s+(\S+)", re.IGNORECASE)
_LOADED = re.compile(r"\bloading (?:checkpoint|weights|model weights) from", re.IGNORECASE)
_EVALUATED = re.compile(rf"\b(?:validation|val|eval)_loss:\s*({NUMBER})", re.IGNORECASE)
_WORDS = ("iteration:", "heckpoint", "oading", "_loss:", "sequence_length")


def human(text: str) -> float:
    """`1.2K` -> 1200."""
    match = _VALUE.match(text)
    return number(match[1]) * SUFFIXES[match[2].upper()] if match else NOT_SAID


def steps(lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
    """Steps and events of lines."""
    length = NOT_SAID
    for raw in lines:
        if not any(word in raw for word in _WORDS):
            continue
        line = plain(raw)
        if match := SIGN.search(line):
            record = _step(whole(match[1]), stamp(line[: match.start()]), line[match.end() :], length)
            if record is not None:
                yield record
        elif match := _EVALUATED.search(line):
            yield LogEvent("evaluation", stamp(line), NOT_SAID, number(match[1]))
        elif match := _SAVED.search(line):
            yield LogEvent("checkpoint", stamp(line), step=whole(match[1].rstrip("/").rpartition("/")[2]))
        elif _LOADED.search(line):
            yield LogEvent("restart", stamp(line))
        elif match := _LENGTH.search(line):
            length = number(match[1])


def _step(step: int | None, time: float, text: str, length: float) -> LoggedStep | None:
    """One iteration; `length` is that of a sequence, where the configuration was printed."""
    fields = bar_fields(text)
    values: dict[str, float] = {}
    for key, value in fields.items():
        if key in FIELDS:
            field, scale = FIELDS[key]
            values.setdefault(field, human(value) * scale)
    if step is None or not {"step_time", "loss"} & values.keys():
        return None
    tokens = human(fields.get("tokens_per_sec", "")) * values.get("step_time", NOT_SAID)
    batch = human(fields.get("global_batch_size", ""))
    if abs(batch - tokens) <= SAME * tokens:
        values |= {"tokens": batch, "sequences": batch / length}
    else:
        values |= {"tokens": tokens if math.isnan(batch * length) else batch * length, "sequences": batch}
    return made(step, time, values)
