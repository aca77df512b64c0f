"""How wide is a text, where does it break, and what remains of it in a given width?"""

from collections.abc import Iterable

SIZE = 12.0
"""Usual size of text in a chart [px]."""
_MARGIN = 1.06  # fonts that stand in for Helvetica are up to 6 % wider: DejaVu Sans Condensed
# Advance widths of Helvetica in thousandths of its size, from its font metrics; characters of a width together.
_WIDTHS = {
    222: "ijl'’‘|",
    278: " !,./:;[]\\ftI·",
    333: '-()`r"°',
    389: "*^",
    500: "ckvxyszJ",
    556: "0123456789abdeghnopqu#$_?Lµ€",
    584: "+<=>~×÷−±",
    611: "FTZ",
    667: "ABEKPSVXY&",
    722: "CDHNRUw",
    778: "GOQ",
    833: "mM",
    889: "%",
    944: "W",
    1000: "—…†@→",
}
_WIDTH_OF = {letter: width for width, letters in _WIDTHS.items() for letter in letters}
_OTHERS = 640  # letters with accents and what else is about as wide as a capital
_WIDE = 1000  # Chinese, Japanese and Korean characters are square
_FIRST_WIDE = "\u2e80"
_BOLD = 1.07
ELLIPSIS = "…"


def text_width(text: str, size: float = SIZE, *, bold: bool = False) -> float:
    """Width of a line in Helvetica or a font of its measures [px]."""
    units = sum(_WIDTH_OF.get(letter, _WIDE if letter >= _FIRST_WIDE else _OTHERS) for letter in text)
    return _MARGIN * units * size / 1000.0 * (_BOLD if bold else 1.0)


def widest(texts: Iterable[str], size: float = SIZE) -> float:
    """Width of the longest of some lines [px]; 0 without any."""
    return max((text_width(one, size) for one in texts), default=0.0)


def shortened(text: str, width: float, size: float = SIZE) -> str:
    """As much of a text as fits, with an ellipsis; empty where not even three letters do."""
    if text_width(text, size) <= width:
        return text
    kept = len(text)
    while kept > 0 and text_width(text[:kept].rstrip() + ELLIPSIS, size) > width:
        kept -= 1
    return text[:kept].rstrip() + ELLIPSIS if kept >= 3 else ""


def wrapped(text: str, width: float, size: float = SIZE, *, bold: bool = False) -> list[str]:
    """Lines of a text, broken between words; a word that is too long alone is shortened."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold=bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return [shortened(one, width, size) if text_width(one, size) > width else one for one in lines]
