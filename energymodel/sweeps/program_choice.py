"""Choice of what evaluates the tiles of a sweep: XLA or an accelerator kernel, the faster one on the first tile.

This package knows no kernel. Who has one passes an offer: a function that gets the program of XLA, which holds model,
grid and reduction, and returns a kernel for the same tiles, or says why there is none.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.sweeps.best_points import Points
from energymodel.sweeps.tile_program import TileProgram, small_grid
from energymodel.units import counted

AGREEMENT = 1e-4
"""Largest difference of two values of the first tile, over the largest value: float32, rounded in another order."""
WORTH = 60.0
"""Seconds that a sweep by XLA must still take before a kernel is compiled for it."""


class Kernel(NamedTuple):
    """The tiles of a sweep by a kernel, and whether it was asked for: then it is not compared with XLA."""

    program: TileProgram
    forced: bool = False


Offer = Callable[[TileProgram], Kernel | str]
"""A kernel for the tiles of a program, or why there is none."""


@dataclass(frozen=True)
class Choice:
    """Name of the program that evaluates a sweep, and why; `rates` of the first tile, if it was timed [point/s]."""

    program: str
    reason: str
    rates: Mapping[str, float] = field(default_factory=dict)

    def sentence(self) -> str:
        """The choice in words."""
        rates = ", ".join(f"{name} {rate / 1e6:.3g}" for name, rate in self.rates.items())
        timed = f" Million points/s of the first tile: {rates}." if rates else ""
        return f"Evaluated by {self.program}: {self.reason}.{timed}"


def choose(
    program: TileProgram,
    offer: Offer | None,
    tiles: int,
    earlier: str | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[TileProgram, Choice]:
    """Choose between XLA and the kernel that is offered, if there is one; a small grid of a scenario needs neither.

    **Arguments:**

    - `tiles`: how many are still to run.
    - `earlier`: name of the program that evaluated the tiles of the same sweep that are finished; a sweep has one.
    - `clock`: seconds.

    **Raises:** `InputError` where finished tiles were evaluated by a program that is not offered.
    """
    offered = "no kernel was offered" if offer is None else offer(program)
    kernel, forced = (None, False) if isinstance(offered, str) else offered
    small = None if forced else small_grid(program)
    if small is not None:
        program, kernel = small, None
        offered = f"a grid of {counted(small.grid.points, 'point')} needs no program of its own"
    if earlier is not None:
        reason = offered if isinstance(offered, str) else "so were the tiles that are finished"
        for candidate in (None if forced else program, kernel):
            if candidate is not None and candidate.name == earlier:
                return candidate, Choice(earlier, reason)
        other = program if kernel is None else kernel
        raise InputError(
            f"resume: the finished tiles were evaluated by {earlier}, and {other.name} rounds differently. "
            f"Choose {earlier} again, or give another folder."
        )
    if kernel is None:
        return program, Choice(program.name, str(offered))
    if forced:
        return kernel, Choice(kernel.name, "it was asked for")
    if jax.process_count() > 1:
        return program, Choice(program.name, "processes that time a kernel each could choose differently")
    return _faster(program, kernel, tiles, clock)


def _faster(
    program: TileProgram, kernel: TileProgram, tiles: int, clock: Callable[[], float]
) -> tuple[TileProgram, Choice]:
    points = program.grid.points_of_tile(0)
    expected, seconds = _timed(program, clock)
    rates = {program.name: points / seconds}

    def xla(reason: str) -> tuple[TileProgram, Choice]:
        return program, Choice(program.name, reason, rates)

    if seconds * tiles < WORTH:
        return xla(f"the sweep takes {seconds * tiles:.2g} s, less than a kernel takes to compile")
    try:
        values, others = _timed(kernel, clock)
    except Exception as error:  # of a compiler that lacks something, or of a chip
        first_line = (str(error).splitlines() or [""])[0][:200]
        return xla(f"{kernel.name} cannot run this model ({type(error).__name__}: {first_line})")
    rates[kernel.name] = points / others
    difference = _difference(expected, values)
    if not difference <= AGREEMENT:
        return xla(f"values of {kernel.name} differ by {difference:.1g} on the first tile")
    if others >= seconds:
        return xla("it is the faster one")
    return kernel, Choice(kernel.name, "it is the faster one", rates)


def _timed(program: TileProgram, clock: Callable[[], float]) -> tuple[Any, float]:
    """State of the first tile, and the seconds that it takes once it is compiled."""
    state = program.run(0)
    start = clock()
    program.run(0)
    return state, clock() - start


def _difference(first: Points, second: Points) -> float:
    """Largest difference of the values of two states, over the largest value; infinite where only one has a point."""
    expected, values = np.asarray(first.value, np.float64), np.asarray(second.value, np.float64)
    finite = np.isfinite(expected)
    if np.any(finite != np.isfinite(values)):
        return np.inf
    largest = np.max(np.abs(expected[finite] - values[finite]), initial=0.0)
    return float(largest / np.max(np.abs(expected[finite]))) if largest else 0.0
