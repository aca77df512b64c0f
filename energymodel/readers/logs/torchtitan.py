"""What do the lines of torchtitan say?

`step: 10  loss: 7.1  grad_norm: 1.2  memory: 36.4GiB(46.1%)  tps: 1,234  tflops: 71.2  mfu: 39.0%`, from one rank or
from many. `tps`, in old versions `wps`, counts tokens per second of one device; the largest reserved memory is in GiB.
No line states the time of a step: it follows from the times of the lines.
"""

import re
from collections.abc import Iterable, Iterator

from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.text import NUMBER, made, number, plain, stamp, whole

SIGN = re.compile(
    r"(\bvalidate )?\bstep:\s*([\d,]{0,20}\d)\b(?=.{0,100}?\bloss:)(?=.{0,500}?\b(?:memory|tps|wps):)", re.IGNORECASE
)
FIELDS: dict[str, tuple[str, float]] = {
    "loss": ("loss", 1.0),
    "global_avg_loss": ("loss", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "lr": ("learning_rate", 1.0),
    "memory": ("memory", float(2**30)),
    "tps": ("token_rate", 1.0),
    "wps": ("token_rate", 1.0),
    "tflops": ("flops_rate", 1e12),
}
_FIELD = re.compile(rf"\b(\w+):\s*({NUMBER})", re.IGNORECASE)
_SAVED = re.compile(
    rf"(?:Finished saving the checkpoint.{{0,100}}?in|Last step checkpoint completed in)\s*({NUMBER})\s*s",
    re.IGNORECASE,
)
_LOADED = re.compile(r"(?:Finished loading the checkpoint|Loading the checkpoint (?:from|at step))", re.IGNORECASE)


def steps(lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
    """Steps and events of lines, as often as ranks print them."""
    for raw in lines:
        if "step" not in raw and "heckpoint" not in raw and "raining" not in raw:
            continue
        line = plain(raw)
        if match := SIGN.search(line):
            step, time = whole(match[2]), stamp(line[: match.start()])
            values: dict[str, float] = {}
            for field in _FIELD.finditer(line, match.end()):
                if field[1].lower() in FIELDS:
                    key, scale = FIELDS[field[1].lower()]
                    values.setdefault(key, number(field[2]) * scale)
            if match[1]:
                yield LogEvent("evaluation", time, NOT_SAID, values.get("loss", NOT_SAID), step)
                continue
            record = made(step, time, values) if step is not None else None
            if record is not None:
                yield record
        elif match := _SAVED.search(line):
            yield LogEvent("checkpoint", stamp(line), number(match[1]))
        elif _LOADED.search(line):
            yield LogEvent("restart", stamp(line))
        elif "Training completed" in line:
            yield LogEvent("stop", stamp(line))
        elif "Training starts at step" in line:
            yield LogEvent("start", stamp(line))
