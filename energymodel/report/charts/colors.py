"""By which classes do series differ: five colors, then the same hatched, and dashes for lines?"""

from energymodel.report.charts.svg import element

HUES = 5
_DASHES = (None, "7 3", "2 3", "9 3 2 3", "12 4")


def hue(index: int) -> str:
    """Class that sets the color of a series."""
    return f"em-hue{index % HUES}"


def is_hatched(index: int) -> bool:
    """Whether the areas of a series are hatched, since its color is taken already."""
    return index % (2 * HUES) >= HUES


def dash(index: int) -> str | None:
    """Dashes of the line of a series, so that it is told from others without its color."""
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
        place = index % HUES
        self._needed.add(place)
        return f"em-hatched {hue(index)}", f"url(#{self._prefix}-{place})"

    def definitions(self) -> str:
        """The hatches that were used."""
        if not self._needed:
            return ""
        return element("defs", *(self._pattern(place) for place in sorted(self._needed)))

    def _pattern(self, place: int) -> str:
        back = element("rect", width=5, height=5, class_=f"em-tint {hue(place)}")
        stripe = element("rect", width=2, height=5, class_=f"em-area {hue(place)}")
        look = {"width": 5, "height": 5, "patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
        return element("pattern", back, stripe, id=f"{self._prefix}-{place}", **look)
