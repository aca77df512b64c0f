"""PNG, PDF and axes of matplotlib from the project's own SVG."""

import pytest

from energymodel.report import drawing
from energymodel.report.painter import paint, picture
from report.stored_answers import answer

pytest.importorskip("matplotlib", reason="figures need the extra `plot`")


@pytest.mark.parametrize("kind", ["stack", "timeline", "bars", "intervals", "flow"])
def test_every_mark_and_text_is_painted(kind):
    stored = answer("evaluate")
    chart = next(chart for chart in stored.charts if chart.kind == kind)
    svg = drawing.svg(stored, chart, 720.0, heading=True)
    axes = paint(svg)
    assert len(axes.texts) == svg.count("<text ")
    assert len(axes.lines) == svg.count("<line ")
    shapes = sum(svg.count(f"<{tag} ") for tag in ("rect", "path", "circle", "polygon"))
    assert len(axes.patches) == shapes - 2 * svg.count("<pattern ") - svg.count("em-hit")


def test_a_picture_is_the_same_each_time():
    stored = answer("pareto")
    svg = drawing.svg(stored, stored.charts[0], 720.0)
    assert picture(svg, "png").startswith(b"\x89PNG")
    assert picture(svg, "pdf") == picture(svg, "pdf")
