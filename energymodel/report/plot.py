"""How does a chart become a figure of matplotlib, for papers and notebooks?"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from energymodel.errors import InputError
from energymodel.report.charts import AbstractChart, Axis, GroupedBars, Intervals, Lines, StackedBars, Tornado
from energymodel.report.charts.scale import SHARE, Measure, measure
from energymodel.report.charts.svg import clean
from energymodel.report.figure import BLUE, COLORS, ORANGE, add_axes, log_axis, new_figure, save, style

_WIDTH, _ROW = 8.0, 0.3  # of a figure and of a bar [inch]
_AXIS = 0.45  # of the ticks and the name of an axis [inch]
_TWO_COLUMNS = 5.0  # of a figure with so many columns of a legend [inch]
_DASHES = ("-", "--", ":", "-.")
_HATCHES = ("", "///", "...")
_BESIDE: dict[str, Any] = {"fontsize": 8, "loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}


def draw(chart: AbstractChart, axes: Any = None, figure: Callable[[float, float], Any] = new_figure) -> Any:
    """A chart on axes of matplotlib; without them on those of a new `figure` of a width and height in inches.

    **Returns:** the axes.

    **Raises:** `InputError` for a chart that only pages draw, or where matplotlib is not installed.
    """
    if axes is None:
        axes = add_axes(figure(_WIDTH, 1.4 + _ROW * _rows(chart)))
    axes.set_axisbelow(True)
    with style():
        draw_on(chart, axes)
        axes.set_title("\n".join(clean(line) for line in (chart.title, chart.subtitle) if line), loc="left", wrap=True)
    return axes


def chart_file(chart: AbstractChart, kind: str) -> bytes:
    """A chart as "svg", "png" or "pdf", drawn by matplotlib."""
    return save(draw(chart).figure, kind)


def _rows(chart: AbstractChart) -> float:
    if isinstance(chart, StackedBars):
        return 4.0 + 2.0 * len(chart.bars)  # the legend below counts too
    return 10.0 if isinstance(chart, Lines) else max(4.0, float(len(chart.table().rows)))


@functools.singledispatch
def draw_on(chart: AbstractChart, axes: Any) -> None:
    """Draw the marks of a chart on axes."""
    raise InputError(f"{type(chart).__name__}: it is drawn on pages only. Write -o report.html.")


@draw_on.register
def _stacked(chart: StackedBars, axes: Any) -> None:
    columns = chart.table().columns[1:]
    *rows, totals = [[float(cell or 0.0) for cell in row[1:]] for row in chart.table().rows]  # pyright: ignore[reportArgumentType]
    labels = [str(row[0]) for row in chart.table().rows[:-1]]
    from matplotlib.transforms import offset_copy

    unit = measure(totals, chart.unit)
    starts = [0.0] * len(columns)
    places = list(range(len(columns)))
    for place, (label, row) in enumerate(zip(labels, rows, strict=True)):
        widths = [value / unit.size for value in row]
        look = {"color": COLORS[place % len(COLORS)], "hatch": _HATCHES[place // len(COLORS) % len(_HATCHES)]}
        axes.barh(places, widths, left=starts, label=label, edgecolor="white", height=0.6, **look)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.set_yticks(places, [column.title for column in columns])
    axes.invert_yaxis()
    axes.set_xlabel(_axis_name(chart.axis, unit.word))
    beside = 2 if axes.figure.get_figwidth() >= _TWO_COLUMNS else 1
    below = offset_copy(axes.transAxes, axes.figure, y=-_AXIS, units="inches")
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, 0.0), bbox_transform=below, ncols=beside, fontsize=8)
    axes.grid(visible=False, axis="y")


@draw_on.register
def _grouped(chart: GroupedBars, axes: Any) -> None:
    values = [part.value for group in chart.groups for part in group.parts]
    unit = Measure(1.0, 0.0, chart.unit) if chart.log else measure(values, chart.unit, difference=chart.difference)
    names = list(dict.fromkeys(part.label for group in chart.groups for part in group.parts))
    middles: list[float] = []
    at, drawn = 0.0, set()
    for group in chart.groups:
        middles.append(at + 0.5 * (len(group.parts) - 1))
        for part in group.parts:
            place = names.index(part.label)
            label = part.label if len(names) > 1 and part.label not in drawn else None
            drawn.add(part.label)
            error = None
            if part.low is not None and part.high is not None:
                error = [[(part.value - part.low) / unit.size], [(part.high - part.value) / unit.size]]
            axes.barh([at], [unit.shown(part.value)], xerr=error, color=COLORS[place % len(COLORS)], label=label)
            at += 1.0
        at += 0.6
    axes.set_yticks(middles, [group.label for group in chart.groups])
    axes.invert_yaxis()
    axes.set_xlabel(_axis_name(chart.axis, unit.word))
    axes.grid(visible=False, axis="y")
    if chart.limit is not None:
        axes.axvline(unit.shown(chart.limit[0]), color="black", linestyle="--", linewidth=1.0, label=chart.limit[1])
    if chart.log:
        axes.set_xscale("log")
    if len(names) > 1 or chart.limit is not None:
        axes.legend(**_BESIDE)


@draw_on.register
def _lines(chart: Lines, axes: Any) -> None:
    points = [point for series in chart.series for point in series.points]
    across = _measure(chart.x, [point.x for point in points])
    up = _measure(chart.y, [point.y for point in points])
    for place, series in enumerate(chart.series):
        xs = [across.shown(point.x) for point in series.points]
        ys = [up.shown(point.y) for point in series.points]
        color = COLORS[place % len(COLORS)]
        look = {"linestyle": "none", "marker": "o"} if series.kind == "points" else {"linestyle": _DASHES[place % 4]}
        look |= {"marker": "o"} if series.kind == "both" else {}
        axes.plot(xs, ys, color=color, label=series.name, markersize=4, **look)
        known = [point for point in series.points if point.low is not None and point.high is not None]
        if known:
            lows, highs = ([up.shown(float(end)) for end in ends] for ends in _ends(known))
            axes.fill_between(
                [across.shown(point.x) for point in known], lows, highs, color=color, alpha=0.2, linewidth=0
            )
        for point in series.points:
            if point.label:
                where = (across.shown(point.x), up.shown(point.y))
                axes.annotate(point.label, where, xytext=(5, 4), textcoords="offset points", fontsize=8)
    for level in chart.levels:
        line = axes.axhline if level.of == "y" else axes.axvline
        at = (up if level.of == "y" else across).shown(level.value)
        line(at, color="black", linestyle="--", linewidth=1.0, label=level.name)
    for axis, name in ((chart.x, "x"), (chart.y, "y")):
        if axis.log:
            log_axis(axes, name)
    axes.set_xlabel(_axis_name(chart.x.title, across.word))
    axes.set_ylabel(_axis_name(chart.y.title, up.word))
    if len(chart.series) > 1 or chart.levels:
        axes.legend(fontsize=8)


def _ends(points: Sequence[Any]) -> tuple[list[float], list[float]]:
    return [point.low for point in points], [point.high for point in points]


def _measure(axis: Axis, values: Sequence[float]) -> Any:
    return axis.measure(*axis.ends(values))


@draw_on.register
def _tornado(chart: Tornado, axes: Any) -> None:
    places = list(range(len(chart.swings)))
    unit = measure([swing.size for swing in chart.swings], chart.unit, difference=True)
    for name, color, ends in (
        (chart.names[0], BLUE, [swing.down for swing in chart.swings]),
        (chart.names[1], ORANGE, [swing.up for swing in chart.swings]),
    ):
        if any(ends):
            axes.barh(places, [unit.shown(end) for end in ends], height=0.7, color=color, label=name or None)
    axes.set_yticks(places, [swing.label for swing in chart.swings])
    axes.invert_yaxis()
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xlabel(_axis_name(chart.axis, unit.word))
    axes.legend(**_BESIDE)


@draw_on.register
def _intervals(chart: Intervals, axes: Any) -> None:
    unit = measure([], SHARE)
    places = list(range(len(chart.intervals)))
    for place, one in zip(places, chart.intervals, strict=True):
        low, high = (unit.shown(end / one.value - 1.0) for end in (one.low, one.high))
        axes.errorbar([0.0], [place], xerr=[[-low], [high]], color=BLUE, marker="o", markersize=4, capsize=3)
    axes.set_yticks(places, [f"{one.label}: {one.shown} ({one.ends})" for one in chart.intervals])
    axes.invert_yaxis()
    axes.set_xlabel("deviation from the value [%]")


def _axis_name(title: str, word: str) -> str:
    return f"{title} [{word}]" if title and word else title or word
