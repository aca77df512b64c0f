"""Every chart: its text is escaped, readable, inside the picture and beside other text; its table holds the data."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from energymodel.report.charts import Axis, Lines, Point, Sankey, Series, StackedBars, figure_html
from energymodel.report.charts.labels import Area
from energymodel.report.charts.text_width import text_width
from report.charts.chart_examples import DAY, EXAMPLES, GWH, PARTS

SVG = "{http://www.w3.org/2000/svg}"
WIDTHS = (320.0, 400.0, 720.0, 1100.0)


def shift(group: ElementTree.Element) -> float:
    found = re.fullmatch(r"translate\(0 ([-\d.]+)\)", group.get("transform", ""))
    return float(found[1]) if found else 0.0


def texts(svg: ElementTree.Element) -> Iterator[tuple[str, Area]]:
    """Each text with the area that it covers, without the room above and below its letters."""
    groups = [(0.0, one) for one in svg if one.tag == f"{SVG}text"]
    groups += [(shift(group), one) for group in svg.iter(f"{SVG}g") for one in group.iter(f"{SVG}text")]
    for down, one in groups:
        words, size = one.text or "", float(one.get("font-size", "12"))
        wide = text_width(words, size) / 1.04
        left = (
            float(one.get("x", "0")) - {"start": 0.0, "middle": 0.5, "end": 1.0}[one.get("text-anchor", "start")] * wide
        )
        base = float(one.get("y", "0")) + down
        yield words, Area(left, base - 0.72 * size, left + wide, base)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_text_is_inside_and_does_not_overlap(name: str, width: float):
    svg = ElementTree.fromstring(EXAMPLES[name].svg(width, heading=True))
    _, _, wide, tall = map(float, svg.get("viewBox", "").split())
    assert wide == width
    placed = list(texts(svg))
    assert len(placed) >= 4
    for words, area in placed:
        assert Area(-0.5, 0.0, wide + 0.5, tall).holds(area), words
    for place, (words, area) in enumerate(placed):
        for others, other in placed[place + 1 :]:
            assert not area.meets(other), (words, others)


@pytest.mark.parametrize("name", EXAMPLES)
def test_hostile_text_stays_text(name: str):
    markup = figure_html(EXAMPLES[name])
    assert "<script" not in markup
    assert "\u202e" not in markup
    assert "style=" not in markup  # a content security policy without unsafe-inline refuses it
    assert not re.search(r"(?:href|src)=", markup)
    # only the name of the format itself is an address
    assert set(re.findall(r"https?://[^\"]+", markup)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_everyone_learns_what_a_chart_says(name: str):
    chart = EXAMPLES[name]
    svg = ElementTree.fromstring(chart.svg())
    assert svg.get("role") == "img"
    assert svg[0].tag == f"{SVG}title"
    assert svg[0].text
    assert svg[1].tag == f"{SVG}desc"
    assert len(svg[1].text or "") > 20
    head, *rows = chart.rows()
    assert rows
    assert all(len(row) == len(head) for row in rows)


@pytest.mark.parametrize("name", EXAMPLES)
def test_names_of_hatches_differ_between_drawings(name: str):
    markup = figure_html(EXAMPLES[name])
    names = re.findall(r' id="([^"]+)"', markup)
    assert len(names) == len(set(names))
    assert set(re.findall(r"url\(#([^)]+)\)", markup)) == set(names)


def test_parts_add_up_to_the_bar():
    chart = EXAMPLES["stacked"]
    assert isinstance(chart, StackedBars)
    *parts, total = chart.table().rows
    values = [row[1] for row in parts]
    assert total[1] == pytest.approx(sum(value for value in values if isinstance(value, float)))
    # 12 + 3.2 + 0.02 + 2 + 10 + 2.3 + 1.2 + 0.9 + 0.9
    assert total[1] == pytest.approx(32.52 * GWH)
    assert len(parts) == len(PARTS) - 1  # what is nothing is left out


def test_widths_of_a_bar_are_in_proportion():
    chart = StackedBars("t", "J", (EXAMPLES["stacked"].bars[1],))  # pyright: ignore[reportAttributeAccessIssue]
    svg = ElementTree.fromstring(chart.svg(714.0))
    boxes = [one for one in svg.iter(f"{SVG}rect") if one.get("height") == "26"]
    # 700 px for 32.52 GWh; the gap of 0.8 px after a part is white
    assert float(boxes[0].get("width", "0")) + 0.8 == pytest.approx(700.0 * 12.0 / 32.52, abs=0.02)


def test_bands_of_a_stream_keep_its_width():
    chart = EXAMPLES["sankey"]
    assert isinstance(chart, Sankey)
    svg = ElementTree.fromstring(chart.svg())
    bands = [one for one in svg.iter(f"{SVG}path") if "em-flow" in one.get("class", "")]
    tall = [float(re.findall(r"v([-\d.]+)C", one.get("d", ""))[0]) for one in bands]
    # the stream of 30.52 GWh is 190 px tall; its three parts are 17.52, 10 and 3
    assert tall[0] == pytest.approx(190.0 * 17.52 / 30.52, abs=0.01)
    assert tall[0] + tall[5] + tall[6] == pytest.approx(190.0, abs=0.02)


def test_points_without_a_place_are_left_out():
    points = (Point(1.0, 1.0), Point(10.0, 0.0), Point(100.0, float("nan")), Point(1000.0, 5.0))
    chart = Lines("t", Axis("x", log=True), Axis("y", log=True), (Series("s", points, "points"),))
    svg = ElementTree.fromstring(chart.svg())
    assert len(list(svg.iter(f"{SVG}circle"))) == 2
    assert len(chart.table().rows) == 4


def test_csv_has_all_digits_in_si():
    day = DAY / 3.0
    chart = Lines("t", Axis("time", "s"), Axis("energy", "J"), (Series("s", (Point(day, 1.0 / 3.0),)),))
    assert chart.table().csv() == f"series,time [s],energy [J]\ns,28800.0,{1.0 / 3.0}\n"
    assert 'data-csv="0.3333333333333333"' in chart.table().html()


def test_an_empty_chart_is_drawn():
    for chart in (StackedBars("t", "J", ()), Sankey("t", "J", ()), Lines("t", Axis("x"), Axis("y"), ())):
        assert ElementTree.fromstring(chart.svg()).tag.endswith("svg")
