"""Where does a stream go: bands from its source to its ends, as wide as the amounts?"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from energymodel.report.charts.axes import SMALL
from energymodel.report.charts.chart import AbstractChart, Drawing
from energymodel.report.charts.colors import Hatches, hue
from energymodel.report.charts.legend import Entry
from energymodel.report.charts.scale import alike, measure
from energymodel.report.charts.svg import element, note, number, rectangle, text
from energymodel.report.charts.table import Column, Table
from energymodel.report.charts.text_width import shortened, text_width, widest, wrapped

_NODE, _GAP, _STREAM = 10.0, 8.0, 190.0
_LINE, _WIDE = 13.0, 560.0


class Flow(NamedTuple):
    """An amount in SI that goes from one place to another, with the words for it and for its share of the whole."""

    source: str
    target: str
    value: float
    words: str = ""
    share: str = ""


class _Node(NamedTuple):
    name: str
    column: int
    value: float
    top: float
    tall: float
    lines: list[str]


@dataclass(frozen=True)
class Sankey(AbstractChart):
    """A stream that divides: every place but the first has one source, and amounts add up.

    Flows are drawn in the order in which they are given, from the top down.
    """

    title: str
    unit: str
    flows: tuple[Flow, ...]
    subtitle: str = ""
    digits: int = 3
    whole: str = ""

    def entries(self) -> list[Entry]:
        """None: places have names."""
        return []

    def _given(self) -> list[Flow]:
        return [flow for flow in self.flows if flow.value > 0.0 and math.isfinite(flow.value)]

    def _amount(self, value: float) -> str:
        return alike(value, measure([flow.value for flow in self._given()], self.unit), self.digits)

    def _columns(self) -> dict[str, int]:
        """Distance of each place from the source."""
        found: dict[str, int] = {}
        for flow in self._given():
            found.setdefault(flow.source, 0)
            found[flow.target] = found[flow.source] + 1
        return found

    def _nodes(self, step: float, right: float) -> tuple[dict[str, _Node], float]:
        """Places from the top down, each near its source, and the height of all."""
        flows, columns = self._given(), self._columns()
        root, last = flows[0].source, max(columns.values())
        total = math.fsum(flow.value for flow in flows if flow.source == root)
        nodes: dict[str, _Node] = {}
        cursor: dict[int, float] = {}
        for name in _depth_first(root, flows):
            flow = next((one for one in flows if one.target == name), None)
            value, column = (flow.value, columns[name]) if flow else (total, 0)
            tall, top = value / total * _STREAM, cursor.get(column, 0.0)
            if flow is not None:
                earlier = (one.value for one in flows[: flows.index(flow)] if one.source == flow.source)
                top = max(top, nodes[flow.source].top + sum(earlier) / total * _STREAM)
            words, share = (self.whole, "") if flow is None else (flow.words, flow.share)
            share = "" if name == root else f" · {share or f'{100.0 * value / total:.2g} %'}"
            lines = _lines(name, words or self._amount(value), share, (right if column == last else step) - _NODE - 6.0)
            nodes[name] = _Node(name, column, value, top, tall, lines)
            cursor[column] = top + max(tall, len(lines) * _LINE) + _GAP
        return nodes, max(node.top + max(node.tall, len(node.lines) * _LINE) for node in nodes.values())

    def draw(self, width: float, hatches: Hatches) -> Drawing:
        """Bands first, then the places with name and amount."""
        if not self._given():
            return Drawing(0.0, [])
        columns = self._columns()
        last = max(columns.values())
        ends = [f"{flow.target} {flow.words or self._amount(flow.value)} · 88 %" for flow in self._given()]
        right = min(widest(ends, SMALL) + _NODE, (0.3 if width >= _WIDE else 0.25) * width)
        step = (width - right - _NODE) / max(last, 1)
        nodes, height = self._nodes(step, right)
        marks = self._bands(nodes, step)
        for node in nodes.values():
            x, hover = node.column * step, node.lines[0] if len(node.lines) == 1 else " ".join(node.lines)
            class_ = f"em-area {hue(node.column)}"
            marks.append(rectangle(x, node.top + 2.0, _NODE, max(node.tall, 1.0), class_, hover))
            first = node.top + 2.0 + max(0.5 * (node.tall - len(node.lines) * _LINE), 0.0) + 10.0
            for place, words in enumerate(node.lines):
                is_amount = place == len(node.lines) - 1 and len(node.lines) > 1
                look = f"em-halo{' em-bold' if is_amount else ''}"
                marks.append(text(words, x + _NODE + 4.0, first + place * _LINE, size=SMALL, class_=look))
        return Drawing(height + 8.0, marks)

    def _bands(self, nodes: dict[str, _Node], step: float) -> list[str]:
        left_at: dict[str, float] = {}
        marks = []
        for flow in self._given():
            source, target = nodes[flow.source], nodes[flow.target]
            start = left_at.get(flow.source, source.top + 2.0)
            left_at[flow.source] = start + target.tall
            x1, x2 = source.column * step + _NODE, target.column * step
            middle, end, tall = 0.5 * (x1 + x2), target.top + 2.0, max(target.tall, 0.5)
            path = (
                f"M{number(x1)} {number(start)}C{number(middle)} {number(start)} {number(middle)} {number(end)} "
                f"{number(x2)} {number(end)}v{number(tall)}C{number(middle)} {number(end + tall)} {number(middle)} "
                f"{number(start + tall)} {number(x1)} {number(start + tall)}z"
            )
            words = f"{flow.source} to {flow.target}: {flow.words or self._amount(flow.value)}"
            marks.append(element("path", note(words), d=path, class_=f"em-flow {hue(target.column)}"))
        return marks

    def table(self) -> Table:
        """A row for each flow."""
        return Table(
            [Column("from"), Column("to"), Column("amount", self.unit)],
            [[flow.source, flow.target, flow.value] for flow in self._given()],
        )


def _depth_first(root: str, flows: list[Flow]) -> list[str]:
    """Places in the order of the drawing: each before what it feeds."""
    found = [root]
    for flow in flows:
        if flow.source == root:
            found += _depth_first(flow.target, flows)
    return found


def _lines(name: str, amount: str, share: str, room: float) -> list[str]:
    """Name, amount and share beside a place: on one line, two or three, without the share where that is too wide."""
    for last in (f"{amount}{share}", amount):
        if text_width(f"{name} {last}", SMALL) <= room:
            return [f"{name} {last}"]
        if text_width(last, SMALL, bold=True) <= room:
            return [*wrapped(name, room, SMALL), last]
    return [*wrapped(name, room, SMALL), shortened(amount, room, SMALL)]
