"""The polynomials nearest to `exp` and `log`: coefficients of `energymodel/sweeps/float32_functions.py`.

The exchange algorithm of Remez in 40 digits [Muller 2016, ch. 3], then rounding to float32. Needs `pip install mpmath`.
"""

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

GRID = 4000
ROUNDS = 30
LEVEL = 1.001  # ratio of the largest to the smallest extreme error at which the exchange ends


def minimax(function: Callable, weight: Callable, low: Any, high: Any, count: int) -> tuple[list[float], float]:
    """Coefficients of a polynomial that minimizes `max |weight (function - polynomial)|`, and that maximum."""
    nodes = np.cos(np.pi * (np.arange(count + 1)[::-1] + 0.5) / (count + 1))
    points = [(low + high) / 2 + (high - low) / 2 * mp.mpf(float(node)) for node in nodes]
    grid = [low + (high - low) * index / GRID for index in range(GRID + 1)]
    coefficients, errors = [], [mp.inf]
    for _ in range(ROUNDS):
        system, values = mp.matrix(count + 1, count + 1), mp.matrix(count + 1, 1)
        for row, x in enumerate(points):
            for power in range(count):
                system[row, power] = x**power
            system[row, count], values[row] = (-1) ** row / weight(x), function(x)
        solved = mp.lu_solve(system, values)
        coefficients = [solved[power] for power in range(count)]
        errors = [float(weight(x) * (function(x) - mp.polyval(coefficients[::-1], x))) for x in grid]
        extremes: list[int] = []
        for index, error in enumerate(errors):
            if extremes and np.sign(error) == np.sign(errors[extremes[-1]]):
                if abs(error) > abs(errors[extremes[-1]]):
                    extremes[-1] = index
            else:
                extremes.append(index)
        while len(extremes) > count + 1:
            extremes.pop(0 if abs(errors[extremes[0]]) < abs(errors[extremes[-1]]) else -1)
        sizes = [abs(errors[index]) for index in extremes]
        points = [grid[index] for index in extremes]
        if max(sizes) < LEVEL * min(sizes) or len(extremes) <= count:
            break
    return [float(coefficient) for coefficient in coefficients], max(map(abs, errors))


def main() -> None:
    mp.mp.dps = 40
    half = mp.log(2) / 2 * mp.mpf("1.0005")
    tiny = mp.mpf(10) ** -9

    def exp_rest(r: Any) -> Any:
        return (mp.exp(r) - 1 - r) / r**2 if abs(r) > tiny else mp.mpf(1) / 2

    def log_rest(f: Any) -> Any:
        return (mp.log1p(f) - f + f * f / 2) / f**3 if abs(f) > tiny else mp.mpf(1) / 3

    cases = (
        ("exp", exp_rest, lambda r: max(r**2, tiny) / mp.exp(r), -half, half, 5),
        ("log", log_rest, lambda f: abs(f) ** 3 / abs(mp.log1p(f)) if abs(f) > 1e-6 else tiny, -mp.mpf(1) / 3, None, 8),
    )
    for name, function, weight, low, high, count in cases:
        end = mp.mpf(1) / 3 if high is None else high
        coefficients, error = minimax(function, weight, low, end, count)
        texts = ", ".join(str(np.float32(coefficient)) for coefficient in coefficients)
        print(f"{name}: {texts}; relative error {error:.1e}")


if __name__ == "__main__":
    main()
