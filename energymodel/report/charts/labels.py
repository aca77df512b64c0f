"""Where does a label fit so that it covers no other one and is not cut off?"""

from collections.abc import Sequence
from typing import NamedTuple

from energymodel.report.charts.svg import text
from energymodel.report.charts.text_width import SIZE, text_width

_GAP = 2.0


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
    """Labels of a chart: each is placed where it is free, or left out."""

    def __init__(self, within: Area) -> None:
        self._within = within
        self._taken: list[Area] = []
        self.marks: list[str] = []

    def block(self, area: Area) -> None:
        """Keep an area free of labels."""
        self._taken.append(area)

    def place(
        self, words: str, x: float, y: float, *, away: float = 6.0, size: float = SIZE, class_: str = "em-halo"
    ) -> bool:
        """Write words beside a point: right of it, left, above or below; say whether there was room."""
        width = text_width(words, size)
        corners = [
            (x + away, y - 0.5 * size),
            (x - away - width, y - 0.5 * size),
            (x - 0.5 * width, y - away - size),
            (x - 0.5 * width, y + away),
            (x + away, y - away - size),
            (x - away - width, y - away - size),
            (x + away, y + away),
            (x - away - width, y + away),
        ]
        return self._first_free(words, corners, width, size, class_)

    def _first_free(
        self, words: str, corners: Sequence[tuple[float, float]], width: float, size: float, class_: str
    ) -> bool:
        for left, top in corners:
            area = Area(left - _GAP, top - _GAP, left + width + _GAP, top + size + _GAP)
            if self._within.holds(area) and not any(area.meets(other) for other in self._taken):
                self._taken.append(area)
                self.marks.append(text(words, left, top + 0.82 * size, size=size, class_=class_))
                return True
        return False
