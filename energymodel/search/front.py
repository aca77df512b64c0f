"""Efficient plans, their hypervolume and knee, and levels and weights spread over a front."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from energymodel.scenarios.scenario import Scenario
from energymodel.search.result import OBEYS_EVERY_LIMIT, OBEYS_LIMITS_ASKED, SearchResult, exceeded_limits
from energymodel.shown import Shown
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan

FLATTEST = 1e-4  # of the steepest slope that levels are spread by
NOT_CONVERGED = "Some plans are feasible but not shown to be optimal: the iteration limit was reached."


@dataclasses.dataclass(frozen=True)
class FrontPoint:
    """A realizable plan that no other of its front beats in all objectives.

    `exchange` is y in "1 % more of this objective saves y % of the first", at the relaxed optimum.
    """

    values: Mapping[str, float]
    exchange: Mapping[str, float]
    plan: TrainingPlan
    outcome: TrainingOutcome


@dataclasses.dataclass(frozen=True)
class Front(Shown):
    """Efficient plans, ordered by the second objective.

    `hypervolume` is that of the logarithms of the objectives, between the best and the worst values of the front, as a
    share of that box [1]; `knee` is the index of the plan farthest from the chord or plane of the ends.
    """

    scenario: Scenario
    minimize: tuple[str, ...]
    units: Mapping[str, str]
    points: tuple[FrontPoint, ...]
    baseline: Mapping[str, float]
    hypervolume: float
    knee: int
    layouts_considered: int
    layouts_searched: int
    result: SearchResult
    message: str

    @property
    def success(self) -> bool:
        """Whether every plan can be trusted."""
        return self.result == SearchResult.successful

    def table(self) -> Float[np.ndarray, "points objectives"]:
        """Values of the objectives."""
        return np.array([[point.values[name] for name in self.minimize] for point in self.points])


def front_message(scenario: Scenario, points: Sequence[FrontPoint], *, converged: bool) -> str:
    """What all plans of a front have in common."""
    if not converged:
        return NOT_CONVERGED
    exceeded = next(filter(None, (exceeded_limits(scenario, point.plan, point.outcome) for point in points)), "")
    obeys = f"{OBEYS_LIMITS_ASKED}; of some, {exceeded}" if exceeded else OBEYS_EVERY_LIMIT
    return f"Every plan is realizable and {obeys}."


def efficient(values: Float[np.ndarray, "points objectives"]) -> Bool[np.ndarray, " points"]:
    """Which points no other point beats or equals in all objectives while better in one [Pareto 1906]."""
    no_worse = np.all(values[:, None] <= values[None], axis=-1)
    better = np.any(values[:, None] < values[None], axis=-1)
    first = np.tril(np.all(values[:, None] == values[None], axis=-1), -1).any(axis=1)  # of equal points the first stays
    return ~np.any(no_worse & better, axis=0) & ~first


def levels_by_slope(
    first: Float[np.ndarray, " known"],
    second: Float[np.ndarray, " known"],
    slopes: Float[np.ndarray, " known"],
    points: int,
) -> Float[np.ndarray, " points"]:
    """Levels of the second objective, close where the first falls fast: their density is the root of its slope.

    So many points enclose most hypervolume then [Auger, Bader, Brockhoff & Zitzler 2009]. Between the levels where it
    is known the logarithm of the slope is linear; where it is NaN, at the ends, the slope itself is.
    """
    chords = -np.diff(first) / np.diff(second)
    slopes = np.array(slopes)
    for end, chord, inner in ((0, 0, 1), (-1, -1, -2)):
        if np.isnan(slopes[end]):
            slopes[end] = chords[chord] if len(slopes) == 2 else 2.0 * chords[chord] - slopes[inner]
    slopes = np.maximum(slopes, FLATTEST * np.max(slopes))
    fine = np.linspace(second[0], second[-1], 64 * points)
    density = np.exp(0.5 * np.interp(fine, second, np.log(slopes)))
    share = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    return np.interp(np.linspace(0.0, share[-1], points), share, fine)


def hypervolume(values: Float[np.ndarray, "points objectives"], reference: Float[np.ndarray, " objectives"]) -> float:
    """Volume that points dominate below a reference [Zitzler & Thiele 1998], by slices along the last objective.

    **Arguments:**

    - `values`: objectives, less is better.
    - `reference`: worst corner; points beyond it do not count.

    **Returns:** volume in the product of the units.
    """
    inside = values[np.all(values < reference, axis=1)]
    if not len(inside):
        return 0.0
    if inside.shape[1] == 1:
        return float(reference[0] - inside.min())
    inside = inside[np.argsort(inside[:, -1], kind="stable")]
    ends = np.append(inside[1:, -1], reference[-1])
    return sum(
        float(end - start) * hypervolume(inside[: count + 1, :-1], reference[:-1])
        for count, (start, end) in enumerate(zip(inside[:, -1], ends, strict=True))
        if end > start
    )


def relative_hypervolume(values: Float[np.ndarray, "points objectives"]) -> float:
    """Hypervolume of the logarithms between the best and the worst of each objective, as a share of that box [1]."""
    return hypervolume(_relative_logarithms(values), np.ones(values.shape[1]))


def knee(values: Float[np.ndarray, "points objectives"]) -> int:
    """Index of the point farthest below the plane through the ends of the front, in relative logarithms [Das 1999]."""
    return int(np.argmin(_relative_logarithms(values).sum(axis=1)))


def _relative_logarithms(values: Float[np.ndarray, "points objectives"]) -> Float[np.ndarray, "points objectives"]:
    """Logarithms from 0 at the best to 1 at the worst of each objective."""
    logarithms = np.log(values)
    low, high = logarithms.min(axis=0), logarithms.max(axis=0)
    return (logarithms - low) / np.where(high > low, high - low, 1.0)


def simplex(count: int, size: int) -> Float[np.ndarray, "points size"]:
    """At least `count` evenly spread weights that are not negative and add up to one [Das & Dennis 1998]."""
    steps = next(steps for steps in itertools.count(1) if math.comb(steps + size - 1, size - 1) >= count)
    parts = np.indices((steps + 1,) * (size - 1)).reshape(size - 1, -1).T
    parts = np.column_stack([parts, steps - parts.sum(axis=1)])
    return parts[parts[:, -1] >= 0] / steps
