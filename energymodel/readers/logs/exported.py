"""CSV exports of TensorBoard (one scalar a file: "Wall time,Step,Value") and Weights & Biases (a column a metric)."""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from energymodel.errors import InputError
from energymodel.readers.cells import time_of
from energymodel.readers.log_records import LoggedStep
from energymodel.readers.logs.fields import step_of, value

HEADER = ("wall time", "step", "value")
STEP = ("step", "_step", "global_step", "trainer/global_step", "train/global_step", "iteration")
TIME = ("_timestamp", "timestamp", "wall time", "time")
RUNTIME = ("_runtime", "relative time (process)", "relative time", "runtime")
BOUNDS = ("__min", "__max")
RATE_OF_DEVICE = r"tps|tok(ens)?[ _/-]*(per)?[ _/-]*s(ec(ond)?)?[ _/-]*(per)?[ _/-]*(gpu|device|chip)"
TOKENS_SEEN = r"(consumed|total|seen|n|num)[ _-]?(train|input)?[ _-]?tokens|tokens[ _-]?(seen|consumed|processed)"
SECONDS = r"(iteration|iter|step|batch)[ _-]?time|(time|seconds)[ _/-]?per[ _/-]?(iteration|step)"
NAMES: tuple[tuple[str, str, float], ...] = (
    ("step_time", r"(iteration|iter|step)[ _-]?time[ _-]?(\(?ms\)?)$|time_per_iteration_ms", 1e-3),
    ("step_time", SECONDS, 1.0),
    ("token_rate", RATE_OF_DEVICE, 1.0),
    ("flops_rate", r"tflops?", 1e12),
    ("energy", r"energy[ _/-]*per[ _/-]*gpu", 1.0),
    ("power", r"power[ _/-]*per[ _/-]*gpu", 1.0),
    ("grad_norm", r"grad[ _-]?norm", 1.0),
    ("learning_rate", r"learning[ _-]?rate|\blr\b", 1.0),
    ("tokens_so_far", TOKENS_SEEN, 1.0),
    ("sequences", r"(global|train)[ _-]?batch[ _-]?size", 1.0),
    ("loss", r"loss", 1.0),
)
"""What a name of a scalar means, the first that fits; and its unit."""
NOT_TRAINING = re.compile(r"eval|valid|test|balanc|aux|scale|z[_-]?loss|mtp", re.IGNORECASE)


def meaning(name: str) -> tuple[str, float] | None:
    """Field of a `LoggedStep` that a scalar's name means, and its unit; losses of evaluations are none."""
    text = name.lower().rsplit(" - ", 1)[-1]
    for field, pattern, factor in NAMES:
        if re.search(pattern, text):
            return None if field == "loss" and NOT_TRAINING.search(text) else (field, factor)
    return None


def is_tensorboard(head: list[str]) -> bool:
    """Whether lines are of this kind."""
    return bool(head) and tuple(_row(head[0].lower())) == HEADER


def is_wandb(head: list[str]) -> bool:
    """Whether lines are of this kind."""
    names = [name.lower() for name in _row(head[0])] if head else []
    others = [name for name in names if name not in STEP and meaning(name) is not None]
    return any(name in STEP for name in names) and bool(others) and tuple(names) != HEADER


def read_tensorboard(lines: Iterable[str], name: str) -> Iterator[LoggedStep]:
    """Steps with their time and the scalar that the file's name says; a loss where it says nothing.

    **Raises:** `InputError` for a scalar that is of no use here.
    """
    scalar = Path(name).stem
    known = meaning(scalar) or (None if NOT_TRAINING.search(scalar) else ("loss", 1.0))
    if known is None:
        raise InputError(f"{name}: the scalar of an evaluation. Give the file of a training loss, or of a speed.")
    for at, line in enumerate(lines):
        cells = _row(line)
        if at == 0 or len(cells) < 3:
            continue
        step = value(cells[1])
        if 0.0 <= step < 1e12:
            yield step_of(int(step), {"time": time_of(cells[0]), known[0]: known[1] * value(cells[2])})


def read_wandb(lines: Iterable[str]) -> Iterator[LoggedStep]:
    """Steps with what the columns of the first run say; their minima and maxima are passed over."""
    columns: dict[str, tuple[int, float]] = {}
    step_at = time_at = runtime_at = -1
    for at, line in enumerate(lines):
        cells = _row(line)
        if at == 0:
            lower = [name.lower() for name in cells]
            step_at, time_at, runtime_at = (
                next((lower.index(name) for name in names if name in lower), -1) for names in (STEP, TIME, RUNTIME)
            )
            for place, name in enumerate(lower):
                known = None if name.endswith(BOUNDS) or name in (*STEP, *TIME, *RUNTIME) else meaning(name)
                if known is not None:
                    columns.setdefault(known[0], (place, known[1]))
            continue
        if len(cells) <= max(step_at, time_at, runtime_at):
            continue
        step = value(cells[step_at])
        said = {key: factor * value(cells[place]) for key, (place, factor) in columns.items() if place < len(cells)}
        if 0.0 <= step < 1e12 and any(math.isfinite(one) for one in said.values()):
            place = time_at if time_at >= 0 else runtime_at
            time = time_of(cells[place]) if place >= 0 else math.nan
            yield step_of(int(step), {"time": time, **said})


def joined_scalars(files: Mapping[str, Iterable[LoggedStep]]) -> Iterator[LoggedStep]:
    """Steps of several files of one scalar each, joined by their number."""
    found: dict[int, dict[str, float]] = {}
    for steps in files.values():
        for one in steps:
            said = found.setdefault(one.step, {})
            for key, amount in vars(one).items():
                if key != "step" and math.isfinite(amount):
                    said.setdefault(key, amount)
    for step in sorted(found):
        yield LoggedStep(step, **found[step])


def _row(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error:
        return []
