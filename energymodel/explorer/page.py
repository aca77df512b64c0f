"""What HTML does the page start with: its controls, its buttons and the places of figures?"""

from importlib.resources import files

from energymodel.explorer.explorer import Explorer
from energymodel.explorer.figures import OBJECTIVES
from energymodel.explorer.fragments import knob_html
from energymodel.explorer.knobs import GROUPS
from energymodel.explorer.messages import MINIMIZED
from energymodel.report.charts import chart_css
from energymodel.report.charts.svg import element, escape

STATIC = {
    "main.js": "text/javascript",
    "connection.js": "text/javascript",
    "sliders.js": "text/javascript",
    "pins.js": "text/javascript",
    "share.js": "text/javascript",
    "explorer.css": "text/css",
    "icon.svg": "image/svg+xml",
}
"""Files of the page by name; there are no others."""
_WORDS = {"etp": "energy x time"}


def static_text(name: str) -> str:
    """A file of the page."""
    own = files(__name__.rpartition(".")[0]).joinpath("static").joinpath(name).read_text(encoding="utf-8")
    return f"{chart_css()}\n{own}" if name == "explorer.css" else own


def page_html(explorer: Explorer) -> str:
    """The page of a scenario; what changes comes over the connection."""
    template = files(__name__.rpartition(".")[0]).joinpath("static").joinpath("page.html").read_text(encoding="utf-8")
    knobs = explorer.space.knobs
    groups = []
    for name in GROUPS:
        controls = [knob_html(knob) for knob in knobs.values() if knob.group == name]
        if controls:
            groups.append(_group(name, controls, open_=name == "Plan"))
        if name == "Plan":
            groups.append(_group("Parallel layout", [element("div", " ", id="layout")], open_=True))
    others = [element("option", " ", value=knob.path) for knob in knobs.values() if not knob.group]
    parts = {
        "TITLE": escape(explorer.space.own.title),
        "CONTROLS": "".join(groups),
        "OTHERS": "".join(others),
        "MINIMIZED": "".join(element("option", _WORDS.get(one, one), value=one) for one in MINIMIZED),
        "FRONTS": "".join(element("option", words, value=name) for name, (words, _) in OBJECTIVES.items()),
        "PRIORS": escape(explorer.priors),
    }
    for name, part in parts.items():
        template = template.replace(f"<!--{name}-->", part)
    return template


def _group(name: str, controls: list[str], *, open_: bool) -> str:
    summary = element("summary", element("h3", escape(name)))
    return element("details", summary, *controls, open="open" if open_ else None, class_="group")
