"""Charts of an answer as figures of the project's own SVG; all words come from `number`."""

import zlib

from energymodel.report.answer import Answer, Chart
from energymodel.report.charts.bars import bars, intervals, stack, tornado
from energymodel.report.charts.figure import WIDTH, chart_css, head, legend
from energymodel.report.charts.flow import flow
from energymodel.report.charts.plane import points
from energymodel.report.charts.ranks import timeline
from energymodel.report.charts.svg import Hatches, element, escape
from energymodel.report.number import interval, sentence, text

_LINES = 12  # of a description
_KINDS = {
    "bars": bars,
    "stack": stack,
    "plane": points,
    "intervals": intervals,
    "tornado": tornado,
    "flow": flow,
    "timeline": timeline,
}


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
    top, titles = head(words, chart.subtitle, width) if heading else (0.0, [])
    down, names = legend(figure.entries, width, hatches)
    height = round(top + down + figure.height)
    return element(
        "svg",
        element("title", escape(words)),
        element("desc", escape(description(answer, chart))),
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


def description(answer: Answer, chart: Chart) -> str:
    """The subtitle, and the first numbers of a chart."""
    table, numbers = answer.table(chart.table), []
    for name in chart.y or ("",):
        if table.tall or name:
            numbers += table.drawn(name, chart.only, chart.x if chart.kind == "bars" and not table.tall else "")
    lines = []
    for label, column, cell in numbers[:_LINES]:
        ends = interval(cell, column)
        lines.append(" ".join(filter(None, (label, text(cell, column), f"({ends})" if ends else ""))))
    more = f"; and {len(numbers) - _LINES:,} more, which the table lists" if len(numbers) > _LINES else ""
    return ". ".join(filter(None, (chart.subtitle, "; ".join(lines) + more)))
