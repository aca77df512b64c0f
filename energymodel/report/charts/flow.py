"""A stream that divides: bands from its source to its ends, as wide as the amounts."""

import math
from typing import NamedTuple

from energymodel.report.answer import Answer, Chart
from energymodel.report.cells import Quantity
from energymodel.report.charts.axes import SHARE
from energymodel.report.charts.bars import words_of
from energymodel.report.charts.svg import SMALL, Figure, Hatches, element, hue, note, number, rectangle, text
from energymodel.report.charts.words import shortened, text_width, widest, wrapped
from energymodel.report.number import text as read

_NODE, _GAP, _STREAM = 10.0, 8.0, 190.0
_LINE, _WIDE = 13.0, 560.0


class _Flow(NamedTuple):
    source: str
    target: str
    value: float
    words: str
    share: str


class _Node(NamedTuple):
    column: int
    top: float
    tall: float
    lines: list[str]


def flow(answer: Answer, chart: Chart, width: float, _: Hatches) -> Figure:
    """A stream from the words of `x` to those of `series`: every place but the first has one source."""
    flows = _flows(answer, chart)
    if not flows:
        return Figure(0.0, [])
    columns: dict[str, int] = {}
    for part in flows:
        columns[part.target] = columns.setdefault(part.source, 0) + 1
    last, root = max(columns.values()), flows[0].source
    longest = widest([f"{part.target} {part.words} · 88 %" for part in flows], SMALL) + _NODE
    right = min(longest, (0.3 if width >= _WIDE else 0.25) * width)
    step = (width - right - _NODE) / max(last, 1)
    total = math.fsum(part.value for part in flows if part.source == root)
    outcome = answer.table("outcome").number(chart.total) if chart.total else None
    nodes: dict[str, _Node] = {}
    bottoms: dict[int, float] = {}  # of the columns

    def add(part: _Flow, highest: float) -> None:
        """Put a place below those of its column, and then what it feeds."""
        column, tall = columns[part.target], part.value / total * _STREAM
        top = max(bottoms.get(column, 0.0), highest)
        lines = _lines(part, (right if column == last else step) - _NODE - 6.0)
        nodes[part.target] = _Node(column, top, tall, lines)
        bottoms[column] = top + max(tall, len(lines) * _LINE) + _GAP
        for fed in flows:
            if fed.source == part.target:
                add(fed, top)
                top += fed.value / total * _STREAM

    add(_Flow("", root, total, read(outcome[1], outcome[0]) if outcome else "", ""), 0.0)
    marks = _bands(flows, nodes, step)
    for node in nodes.values():
        x, height = node.column * step, len(node.lines) * _LINE
        look = f"em-area {hue(node.column)}"
        marks.append(rectangle(x, node.top + 2.0, _NODE, max(node.tall, 1.0), look, hover=" ".join(node.lines)))
        first = node.top + 12.0 + max(0.5 * (node.tall - height), 0.0)
        for index, words in enumerate(node.lines):
            is_amount = index == len(node.lines) - 1 and index > 0
            class_ = f"em-halo{' em-bold' if is_amount else ''}"
            marks.append(text(words, x + _NODE + 4.0, first + index * _LINE, class_=class_))
    return Figure(max(bottoms.values()) - _GAP + 8.0, marks)


def _flows(answer: Answer, chart: Chart) -> list[_Flow]:
    table = answer.table(chart.table)
    column, amounts = table.column(chart.y[0])
    of, shares = table.column(chart.label) if chart.label else (SHARE, [None] * len(amounts))
    names = words_of(table, chart.x), words_of(table, chart.series)
    return [
        _Flow(source, target, cell.value, read(cell, column), read(share, of))
        for source, target, cell, share in zip(*names, amounts, shares, strict=True)
        if isinstance(cell, Quantity) and cell.value > 0.0 and math.isfinite(cell.value)
    ]


def _bands(flows: list[_Flow], nodes: dict[str, _Node], step: float) -> list[str]:
    left_at: dict[str, float] = {}
    marks = []
    for part in flows:
        source, target = nodes[part.source], nodes[part.target]
        start = left_at.get(part.source, source.top + 2.0)
        left_at[part.source] = start + target.tall
        x1, x2 = source.column * step + _NODE, target.column * step
        middle, end, tall = 0.5 * (x1 + x2), target.top + 2.0, max(target.tall, 0.5)
        x1, x2, middle, y1, y2, y3, y4 = map(number, (x1, x2, middle, start, end, end + tall, start + tall))
        outline = f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}v{number(tall)}"
        outline += f"C{middle} {y3} {middle} {y4} {x1} {y4}z"
        words = f"{part.source} to {part.target}: {part.words}"
        marks.append(element("path", note(words), d=outline, class_=f"em-flow {hue(target.column)}"))
    return marks


def _lines(part: _Flow, space: float) -> list[str]:
    """Name, amount and share beside a place: on one line, two or three, without the share where that is too wide."""
    for last in (f"{part.words} · {part.share}" if part.share else part.words, part.words):
        if text_width(f"{part.target} {last}", SMALL) <= space:
            return [f"{part.target} {last}"]
        if text_width(last, SMALL, bold=True) <= space:
            return [*wrapped(part.target, space, SMALL), last]
    return [*wrapped(part.target, space, SMALL), shortened(part.words, space, SMALL)]
