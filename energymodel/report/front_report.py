"""How are efficient plans shown: a table with exchange rates, JSON, CSV, a figure?"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report.figure import BLUE, COLORS, GRAY, ORANGE, add_axes, log_axis, new_figure, save
from energymodel.report.intervals import percent, quantity, rounded, with_interval
from energymodel.report.json_tree import Tree, csv_text, outcome_json, plan_json
from energymodel.report.tables import prior_count
from energymodel.search.front import Front, FrontPoint
from energymodel.search.layouts import layout_label
from energymodel.sweeps.outcome_spread import DEVIATIONS, LEVEL, OutcomeSpread
from energymodel.units import format_quantity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_READABLE = {
    "J": ((3.6e12, "GWh"), (3.6e9, "MWh"), (3.6e6, "kWh")),
    "s": ((86400.0, "days"), (3600.0, "hours")),
    "USD": ((1e6, "M USD"), (1e3, "k USD")),
    "kg": ((1e3, "t"),),
    "W": ((1e6, "MW"), (1e3, "kW")),
}
_WIDE = 3.0  # ratio of the ends of an axis beyond which it is logarithmic
_SHOWN = 24  # rows of the table on a terminal


def front_report(front: Front, spread: OutcomeSpread | None = None) -> RenderableType:
    """Efficient plans, what each gives up for the other objectives, and where the layout changes.

    With the spread of the plan at the knee, all plans have the digits that it supports.
    """
    places = _spread(len(front.points), front.knee)
    table = front_table(front, places, spread)
    own = ", ".join(f"{name} {shown_objective(front, name, front.baseline[name], spread)}" for name in front.minimize)
    lines = [
        f'The scenario\'s own plan: {own}. The columns "change" compare with it.',
        f'The columns "1 % more" say how much {front.minimize[0]} that saves.',
        *([interval_line(front, spread)] if spread else []),
        f"The knee is where the front bends most. Hypervolume: {100.0 * front.hypervolume:.0f} % of the box between "
        f"best and worst, in logarithms. {front.layouts_considered:,} layouts compared, {front.layouts_searched} of "
        "them on the front or next to it.",
        front.message,
        prior_count(front.scenario),
    ]
    if len(places) < len(front.points):
        lines.insert(0, f"{len(places)} of {len(front.points)} plans are shown; -o front.csv writes all.")
    title = f"{front.scenario.title}: lowest {' against '.join(front.minimize)}"
    return Group(Text(title, style="bold"), "", table, "", Text("\n".join(lines)))


def front_table(front: Front, places: Iterable[int], spread: OutcomeSpread | None = None) -> Table:
    """Some plans with their changes against the scenario's own, exchange rates, and where the layout changes."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in _headings(front):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    previous = None
    for place in places:
        point = front.points[place]
        layout = layout_label(point.plan.layout)
        marks = {"knee": place == front.knee, "new layout": previous not in (None, layout)}
        table.add_row(*_cells(front, point, spread), ", ".join(word for word, holds in marks.items() if holds))
        previous = layout
    return table


def interval_line(front: Front, spread: OutcomeSpread) -> str:
    """The interval of each objective at the knee."""
    knee = front.points[front.knee]
    shown = ", ".join(
        f"{name} {with_interval(knee.values[name], *_ends(spread, name, knee.values[name]), front.units[name], LEVEL)}"
        for name in front.minimize
    )
    return (
        f"At the knee: {shown}, to first order. All plans move together: the changes are known better than the plans."
    )


def _ends(spread: OutcomeSpread, name: str, value: float) -> tuple[float, float]:
    """Interval of an objective whose logarithm is as uncertain as at the knee."""
    half = DEVIATIONS * spread.deviation(name)
    return value * math.exp(-half), value * math.exp(half)


def shown_objective(front: Front, name: str, value: float, spread: OutcomeSpread | None) -> str:
    """An objective of a plan, in the digits that its interval supports."""
    field = quantity(value, front.units[name])
    return rounded(field, *(_ends(spread, name, value) if spread else (value, value)))


def _headings(front: Front) -> list[str]:
    rates = [f"1 % more {name}" for name in front.minimize[1:]]
    objectives = [heading for name in front.minimize for heading in (name, "change")]
    return [*objectives, *rates, "chips", "clock", "batch", "layout"]


def _cells(front: Front, point: FrontPoint, spread: OutcomeSpread | None) -> list[str]:
    values = [
        (shown_objective(front, name, point.values[name], spread), _change(point.values[name], front.baseline[name]))
        for name in front.minimize
    ]
    return [
        *(cell for pair in values for cell in pair),
        *(f"{point.exchange[name]:+.2g} %" if name in point.exchange else "" for name in front.minimize[1:]),
        f"{float(point.plan.chips):g}",
        f"{float(point.plan.clock):.3f}",
        format_quantity(float(point.plan.batch[0]), "token"),
        layout_label(point.plan.layout),
    ]


def _change(value: float, own: float) -> str:
    return percent(value / own - 1.0, sign="+") if own else ""


def _spread(count: int, knee: int) -> list[int]:
    step = max(1, -(-count // _SHOWN))
    return sorted({*range(0, count, step), count - 1, knee})


def front_json(front: Front, spread: OutcomeSpread | None = None) -> Tree:
    """All plans with objectives, exchange rates and outcomes; the scenario repeats the run."""
    knee = front.points[front.knee].values if spread else {}
    intervals = {name: _ends(spread, name, value) for name, value in knee.items()} if spread else {}
    return {
        "scenario": front.scenario.named_tables,
        "minimize": list(front.minimize),
        "units": dict(front.units),
        "result": front.result,
        "message": front.message,
        "hypervolume": front.hypervolume,
        "knee": front.knee,
        "intervals_at_knee": {name: {"low": low, "high": high} for name, (low, high) in intervals.items()},
        "baseline": dict(front.baseline),
        "layouts_considered": front.layouts_considered,
        "layouts_searched": front.layouts_searched,
        "points": [
            {
                "values": dict(point.values),
                "exchange": dict(point.exchange),
                "plan": plan_json(point.plan, front.scenario),
                "outcome": outcome_json(point.outcome),
            }
            for point in front.points
        ],
    }


def front_csv(front: Front) -> str:
    """One line per plan, objectives in SI with the unit in the heading."""
    objectives = [f"{name} [{front.units[name]}]" for name in front.minimize]
    rates = [f"saving of {front.minimize[0]} per {name} [%/%]" for name in front.minimize[1:]]
    layout = list(type(front.points[0].plan.layout).__dataclass_fields__)
    headings = [*objectives, *rates, "chips", "clock", "batch [token]", "coolant_temperature [K]", *layout, "knee"]

    def line(place: int, point: FrontPoint) -> list[int | float | None]:
        plan = point.plan
        return [
            *(point.values[name] for name in front.minimize),
            *(point.exchange.get(name) for name in front.minimize[1:]),
            *(float(number) for number in (plan.chips, plan.clock, plan.batch[0], plan.coolant_temperature)),
            *(float(getattr(plan.layout, name)) for name in layout),
            int(place == front.knee),
        ]

    return csv_text([headings, *(line(place, point) for place, point in enumerate(front.points))])


def front_figure(front: Front) -> "Figure":
    """The second objective across, the first upward; colors are layouts, or a third objective's thirds.

    **Raises:** `InputError` where matplotlib is not installed.
    """
    figure = new_figure()
    axes = add_axes(figure, 1, 1, 1)
    first, second = front.minimize[:2]
    up, across = (_scaled(front, name) for name in (first, second))
    words = [layout_label(point.plan.layout) for point in front.points]
    if len(front.minimize) == 2:
        axes.plot(across[0], up[0], color=GRAY, linewidth=0.8, zorder=1)
    for number, word in enumerate(dict.fromkeys(words)):
        chosen = [place for place, one in enumerate(words) if one == word]
        points = [across[0][place] for place in chosen], [up[0][place] for place in chosen]
        axes.scatter(*points, s=16, color=COLORS[number % len(COLORS)], label=word, zorder=2)
    axes.scatter([across[0][front.knee]], [up[0][front.knee]], s=80, facecolors="none", edgecolors=ORANGE, label="knee")
    own = front.baseline
    axes.scatter([own[second] * across[1]], [own[first] * up[1]], marker="x", color=BLUE, label="scenario's own plan")
    axes.set(xlabel=f"{second} ({across[2]})", ylabel=f"{first} ({up[2]})", title=front.scenario.title)
    if max(across[0]) > _WIDE * min(across[0]):
        log_axis(axes, "x")
    axes.legend(fontsize=8)
    return figure


def _scaled(front: Front, name: str) -> tuple[list[float], float, str]:
    """Values in a readable unit, the factor from SI, and the unit."""
    values = [point.values[name] for point in front.points]
    scales = (*_READABLE.get(front.units[name], ()), (1.0, front.units[name]))
    size, unit = next((scale for scale in scales if min(values) >= scale[0]), scales[-1])
    return [value / size for value in values], 1.0 / size, unit


def front_file(front: Front, suffix: str) -> bytes:
    """The front as a file of one of the kinds `.csv`, `.svg`, `.png`, `.pdf`."""
    if suffix == ".csv":
        return front_csv(front).encode()
    return save(front_figure(front), suffix.removeprefix("."))
