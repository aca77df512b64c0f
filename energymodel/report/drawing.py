"""Charts of an answer as figures of the project's own SVG; all words come from `number`."""

import functools
import zlib
from collections.abc import Sequence
from importlib.resources import files

from energymodel.report.answer import Answer, Chart
from energymodel.report.charts.bars import bars, intervals, stack
from energymodel.report.charts.flow import flow
from energymodel.report.charts.plane import points
from energymodel.report.charts.ranks import timeline
from energymodel.report.charts.svg import SIZE, Entry, Hatches, dash, element, escape, hue, line, point, rectangle, text
from energymodel.report.charts.words import shortened, text_width, wrapped
from energymodel.report.number import interval, sentence
from energymodel.report.number import text as read

WIDTH, NARROW = 720.0, 360.0
"""Usual width of a figure, and that for the screen of a telephone [px]."""
_ROW, _SWATCH, _GAP, _APART = 20.0, 14.0, 6.0, 16.0  # of the legend
_HEADING, _HEADING_LINE = 15.0, 20.0
_LINES = 12  # of a description
_KINDS = {"bars": bars, "tornado": bars, "stack": stack, "intervals": intervals}
_KINDS |= {"plane": points, "flow": flow, "timeline": timeline}


def svg(answer: Answer, chart: Chart, width: float = WIDTH, *, heading: bool = False, style: bool = False) -> str:
    """The figure of a chart as an SVG element, described by its numbers for those who do not see it.

    **Arguments:**

    - `width`: width for which it is laid out [px]; on a narrower page it shrinks.
    - `heading`: whether title and subtitle are drawn as well; on a page they stand above the figure as text.
    - `style`: whether the colors come with it, for a file of its own.
    """
    words = sentence(chart.title)
    hatches = Hatches(f"em{zlib.crc32(f'{chart.kind} {words} {chart.subtitle} {width}'.encode()):08x}")
    figure = _KINDS[chart.kind](answer, chart, width, hatches)
    top, titles = _head(words, chart.subtitle, width) if heading else (0.0, [])
    down, names = _legend(figure.entries, width, hatches)
    height = round(top + down + figure.height)
    return element(
        "svg",
        element("title", escape(words)),
        element("desc", escape(_description(answer, chart))),
        element("style", chart_css()) if style else "",
        hatches.definitions(),
        *titles,
        element("g", *names, transform=f"translate(0 {top:g})") if names else "",
        element("g", *figure.marks, transform=f"translate(0 {top + down:g})"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height}",
        width=f"{width:g}",
        height=f"{height}",
        role="img",
        class_="em-chart",
    )


@functools.cache
def chart_css(scope: str = ":root") -> str:
    """Colors and text styles of all charts, for light and dark; a page includes them once.

    **Arguments:**

    - `scope`: selector of the element that gets the colors, where a page has other content as well.
    """
    return files("energymodel.report.charts").joinpath("charts.css").read_text(encoding="utf-8").replace(":root", scope)


def _description(answer: Answer, chart: Chart) -> str:
    """The subtitle, and the first numbers of a chart."""
    table, numbers = answer.table(chart.table), []
    for name in chart.y or ("",):
        if table.tall or name:
            numbers += table.drawn(name, chart.only, chart.x if chart.kind == "bars" and not table.tall else "")
    lines = []
    for label, column, cell in numbers[:_LINES]:
        ends = interval(cell, column)
        lines.append(" ".join(filter(None, (label, read(cell, column), f"({ends})" if ends else ""))))
    more = f"; and {len(numbers) - _LINES:,} more, which the table lists" if len(numbers) > _LINES else ""
    return ". ".join(filter(None, (chart.subtitle, "; ".join(lines) + more)))


def _head(title: str, subtitle: str, width: float) -> tuple[float, list[str]]:
    """Height and marks of title and subtitle."""
    marks, height = [], 0.0
    for words in wrapped(title, width, _HEADING, bold=True):
        marks.append(text(words, 0.0, height + 0.75 * _HEADING_LINE, size=_HEADING, class_="em-title"))
        height += _HEADING_LINE
    for words in wrapped(subtitle, width):
        marks.append(text(words, 0.0, height + 13.0, size=SIZE, class_="em-muted"))
        height += 17.0
    return height + 8.0, marks


def _legend(entries: Sequence[Entry], width: float, hatches: Hatches) -> tuple[float, list[str]]:
    """Height and marks of a legend that breaks into rows at a width."""
    marks: list[str] = []
    x, y = 0.0, 0.0
    for words, color, kind in entries:
        words = shortened(words, width - _SWATCH - _GAP)
        wide = _SWATCH + _GAP + text_width(words)
        if x and x + wide > width:
            x, y = 0.0, y + _ROW
        middle = y + 0.5 * _ROW
        if kind == "line":
            marks.append(line(x, middle, x + _SWATCH, middle, f"em-line {hue(color)}", dash(color)))
        elif kind == "points":
            marks.append(point(x + 0.5 * _SWATCH, middle, color))
        else:
            marks.append(rectangle(x, middle - 6.0, _SWATCH, 12.0, *hatches.fill(color)))
        marks.append(text(words, x + _SWATCH + _GAP, middle + 0.33 * SIZE, size=SIZE))
        x += wide + _APART
    return (y + _ROW + 4.0 if entries else 0.0), marks
