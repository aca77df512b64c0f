"""How is a figure drawn and kept: one style, SVG or PNG, with a clear word where matplotlib is missing."""

import io
from typing import TYPE_CHECKING, Any

from energymodel.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GRAY, GREEN, RED, PURPLE = "#0072b2", "#d55e00", "#777777", "#009e73", "#cc3311", "#aa4499"
"""Colors that the color-blind tell apart [Wong 2011]."""
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


def pyplot_figure(width: float, height: float) -> "Figure":
    """An empty figure that pyplot knows, so that notebooks and `pyplot.show` show it.

    **Raises:** as `style`.
    """
    with style():
        from matplotlib import pyplot

        return pyplot.figure(figsize=(width, height), layout="constrained")


def add_axes(figure: "Figure", *place: int) -> Any:
    """Axes of a figure in the style of the project; `place` as in `Figure.add_subplot`."""
    with style():
        return figure.add_subplot(*place)


def save(figure: "Figure", kind: str) -> bytes:
    """The figure as "svg", "png" or "pdf", without the date of its making."""
    buffer = io.BytesIO()
    metadata: dict[str, None] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with style():
        figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InputError('Figures need matplotlib. Install it: pip install "energymodel[plot]".') from None
    return matplotlib
