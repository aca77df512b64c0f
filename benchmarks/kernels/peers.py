"""How fast do CuPy and Torch find the least energy of the same model on the same GPU?

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
        whole = xp.floor(number / COUNT)
        positions.append((number - whole * COUNT) / (COUNT - 1))
        number = whole
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
        for start in range(0, int(points), PIECE):
            numbers = library.arange(start, min(start + PIECE, int(points)), dtype=library.int32)
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
        for start in range(0, int(points), PIECE):
            stop = min(start + PIECE, int(points))
            numbers = library.arange(start, stop, dtype=library.int32, device="cuda")
            best = library.minimum(best, energies(numbers))
        return best.item()

    return _seconds(run)


PEERS: dict[str, Callable[[float, Any], float]] = {"cupy": cupy, "torch": torch}


def _seconds(run: Callable[[], Any]) -> float:
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
