"""Which figures does the page draw of a plan: where energy, time and money go, roofline, temperature, front?"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import numpy as np

from energymodel.explorer.thermal_chart import Rise, TemperatureLadder
from energymodel.explorer.view import Nearby, Operation, View
from energymodel.report.charts import AbstractChart, Axis, Bar, Lines, Part, Point, Series, StackedBars
from energymodel.report.charts.scale import read
from energymodel.report.intervals import percent

OBJECTIVES: Mapping[str, tuple[str, str]] = {
    "energy": ("energy", "J"),
    "money": ("money", "USD"),
    "carbon": ("carbon", "kg"),
}
"""What the front can show against time: its words and its unit."""
FIGURES = ("front", "energy", "time", "money", "roofline", "thermal")
"""Places of figures on the page."""
NOW, OWN = "this plan", "own plan"
MONEY = {
    "equipment": "chips, servers, links",
    "building": "building and peak power",
    "electricity": "electricity",
    "delay": "value of time",
}
WORKS = ("matrix products", "kernels of a layer", "whole step")
FARTHEST = 1.1  # of the largest time and value on the front
_INTENSITIES = 6.0  # of the roofline: a decade and a half around its ridge, or as far as the points are


class Pinned(NamedTuple):
    """A plan with a name, to compare with."""

    name: str
    view: View


def chart_of(name: str, view: View, own: View, pins: Sequence[Pinned], objective: str) -> AbstractChart:
    """One of `FIGURES`: where energy, time and money go beside the own plan, front, roofline, temperature."""
    energy, step = view.outcome.energy, view.outcome.step_time
    if name == "energy":
        return _stacked("Energy of the run", "J", _parts(energy), _parts(own.outcome.energy))
    if name == "time":
        return _stacked("Time of one step", "s", _parts(step), _parts(own.outcome.step_time))
    if name == "money":
        return _stacked("Money for the run", "USD", _costs(view), _costs(own))
    if name == "front":
        return front(view, own, pins, objective)
    return roofline(view) if name == "roofline" else thermal(view)


def _parts(component: eqx.Module) -> tuple[Part, ...]:
    fields = dataclasses.fields(component)
    return tuple(Part(one.metadata["title"], float(getattr(component, one.name))) for one in fields)


def _costs(view: View) -> tuple[Part, ...]:
    return tuple(Part(MONEY[name], float(value)) for name, value in view.money._asdict().items())


def _stacked(what: str, unit: str, parts: Sequence[Part], own: Sequence[Part]) -> StackedBars:
    total = math.fsum(part.value for part in parts)
    largest = max(parts, key=lambda part: part.value)
    title = f"{what}: {read(total, unit)}, {percent(largest.value / total)} of it {largest.label}"
    bars = (Bar(NOW, tuple(parts)), Bar(OWN, tuple(own)))
    return StackedBars(title, unit, bars, "By where it goes, beside the scenario's own plan", what.split()[0].lower())


def roofline(view: View) -> Lines:
    """The work of a chip under the roofs of its arithmetic and its memory."""
    roof = view.roofline
    peak, bandwidth = float(roof.peak), float(roof.bandwidth)
    ridge = peak / bandwidth
    low = min(ridge / _INTENSITIES, 0.7 * float(np.min(roof.intensity)))
    high = max(ridge * _INTENSITIES, 1.4 * float(np.max(roof.intensity)))
    limit = Series(
        f"roof: {read(bandwidth, 'B/s')} and {read(peak, 'FLOP/s')}",
        tuple(Point(x, min(peak, bandwidth * x)) for x in (low, ridge, high)),
    )
    works = [
        Series(
            name,
            (Point(float(x), float(y), f"{name}: {read(float(y), 'FLOP/s')} at {read(float(x), 'FLOP/B')}"),),
            "points",
        )
        for name, x, y in zip(WORKS, roof.intensity, roof.rate, strict=True)
    ]
    share, bound = float(roof.rate[0]) / peak, float(roof.intensity[0]) < ridge
    what = "the memory holds them back" if bound else "arithmetic is their limit"
    title = f"Matrix products reach {percent(share)} of the peak; {what}"
    subtitle = f"Roofline of a chip at its clock; the ridge is at {read(ridge, 'FLOP/B')}"
    axes = Axis("operations per byte of memory", "FLOP/B", log=True), Axis("rate", "FLOP/s", log=True)
    return Lines(title, *axes, (limit, *works), subtitle, tall=230.0)


def thermal(view: View) -> TemperatureLadder:
    """From the coolant to the junction."""
    warmth = view.warmth
    supply, row, coldplate, package, hot_spot, limit = map(float, warmth)
    top = supply + row + coldplate + package + hot_spot
    left = limit - top
    what = f"{left:.1f} K below its limit" if left >= 0.0 else f"{-left:.1f} K above its limit"
    return TemperatureLadder(
        f"The hottest chip is {what}",
        supply,
        (
            Rise("along the row", row),
            Rise("coolant to package", coldplate),
            Rise("within the package", package),
            Rise("hot spot", hot_spot),
        ),
        limit,
        "Busy chip at the end of the row, at steady power",
    )


def front(view: View, own: View, pins: Sequence[Pinned], objective: str) -> Lines:
    """Time against energy, money or carbon of plans with other batches and clocks, at the loss of this one."""
    words, unit = OBJECTIVES[objective]
    nearby = view.nearby
    values, times = np.asarray(getattr(nearby, objective)), np.asarray(nearby.time)
    fine = np.isfinite(values) & np.isfinite(times)
    obeying = fine & (nearby.room >= -1e-9)
    within = obeying if obeying.any() else fine
    best = _not_dominated(times, values, within)
    here = (float(view.outcome.time), _objective(view, objective))
    others = within & ~_mask(best, len(fine)) & _near(times, values, best, here)
    series = [
        Series("front: no such plan is better in both", _points(nearby, values, best, objective), "both"),
        Series("other batches and clocks", _points(nearby, values, others, objective), "points"),
        Series(NOW, (Point(*here, label=NOW),), "points"),
        Series(OWN, (Point(float(own.outcome.time), _objective(own, objective), label=OWN),), "points"),
    ]
    if pins:
        points = [Point(float(one.view.outcome.time), _objective(one.view, objective), label=one.name) for one in pins]
        series.append(Series("pinned", tuple(points), "points"))
    title = _front_title(here, nearby, values, best, words)
    subtitle = "Plans with other batches and clocks that reach the loss of this plan within all limits"
    if not obeying.any():
        title = "Every plan with another batch or clock breaks a limit, too"
        subtitle = "Plans with other batches and clocks that reach the loss of this plan"
    shown = tuple(one for one in series if one.points)
    return Lines(title, Axis("calendar time", "s"), Axis(words, unit), shown, subtitle, tall=260.0)


def _objective(view: View, objective: str) -> float:
    outcome = view.outcome
    return float({"energy": outcome.energy.total, "money": outcome.money, "carbon": outcome.carbon}[objective])


def _not_dominated(times: np.ndarray, values: np.ndarray, usable: np.ndarray) -> list[int]:
    """Places of the plans that no other usable one beats in both, by time."""
    found: list[int] = []
    for place in sorted(np.flatnonzero(usable), key=lambda one: (times[one], values[one])):
        if not found or values[place] < values[found[-1]] * (1.0 - 1e-9):
            found.append(int(place))
    return found


def _mask(places: Sequence[int], count: int) -> np.ndarray:
    mask = np.zeros(count, bool)
    mask[list(places)] = True
    return mask


def _near(times: np.ndarray, values: np.ndarray, best: Sequence[int], here: tuple[float, float]) -> np.ndarray:
    """Plans that are not far from the front and from this plan: far ones would squeeze both into a corner."""
    most_time = max([here[0], *(float(times[place]) for place in best)])
    most = max([here[1], *(float(values[place]) for place in best)])
    return (times <= FARTHEST * most_time) & (values <= FARTHEST * most)


def _points(
    nearby: Nearby, values: np.ndarray, places: Sequence[int] | np.ndarray, objective: str
) -> tuple[Point, ...]:
    chosen = np.flatnonzero(places) if isinstance(places, np.ndarray) else places
    unit = OBJECTIVES[objective][1]
    return tuple(
        Point(
            float(nearby.time[place]),
            float(values[place]),
            f"batch x {nearby.batch_factor[place]:.3g}, clock {100.0 * nearby.clock[place]:.3g} %: "
            f"{read(float(nearby.time[place]), 's')}, {read(float(values[place]), unit)}",
        )
        for place in chosen
    )


def _front_title(here: tuple[float, float], nearby: Nearby, values: np.ndarray, best: Sequence[int], words: str) -> str:
    if not best:
        return "No plan with another batch or clock reaches this loss"
    no_slower = [place for place in best if nearby.time[place] <= here[0] * (1.0 + 1e-6)]
    saved = max((1.0 - float(values[place]) / here[1] for place in no_slower), default=0.0)
    if saved > 1e-3:
        return f"Another batch and clock saves {percent(saved)} of the {words} in no more time"
    slowest = best[-1]
    saved, longer = 1.0 - float(values[slowest]) / here[1], float(nearby.time[slowest]) / here[0] - 1.0
    if saved > 1e-3:
        return f"{percent(saved)} less {words} takes {percent(longer)} more time"
    return f"No other batch or clock here takes less {words}"


def operation_words(operation: Operation) -> str:
    """Energy of an operation, and how far above the Landauer bound it is."""
    energy, bound = float(operation.energy), float(operation.bound)
    multiple = energy / bound
    times = (
        f"{multiple:.3g}"
        if multiple < 1e4
        else f"{multiple / 1e6:.3g} million"
        if multiple >= 1e6
        else f"{multiple:,.0f}"
    )
    return f"{read(energy, 'J/FLOP')} per operation, {times} times the Landauer bound"
