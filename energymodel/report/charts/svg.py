"""Marks of SVG: elements with escaped text, lines, boxes, points, and the colors and hatches of series."""

import html
from collections.abc import Sequence
from typing import Any, NamedTuple

HIDDEN = "\N{REPLACEMENT CHARACTER}"
"""Stands for characters that do not print: controls, and marks that reverse the direction of text."""
SIZE, SMALL = 12.0, 11.0
"""Size of text in a chart, and of the numbers at an axis [px]."""
HUES = 5
_DASHES = (None, "7 3", "2 3", "9 3 2 3", "12 4")
_CORNERS = (
    [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    [(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)],
    [(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
)


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


def escape(text: str) -> str:
    """Text that is safe between tags and in quoted attributes; characters that do not print are replaced."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " if char.isspace() else HIDDEN for char in text)
    return html.escape(text, quote=True)


def number(value: float) -> str:
    """A coordinate to a hundredth of a pixel."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def element(name: str, *children: str, **attributes: Any) -> str:
    """An element around children that are markup already; `class_` becomes `class`, `text_anchor` `text-anchor`."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(value) if isinstance(value, float) else escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{pairs}>{''.join(children)}</{name}>"


def text(content: str, x: float, y: float, *, size: float = SMALL, anchor: str | None = None, class_: str = "") -> str:
    """A line of text; `y` is its baseline, `anchor` "middle" or "end" where it does not start at `x`."""
    return element("text", escape(content), x=x, y=y, font_size=size, text_anchor=anchor, class_=class_ or None)


def note(content: str) -> str:
    """What hovering over the element around it shows; it may have lines."""
    return element("title", "\n".join(map(escape, content.split("\n")))) if content else ""


def rectangle(
    x: float, y: float, width: float, height: float, class_: str, fill: str | None = None, hover: str = ""
) -> str:
    """A filled box."""
    return element("rect", note(hover), x=x, y=y, width=max(width, 0.0), height=height, class_=class_, fill=fill)


def line(x1: float, y1: float, x2: float, y2: float, class_: str, dashes: str | None = None) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_, stroke_dasharray=dashes)


def path(pixels: Sequence[tuple[float, float]], class_: str, *, closed: bool = False, dashes: str | None = None) -> str:
    """Straight lines from point to point."""
    data = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in pixels) + ("z" if closed else "")
    return element("path", d=data, class_=class_, stroke_dasharray=dashes)


def point(x: float, y: float, index: int, hover: str = "", size: float = 4.5) -> str:
    """A marker whose shape, too, identifies the series: circle, square, diamond, triangle."""
    class_ = f"em-point {hue(index)}"
    if index % 4 == 0:
        return element("circle", note(hover), cx=x, cy=y, r=size, class_=class_)
    corners = (f"{number(x + size * right)},{number(y + size * down)}" for right, down in _CORNERS[index % 4 - 1])
    return element("polygon", note(hover), points=" ".join(corners), class_=class_)


def hue(index: int) -> str:
    """Class that sets the color of a series."""
    return f"em-hue{index % HUES}"


def is_hatched(index: int) -> bool:
    """Whether the areas of a series are hatched, since its color is taken already."""
    return index % (2 * HUES) >= HUES


def dash(index: int) -> str | None:
    """Dashes of the line of a series, which distinguish it without its color."""
    return _DASHES[(index + index // HUES) % len(_DASHES)]


class Hatches:
    """Fills of areas; it remembers which hatches a drawing needs. Their names are unique by a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._needed: set[int] = set()

    def fill(self, index: int) -> tuple[str, str | None]:
        """Class and fill of an area of a series."""
        if not is_hatched(index):
            return f"em-area {hue(index)}", None
        self._needed.add(index % HUES)
        return f"em-hatched {hue(index)}", f"url(#{self._prefix}-{index % HUES})"

    def definitions(self) -> str:
        """The hatches that were used."""
        look = {"width": 5, "height": 5, "patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
        patterns = []
        for index in sorted(self._needed):
            back = element("rect", width=5, height=5, class_=f"em-tint {hue(index)}")
            stripe = element("rect", width=2, height=5, class_=f"em-area {hue(index)}")
            patterns.append(element("pattern", back, stripe, id=f"{self._prefix}-{index}", **look))
        return element("defs", *patterns) if patterns else ""
