"""Lines of nanotron, whose numbers are shortened (1.2K, 3.4M) and whose batch is in tokens."""

import re
from collections.abc import Iterable, Iterator

from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.logs.fields import amount, count, plain, stamp, step_of

STEP = re.compile(r"\biteration:\s*(\d[\d,]*)\s*/\s*\d", re.ASCII)
KEYS = {
    "consumed_tokens": ("tokens_so_far", 1.0),
    "elapsed_time_per_iteration_ms": ("step_time", 1e-3),
    "time_per_iteration_ms": ("step_time", 1e-3),
    "tokens_per_sec_per_gpu": ("token_rate", 1.0),
    "global_batch_size": ("tokens", 1.0),
    "lm_loss": ("loss", 1.0),
    "loss": ("loss", 1.0),
    "lr": ("learning_rate", 1.0),
    "hardware_tflops_per_gpu": ("hardware", 1e12),
    "model_tflops_per_gpu": ("flops_rate", 1e12),
    "grad_norm": ("grad_norm", 1.0),
}
SAVED = re.compile(r"saving (?:checkpoint|weights)|saved checkpoint", re.IGNORECASE)
LOADED = re.compile(r"loading checkpoint|resuming|loaded checkpoint", re.IGNORECASE)


def is_nanotron(head: list[str]) -> bool:
    """Whether lines are of this kind."""
    return any(STEP.search(line) and "|" in line and "_" in line for line in map(plain, head))


def read_nanotron(lines: Iterable[str]) -> Iterator[LoggedStep | LogEvent]:
    """Steps, checkpoints and restarts."""
    for raw in lines:
        line = plain(raw)
        if (found := STEP.search(line)) and "|" in line:
            number = count(found[1])
            if number is None:
                continue
            said = {}
            for part in line.split("|"):
                name, colon, text = part.rpartition(":")
                known = KEYS.get(name.strip().split(" ")[-1].lower()) if colon else None
                if known is not None:
                    said.setdefault(known[0], known[1] * amount(text))
            said.pop("hardware", None)
            yield step_of(number, {"time": stamp(line), **said})
        elif SAVED.search(line):
            yield LogEvent("checkpoint", stamp(line))
        elif LOADED.search(line):
            yield LogEvent("restart", stamp(line))
