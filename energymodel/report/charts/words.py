"""Text in charts: its width, what remains of it in a given width, and places where a label covers no other one."""

from collections.abc import Iterable
from typing import NamedTuple

from energymodel.readers.expressions import data_file
from energymodel.report.charts.svg import SIZE, SMALL, text

_MARGIN = 1.06  # fonts that stand in for Helvetica are up to 6 % wider: DejaVu Sans Condensed
_WIDTH_OF = {
    letter: int(width) for width, letters in data_file(__file__, "helvetica.toml").items() for letter in letters
}
_OTHERS = 640  # letters with accents and what else is about as wide as a capital
_WIDE, _FIRST_WIDE = 1000, "\u2e80"  # Chinese, Japanese and Korean characters are square
_BOLD = 1.07
_ELLIPSIS = "…"
_GAP, _AWAY = 2.0, 6.0  # around a label, and from its point


def text_width(text: str, size: float = SIZE, *, bold: bool = False) -> float:
    """Width of a line in Helvetica or a font of its measures [px]."""
    units = sum(_WIDTH_OF.get(letter, _WIDE if letter >= _FIRST_WIDE else _OTHERS) for letter in text)
    return _MARGIN * units * size / 1000.0 * (_BOLD if bold else 1.0)


def widest(texts: Iterable[str], size: float = SIZE) -> float:
    """Width of the longest of some lines [px]; 0 without any."""
    return max((text_width(line, size) for line in texts), default=0.0)


def shortened(text: str, width: float, size: float = SIZE) -> str:
    """As much of a text as fits, with an ellipsis; empty where not even three letters do."""
    if text_width(text, size) <= width:
        return text
    length = len(text)
    while length > 0 and text_width(text[:length].rstrip() + _ELLIPSIS, size) > width:
        length -= 1
    return text[:length].rstrip() + _ELLIPSIS if length >= 3 else ""


def wrapped(text: str, width: float, size: float = SIZE, *, bold: bool = False) -> list[str]:
    """Lines of a text, broken between words; a word that is too long alone is shortened."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold=bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return [shortened(line, width, size) if text_width(line, size) > width else line for line in lines]


class Area(NamedTuple):
    """A rectangle on the chart [px]."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Area") -> bool:
        """Whether both have a point in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def holds(self, other: "Area") -> bool:
        """Whether the other lies within it."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom


class Labels:
    """Labels of a chart: each is put where it is free, or left out."""

    def __init__(self, within: Area) -> None:
        self._within = within
        self._taken: list[Area] = []
        self.marks: list[str] = []

    def block(self, area: Area) -> None:
        """Keep an area free of labels."""
        self._taken.append(area)

    def put(self, words: str, x: float, y: float) -> None:
        """Write words beside a point: right of it, left, above or below, wherever they are free."""
        width = text_width(words, SMALL)
        right, left, middle = x + _AWAY, x - _AWAY - width, x - 0.5 * width
        level, above, below = y - 0.5 * SMALL, y - _AWAY - SMALL, y + _AWAY
        corners = [(right, level), (left, level), (middle, above), (middle, below)]
        corners += [(side, top) for top in (above, below) for side in (right, left)]
        for side, top in corners:
            area = Area(side - _GAP, top - _GAP, side + width + _GAP, top + SMALL + _GAP)
            if self._within.holds(area) and not any(area.meets(other) for other in self._taken):
                self._taken.append(area)
                self.marks.append(text(words, side, top + 0.82 * SMALL, class_="em-halo"))
                return
