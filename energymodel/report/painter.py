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
        if in_pyplot:
            from matplotlib.pyplot import figure as new
        else:
            new: Any = Figure
        size = ((width + 2.0 * _MARGIN) / _INCH, (height + 2.0 * _MARGIN) / _INCH)
        axes = new(figsize=size, facecolor="white").add_axes((0, 0, 1, 1))
    axes.set(xlim=(-_MARGIN, width + _MARGIN), ylim=(height + _MARGIN, -_MARGIN))
    axes.axis("off")
    _paint(root, axes, 0.0, 0.0)
    return axes


def _paint(parent: ElementTree.Element, axes: Any, right: float, down: float) -> None:
    """Marks of an element in the order of the SVG."""
    from matplotlib.patches import Circle, PathPatch, Polygon, Rectangle

    for node in parent:
        tag, classes = node.tag.rpartition("}")[2], (node.get("class") or "").split()
        if tag == "g":
            move = re.match(r"translate\(([-\d.]+)[ ,]+([-\d.]+)\)", node.get("transform", ""))
            shift = (float(move[1]), float(move[2])) if move else (0.0, 0.0)
            _paint(node, axes, right + shift[0], down + shift[1])
        if "em-hit" in classes:
            continue
        numbers = {name: float(node.get(name, 0.0)) for name in ("x", "y", "width", "height", "cx", "cy", "r")}
        color = next((HUES[int(name[-1])] for name in classes if name.startswith("em-hue")), INK)
        order = {"zorder": 1.0 + 1e-3 * (len(axes.patches) + len(axes.lines) + len(axes.texts))}
        hatch = "////" if "em-hatched" in classes else None
        alpha = 0.25 if "em-tint" in classes or hatch else 0.4 if "em-flow" in classes else 1.0
        filled = {**order, "facecolor": color, "alpha": alpha, "linewidth": 0.0, "hatch": hatch}
        filled |= {"edgecolor": color} if hatch else {}
        if tag == "rect":
            corner = (numbers["x"] + right, numbers["y"] + down)
            axes.add_patch(Rectangle(corner, numbers["width"], numbers["height"], **filled))
        elif tag == "circle":
            axes.add_patch(Circle((numbers["cx"] + right, numbers["cy"] + down), numbers["r"], **filled))
        elif tag == "polygon":
            pairs = [pair.split(",") for pair in (node.get("points") or "").split()]
            axes.add_patch(Polygon([(float(x) + right, float(y) + down) for x, y in pairs], **filled))
        elif tag == "line":
            x1, x2, y1, y2 = (float(node.get(name, 0.0)) for name in ("x1", "x2", "y1", "y2"))
            stroke, wide, style = next((_LOOKS[name] for name in classes if name in _LOOKS), (color, 2.0, "-"))
            look = {"color": stroke, "linewidth": _POINT * wide, "linestyle": style}
            axes.plot([x1 + right, x2 + right], [y1 + down, y2 + down], **look, **order)
        elif tag == "path":
            dashes = [_POINT * float(length) for length in (node.get("stroke-dasharray") or "").split()]
            style = (0, dashes) if dashes else "-"
            outline = {**order, "facecolor": "none", "edgecolor": color, "linewidth": 1.5, "linestyle": style}
            look = outline if "em-line" in classes else filled
            axes.add_patch(PathPatch(_path(node.get("d") or "", right, down), **look))
        elif tag == "text":
            family, fits = _font()
            look = {
                "ha": {"middle": "center", "end": "right"}.get(node.get("text-anchor", ""), "left"),
                "va": "baseline",
                "color": "white" if "em-on" in classes else MUTED if "em-muted" in classes else INK,
                "weight": "bold" if {"em-bold", "em-title"} & set(classes) else "normal",
                "family": [family],
                "fontsize": fits * _POINT * float(node.get("font-size", 12.0)),
                "parse_math": False,
            }
            axes.text(numbers["x"] + right, numbers["y"] + down, "".join(node.itertext()), **look, **order)


@functools.cache
def _font() -> tuple[str, float]:
    """A font with the measures of Helvetica, for which labels are laid out; else a wider one, and how much smaller."""
    from matplotlib.font_manager import fontManager

    names = {font.name for font in fontManager.ttflist}
    installed = [name for name in ("Liberation Sans", "Arial", "Helvetica") if name in names]
    return (installed[0], 1.0) if installed else ("DejaVu Sans", 0.9)


def _path(data: str, right: float, down: float) -> Any:
    """The path of matplotlib for that of a mark, which has M, L, C, h, v and z alone."""
    from matplotlib.path import Path

    kinds = {"M": Path.MOVETO, "C": Path.CURVE4, "z": Path.CLOSEPOLY}
    points: list[tuple[float, float]] = []
    codes: list[Any] = []
    for letter, words in re.findall(r"([MLChvz])([^MLChvz]*)", data):
        numbers = [float(word) for word in words.split()]
        x, y = points[-1] if points else (right, down)
        pairs = [(a + right, b + down) for a, b in zip(numbers[::2], numbers[1::2], strict=False)]
        pairs = {"h": [(x + sum(numbers), y)], "v": [(x, y + sum(numbers))], "z": [(x, y)]}.get(letter, pairs)
        points += pairs
        codes += [kinds.get(letter, Path.LINETO)] * len(pairs)
    return Path(points, codes)
