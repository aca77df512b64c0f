"""How do readings, limits, pinned plans and controls become the HTML that the page shows?"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from energymodel.explorer.knobs import Knob
from energymodel.explorer.layout_choice import DEGREES, FORMAT, RECOMPUTATION, SHARDING
from energymodel.explorer.readings import Reading, Room, change, fields_of, read
from energymodel.explorer.view import View
from energymodel.report.charts import AbstractChart
from energymodel.report.charts.svg import element, escape
from energymodel.report.number import PRIOR_MARK

STEPS = 1000
"""Steps of a slider."""
_LAYOUT_LABELS = {**DEGREES, SHARDING: "ZeRO stage", RECOMPUTATION: "Recomputation", FORMAT: "Products in fp8"}


class Plan(NamedTuple):
    """A plan to compare: its name, the values that differ from the scenario's, its layout and its view."""

    name: str
    values: Mapping[str, float]
    layout: Mapping[str, str]
    view: View


def outcome_html(shown: Sequence[Reading]) -> str:
    """Readings as tiles, the first four larger."""
    tiles = []
    for place, one in enumerate(shown):
        interval = element("span", f"90 %: {escape(one.interval)}", class_="interval") if one.interval else ""
        value = element("span", escape(one.value), class_="value")
        changed = element("span", escape(one.change), class_="change") if one.change else ""
        words = element("dd", value, changed, interval)
        tiles.append(
            element(
                "div", element("dt", escape(sentence_case(one.title))), words, class_="main" if place < 4 else "more"
            )
        )
    return element("dl", *tiles, class_="tiles")


def sentence_case(words: str) -> str:
    """Words with a capital in front."""
    return words[:1].upper() + words[1:]


def strip_html(shown: Sequence[Reading]) -> str:
    """The main readings in one line, for narrow screens; it is a second view of what the tiles say."""
    parts = [
        element("span", element("small", escape(sentence_case(one.title))), element("b", escape(one.value)))
        for one in shown[:3]
    ]
    return "".join(parts)


def limits_html(shown: Sequence[Room], sentence: str) -> str:
    """Limits with what is used of them, those that are exceeded first."""
    rows = []
    for room in shown:
        used = f"{min(room.used, 1.0):.4f}"
        words = f"{room.title}: {100.0 * min(room.used, 9.99):.0f} % of the limit"
        meter = element(
            "meter", words, min="0", max="1", low="0.9", high="0.98", optimum="0", value=used, aria_label=words
        )
        kind = "exceeded" if room.is_exceeded else "binds" if room.binds or room.is_warning else "holds"
        cells = (
            element("th", escape(sentence_case(room.title)), scope="row"),
            element("td", meter),
            element("td", escape(room.words), class_="room"),
        )
        rows.append(element("tr", *cells, class_=kind))
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in ("Limit", "Used", "Room"))))
    return element("p", escape(sentence), class_="sentence") + element("table", head, element("tbody", *rows))


def figure_html(chart: AbstractChart, width: float) -> str:
    """A figure with its title, drawn for the width of its place."""
    caption = element("figcaption", element("strong", escape(chart.title)), element("span", escape(chart.subtitle)))
    return element("figure", caption, chart.svg(width), class_="em-figure")


def knob_html(knob: Knob, removable: bool = False) -> str:
    """The control of a number: a slider, a field for the number, and its unit."""
    name = knob.path.replace(".", "-")
    mark = (
        "\N{NO-BREAK SPACE}" + element("abbr", PRIOR_MARK, title="prior: assumed, not measured")
        if knob.is_prior
        else ""
    )
    unit = knob.word or ("" if knob.reading_unit == "1" else knob.reading_unit)
    low, high = knob.shown(knob.low), knob.shown(knob.high)
    slider = element("input", id=f"s-{name}", type="range", min=0, max=STEPS, step="any", aria_describedby=f"n-{name}")
    field = element(
        "input",
        type="number",
        step="any",
        min=f"{low:.6g}",
        max=f"{high:.6g}",
        aria_label=f"{knob.label}{f', {unit}' if unit else ''}",
    )
    spans = (element("span", escape(unit), class_="unit"), element("small", " ", id=f"n-{name}", class_="note"))
    remove = (
        element("button", "×", type="button", class_="remove", aria_label=f"Remove {knob.label}") if removable else ""
    )
    return element(
        "div",
        element("label", escape(knob.label) + mark, for_=f"s-{name}"),
        element("span", field, spans[0], remove, class_="number"),
        slider,
        spans[1],
        class_="knob",
        data_path=knob.path,
        data_low=repr(knob.low),
        data_high=repr(knob.high),
        data_own=repr(knob.own),
        data_origin=repr(knob.origin),
        data_per=repr(knob.per),
        data_size=repr(knob.size),
        data_zero=repr(knob.zero),
        data_unit=unit,
        data_log="1" if knob.log else None,
        data_step=repr(knob.step) if knob.step else None,
    )


def compare_html(plans: Sequence[Plan], knobs: Mapping[str, Knob]) -> str:
    """Plans side by side; differences are against the first one."""
    if len(plans) < 2:
        return ""
    head = element("tr", element("td", " "), *(element("th", escape(plan.name), scope="col") for plan in plans))
    rows = [_row(knobs[path].label, [_value(plan, path, knobs) for plan in plans]) for path in _moved(plans)]
    for field, label in _LAYOUT_LABELS.items():
        cells = [plan.layout.get(field, "") for plan in plans]
        if len(set(cells)) > 1:
            rows.append(_row(label, cells))
    first = fields_of(plans[0].view.outcome)
    others = [fields_of(plan.view.outcome) for plan in plans]
    for place, field in enumerate(first):
        cells = []
        for column, fields in enumerate(others):
            changed = change(fields[place], field) if column else ""
            shown = read(fields[place])
            cells.append(f"{shown} ({changed})" if changed else shown)
        rows.append(_row(sentence_case(field.title), cells))
    table = element("table", element("thead", head), element("tbody", *rows))
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Pinned plans side by side")


def _moved(plans: Sequence[Plan]) -> list[str]:
    """Numbers that are not the same in all plans."""
    paths = dict.fromkeys(path for plan in plans for path in plan.values)
    return [path for path in paths if len({plan.values.get(path) for plan in plans}) > 1]


def _value(plan: Plan, path: str, knobs: Mapping[str, Knob]) -> str:
    return knobs[path].words(plan.values.get(path, knobs[path].own))


def _row(title: str, cells: Sequence[str]) -> str:
    return element("tr", element("th", escape(title), scope="row"), *(element("td", escape(cell)) for cell in cells))
