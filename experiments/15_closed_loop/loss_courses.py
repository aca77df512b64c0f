"""The prior of a run's loss course from the losses of other runs, each model held out."""

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from energymodel.monitor.expectation import DECAYED, EXPONENTS, CoursePrior, LossCourse, fit_course

DATA = Path(__file__).parents[1] / "data"
SHARES = (0.25, 0.5, 0.75, 0.9)
"""Of a run, after which its end is forecast."""
END_SHARE = 0.02
"""Of a run, over which its last losses are averaged."""
SHAPE_SHARE = 0.25
"""Of a run, from where on its own exponent is fitted."""
NORMAL_90 = 1.6449
FLAT = CoursePrior(0.8, 2.0, 0.0, 1e-6, 0.0, 0.0, 0.0, 0.0)
"""Leaves the exponent to the losses of a run at a constant rate."""


class Curve(NamedTuple):
    """The loss of one run; `group` is its model, `warm` the tokens until its learning rate no longer rises."""

    group: str
    run: str
    course: LossCourse
    warm: float

    @property
    def final(self) -> float:
        """Mean loss of the last tokens [nat/token]."""
        last = self.course.tokens >= (1.0 - END_SHARE) * self.course.tokens[-1]
        return float(np.average(self.course.loss[last], weights=self.course.number[last]))

    @property
    def decays(self) -> bool:
        """Whether the learning rate has decayed at the end."""
        return bool(self.course.rate[-1] < 1.5 * DECAYED)

    def until(self, share: float) -> LossCourse:
        """What is known after a share of the run."""
        before = self.course.tokens <= share * self.course.tokens[-1]
        return LossCourse(*(column[before] for column in self.course))

    def error(self, share: float, prior: CoursePrior) -> tuple[float, float] | None:
        """The final loss as forecast less the measured one, and its standard deviation [nat/token]."""
        fitted = fit_course(self.until(share), prior, self.warm)
        if fitted is None:
            return None
        result = fitted.at(float(self.course.tokens[-1]), float(self.course.rate[-1]))
        return result.value - self.final, (result.upper - result.lower) / (2.0 * NORMAL_90)


def rows_of(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def curves() -> list[Curve]:
    """Runs at a constant rate and under cosine decay: eight of Megatron's release tests, eight small ones."""
    return [*_small(), *megatron()]


def _small() -> list[Curve]:
    """Of 25 to 400 million parameters [Luo et al. 2025]; their tokens are counted in steps."""
    result: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for row in rows_of("multipowerlaw_schedule_curves.csv"):
        if row["schedule"].startswith(("constant", "cosine")):
            group = f"{float(row['params']) / 1e6:.0f}M"
            result[group, row["schedule"]].append((float(row["step"]), float(row["loss"]), float(row["lr"])))
    return [_curve(group, run, points, 0.0) for (group, run), points in result.items()]


def megatron() -> list[Curve]:
    """Of Megatron's release tests, with the learning rate that their arguments state."""
    runs = {(row["run"], row["platform"]): row for row in rows_of("megatron_release_runs.csv")}
    result: dict[tuple[str, str], list[tuple[float, float, float, float]]] = defaultdict(list)
    for row in rows_of("megatron_release_curves.csv"):
        if row["loss_mean"]:
            key = row["run"], row["platform"]
            tokens = float(row["tokens_mid"])
            point = (tokens, float(row["loss_mean"]), learning_rate(runs[key], tokens), float(row["n_loss"]))
            result[key].append(point)
    return [
        _curve(
            group,
            platform,
            points,
            float(runs[group, platform]["lr_warmup_samples"]) * _sequence(runs[group, platform]),
        )
        for (group, platform), points in result.items()
    ]


def _sequence(run: dict[str, str]) -> float:
    return float(run["seq"])


def learning_rate(run: dict[str, str], tokens: float) -> float:
    """After so many tokens, by the arguments of the run: a linear rise, then a cosine, or constant for WSD [1]."""
    samples = tokens / _sequence(run)
    highest, lowest = float(run["lr"]), float(run["min_lr"])
    warm, decay = float(run["lr_warmup_samples"]), float(run["lr_decay_samples"])
    if samples < warm:
        return highest * samples / warm
    if run["lr_style"] != "cosine":
        return highest
    along = min((samples - warm) / (decay - warm), 1.0)
    return lowest + 0.5 * (highest - lowest) * (1.0 + math.cos(math.pi * along))


def _curve(group: str, run: str, points: Sequence[tuple[float, ...]], warm: float) -> Curve:
    tokens, loss, rate, *counts = np.array(sorted(points)).T
    number = counts[0] if counts else np.ones_like(tokens)
    return Curve(group, run, LossCourse(tokens, loss, number, rate / np.max(rate)), warm)


def fitted_prior(curves: Sequence[Curve], law_errors: Sequence[tuple[str, float]]) -> CoursePrior:
    """The prior that some runs give, each model counted once.

    Exponent and gain are means and standard deviations of the models' own; the error of the form is that under which
    the final losses are most likely.

    **Arguments:**

    - `law_errors`: final losses of a law less the measured ones, by model [nat/token].
    """
    exponents = np.array([np.mean(values) for values in _by_group(_exponents(curves))])
    gains = np.array([np.mean(values) for values in _by_group(_gains(curves))])
    noise = _root_mean_square(_end_residuals(curves))
    shape = (float(np.mean(exponents)), float(np.std(exponents, ddof=1)))
    prior = CoursePrior(
        *shape, float(np.mean(gains)), float(np.std(gains, ddof=1)), 0.0, noise, _root_mean_square(law_errors), 0.0
    )

    def misfit(model_error: float) -> float:
        now = prior._replace(model_error=model_error)
        errors = ((curve.group, curve.error(share, now)) for curve in curves for share in SHARES)
        parts = [(group, 0.5 * (error[0] / error[1]) ** 2 + math.log(error[1])) for group, error in errors if error]
        return sum(float(np.mean(values)) for values in _by_group(parts))

    result: Any = minimize_scalar(misfit, bounds=(0.0, 0.2), method="bounded", options={"xatol": 1e-3})
    return prior._replace(model_error=float(result.x))


def _root_mean_square(errors: Sequence[tuple[str, float]]) -> float:
    return math.sqrt(float(np.mean([np.mean(np.square(some)) for some in _by_group(errors)])))


def _by_group(pairs: Iterable[tuple[str, float]]) -> list[list[float]]:
    groups: dict[str, list[float]] = defaultdict(list)
    for group, value in pairs:
        groups[group].append(value)
    return list(groups.values())


def _exponents(curves: Sequence[Curve]) -> list[tuple[str, float]]:
    """Of the runs at a constant rate, each by the last three quarters of its own course [1]."""
    result = []
    for curve in curves:
        if curve.decays:
            continue
        fitted = fit_course(curve.course, FLAT, max(curve.warm, SHAPE_SHARE * curve.course.tokens[-1]), first_share=0.0)
        if fitted is not None:
            result.append((curve.group, float(np.sum(fitted.weights * EXPONENTS))))
    return result


def _gains(curves: Sequence[Curve]) -> list[tuple[str, float]]:
    """Loss at a constant rate less that after cosine decay, at equal tokens of one model [nat/token]."""
    longest = {
        curve.group: curve for curve in sorted(curves, key=lambda curve: curve.course.tokens[-1]) if not curve.decays
    }
    return [
        (curve.group, float(np.interp(curve.course.tokens[-1], *longest[curve.group].course[:2])) - curve.final)
        for curve in curves
        if curve.decays and curve.group in longest
    ]


def _end_residuals(curves: Sequence[Curve]) -> list[tuple[str, float]]:
    """How far the last losses of each run lie from its own course [nat/token]."""
    result = []
    for curve in curves:
        fitted = fit_course(curve.course, CoursePrior(0.8, 0.2, 0.05, 0.05, 0.0, 0.0, 0.0, 0.0), curve.warm)
        if fitted is not None:
            at_end = fitted.at(float(curve.course.tokens[-1]), float(curve.course.rate[-1]))
            result.append((curve.group, curve.final - at_end.value))
    return result


def priors(curves: Sequence[Curve], law_errors: Sequence[tuple[str, float]]) -> dict[str, CoursePrior]:
    """Of each model, from all others; of "", from all."""
    return {
        left: fitted_prior(
            [error for error in curves if error.group != left], [error for error in law_errors if error[0] != left]
        )
        for left in ["", *dict.fromkeys(curve.group for curve in curves)]
    }


def table(curves: Sequence[Curve], of_group: dict[str, CoursePrior]) -> list[dict[str, Any]]:
    """Errors of the final loss by the share of the run, each model held out."""
    rows = []
    for share in SHARES:
        errors = (curve.error(share, of_group[curve.group]) for curve in curves)
        result = np.array([error for error in errors if error is not None])
        error, spread = np.abs(result[:, 0]), result[:, 1]
        rows.append(
            {
                "share_of_run": share,
                "runs": len(result),
                "mean_error": float(np.mean(error)),
                "largest_error": float(np.max(error)),
                "inside_90": float(np.mean(error <= NORMAL_90 * spread)),
                "half_width": float(np.mean(NORMAL_90 * spread)),
            }
        )
    return rows
