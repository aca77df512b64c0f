"""Figures of matplotlib: no title is cut."""

import pytest

from energymodel.report.figure import add_axes, new_figure, save


@pytest.mark.parametrize("place", ["left", "center"])
def test_a_long_title_stays_within_the_figure(place):
    axes = add_axes(new_figure(5.0, 3.0))
    title = "Training a model of 1.2 billion parameters on 8 accelerators of the last generation: "
    title += "the lowest energy is 32.1 kWh, the lowest time is 60 days"
    axes.set_title(title, loc=place)
    save(axes.figure, "png")
    (text,) = (one for one in axes.findobj() if hasattr(one, "get_text") and " ".join(one.get_text().split()) == title)
    assert "\n" in text.get_text()
    axes.figure.draw_without_rendering()
    extent, whole = text.get_window_extent(), axes.figure.bbox
    assert whole.x0 <= extent.x0 <= extent.x1 <= whole.x1
    assert extent.y1 <= whole.y1
