"""HTML of the page: its start, the control of a number, and the parts that change with a plan."""

from importlib.resources import files

from energymodel.explorer.answer import MAIN, OBJECTIVES, READ, change_of
from energymodel.explorer.knobs import GROUPS, Knob
from energymodel.explorer.messages import MINIMIZED
from energymodel.explorer.state import PlanSpace
from energymodel.report.answer import Answer
from energymodel.report.answers.run_tables import prior_count
from energymodel.report.charts.svg import element, escape
from energymodel.report.drawing import chart_css
from energymodel.report.number import PRIOR_MARK, interval, sentence, text
from energymodel.report.page import table_html

STATIC = {
    **dict.fromkeys(("main.js", "connection.js", "sliders.js", "pins.js", "share.js"), "text/javascript"),
    "explorer.css": "text/css",
    "icon.svg": "image/svg+xml",
}
"""Files of the page by name, with their kind; there are no others."""
_STEPS = 1000  # of a slider


def static_text(name: str) -> str:
    """A file of the page."""
    content = files("energymodel.explorer").joinpath("static").joinpath(name).read_text(encoding="utf-8")
    return f"{chart_css()}\n{content}" if name == "explorer.css" else content


def page_html(space: PlanSpace) -> str:
    """The page of a scenario; what changes comes over the connection."""
    controls = {group: [knob_html(knob) for knob in space.knobs.values() if knob.group == group] for group in GROUPS}
    groups = [_group(name, "".join(knobs), is_open=name == "Plan") for name, knobs in controls.items() if knobs]
    groups.insert(1, _group("Parallel layout", element("div", " ", id="layout"), is_open=True))
    others = [element("option", " ", value=knob.path) for knob in space.knobs.values() if not knob.group]
    minimized = [element("option", "energy x time" if name == "etp" else name, value=name) for name in MINIMIZED]
    parts = {
        "TITLE": escape(space.own.title),
        "CONTROLS": "".join(groups),
        "OTHERS": "".join(others),
        "MINIMIZED": "".join(minimized),
        "FRONTS": "".join(element("option", name, value=name) for name in OBJECTIVES),
        "PRIORS": escape(sentence(prior_count(space.own))),
    }
    page = static_text("page.html")
    for name, part in parts.items():
        page = page.replace(f"<!--{name}-->", part)
    return page


def _group(name: str, controls: str, *, is_open: bool) -> str:
    summary = element("summary", element("h3", escape(name)))
    return element("details", summary, controls, open="open" if is_open else None, class_="group")


def knob_html(knob: Knob, *, removable: bool = False) -> str:
    """The control of a number: a slider, a field for the number, and its unit."""
    name, unit, scale = knob.path.replace(".", "-"), knob.scale.word, knob.scale
    mark = element("abbr", PRIOR_MARK, title="prior: assumed, not measured")
    label = escape(knob.label) + (f"\N{NO-BREAK SPACE}{mark}" if knob.is_prior else "")
    low, high = (f"{scale.read(knob.quantity(end).value):g}" for end in (knob.low, knob.high))
    spoken = f"{knob.label}{f', {unit}' if unit else ''}"
    field = element("input", type="number", step="any", min=low, max=high, aria_label=spoken)
    remove = element("button", "×", type="button", class_="remove", aria_label=f"Remove {knob.label}")
    numbers = {name: getattr(knob, name) for name in ("low", "high", "own", "origin", "per")}
    numbers |= {"size": scale.size, "zero": scale.zero, **({"step": knob.step} if knob.step else {})}
    return element(
        "div",
        element("label", label, for_=f"s-{name}"),
        element("span", field, element("span", escape(unit), class_="unit"), remove * removable, class_="number"),
        element("input", id=f"s-{name}", type="range", min=0, max=_STEPS, step="any", aria_describedby=f"n-{name}"),
        element("small", " ", id=f"n-{name}", class_="note"),
        class_="knob",
        data_path=knob.path,
        data_unit=unit,
        data_log="1" if knob.log else None,
        **{f"data_{key}": repr(float(value)) for key, value in numbers.items()},
    )


def parts(answer: Answer) -> dict[str, str]:
    """What the page says of a plan, by place: tiles, a strip for narrow screens, limits, and pinned plans beside it."""
    outcome, tiles, strip = answer.table("outcome"), [], []
    for name in READ:
        column, cell = outcome.number(name, 1)
        changed, ends = change_of(outcome, name), interval(cell, column)
        title, value = escape(f"{column.title[:1].upper()}{column.title[1:]}"), escape(text(cell, column))
        words = [element("span", value, class_="value")]
        if changed:
            of, by = changed
            sign = "+" if by.value > 0.0 and of.kind == "difference" else ""
            between = element("small", f" {escape(interval(by, of))}") if interval(by, of) else ""
            words.append(element("span", sign + escape(text(by, of)), between, class_="change"))
        words += [element("span", f"90 %: {escape(ends)}", class_="interval")] if ends else []
        class_ = "main" if name in MAIN else "more"
        tiles.append(element("div", element("dt", title), element("dd", *words), class_=class_))
        strip.append(element("span", element("small", title), element("b", value)))
    told = element("p", escape(sentence(answer.sentences[1])), class_=f"sentence {answer.result}")
    told += "".join(element("p", f"Warning: {escape(sentence(warning))}.") for warning in answer.warnings)
    pinned = [table_html(table, "full") for table in answer.tables if table.name == "compare"]
    look = {"tabindex": 0, "role": "region", "aria_label": "Pinned plans side by side"}
    return {
        "outcome": element("dl", *tiles, class_="tiles"),
        "strip": "".join(strip[:3]),
        "limits": told + table_html(answer.table("limits"), "full"),
        "compare": element("div", *pinned, class_="scroll", **look) if pinned else "",
    }
