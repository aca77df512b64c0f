"""Lines of MaxText. The first steps are timed while they are only dispatched; `logged_run` marks them as warm-up."""

import re
from collections.abc import Iterable, Iterator

from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.logs.fields import NUMBER, count, plain, stamp, step_of, value

STEP = re.compile(r"completed step:?\s*(\d[\d,]*)", re.ASCII)
FIELD = re.compile(
    rf"\b(seconds|TFLOP/s/device|Tokens/s/device|total_weights|loss|lm_loss|perplexity):\s*({NUMBER})",
    re.ASCII | re.IGNORECASE,
)
KEYS = {
    "seconds": ("step_time", 1.0),
    "tflop/s/device": ("flops_rate", 1e12),
    "tokens/s/device": ("token_rate", 1.0),
    "total_weights": ("tokens", 1.0),
    "loss": ("loss", 1.0),
}
EVALUATED = re.compile(rf"(?:completed )?eval(?:uation)?\b.*?loss[=:]\s*({NUMBER})", re.IGNORECASE)
SAVED = re.compile(r"saved a checkpoint|saving checkpoint", re.IGNORECASE)
LOADED = re.compile(r"restoring|restored checkpoint|restarting", re.IGNORECASE)


def is_maxtext(head: list[str]) -> bool:
    """Whether lines are of this kind."""
    return any(STEP.search(line) and "seconds" in line for line in head)


def read_maxtext(lines: Iterable[str]) -> Iterator[LoggedStep | LogEvent]:
    """Steps, evaluations, checkpoints and restarts."""
    for raw in lines:
        line = plain(raw)
        if found := STEP.search(line):
            number = count(found[1])
            if number is None:
                continue
            said = {KEYS[key.lower()]: value(text) for key, text in FIELD.findall(line) if key.lower() in KEYS}
            yield step_of(number, {"time": stamp(line), **{key: factor * one for (key, factor), one in said.items()}})
        elif evaluated := EVALUATED.search(line):
            yield LogEvent("evaluation", stamp(line), value=value(evaluated[1]))
        elif SAVED.search(line):
            yield LogEvent("checkpoint", stamp(line))
        elif LOADED.search(line) and "checkpoint" in line.lower():
            yield LogEvent("restart", stamp(line))
