"""How are the series of a chart named above it?"""

from collections.abc import Sequence
from typing import NamedTuple

from energymodel.report.charts.colors import Hatches, dash, hue
from energymodel.report.charts.svg import element, note, number, rectangle, text
from energymodel.report.charts.text_width import SIZE, shortened, text_width

ROW = 20.0
_SWATCH, _GAP, _APART = 14.0, 6.0, 16.0


class Entry(NamedTuple):
    """A series in the legend: its words, its place among the colors, and whether it is an area, a line or points."""

    words: str
    place: int
    kind: str = "area"


def legend(entries: Sequence[Entry], width: float, hatches: Hatches) -> tuple[float, list[str]]:
    """Height and marks of a legend that breaks into rows at a width."""
    marks: list[str] = []
    x, y = 0.0, 0.0
    for entry in entries:
        words = shortened(entry.words, width - _SWATCH - _GAP)
        wide = _SWATCH + _GAP + text_width(words)
        if x and x + wide > width:
            x, y = 0.0, y + ROW
        marks += [_swatch(entry, x, y, hatches), text(words, x + _SWATCH + _GAP, y + 0.5 * ROW + 0.33 * SIZE)]
        x += wide + _APART
    return (y + ROW + 4.0 if entries else 0.0), marks


def _swatch(entry: Entry, x: float, y: float, hatches: Hatches) -> str:
    middle = y + 0.5 * ROW
    if entry.kind == "line":
        ends = {"x1": x, "x2": x + _SWATCH, "y1": middle, "y2": middle}
        return element("line", class_=f"em-line {hue(entry.place)}", stroke_dasharray=dash(entry.place), **ends)
    if entry.kind == "points":
        return point(x + 0.5 * _SWATCH, middle, entry.place)
    class_, fill = hatches.fill(entry.place)
    return rectangle(x, middle - 6.0, _SWATCH, 12.0, class_, fill=fill)


def point(x: float, y: float, index: int, hover: str = "", size: float = 4.5) -> str:
    """A marker whose shape, too, tells the series: circle, square, diamond, triangle."""
    class_ = f"em-point {hue(index)}"
    shape = index % 4
    if shape == 0:
        return element("circle", note(hover), cx=x, cy=y, r=size, class_=class_)
    corners = {
        1: [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        2: [(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)],
        3: [(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
    }[shape]
    path = " ".join(f"{number(x + size * across)},{number(y + size * down)}" for across, down in corners)
    return element("polygon", note(hover), points=path, class_=class_)
