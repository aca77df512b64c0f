"""Figures of experiments by matplotlib, in one style, as SVG or PNG."""

import io
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GRAY, GREEN, RED, PURPLE = "#0072b2", "#d55e00", "#777777", "#009e73", "#cc3311", "#aa4499"
"""Colors that the color-blind tell apart [Wong 2011]."""
_WIDEST = 0.8  # of the width of a figure that a title may take, beside the labels of the axis
COLORS = (BLUE, ORANGE, GREEN, PURPLE, RED, GRAY)

_STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "energymodel",  # the same figure is the same file
}


def style() -> Any:
    """A context in which matplotlib draws in the style of the project."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def new_figure(width: float = 6.4, height: float = 4.0) -> "Figure":
    """An empty figure of a size in inches."""
    with style():
        from matplotlib.figure import Figure

        return Figure(figsize=(width, height), layout="constrained")


def add_axes(figure: "Figure", *cell: int) -> Any:
    """Axes of a figure in the style of the project; `cell` as in `Figure.add_subplot`."""
    with style():
        return figure.add_subplot(*cell)


def _wrap_titles(figure: "Figure") -> None:
    """Break titles that are wider than the figure, which would cut them."""
    from matplotlib.text import Text

    titles = [
        text
        for axes in figure.axes
        for text in axes.findobj(Text)
        if text.get_text() and text.get_text() in {axes.get_title(loc=loc) for loc in ("left", "center", "right")}
    ]
    for text in titles:
        text.set_in_layout(False)  # a title that is too wide would leave no width to the axes
    figure.draw_without_rendering()
    for text in titles:
        width, most_wide = text.get_window_extent().width, _WIDEST * figure.bbox.width / _columns(text.axes)
        if width > most_wide:
            lines = text.get_text().splitlines()
            most = max(int(max(map(len, lines)) * most_wide / width), 1)
            text.set_text("\n".join(part for line in lines for part in textwrap.wrap(line, most)))
        text.set_wrap(False)
        text.set_in_layout(True)


def _columns(axes: Any) -> int:
    """Panels beside each other."""
    cell = axes.get_subplotspec()
    return 1 if cell is None else cell.get_gridspec().ncols


def save(figure: "Figure", kind: str) -> bytes:
    """The figure as "svg", "png" or "pdf", without the date of its making."""
    buffer = io.BytesIO()
    metadata: dict[str, None] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with style():
        _wrap_titles(figure)
        figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()
