"""PNG, PDF and axes of matplotlib from the project's own SVG: matplotlib paints the marks and lays out nothing."""

import functools
import io
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

from energymodel.errors import InputError

HUES = ("#0072b2", "#c24f00", "#007a5a", "#a64d85", "#4d5660")
INK, MUTED, RULE, STRONG = "#1c2126", "#59626b", "#d5dade", "#7b858e"
_MARGIN = 12.0
_INCH = 96.0  # pixels
_POINT = 0.75  # points of a pixel
_LOOKS = {
    "em-rule": (RULE, 1.0, "-"),
    "em-axis": (STRONG, 1.0, "-"),
    "em-limit": (INK, 1.5, (0, (5, 3))),
    "em-whisker": (INK, 1.4, "-"),
}
_COORDINATES = {"M": 2, "L": 2, "H": 1, "V": 1, "C": 6, "Q": 4}


def picture(svg: str, kind: str) -> bytes:
    """A figure as "png" or "pdf"; the same figure is the same file.

    **Raises:** `InputError` where matplotlib is not installed.
    """
    out = io.BytesIO()
    metadata = {"CreationDate": None} if kind == "pdf" else None
    paint(svg).figure.savefig(out, format=kind, dpi=2.0 * _INCH, metadata=metadata)
    return out.getvalue()


def paint(svg: str, axes: Any = None, *, in_pyplot: bool = False) -> Any:
    """A figure on axes of matplotlib, whose coordinates are pixels; on those of a new figure where none are given.

    **Arguments:**

    - `in_pyplot`: whether pyplot knows the new figure, so that a notebook shows it.

    **Raises:** `InputError` where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise InputError('Figures need matplotlib. Install it: pip install "energymodel[plot]".') from None
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    if axes is None:
        size = {"figsize": ((width + 2.0 * _MARGIN) / _INCH, (height + 2.0 * _MARGIN) / _INCH), "facecolor": "white"}
        if in_pyplot:
            from matplotlib import pyplot

            figure: Any = pyplot.figure(**size)
        else:
            figure = Figure(**size)
        axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-_MARGIN, width + _MARGIN), ylim=(height + _MARGIN, -_MARGIN))
    axes.axis("off")
    _paint(root, axes, 0.0, 0.0)
    return axes


def _paint(parent: ElementTree.Element, axes: Any, right: float, down: float) -> None:
    """Marks of an element in the order of the SVG."""
    from matplotlib.patches import Circle, PathPatch, Polygon, Rectangle

    for node in parent:
        tag, classes = node.tag.rpartition("}")[2], (node.get("class") or "").split()
        color = next((HUES[int(name[-1])] for name in classes if name.startswith("em-hue")), INK)
        order = {"zorder": 1.0 + 1e-3 * (len(axes.patches) + len(axes.lines) + len(axes.texts))}
        hatch = "////" if "em-hatched" in classes else None
        alpha = 0.25 if "em-tint" in classes or hatch else 0.4 if "em-flow" in classes else 1.0
        filled = {**order, "facecolor": color, "alpha": alpha, "linewidth": 0.0, "hatch": hatch}
        filled |= {"edgecolor": color} if hatch else {}
        if tag == "g":
            move = re.match(r"translate\(([-\d.]+)[ ,]+([-\d.]+)\)", node.get("transform", ""))
            shift = (float(move[1]), float(move[2])) if move else (0.0, 0.0)
            _paint(node, axes, right + shift[0], down + shift[1])
        elif "em-hit" in classes:
            continue
        elif tag == "rect":
            x, y, width, height = (float(node.get(name, 0.0)) for name in ("x", "y", "width", "height"))
            axes.add_patch(Rectangle((x + right, y + down), width, height, **filled))
        elif tag == "circle":
            x, y, radius = (float(node.get(name, 0.0)) for name in ("cx", "cy", "r"))
            axes.add_patch(Circle((x + right, y + down), radius, **filled))
        elif tag == "polygon":
            pairs = [pair.split(",") for pair in (node.get("points") or "").split()]
            axes.add_patch(Polygon([(float(x) + right, float(y) + down) for x, y in pairs], **filled))
        elif tag == "line":
            x1, x2, y1, y2 = (float(node.get(name, 0.0)) for name in ("x1", "x2", "y1", "y2"))
            look = next((_LOOKS[name] for name in classes if name in _LOOKS), (color, 2.0, "-"))
            line = {**order, "color": look[0], "linewidth": _POINT * look[1], "linestyle": look[2]}
            axes.plot([x1 + right, x2 + right], [y1 + down, y2 + down], **line)
        elif tag == "path":
            outline = {"facecolor": "none", "edgecolor": color, "linewidth": 1.5, "linestyle": _dashes(node)}
            look = {**order, **outline} if "em-line" in classes else filled
            axes.add_patch(PathPatch(_path(node.get("d") or "", right, down), **look))
        elif tag == "text":
            _write(node, axes, right, down, classes, order)


def _dashes(node: ElementTree.Element) -> Any:
    dashes = [_POINT * float(length) for length in (node.get("stroke-dasharray") or "").split()]
    return (0, dashes) if dashes else "-"


def _write(
    node: ElementTree.Element, axes: Any, right: float, down: float, classes: list[str], order: dict[str, float]
) -> None:
    x, y, size = (float(node.get(name, usual)) for name, usual in (("x", 0.0), ("y", 0.0), ("font-size", 12.0)))
    family, fits = _font()
    look: dict[str, Any] = {
        "ha": {"middle": "center", "end": "right"}.get(node.get("text-anchor", ""), "left"),
        "color": "white" if "em-on" in classes else MUTED if "em-muted" in classes else INK,
        "weight": "bold" if {"em-bold", "em-title"} & set(classes) else "normal",
        "family": [family],
        "parse_math": False,
    }
    axes.text(
        x + right, y + down, "".join(node.itertext()), va="baseline", fontsize=fits * _POINT * size, **look, **order
    )


@functools.cache
def _font() -> tuple[str, float]:
    """A font with the measures of Helvetica, for which labels are laid out; else a wider one, and how much smaller."""
    from matplotlib.font_manager import fontManager

    names = {font.name for font in fontManager.ttflist}
    installed = [name for name in ("Liberation Sans", "Arial", "Helvetica") if name in names]
    return (installed[0], 1.0) if installed else ("DejaVu Sans", 0.9)


def _path(data: str, right: float, down: float) -> Any:
    """The path of matplotlib for that of an SVG."""
    from matplotlib.path import Path

    points: list[tuple[float, float]] = []
    codes: list[Any] = []
    x, y = 0.0, 0.0
    tokens = re.findall(r"[A-Za-z]|-?[\d.]+(?:e-?\d+)?", data)
    letter, start = "M", 0
    while start < len(tokens):
        if tokens[start].isalpha():
            letter, start = tokens[start], start + 1
        if letter in "zZ":
            points.append((x + right, y + down))
            codes.append(Path.CLOSEPOLY)
            continue
        count = _COORDINATES[letter.upper()]
        numbers, start = [float(token) for token in tokens[start : start + count]], start + count
        if letter in "Hh":
            numbers = [numbers[0], y if letter == "H" else 0.0]
        elif letter in "Vv":
            numbers = [x if letter == "V" else 0.0, numbers[0]]
        from_x, from_y = (0.0, 0.0) if letter.isupper() else (x, y)
        pairs = [(a + from_x, b + from_y) for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
        points += [(a + right, b + down) for a, b in pairs]
        code = {"M": Path.MOVETO, "C": Path.CURVE4, "Q": Path.CURVE3}.get(letter.upper(), Path.LINETO)
        codes += [code] * len(pairs)
        x, y = pairs[-1]
        letter = {"M": "L", "m": "l"}.get(letter, letter)
    return Path(points, codes)
