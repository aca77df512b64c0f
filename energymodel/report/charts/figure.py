"""What all figures share: a legend above the marks, a heading for a file of its own, and one style."""

import functools
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from energymodel.report.charts.svg import SIZE, Hatches, dash, hue, line, point, rectangle, text
from energymodel.report.charts.words import shortened, text_width, wrapped

WIDTH, NARROW = 720.0, 360.0
"""Usual width of a figure, and that for the screen of a telephone [px]."""
_ROW, _SWATCH, _GAP, _APART = 20.0, 14.0, 6.0, 16.0
_HEADING, _HEADING_LINE = 15.0, 20.0


class Entry(NamedTuple):
    """A series in the legend: its words, its color, and whether it is an area, a line or points."""

    words: str
    color: int
    kind: str = "area"


class Figure(NamedTuple):
    """Height and marks of what stands below the legend, and the series of the legend."""

    height: float
    marks: list[str]
    entries: Sequence[Entry] = ()


def legend(entries: Sequence[Entry], width: float, hatches: Hatches) -> tuple[float, list[str]]:
    """Height and marks of a legend that breaks into rows at a width."""
    marks: list[str] = []
    x, y = 0.0, 0.0
    for entry in entries:
        words = shortened(entry.words, width - _SWATCH - _GAP)
        wide = _SWATCH + _GAP + text_width(words)
        if x and x + wide > width:
            x, y = 0.0, y + _ROW
        marks += [_swatch(entry, x, y + 0.5 * _ROW, hatches), text(words, x + _SWATCH + _GAP, y + 10.0 + 0.33 * SIZE)]
        x += wide + _APART
    return (y + _ROW + 4.0 if entries else 0.0), marks


def _swatch(entry: Entry, x: float, y: float, hatches: Hatches) -> str:
    if entry.kind == "line":
        return line(x, y, x + _SWATCH, y, f"em-line {hue(entry.color)}", dash(entry.color))
    if entry.kind == "points":
        return point(x + 0.5 * _SWATCH, y, entry.color)
    class_, fill = hatches.fill(entry.color)
    return rectangle(x, y - 6.0, _SWATCH, 12.0, class_, fill=fill)


def head(title: str, subtitle: str, width: float) -> tuple[float, list[str]]:
    """Height and marks of title and subtitle."""
    marks, height = [], 0.0
    for words in wrapped(title, width, _HEADING, bold=True):
        marks.append(text(words, 0.0, height + 0.75 * _HEADING_LINE, size=_HEADING, class_="em-title"))
        height += _HEADING_LINE
    for words in wrapped(subtitle, width):
        marks.append(text(words, 0.0, height + 13.0, class_="em-muted"))
        height += 17.0
    return height + 8.0, marks


@functools.cache
def chart_css(scope: str = ":root") -> str:
    """Colors and text styles of all charts, for light and dark; a page includes them once.

    **Arguments:**

    - `scope`: selector of the element that gets the colors, where a page has other content as well.
    """
    return files("energymodel.report.charts").joinpath("charts.css").read_text(encoding="utf-8").replace(":root", scope)
