"""How is a figure drawn and kept: one style, SVG or PNG, with a clear word where matplotlib is missing."""

import io
import textwrap
from typing import TYPE_CHECKING, Any

from energymodel.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GRAY, GREEN, RED, PURPLE = "#0072b2", "#d55e00", "#777777", "#009e73", "#cc3311", "#aa4499"
"""Colors that the color-blind tell apart [Wong 2011]."""
_ROOM = 0.8  # of the width of a figure that a title may take, beside the labels of the axis
COLORS = (BLUE, ORANGE, GREEN, PURPLE, RED, GRAY)

_STYLE = {
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
    """A context in which matplotlib draws in the style of the project.

    **Raises:** `InputError` that names the extra, where matplotlib is not installed.
    """
    return _matplotlib().rc_context(_STYLE)


def new_figure(width: float = 6.4, height: float = 4.0) -> "Figure":
    """An empty figure of a size in inches.

    **Raises:** as `style`.
    """
    with style():
        from matplotlib.figure import Figure

        return Figure(figsize=(width, height), layout="constrained")


def add_axes(figure: "Figure", *place: int) -> Any:
    """Axes of a figure in the style of the project; `place` as in `Figure.add_subplot`."""
    with style():
        return figure.add_subplot(*place)


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
        text.set_in_layout(False)  # a title that is too wide would leave the axes no room
    figure.draw_without_rendering()
    for text in titles:
        width, room = text.get_window_extent().width, _ROOM * figure.bbox.width / _columns(text.axes)
        if width > room:
            lines = text.get_text().splitlines()
            most = max(int(max(map(len, lines)) * room / width), 1)
            text.set_text("\n".join(part for line in lines for part in textwrap.wrap(line, most)))
        text.set_wrap(False)
        text.set_in_layout(True)


def _columns(axes: Any) -> int:
    """Panels beside each other."""
    place = axes.get_subplotspec()
    return 1 if place is None else place.get_gridspec().ncols


def save(figure: "Figure", kind: str) -> bytes:
    """The figure as "svg", "png" or "pdf", without the date of its making."""
    buffer = io.BytesIO()
    metadata: dict[str, None] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with style():
        _wrap_titles(figure)
        figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InputError('Figures need matplotlib. Install it: pip install "energymodel[plot]".') from None
    return matplotlib
