"""How does the effect of each number's uncertainty look: a tornado diagram?"""

import math
from typing import TYPE_CHECKING

from energymodel.report.figure import BLUE, ORANGE, add_axes, new_figure
from energymodel.search.sensitivity import SHARES, Sensitivity
from energymodel.units import format_quantity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BARS = 15


def tornado(found: Sensitivity, output: str | None = None, bars: int = BARS) -> "Figure":
    """Changes of an output, by default the first, at the 5 % and 95 % quantiles of the numbers that move it most.

    **Raises:** `InputError` that names the extra if matplotlib is not installed.
    """
    name = output or next(iter(found.values))
    rows = [row for row in found.by_uncertainty(name) if 0.0 < row.size(name, found.values[name]) < math.inf][:bars]
    figure = new_figure(9.0, 1.5 + 0.32 * max(1, len(rows)))
    axes = add_axes(figure)
    places = range(len(rows))
    for end, color in enumerate((BLUE, ORANGE)):
        widths = [100.0 * row.changes(name, found.values[name])[end] for row in rows]
        bar = axes.barh(places, widths, height=0.7, color=color, label=f"at its {100 * SHARES[end]:g} % quantile")
        ends = [row.low if end == 0 else row.high for row in rows]
        words = [
            "" if one is None else format_quantity(one, row.unit, digits=3, difference=row.is_difference)
            for one, row in zip(ends, rows, strict=True)
        ]
        axes.bar_label(bar, words, padding=3, fontsize=7)
    axes.set_yticks(list(places), [row.path for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.margins(x=0.15)
    axes.grid(visible=False, axis="y")
    what = f"the lowest {name}" if found.optimum else name.replace("_", " ")
    axes.set_xlabel(f"change of {what} [%]")
    value = format_quantity(found.values[name], found.units[name])
    axes.set_title(f"{found.scenario.title}: {what} {value}", loc="left")
    axes.legend(fontsize=8, loc="lower right")
    return figure
