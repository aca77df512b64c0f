"""What do all charts have: a title that says the message, a description, a legend, a table behind, and one style?"""

import abc
import functools
import zlib
from importlib.resources import files
from typing import NamedTuple

from energymodel.report.charts.colors import Hatches
from energymodel.report.charts.legend import Entry, legend
from energymodel.report.charts.svg import element, escape, text
from energymodel.report.charts.table import Table
from energymodel.report.charts.text_width import wrapped

WIDTH = 720.0
NARROW = 360.0
"""Width for the screen of a telephone [px]."""
_HEADING, _HEADING_LINE = 15.0, 20.0
_ROWS_TOLD = 12  # of the table, in the description for those who do not see the figure


class Drawing(NamedTuple):
    """Height and marks of what stands below the legend."""

    height: float
    marks: list[str]


class AbstractChart(abc.ABC):
    """A figure as a value: it is drawn at any width, and has its data as a table.

    `title` says what the figure shows, in a sentence; `subtitle` names quantity, unit and conditions.
    """

    title: str
    subtitle: str

    @abc.abstractmethod
    def entries(self) -> list[Entry]:
        """Series for the legend; none where the marks have their names beside them."""

    @abc.abstractmethod
    def draw(self, width: float, hatches: Hatches) -> Drawing:
        """The marks below the legend."""

    @abc.abstractmethod
    def table(self) -> Table:
        """The data behind the figure."""

    def rows(self) -> list[list[str | float | None]]:
        """Headings, then the rows of the table with numbers in SI."""
        table = self.table()
        return [[one.heading for one in table.columns], *(list(row) for row in table.rows)]

    def describe(self) -> str:
        """What someone who does not see the figure is told: its data, or how many rows the table has."""
        table = self.table()
        told = [
            " ".join(filter(None, (one.shown(cell) for one, cell in zip(table.columns, row, strict=True))))
            for row in table.rows[:_ROWS_TOLD]
        ]
        more = len(table.rows) - len(told)
        rest = f"; and {more:,} more rows, which the table lists." if more > 0 else "."
        return ". ".join(filter(None, (self.subtitle, "; ".join(told)))) + rest

    def svg(self, width: float = WIDTH, *, heading: bool = False, style: bool = False, description: str = "") -> str:
        """The figure as an SVG element.

        **Arguments:**

        - `width`: width for which it is laid out [px]; on a narrower page it shrinks.
        - `heading`: whether title and subtitle are drawn as well; on a page they stand above the figure as text.
        - `style`: whether the colors come with it, for a file of its own.
        - `description`: for those who do not see it; by default the first rows of its table.
        """
        hatches = Hatches(f"em{zlib.crc32(f'{type(self).__name__} {self.title} {self.subtitle} {width}'.encode()):08x}")
        top, head = self._heading(width) if heading else (0.0, [])
        down, names = legend(self.entries(), width, hatches)
        drawing = self.draw(width, hatches)
        height = top + down + drawing.height
        return element(
            "svg",
            element("title", escape(self.title)),
            element("desc", escape(description or self.describe())),
            element("style", chart_css()) if style else "",
            hatches.definitions(),
            *head,
            element("g", *names, transform=f"translate(0 {top:g})") if names else "",
            element("g", *drawing.marks, transform=f"translate(0 {top + down:g})"),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {width:g} {height:.0f}",
            width=f"{width:g}",
            height=f"{height:.0f}",
            role="img",
            class_="em-chart",
        )

    def _heading(self, width: float) -> tuple[float, list[str]]:
        lines = wrapped(self.title, width, _HEADING, bold=True)
        marks = [
            text(line, 0.0, (place + 0.75) * _HEADING_LINE, size=_HEADING, class_="em-title")
            for place, line in enumerate(lines)
        ]
        height = len(lines) * _HEADING_LINE
        for line in wrapped(self.subtitle, width):
            marks.append(text(line, 0.0, height + 13.0, class_="em-muted"))
            height += 17.0
        return height + 8.0, marks


@functools.cache
def chart_css(scope: str = ":root") -> str:
    """Colors and text styles of all charts, for light and dark; a page includes them once.

    **Arguments:**

    - `scope`: selector of the element that gets the colors, where a page has other content as well.
    """
    return _css().replace(":root", scope)


@functools.cache
def _css() -> str:
    return files("energymodel.report.charts").joinpath("charts.css").read_text(encoding="utf-8")
