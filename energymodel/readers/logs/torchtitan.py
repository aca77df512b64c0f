"""Lines of torchtitan: coloured, one for each rank that prints, in the forms of all its versions."""

import re
from collections.abc import Iterable, Iterator

from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.logs.fields import NUMBER, count, plain, stamp, step_of, value

STEP = re.compile(r"(?<!validate )\bstep:\s*(\d[\d,]*)\s+(?:.*?\s)?loss:", re.ASCII)
KEYS = {"loss": "loss", "grad_norm": "grad_norm", "tps": "token_rate", "wps": "token_rate", "lr": "learning_rate"}
FIELD = re.compile(
    rf"\b(loss|grad_norm|tps|wps|tflops|lr|memory):\s*({NUMBER})\s*(GiB|MiB|GB)?", re.ASCII | re.IGNORECASE
)
MEMORY = {"gib": 2.0**30, "mib": 2.0**20, "gb": 1e9}
SAVED = re.compile(r"saving (?:the )?(?:full )?checkpoint|finished saving the checkpoint", re.IGNORECASE)
TOOK = re.compile(r"in ([\d.]+) seconds", re.IGNORECASE)
VALIDATED = re.compile(rf"validate step:\s*\d+\s+loss:\s*({NUMBER})", re.IGNORECASE)
LOADED = re.compile(r"loading (?:the )?checkpoint (?:at step|from)|finished loading the checkpoint", re.IGNORECASE)


def is_torchtitan(head: list[str]) -> bool:
    """Whether lines are of this kind."""
    return any(STEP.search(plain(line)) and re.search(r"\b(?:tps|wps|mfu):", plain(line)) for line in head)


def read_torchtitan(lines: Iterable[str]) -> Iterator[LoggedStep | LogEvent]:
    """Steps, of each rank that prints, validations, checkpoints and restarts."""
    for raw in lines:
        line = plain(raw)
        if validated := VALIDATED.search(line):
            yield LogEvent("evaluation", stamp(line), value=value(validated[1]))
        elif found := STEP.search(line):
            number = count(found[1])
            if number is None:
                continue
            yield step_of(number, {"time": stamp(line), **_said(line)})
        elif SAVED.search(line):
            took = TOOK.search(line)
            yield LogEvent("checkpoint", stamp(line), duration=value(took[1]) if took else float("nan"))
        elif LOADED.search(line):
            yield LogEvent("restart", stamp(line))


def _said(line: str) -> dict[str, float]:
    said: dict[str, float] = {}
    for name, text, unit in FIELD.findall(line):
        key = name.lower()
        if key == "tflops":
            said.setdefault("flops_rate", 1e12 * value(text))
        elif key == "memory":
            said.setdefault("memory", MEMORY.get(unit.lower(), 2.0**30) * value(text))
        else:
            said.setdefault(KEYS[key], value(text))
    return said
