"""What do the losses of other runs say of a run's own: the prior of its course, with each model held out?"""

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
        kept = self.course.tokens <= share * self.course.tokens[-1]
        return LossCourse(*(one[kept] for one in self.course))

    def error(self, share: float, prior: CoursePrior) -> tuple[float, float] | None:
        """The final loss as forecast less the measured one, and its standard deviation [nat/token]."""
        fitted = fit_course(self.until(share), prior, self.warm)
        if fitted is None:
            return None
        found = fitted.at(float(self.course.tokens[-1]), float(self.course.rate[-1]))
        return found.value - self.final, (found.upper - found.lower) / (2.0 * NORMAL_90)


def rows_of(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def curves() -> list[Curve]:
    """Runs at a constant rate and under cosine decay: eight of Megatron's release tests, eight small ones."""
    return [*_small(), *megatron()]


def _small() -> list[Curve]:
    """Of 25 to 400 million parameters [Luo et al. 2025]; their tokens are counted in steps."""
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for row in rows_of("multipowerlaw_schedule_curves.csv"):
        if row["schedule"].startswith(("constant", "cosine")):
            group = f"{float(row['params']) / 1e6:.0f}M"
            found[group, row["schedule"]].append((float(row["step"]), float(row["loss"]), float(row["lr"])))
    return [_curve(group, run, points, 0.0) for (group, run), points in found.items()]


def megatron() -> list[Curve]:
    """Of Megatron's release tests, with the learning rate that their arguments state."""
    runs = {(row["run"], row["platform"]): row for row in rows_of("megatron_release_runs.csv")}
    found: dict[tuple[str, str], list[tuple[float, float, float, float]]] = defaultdict(list)
    for row in rows_of("megatron_release_curves.csv"):
        if row["loss_mean"]:
            key = row["run"], row["platform"]
            tokens = float(row["tokens_mid"])
            point = (tokens, float(row["loss_mean"]), learning_rate(runs[key], tokens), float(row["n_loss"]))
            found[key].append(point)
    return [
        _curve(
            group,
            platform,
            points,
            float(runs[group, platform]["lr_warmup_samples"]) * _sequence(runs[group, platform]),
        )
        for (group, platform), points in found.items()
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


def fitted_prior(known: Sequence[Curve], law_errors: Sequence[tuple[str, float]]) -> CoursePrior:
    """The prior that some runs give, each model counted once.

    Exponent and gain are means and standard deviations of the models' own; the error of the form is that under which
    the final losses are most likely.

    **Arguments:**

    - `law_errors`: final losses of a law less the measured ones, by model [nat/token].
    """
    exponents = np.array([np.mean(found) for found in _by_group(_exponents(known))])
    gains = np.array([np.mean(found) for found in _by_group(_gains(known))])
    noise = _root_mean_square(_end_residuals(known))
    shape = (float(np.mean(exponents)), float(np.std(exponents, ddof=1)))
    prior = CoursePrior(
        *shape, float(np.mean(gains)), float(np.std(gains, ddof=1)), 0.0, noise, _root_mean_square(law_errors), 0.0
    )

    def misfit(model_error: float) -> float:
        now = prior._replace(model_error=model_error)
        errors = ((one.group, one.error(share, now)) for one in known for share in SHARES)
        parts = [(group, 0.5 * (error[0] / error[1]) ** 2 + math.log(error[1])) for group, error in errors if error]
        return sum(float(np.mean(found)) for found in _by_group(parts))

    found: Any = minimize_scalar(misfit, bounds=(0.0, 0.2), method="bounded", options={"xatol": 1e-3})
    return prior._replace(model_error=float(found.x))


def _root_mean_square(found: Sequence[tuple[str, float]]) -> float:
    return math.sqrt(float(np.mean([np.mean(np.square(some)) for some in _by_group(found)])))


def _by_group(found: Iterable[tuple[str, float]]) -> list[list[float]]:
    groups: dict[str, list[float]] = defaultdict(list)
    for group, value in found:
        groups[group].append(value)
    return list(groups.values())


def _exponents(known: Sequence[Curve]) -> list[tuple[str, float]]:
    """Of the runs at a constant rate, each by the last three quarters of its own course [1]."""
    found = []
    for one in known:
        if one.decays:
            continue
        fitted = fit_course(one.course, FLAT, max(one.warm, SHAPE_SHARE * one.course.tokens[-1]), first_share=0.0)
        if fitted is not None:
            found.append((one.group, float(np.sum(fitted.weights * EXPONENTS))))
    return found


def _gains(known: Sequence[Curve]) -> list[tuple[str, float]]:
    """Loss at a constant rate less that after cosine decay, at equal tokens of one model [nat/token]."""
    longest = {one.group: one for one in sorted(known, key=lambda one: one.course.tokens[-1]) if not one.decays}
    return [
        (one.group, float(np.interp(one.course.tokens[-1], *longest[one.group].course[:2])) - one.final)
        for one in known
        if one.decays and one.group in longest
    ]


def _end_residuals(known: Sequence[Curve]) -> list[tuple[str, float]]:
    """How far the last losses of each run lie from its own course [nat/token]."""
    found = []
    for one in known:
        fitted = fit_course(one.course, CoursePrior(0.8, 0.2, 0.05, 0.05, 0.0, 0.0, 0.0, 0.0), one.warm)
        if fitted is not None:
            at_end = fitted.at(float(one.course.tokens[-1]), float(one.course.rate[-1]))
            found.append((one.group, one.final - at_end.value))
    return found


def priors(known: Sequence[Curve], law_errors: Sequence[tuple[str, float]]) -> dict[str, CoursePrior]:
    """Of each model, from all others; of "", from all."""
    return {
        left: fitted_prior([one for one in known if one.group != left], [one for one in law_errors if one[0] != left])
        for left in ["", *dict.fromkeys(one.group for one in known)]
    }


def table(known: Sequence[Curve], of_group: dict[str, CoursePrior]) -> list[dict[str, Any]]:
    """Errors of the final loss by the share of the run, each model held out."""
    rows = []
    for share in SHARES:
        errors = (one.error(share, of_group[one.group]) for one in known)
        found = np.array([one for one in errors if one is not None])
        error, spread = np.abs(found[:, 0]), found[:, 1]
        rows.append(
            {
                "share_of_run": share,
                "runs": len(found),
                "mean_error": float(np.mean(error)),
                "largest_error": float(np.max(error)),
                "inside_90": float(np.mean(error <= NORMAL_90 * spread)),
                "half_width": float(np.mean(NORMAL_90 * spread)),
            }
        )
    return rows
