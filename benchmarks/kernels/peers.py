"""Seconds that CuPy and Torch take for the lowest energy of the same model on the same GPU.

Both walk over the grid in pieces that fit its memory; CuPy compiles the model of one point into one kernel
(`cupy.fuse`), Torch does with `torch.compile`.
"""

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from sweep_model import sweep_model

PIECE = 2**24
COUNT = 100  # values of each axis; a number beyond 1e8 starts over
REPEATS = 3


def least(xp: Any, number: Any, limits: Any, infinity: Any) -> Any:
    """Energy of points of the grid by their numbers, infinite beyond a limit."""
    number = number.astype("float32") if hasattr(number, "astype") else number.float()
    positions = []
    for _ in range(4):
        row = xp.floor(number / COUNT)
        positions.append((number - row * COUNT) / (COUNT - 1))
        number = row
    voltage, nodes, clock, batch = positions
    energy, duration, temperature, power = sweep_model(
        0.05 * xp.exp(batch * 7.154615), 0.5 + 1.7 * clock, 4.0 * xp.exp(nodes * 5.545177), 0.6 + 0.55 * voltage, xp=xp
    )
    allowed = (duration <= limits[0]) & (temperature <= limits[1]) & (power <= limits[2])
    return xp.where(allowed, energy, infinity)


def cupy(points: float, limits: Any) -> float:
    """Seconds of CuPy."""
    library = import_module("cupy")

    @library.fuse()
    def energies(number: Any) -> Any:
        return least(library, number, limits, float("inf"))

    def run() -> float:
        best = library.asarray(float("inf"), library.float32)
        for first, stop in _pieces(points):
            numbers = library.arange(first, stop, dtype=library.int32)
            best = library.minimum(best, energies(numbers).min())
        return float(best)

    return _seconds(run)


def torch(points: float, limits: Any) -> float:
    """Seconds of Torch."""
    library = import_module("torch")

    @library.compile
    def energies(number: Any) -> Any:
        return least(library, number, limits, library.inf).amin()

    def run() -> float:
        best = library.tensor(library.inf, device="cuda")
        for first, stop in _pieces(points):
            numbers = library.arange(first, stop, dtype=library.int32, device="cuda")
            best = library.minimum(best, energies(numbers))
        return best.item()

    return _seconds(run)


PEERS: dict[str, Callable[[float, Any], float]] = {"cupy": cupy, "torch": torch}


def _pieces(points: float) -> list[tuple[int, int]]:
    """First and last number of each piece, below what int32 holds."""
    starts = range(0, int(points), PIECE)
    return [(start % COUNT**4, start % COUNT**4 + min(PIECE, int(points) - start)) for start in starts]


def _seconds(run: Callable[[], Any]) -> float:
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
