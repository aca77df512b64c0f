"""Every kind of chart: its text is escaped, readable, inside the picture and beside other text."""

import html
import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

import pytest

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.cells import Cell, Column, Quantity
from energymodel.report.charts.words import Area, text_width
from energymodel.report.drawing import svg
from energymodel.report.page import figure

SVG = "{http://www.w3.org/2000/svg}"
WIDTHS = (320.0, 400.0, 720.0, 1100.0)
GWH, DAY = 3.6e12, 86_400.0
HOSTILE = '<script>alert("x")</script> \u202ereversed\u202c & more'
PARTS = {
    "switching": 12.0,
    "leakage and fixed power, busy": 3.2,
    "memory traffic": 0.02,
    "links and switches": 2.0,
    "host, fans, network cards": 10.0,
    "waiting chips": 2.3,
    "power conversion": 1.2,
    "cooling": 0.9,
    "lighting, offices, other": 0.9,
    "nothing": 0.0,
}
WORDS, ENERGY = Column("name", "", kind="words"), Column("energy", "own plan", "J", digits="two")
FOUND = Column("found", HOSTILE, "J", digits="two")


def example(
    kind: str, title: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], y: Sequence[str], **more
) -> Answer:
    chart = Chart(kind, Sentence(title), "table", y=y, **{"x": "name", "subtitle": "Energy of the run", **more})
    return Answer("example", "", Sentence(""), [], [Table("table", "", columns, rows)], [chart])


def q(value: float, low: float | None = None, high: float | None = None) -> Quantity:
    return Quantity(value * GWH, low and low * GWH, high and high * GWH)


def stacked(*columns: Column) -> Answer:
    rows = [[name, *(q(value * 0.9**index) for index, _ in enumerate(columns))] for name, value in PARTS.items()]
    names = [column.name for column in columns]
    return example("stack", "Switching takes 37 %", [WORDS, *columns], rows, names, axis="energy")


def plane(title: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], **more) -> Answer:
    names = {"series": "name"} if columns[0].kind == "words" else {}
    return example("plane", title, columns, rows, [columns[-1].name], x=columns[-2].name, **names, **more)


def front() -> Answer:
    days = [60.0 + day for day in range(30)]
    rows: list[list[Cell]] = [
        ["front", "knee" if day == 68.0 else "", Quantity(day * DAY), q(e, 0.9 * e, 1.1 * e)]
        for day in days
        for e in [30.0 + 200.0 / (day - 57.0)]
    ]
    rows += [[HOSTILE, "own plan", Quantity(75 * DAY), q(45)], [HOSTILE, "neighbor", Quantity(75.4 * DAY), q(45.5)]]
    columns = [WORDS, Column("label", "", kind="words"), Column("time", "time", "s"), Column("energy", "energy", "J")]
    return plane("A day less costs 1 % energy", columns, rows, label="label", limit=(50 * GWH, "energy limit"))


def roofline() -> Answer:
    roof = [(0.1, 0.335), (1.0, 3.35), (10.0, 33.5), (295.0, 989.0), (10_000.0, 989.0)]
    columns = [Column("intensity", "arithmetic intensity", "FLOP/B"), Column("rate", "rate", "FLOP/s")]
    rows = [[Quantity(x), Quantity(1e12 * y)] for x, y in roof]
    level = (295.0, "ridge", "x")
    return plane("Computation is the limit", columns, rows, log=["intensity", "rate"], lines=True, limit=level)


def tornado() -> Answer:
    long = "system.accelerator.a_name_that_is_much_longer_than_the_space_for_it_left_of_the_bars"
    rows: list[list[Cell]] = [
        ["system.accelerator.voltage.knee", Quantity(-0.12), Quantity(0.15)],
        [long, Quantity(0.05), Quantity(0.08)],
        ["system.facility.cooling.fan_power", Quantity(-0.02), Quantity(0.01)],
    ]
    columns = [WORDS, *(Column(end, f"at its {end} end", kind="change") for end in ("low", "high"))]
    return example("tornado", "The voltage knee moves energy most", columns, rows, ["low", "high"])


def intervals() -> Answer:
    rows = [
        ["energy", q(26, 22, 31)],
        ["multiple of the Landauer limit", Quantity(3e7, 5e6, 2.3e8, unit="1")],
        ["carbon", q(3, 2, 5)],
    ]
    return example("intervals", "Energy is known within 19 %", [WORDS, Column("value", "", "J")], rows, ["value"])


def sankey() -> Answer:
    chips = {name: PARTS[name] for name in ("switching", "leakage and fixed power, busy", "memory traffic")}
    building = {name: PARTS[name] for name in ("power conversion", "cooling", "lighting, offices, other")}
    stream = [("grid", "chips", sum(chips.values())), *(("chips", *pair) for pair in chips.items())]
    stream += [("grid", "host, fans, network cards", 10.0), ("grid", "building", sum(building.values()))]
    stream += [("building", *pair) for pair in building.items()]
    columns = [WORDS, Column("to", "", kind="words"), ENERGY]
    rows = [[source, target, q(value)] for source, target, value in stream]
    return example("flow", "Switching takes 43 % of the energy", columns, rows, ["energy"], series="to")


def timeline() -> Answer:
    columns = [Column("kind", "", kind="words"), *(Column(name, "") for name in ("rank", "start", "end"))]
    columns += [Column("lane", ""), Column("lanes", "")]
    rows = [
        ["forward" if turn % 2 == 0 else "backward", *map(Quantity, (rank, start, start + 0.025, 0.0, 1.0))]
        for rank in range(8)
        for turn in range(40)
        for start in [0.01 * rank + 0.03 * turn]
    ]
    return example("timeline", "The mean rank waits 22 % of the time", columns, rows, [])


def grouped() -> Answer:
    rows = [[name, q(value, 0.8 * value, 1.3 * value), q(0.9 * value)] for name, value in PARTS.items()]
    limit = (12.5 * GWH, "what was asked for")
    columns = [WORDS, Column("own", "own plan", "J"), FOUND]
    return example("bars", "Hosts save most", columns, rows, ["own", "found"], axis="energy", limit=limit)


def ladder() -> Answer:
    steps = [("coolant supply", 298.0, 298.0), ("coolant to package", 298.0, 330.0), ("hot spot", 330.0, 345.0)]
    kelvins = [Column(name, "", "K", "temperature") for name in ("from", "to")]
    rows = [[name, *map(Quantity, ends), f"{ends[1] - ends[0]} K"] for name, *ends in steps]
    columns = [WORDS, *kelvins, Column("rise", "", kind="words")]
    more = {"axis": "temperature", "base": "from", "label": "rise", "limit": (340.0, "limit 67 °C")}
    return example("bars", "The chip is 5 K above its limit", columns, rows, ["to"], **more)


EXAMPLES = {
    "stacked": stacked(ENERGY, FOUND),
    "one bar": stacked(FOUND),
    "grouped": grouped(),
    "ladder": ladder(),
    "sankey": sankey(),
    "front": front(),
    "roofline": roofline(),
    "tornado": tornado(),
    "intervals": intervals(),
    "timeline": timeline(),
}


def drawing(name: str, width: float = 720.0, *, heading: bool = False) -> ElementTree.Element:
    answer = EXAMPLES[name]
    return ElementTree.fromstring(svg(answer, answer.charts[0], width, heading=heading))


def texts(root: ElementTree.Element) -> Iterator[tuple[str, Area]]:
    """Each text with the area that it covers, without the margin above and below its letters."""
    groups = [(0.0, node) for node in root if node.tag == f"{SVG}text"]
    for group in root.iter(f"{SVG}g"):
        down = re.fullmatch(r"translate\(0 ([-\d.]+)\)", group.get("transform", ""))
        groups += [(float(down[1]) if down else 0.0, node) for node in group.iter(f"{SVG}text")]
    for down, node in groups:
        words, size = node.text or "", float(node.get("font-size", "12"))
        wide = text_width(words, size) / 1.04
        side = {"start": 0.0, "middle": 0.5, "end": 1.0}[node.get("text-anchor", "start")]
        left, base = float(node.get("x", "0")) - side * wide, float(node.get("y", "0")) + down
        yield words, Area(left, base - 0.72 * size, left + wide, base)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_text_is_inside_and_does_not_overlap(name: str, width: float):
    root = drawing(name, width, heading=True)
    _, _, wide, tall = map(float, root.get("viewBox", "").split())
    assert wide == width
    areas = list(texts(root))
    assert len(areas) >= 4
    for words, area in areas:
        assert Area(-0.5, 0.0, wide + 0.5, tall).holds(area), words
    for index, (words, area) in enumerate(areas):
        for others, other in areas[index + 1 :]:
            assert not area.meets(other), (words, others)


@pytest.mark.parametrize("name", EXAMPLES)
def test_hostile_text_stays_text_and_everyone_learns_what_a_chart_says(name: str):
    answer = EXAMPLES[name]
    markup = figure(answer, answer.charts[0])
    assert "<script" not in markup
    assert "\u202e" not in markup
    assert "style=" not in markup  # a content security policy without unsafe-inline refuses it
    assert not re.search(r"(?:href|src)=", markup)
    # only the name of the format itself is an address
    assert set(re.findall(r"https?://[^\"]+", markup)) == {"http://www.w3.org/2000/svg"}
    root = drawing(name)
    assert root.get("role") == "img"
    assert [node.tag for node in root[:2]] == [f"{SVG}title", f"{SVG}desc"]
    assert root[0].text
    assert (root[1].text or "").startswith("Energy of the run")
    ids = re.findall(r' id="([^"]+)"', markup)  # of hatches, which differ between drawings
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", markup)) == set(ids)


def test_widths_of_a_bar_are_in_proportion():
    answer = EXAMPLES["one bar"]
    root = ElementTree.fromstring(svg(answer, answer.charts[0], 714.0))
    boxes = [node for node in root.iter(f"{SVG}rect") if node.get("height") == "26"]
    # 700 px for 32.52 GWh = 12 + 3.2 + 0.02 + 2 + 10 + 2.3 + 1.2 + 0.9 + 0.9; the gap of 0.8 px after a part is white
    assert float(boxes[0].get("width", "0")) + 0.8 == pytest.approx(700.0 * 12.0 / 32.52, abs=0.02)
    assert len(boxes) == len(PARTS) - 1  # what is nothing is left out
    assert any(node.text == "33 GWh" for node in root.iter(f"{SVG}text"))


def test_bands_of_a_stream_keep_its_width():
    bands = [node for node in drawing("sankey").iter(f"{SVG}path") if "em-flow" in node.get("class", "")]
    tall = [float(re.findall(r"v([-\d.]+)C", node.get("d", ""))[0]) for node in bands]
    # the stream of 28.22 GWh is 190 px tall; its three parts are 15.22, 10 and 3
    assert tall[0] == pytest.approx(190.0 * 15.22 / 28.22, abs=0.01)
    assert tall[0] + tall[4] + tall[5] == pytest.approx(190.0, abs=0.02)


def test_a_bar_beyond_the_limit_has_another_color_and_one_of_nothing_is_seen():
    bars = [node for node in drawing("ladder").iter(f"{SVG}rect") if "em-area" in node.get("class", "")]
    assert [node.get("class") for node in bars] == ["em-area em-hue0", "em-area em-hue0", "em-area em-hue1"]
    assert float(bars[0].get("width", "0")) == 6.0


def test_points_without_a_number_are_left_out_and_unmarked_lines_have_bands():
    columns = [Column("x", "x"), Column("y", "y"), Column("plan", "", kind="words")]
    numbers = [(1.0, 1.0), (10.0, 2.0), (100.0, float("nan")), (1000.0, 5.0)]
    rows = [[Quantity(x), Quantity(y, 0.9 * y, 1.1 * y), ""] for x, y in numbers]
    for lines, hover, circles, bands in ((False, [], 3, 0), (True, [], 3, 0), (True, ["plan"], 0, 1)):
        table = Table("table", "", columns, rows)
        chart = Chart("plane", Sentence("t"), "table", "x", ["y"], lines=lines, hover=hover)
        markup = svg(Answer("", "", Sentence(""), [], [table], [chart]), chart)
        assert (markup.count("<circle"), markup.count("em-tint")) == (circles, bands)


def test_an_empty_chart_is_drawn():
    for kind in ("stack", "flow", "plane", "intervals", "bars"):
        answer = example(
            kind, "t", [WORDS, ENERGY], [], ["energy"], series="name", x="energy" if kind == "plane" else "name"
        )
        assert ElementTree.fromstring(svg(answer, answer.charts[0])).tag.endswith("svg")


def test_hover_has_the_words_of_the_table():
    assert "coolant to package: 32.0 K" in html.unescape("".join(drawing("ladder").itertext()))
