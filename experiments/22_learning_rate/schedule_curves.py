"""Whole loss curves under schedules of the learning rate, with curves, sizes and a laboratory held out.

`L = E + A X^-a + J r^s y`, with progress X and jitter y of `rate_summary`, r the peak over the best rate. E and A
belong to a size, the other four constants to all.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

from energymodel.learning.learning_rate import best_learning_rate, rate_summary
from energymodel.scenarios.files import read_preset

DATA = Path(__file__).parents[1] / "data"
NAMES = ("decay exponent", "jitter", "jitter exponent", "memory")
START = np.array([0.5, 0.19, 0.22, 0.01])
WARM, BATCH, PEAK = 2160, 524288.0, 3e-4  # steps, tokens and highest rate of Luo et al. 2025
FIRST = 4000  # step from which losses are fitted: well after warmup
END = 0.95  # share of a curve from which its final loss is averaged
BASE = ("cosine_24000", "constant_72000")
"""Curves that give E and A of a size that is held out."""
STEP = 8000  # of the runs in two stages
PIECES = 300


@dataclass(frozen=True, eq=False)
class Curve:
    """Losses at some steps, and the rate over its highest in pieces of the run that end at those steps and others."""

    size: float
    name: str
    steps: np.ndarray
    loss: np.ndarray
    rate: np.ndarray
    shares: np.ndarray  # 10,000 steps of each piece
    ends: np.ndarray  # of pieces [step]
    log_ratio: float  # ln of the peak over the best

    @property
    def late(self) -> np.ndarray:
        """Which losses are averaged to the final one."""
        return self.steps >= END * self.steps[-1]

    @property
    def weights(self) -> np.ndarray:
        """Of the errors: half on the end, half evenly over the logarithm of the steps."""
        along = np.gradient(np.log(self.steps)) if len(self.steps) > 1 else np.ones(1)
        return np.sqrt((along / np.sum(along) + self.late / np.sum(self.late)) / 2.0)


def shape(name: str, steps: np.ndarray) -> np.ndarray:
    """Rate over its highest of the runs of Luo et al. 2025, in the middle of pieces that end at `steps`."""
    kind, *numbers = name.split("_")
    if kind == "wsdcon":
        rate = np.where(steps >= STEP, int(numbers[0]) * 1e-5 / PEAK, 1.0)
    elif kind in ("wsd", "wsdld"):
        begin, end = map(int, numbers)
        along = np.clip((steps - begin) / (end - begin), 0.0, 1.0)
        rate = 0.1**along if kind == "wsd" else 1.0 - 0.9 * along
    elif kind == "cosine":
        rate = 0.55 + 0.45 * np.cos(np.pi * np.clip((steps - WARM) / (int(numbers[0]) - WARM), 0.0, 1.0))
    else:
        rate = np.ones_like(steps)
    return np.minimum(steps / WARM, 1.0) * rate


@cache
def luo() -> tuple[Curve, ...]:
    """The curves of Luo et al. 2025."""
    columns: dict[tuple[float, str], list[tuple[float, float]]] = {}
    with (DATA / "multipowerlaw_schedule_curves.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            point = float(row["step"]), float(row["loss"])
            columns.setdefault((float(row["params"]), row["schedule"]), []).append(point)
    return tuple(_curve(size, name, np.array(points)) for (size, name), points in columns.items())


def _curve(size: float, name: str, points: np.ndarray) -> Curve:
    steps, loss = points[points[:, 0] >= FIRST].T
    ends = np.unique(np.concatenate([np.linspace(0.0, steps[-1], PIECES), steps, [STEP]]))
    ends = ends[ends <= steps[-1]]
    rate = shape(name, 0.5 * (ends[1:] + ends[:-1]))
    return Curve(size, name, steps, loss, rate, np.diff(ends) / 1e4, ends[1:], _log_ratio(PEAK, size, BATCH))


def _log_ratio(peak: float, size: float, batch: float) -> float:
    law = read_preset("laws", "li-2025-rates")
    constants = (law[name]["value"] for name in ("at_pivot", "by_parameters", "by_batch"))
    return float(np.log(peak / best_learning_rate(size, batch, *constants)))


@jax.jit
@jax.vmap
def _summaries(rate: Any, shares: Any, memory: Any) -> Any:
    return rate_summary(rate, shares, memory)


@lru_cache(maxsize=4096)
def summaries(curve: Curve, memory: float) -> tuple[np.ndarray, np.ndarray]:
    """Progress and jitter at each step with a loss: those of a run that ends there."""
    many = 512  # pieces of equal shape compile once
    steps = np.resize(curve.steps, 80)
    shares = np.where(curve.ends <= steps[:, None], curve.shares, 0.0)
    pad = many - len(curve.rate)
    columns = (np.pad(np.broadcast_to(part, shares.shape), ((0, 0), (pad, 0))) for part in (curve.rate, shares))
    with jax.enable_x64(True):
        progress, jitter = _summaries(*map(jnp.asarray, columns), jnp.full(80, memory))
    return np.asarray(progress)[: len(curve.steps)], np.asarray(jitter)[: len(curve.steps)]


def terms(curve: Curve, constants: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`X^-a` and the loss by jitter [nat/token] along a curve."""
    progress, jitter = summaries(curve, constants[3])
    return progress ** -constants[0], constants[1] * np.exp(constants[2] * curve.log_ratio) * jitter


def level(curves: Sequence[Curve], constants: np.ndarray) -> np.ndarray:
    """E and A of a size by least squares, the rest being known."""
    parts = [(curve, *terms(curve, constants)) for curve in curves]
    weights = np.concatenate([curve.weights for curve in curves])
    falling = np.concatenate([falling for _, falling, _ in parts])
    rest = np.concatenate([curve.loss - jitter for curve, _, jitter in parts])
    design = np.stack([np.ones_like(falling), falling], axis=1)
    return np.linalg.lstsq(design * weights[:, None], rest * weights, rcond=None)[0]


def errors(curve: Curve, constants: np.ndarray, of_size: np.ndarray) -> np.ndarray:
    """Predicted less measured losses along a curve [nat/token]."""
    falling, jitter = terms(curve, constants)
    return of_size[0] + of_size[1] * falling + jitter - curve.loss


def _by_size(curves: Sequence[Curve]) -> dict[float, list[Curve]]:
    return {size: [curve for curve in curves if curve.size == size] for size in sorted({c.size for c in curves})}


def fitted(curves: Sequence[Curve]) -> np.ndarray:
    """The constants that all sizes share."""

    def misfit(logs: np.ndarray) -> np.ndarray:
        constants, parts = np.exp(logs), []
        for same in _by_size(curves).values():
            of_size = level(same, constants)
            parts += [errors(curve, constants, of_size) * curve.weights for curve in same]
        return np.concatenate(parts)

    return np.exp(least_squares(misfit, np.log(START), x_scale=0.1, diff_step=1e-3, max_nfev=12).x)


def held_out(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Each curve, and each size but for `BASE`, predicted by constants that never saw it."""
    rows = []
    for curve in curves:
        others = [other for other in curves if other is not curve]
        constants = fitted(others)
        of_size = level([other for other in others if other.size == curve.size], constants)
        rows.append(_row("curve", curve, errors(curve, constants, of_size)))
    for size, same in _by_size(curves).items():
        constants = fitted([curve for curve in curves if curve.size != size])
        of_size = level([curve for curve in same if curve.name in BASE], constants)
        rows += [_row("size", curve, errors(curve, constants, of_size)) for curve in same if curve.name not in BASE]
    return rows


def _row(out: str, curve: Curve, error: np.ndarray) -> dict[str, Any]:
    return {
        "held_out": out,
        "size": curve.size,
        "schedule": curve.name,
        "final_error_nat": float(np.mean(error[curve.late])),
        "mean_error_nat": float(np.mean(np.abs(error))),
        "loss": float(np.mean(curve.loss[curve.late])),
    }


SCHAIPP = (1.24e8, 50 * 2 * 2 * 512.0, 300)
"""Parameters, tokens of a batch and steps of warmup of the runs of Schaipp et al. 2025."""
SLOPE = 0.3  # exponent of the progress there


def other_laboratory(constants: np.ndarray) -> list[dict[str, Any]]:
    """Final losses of Schaipp et al. 2025 at five peaks, E and A of each peak fitted, everything else predicted."""
    with (DATA / "cooldowns_124m.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    result, size, batch, warm = [], *SCHAIPP
    for peak in sorted({float(row["peak_rate"]) for row in rows}):
        same, parts = [row for row in rows if float(row["peak_rate"]) == peak], []
        for row in same:
            steps, last, kind = float(row["steps"]), float(row["last_rate"]), row["decay"]
            middles = (np.arange(PIECES) + 0.5) / PIECES * steps
            share = float(row["decay_share"] or 1.0 - warm / steps)
            along = np.clip((middles / steps - 1.0 + share) / share, 0.0, 1.0)
            bend = {"cosine": 0.5 - 0.5 * np.cos(np.pi * along), "sqrt": np.sqrt(along)}.get(kind, along)
            rate = np.minimum(middles / warm, 1.0) * (1.0 - (1.0 - last) * bend)
            ends, lasting = (np.arange(PIECES) + 1.0) / PIECES * steps, np.full(PIECES, steps / PIECES / 1e4)
            ratio, loss = _log_ratio(peak, size, batch), np.array([float(row["loss"])])
            parts.append(Curve(size, kind, np.array([steps]), loss, rate, lasting, ends, ratio))
        of_peak = np.array([SLOPE, *constants[1:]])
        columns = [terms(curve, of_peak) for curve in parts]
        rest = np.array([curve.loss[0] - jitter[0] for curve, (_, jitter) in zip(parts, columns, strict=True)])
        falling = np.array([falling[0] for falling, _ in columns])
        lengths = len({row["steps"] for row in same})
        design = np.stack([np.ones_like(falling), falling], axis=1)[:, : 2 if lengths > 1 else 1]
        far = design @ np.linalg.lstsq(design, rest, rcond=None)[0] - rest
        result.append(
            {
                "peak_rate": peak,
                "over_best": float(np.exp(parts[0].log_ratio)),
                "runs": len(same),
                "mean_error_nat": float(np.mean(np.abs(far))),
                "largest_error_nat": float(np.max(np.abs(far))),
            }
        )
    return result
