"""Which steps does the log of a training run state, whatever wrote it?

Read line by line: files of any length, and files that still grow, are read alike.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from energymodel.errors import InputError, suggest
from energymodel.readers.lines import Skipped, clean, file_lines
from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.logs.exported import is_tensorboard, is_wandb, joined_scalars, read_tensorboard, read_wandb
from energymodel.readers.logs.hf_trainer import is_hf_trainer, read_hf_trainer
from energymodel.readers.logs.maxtext import is_maxtext, read_maxtext
from energymodel.readers.logs.megatron import is_megatron, read_megatron
from energymodel.readers.logs.mlperf import is_mlperf, read_mlperf
from energymodel.readers.logs.nanotron import is_nanotron, read_nanotron
from energymodel.readers.logs.torchtitan import is_torchtitan, read_torchtitan

HEAD = 20_000
"""Lines within which the first step of a log stands: frameworks print their settings before it."""
MOST_HEAD = 2**24
"""Characters of them."""
PORTION = 200
"""Lines that are looked at before more are read."""
APART = 30.0
"""A step that is printed again within this time is that of another rank [s]."""
RANKS_BEHIND = 16
"""Steps by which a rank may print later than another."""
Record = LoggedStep | LogEvent
SIGNS: dict[str, Callable[[list[str]], bool]] = {
    "mlperf": is_mlperf,
    "tensorboard": is_tensorboard,
    "megatron": is_megatron,
    "nanotron": is_nanotron,
    "torchtitan": is_torchtitan,
    "maxtext": is_maxtext,
    "wandb": is_wandb,
    "hf-trainer": is_hf_trainer,
}
"""How each kind is recognized, in the order in which they are tried."""
READERS: dict[str, Callable[[Iterable[str]], Iterator[Record]]] = {
    "megatron": read_megatron,
    "torchtitan": read_torchtitan,
    "maxtext": read_maxtext,
    "nanotron": read_nanotron,
    "hf-trainer": read_hf_trainer,
    "mlperf": read_mlperf,
    "wandb": read_wandb,
}
KINDS = (*READERS, "tensorboard")
"""Kinds of training logs that are read."""


def log_kind(path: str | Path) -> str:
    """Kind of a training log, told from its lines.

    **Raises:** `InputError` if it is none of `KINDS` or cannot be read.
    """
    skipped = Skipped()
    lines = clean(file_lines(Path(path), skipped), skipped)
    size = read = 0
    while portion := list(islice(lines, PORTION)):
        for kind, fits in SIGNS.items():
            if (read == 0 or kind not in ("tensorboard", "wandb")) and fits(portion):
                return kind
        read, size = read + len(portion), size + sum(map(len, portion))
        if read >= HEAD or size >= MOST_HEAD:
            break
    raise InputError(
        f'"{path}" {"holds no text" if not read else "is no training log that is known"}. '
        f"Known kinds: {', '.join(KINDS)}."
    )


def read_steps(path: str | Path, kind: str | None = None, *, skipped: Skipped | None = None) -> Iterator[Record]:
    """Steps and events of a log, each as soon as its line is read.

    **Arguments:**

    - `kind`: one of `KINDS`; told from the file where it is left out.
    - `skipped`: gains the number of lines that were passed over, by reason.

    **Raises:** `InputError` for an unknown kind, and where the file cannot be read or holds no step.
    """
    path = Path(path)
    passed = Skipped() if skipped is None else skipped
    kind = _known(kind) if kind else log_kind(path)
    return steps_of(file_lines(path, passed), kind, str(path), skipped=passed)


def steps_of(lines: Iterable[str], kind: str, name: str, *, skipped: Skipped | None = None) -> Iterator[Record]:
    """The same of lines that come from anywhere, such as a file that still grows.

    **Raises:** `InputError` for an unknown kind, and at the end of lines that held no step.
    """
    kind = _known(kind)
    text = clean(lines, Skipped() if skipped is None else skipped)
    return _counted(read_tensorboard(text, name) if kind == "tensorboard" else READERS[kind](text), kind, name)


def read_scalars(paths: Sequence[str | Path]) -> Iterator[LoggedStep]:
    """Steps of TensorBoard's files of one scalar each, joined by their number."""
    return joined_scalars({str(path): _only_steps(read_steps(path, "tensorboard")) for path in paths})


def _only_steps(records: Iterable[Record]) -> Iterator[LoggedStep]:
    return (one for one in records if isinstance(one, LoggedStep))


def _counted(records: Iterable[Record], kind: str, name: str) -> Iterator[Record]:
    """The same records, each step once though several ranks print it, and a restart where its number goes back.

    **Raises:** `InputError` at the end if there was no step.
    """
    recent: dict[int, float] = {}
    last: int | None = None
    for record in records:
        if isinstance(record, LoggedStep):
            if record.step in recent and not abs(record.time - recent[record.step]) > APART:
                continue
            if last is not None and record.step <= last:
                recent.clear()
                yield LogEvent("restart", record.time)
            last = record.step
            recent[last] = record.time
            if len(recent) > RANKS_BEHIND:
                del recent[next(iter(recent))]
        elif record.kind == "restart":
            recent.clear()
        yield record
    if last is None:
        raise InputError(f"{name}: no step of kind {kind} is in it. Is it the right file?")


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise InputError(f'Unknown kind of training log "{kind}". {suggest(kind, KINDS)}')
    return kind
