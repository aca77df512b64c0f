"""Axes of MaxText's meshes, within and between the networks."""

import math

from energymodel.readers.training.interpreter import Hook, Run


def _degrees(run: Run, *axes: str) -> dict[str, int]:
    """Degrees of axes by their keys, of both networks; -1 takes the accelerators that are left."""
    degrees = {}
    for key in (f"{network}_{axis}_parallelism" for axis in axes for network in ("ici", "dcn")):
        degree = run.keys.count(key, lowest=-1)
        if degree == 0:
            raise run.keys.refuse(key, 0, "a degree of at least 1, or -1 for the accelerators that are left")
        degrees[key] = (-1 if key in run.rules["rest"] else 1) if degree is None else degree
    return degrees


def degree(run: Run, *axes: str) -> int | None:
    """Product of the degrees of axes over both networks; None if one takes the rest."""
    degrees = _degrees(run, *axes).values()
    return None if -1 in degrees else math.prod(degrees)


def free_axes(run: Run) -> str:
    """Keys of the axes that take the rest."""
    return " and ".join(sorted(key for key, value in _degrees(run, *run.rules["axes"]).items() if value == -1))


HOOK = Hook(functions=(degree, free_axes))
