"""Axes of MaxText's meshes, within and between the networks."""

import math

from energymodel.readers.training.interpreter import Hook, Run

AXES = (
    "data", "pipeline", "fsdp", "fsdp_transpose", "sequence", "context", "context_usp_ulysses", "tensor",
    "tensor_transpose", "tensor_sequence", "expert", "autoregressive", "context_autoregressive", "diloco",
)  # fmt: skip
REST = ("ici_fsdp_parallelism", "dcn_data_parallelism")
"""Axes that take the accelerators that are left where a run file is silent."""


def _of(run: Run, axis: str) -> dict[str, int]:
    """Degree of an axis by its key, for each network; -1 takes the accelerators that are left."""
    degrees = {}
    for key in (f"ici_{axis}_parallelism", f"dcn_{axis}_parallelism"):
        degree = run.keys.count(key, lowest=-1)
        degrees[key] = (-1 if key in REST else 1) if degree is None else degree
        if degree == 0:
            raise run.keys.refuse(key, 0, "a degree of at least 1, or -1 for the accelerators that are left")
    return degrees


def degree(run: Run, *axes: str) -> int | None:
    """Product of the degrees of axes over both networks; None if one takes the rest."""
    degrees = [value for axis in axes for value in _of(run, axis).values()]
    return None if -1 in degrees else math.prod(degrees)


def free_axes(run: Run) -> str:
    """Keys of the axes that take the rest."""
    return " and ".join(sorted(key for axis in AXES for key, value in _of(run, axis).items() if value == -1))


def some_are(run: Run, text: str) -> bool:
    """Whether the value of some key is a text."""
    return text in [value for value in run.keys.values.values() if isinstance(value, str)]


HOOK = Hook(functions=(degree, free_axes, some_are))
