"""Time and size of three charts: the project's own SVG, and Vega-Lite (`pip install altair vl-convert-python`)."""

import importlib
import statistics
import time
from collections.abc import Callable

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.cells import Column, Quantity
from energymodel.report.drawing import svg

PARTS = {"switching": 12.0, "host, fans": 10.0, "leakage": 3.2, "waiting": 2.3, "links": 2.0, "conversion": 1.2}
NAME = Column("name", "", kind="words")
PARTS_TABLE = Table("parts", "", [NAME, Column("y", "energy", "J")], [[n, Quantity(v)] for n, v in PARTS.items()])
BARS = [[name, Quantity(value, 0.8 * value, 1.3 * value)] for name, value in PARTS.items()]
BARS_TABLE = Table("bars", "", PARTS_TABLE.columns, BARS)
POINTS = [(60.0 + day, 30.0 + 200.0 / (day + 3.0)) for day in range(60)]
POINTS_TABLE = Table(
    "points", "", [Column("x", "time"), Column("y", "energy")], [[*map(Quantity, at)] for at in POINTS]
)
CHARTS = {
    "stack": Chart("stack", Sentence("Parts"), "parts", "name", ["y"], axis="energy"),
    "bars": Chart("bars", Sentence("Bars"), "bars", "name", ["y"], axis="energy"),
    "plane": Chart("plane", Sentence("Front"), "points", "x", ["y"], lines=True),
}
ANSWER = Answer("", "", Sentence(""), [], [PARTS_TABLE, BARS_TABLE, POINTS_TABLE], list(CHARTS.values()))


def vega(name: str, width: float) -> str:
    """The chart by Vega-Lite."""
    altair, convert = importlib.import_module("altair"), importlib.import_module("vl_convert")
    rows = [{"name": n, "y": v, "low": 0.8 * v, "high": 1.3 * v} for n, v in PARTS.items()]
    if name == "plane":
        data = altair.Data(values=[{"x": x, "y": y} for x, y in POINTS])
        chart = altair.Chart(data).mark_line(point=True).encode(x="x:Q", y="y:Q", tooltip=["x:Q", "y:Q"])
    elif name == "stack":
        chart = altair.Chart(altair.Data(values=rows)).mark_bar().encode(x="y:Q", color="name:N", tooltip=["name:N"])
    else:
        base = altair.Chart(altair.Data(values=rows)).encode(y="name:N")
        chart = base.mark_bar().encode(x="y:Q") + base.mark_rule().encode(x="low:Q", x2="high:Q")
    return convert.vegalite_to_svg(chart.properties(width=width - 120.0).to_json())


def measure(label: str, draw: Callable[[str, float], str]) -> None:
    """Median of 20 drawings after one, and bytes, for a page and for a telephone."""
    for width in (860.0, 360.0):
        for name in CHARTS:
            size, times = len(draw(name, width).encode()), []
            for _ in range(20):
                started = time.perf_counter()
                draw(name, width)
                times.append(1e3 * (time.perf_counter() - started))
            print(f"{label:6} {name:6} {width:4.0f} px {statistics.median(times):7.2f} ms {size / 1e3:6.1f} kB")


if __name__ == "__main__":
    measure("own", lambda name, width: svg(ANSWER, CHARTS[name], width))
    begun = time.perf_counter()
    vega("stack", 860.0)
    print(f"Vega-Lite: import and first chart {time.perf_counter() - begun:.2f} s")
    measure("Vega", vega)
