"""Lines of Megatron-LM, and of those that print like it: Megatron-DeepSpeed, Megatron-Bridge, Primus, GPT-NeoX."""

import re
from collections.abc import Iterable, Iterator

from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.logs.fields import amount, count, plain, stamp, step_of, value

STEP = re.compile(r"\biteration\s+(\d[\d,]*)\s*/\s*\d", re.ASCII)
KEYS = {
    "elapsed time per iteration (ms)": ("step_time", 1e-3),
    "elapsed time per iteration (s)": ("step_time", 1.0),
    "elapsed_time_per_iteration_ms": ("step_time", 1e-3),
    "consumed tokens": ("tokens_so_far", 1.0),
    "global batch size": ("sequences", 1.0),
    "throughput per gpu (tflop/s/gpu)": ("flops_rate", 1e12),
    "tflops": ("flops_rate", 1e12),
    "tflops per gpu": ("flops_rate", 1e12),
    "tokens per gpu per second (tgs)": ("token_rate", 1.0),
    "tokens-per-second-per-gpu": ("token_rate", 1.0),
    "tokens/s/gpu": ("token_rate", 1.0),
    "tokens per gpu (tokens/s/gpu)": ("token_rate", 1.0),
    "energy per gpu (j/iter/gpu)": ("energy", 1.0),
    "power per gpu (w/gpu)": ("power", 1.0),
    "learning rate": ("learning_rate", 1.0),
    "lm loss": ("loss", 1.0),
    "loss": ("loss", 1.0),
    "grad norm": ("grad_norm", 1.0),
}
"""What stands before the colon, in lower case; what it becomes, and its unit."""
SAVED = re.compile(r"(?:successfully saved|saving) checkpoint", re.IGNORECASE)
LOADED = re.compile(r"(?:successfully loaded|loading) checkpoint", re.IGNORECASE)
EVALUATED = re.compile(r"validation loss at iteration|evaluating iter|evaluating on", re.IGNORECASE)
EVAL_LOSS = re.compile(r"loss value:\s*(\S+)", re.IGNORECASE)
SAVE_TIME = re.compile(r"save-checkpoint\w*[ .]*:\s*\(?([\d.]+)", re.IGNORECASE)


def is_megatron(head: list[str]) -> bool:
    """Whether lines are of this kind."""
    return any(STEP.search(line) and "elapsed time per iteration" in line for line in head)


def read_megatron(lines: Iterable[str]) -> Iterator[LoggedStep | LogEvent]:
    """Steps, evaluations, checkpoints and restarts."""
    for raw in lines:
        line = plain(raw)
        if (found := STEP.search(line)) and "|" in line:
            number = count(found[1])
            said = _said(line) if number is not None else {}
            if number is not None and said:
                yield step_of(number, {"time": stamp(line), **said})
        elif EVALUATED.search(line):
            loss = EVAL_LOSS.search(line)
            yield LogEvent("evaluation", stamp(line), value=value(loss[1]) if loss else float("nan"))
        elif SAVED.search(line):
            yield LogEvent("checkpoint", stamp(line))
        elif took := SAVE_TIME.search(line):
            yield LogEvent("checkpoint", stamp(line), duration=1e-3 * value(took[1]))
        elif LOADED.search(line):
            yield LogEvent("restart", stamp(line))


def _said(line: str) -> dict[str, float]:
    """The numbers between the bars of a line."""
    said: dict[str, float] = {}
    for part in line.split("|"):
        name, colon, text = part.rpartition(":")
        known = KEYS.get(" ".join(name.lower().split())) if colon else None
        if known is not None and known[0] not in said:
            said[known[0]] = known[1] * amount(text)
    return said
