"""What do the lines of MaxText say?

`completed step: 3, seconds: 9.163, TFLOP/s/device: 486.1, Tokens/s/device: 1788.0, total_weights: 131072, loss: 5.2`.
`total_weights` counts the tokens of the step in the whole run that the loss counts. The first steps time their
dispatch alone; all are given.
"""

import re
from collections.abc import Iterable, Iterator

from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.text import NUMBER, made, number, plain, stamp, whole

SIGN = re.compile(r"\bcompleted step:\s*([\d,]*\d),\s*(?=seconds:)")
FIELDS: dict[str, tuple[str, float]] = {
    "seconds": ("step_time", 1.0),
    "tflop/s/device": ("flops_rate", 1e12),
    "tflop/s": ("flops_rate", 1e12),
    "tokens/s/device": ("token_rate", 1.0),
    "total_weights": ("tokens", 1.0),
    "loss": ("loss", 1.0),
    "learning_rate": ("learning_rate", 1.0),
    "lr": ("learning_rate", 1.0),
    "grad_norm": ("grad_norm", 1.0),
}
_FIELD = re.compile(rf"(?<![\w/])([\w/]+):\s*({NUMBER})", re.IGNORECASE)
_PART = re.compile(rf"\b(?:main_model_loss|lm_loss):\s*({NUMBER})", re.IGNORECASE)
"""The loss of the next token, where the loss with all its parts is not printed."""
_EVALUATED = re.compile(rf"eval metrics after step:\s*([\d,]*\d),\s*loss=\s*({NUMBER})", re.IGNORECASE)
_SAVED = re.compile(r"saved a checkpoint at step\s+(\d+)|asynchronous checkpoint save for step\s+(\d+)", re.IGNORECASE)
_RESTORED = re.compile(r"restoring from this run's directory|restored checkpoint from", re.IGNORECASE)
_WORDS = ("completed step:", "eval metrics", "checkpoint", "estoring")


def steps(lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
    """Steps and events of lines."""
    for raw in lines:
        if not any(word in raw for word in _WORDS):
            continue
        line = plain(raw)
        if match := SIGN.search(line):
            step = whole(match[1])
            values: dict[str, float] = {}
            for field in _FIELD.finditer(line, match.end()):
                # MaxText prints decimals: a loss without them was cut short while it was written.
                if field[1].lower() in FIELDS and (field[1] != "loss" or not field[2].isdecimal()):
                    key, scale = FIELDS[field[1].lower()]
                    values.setdefault(key, number(field[2]) * scale)
            if "loss" not in values and (aside := _PART.search(line, match.end())):
                values["loss"] = number(aside[1])
            record = made(step, stamp(line[: match.start()]), values) if step is not None else None
            if record is not None:
                yield record
        elif match := _EVALUATED.search(line):
            yield LogEvent("evaluation", stamp(line), NOT_SAID, number(match[2]), whole(match[1]))
        elif match := _SAVED.search(line):
            yield LogEvent("checkpoint", stamp(line), step=whole(match[1] or match[2]))
        elif _RESTORED.search(line):
            yield LogEvent("restart", stamp(line))
