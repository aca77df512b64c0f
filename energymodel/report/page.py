"""Answers as one page of HTML that loads nothing: styles and script are within it and allowed by their hashes."""

import base64
import functools
import hashlib
import platform
import re
from collections.abc import Iterable
from importlib.metadata import version
from importlib.resources import files

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.cells import Column, Level, Quantity
from energymodel.report.charts.svg import element, escape
from energymodel.report.drawing import NARROW, chart_css, svg
from energymodel.report.grid import Words, grid
from energymodel.report.number import PRIOR_MARK, sentence

LEADS = 3  # sentences in large letters
VERSIONS = ("energymodel", "jax", "numpy", "scipy")
ROWS = 500
"""Rows of a table; files have all."""
WIDTH = 860.0
"""Width of figures on a wide page [px]."""


def page_html(answer: Answer, command: str) -> str:
    """The page: a summary with the first figure, a section for each table with its figures, and how to repeat it."""
    style, script = _asset("page.css"), _asset("page.js")
    sections = []
    for table in answer.tables:
        charts = [figure(answer, chart) for chart in answer.charts[1:] if chart.table == table.name]
        if table.rows and (table.level != "data" or charts):
            sections.append((table.title, "".join(charts) + _section_table(table, bool(charts))))
    sections += [("Notes", _paragraphs(answer.notes))] if answer.notes else []
    sections.append(("Repeat it", _reproduction(answer, command)))
    links = [element("a", escape(title), href=f"#section-{index}") for index, (title, _) in enumerate(sections)]
    parts = [
        element("section", element("h2", escape(title)), body, id=f"section-{index}")
        for index, (title, body) in enumerate(sections)
    ]
    summary = element(
        "section",
        element("h2", "Summary"),
        _paragraphs(answer.sentences[:LEADS], "em-lead"),
        _paragraphs(answer.sentences[LEADS:]),
        _paragraphs(answer.warnings, "em-warning"),
        figure(answer, answer.charts[0]) if answer.charts else "",
        class_="em-summary",
    )
    head, short = escape(answer.title), escape(sentence(answer.headline))
    header = element("header", element("h1", head), element("p", short, class_="em-answer"))
    main = element("main", header, summary, element("nav", *links, aria_label="Sections"), "\n".join(parts))
    allowed = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{allowed}; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="energymodel {version("energymodel")}">
<title>{head}: {short}</title>
<style>{style}</style>
</head>
<body>
{main}
<script>{script}</script>
</body>
</html>
"""


def figure(answer: Answer, chart: Chart, width: float = WIDTH, *, narrow: bool = True) -> str:
    """A figure with its title; with `narrow` laid out for narrow screens, too, and the style shows what fits."""
    words = element("strong", escape(sentence(chart.title)))
    words += element("span", escape(chart.subtitle)) if chart.subtitle else ""
    drawings = [element("div", svg(answer, chart, width), class_="em-wide" if narrow else None)]
    drawings += [element("div", svg(answer, chart, NARROW), class_="em-narrow")] if narrow else []
    return element("figure", element("figcaption", words), *drawings, class_="em-figure")


def _section_table(table: Table, has_charts: bool) -> str:
    note = element("p", escape(table.note), class_="em-muted") if table.note else ""
    if table.level == "data":
        return note
    full = table_html(table, "page")
    if has_charts or table.level != "short":
        return note + folded("Data" if has_charts else "All rows", full, "em-data")
    short = table_html(table, "short")
    return short + note + (folded("All numbers", full, "em-data") if full != short else "")


def table_html(table: Table, level: Level) -> str:
    """A table as the terminal shows it, with the same words and digits; cells keep all digits in `data-csv`."""
    cells = grid(table, level)
    lines = [element("tr", _cell(line[0], is_head=True), *map(_cell, line[1:])) for line in cells.lines[:ROWS]]
    heads = element("thead", element("tr", *map(_head, cells.columns))) if cells.has_heads else ""
    hidden = len(table.rows) - ROWS
    more = element("p", f"{hidden:,} more rows: write them with -o FILE.csv", class_="em-muted") if hidden > 0 else ""
    inside = element("table", heads, element("tbody", *lines), class_="em-table")
    return element("div", inside, more, _reasons(table, level), class_="em-scroll")


def _head(column: Column) -> str:
    is_words = column.kind == "words"
    unit = f" [{column.unit}]" if column.unit and not is_words else ""
    class_ = None if is_words else "em-number"
    return element("th", escape(column.title), scope="col", class_=class_, data_csv=column.title + unit or None)


def _cell(words: Words, *, is_head: bool = False) -> str:
    if not isinstance(words.cell, Quantity):
        return element("th", escape(words.text), scope="row") if is_head else element("td", escape(words.text))
    small = " " + element("small", escape(words.ends)) if words.ends else ""
    exact = {"data_csv": repr(float(words.cell.value)), "title": words.cell.prior or None}
    return element("td", escape(words.text) + small, class_="em-number", **exact)


def _reasons(table: Table, level: Level) -> str:
    """Why numbers are priors, for those who cannot hover."""
    items = [element("li", escape(f"{title}: {reason}")) for title, reason in dict(table.priors(level)).items()]
    return folded(f"{PRIOR_MARK} assumed, not measured", element("ul", *items)) if items else ""


def folded(words: str, body: str, class_: str = "em-more") -> str:
    """Markup that opens where a reader asks for it."""
    return element("details", element("summary", escape(words)), body, class_=class_)


def _paragraphs(sentences: Iterable[Sentence], class_: str | None = None) -> str:
    """Sentences whose `commands` are set as such."""
    texts = (escape(" ".join(sentence(words).split())) for words in sentences)
    return "".join(element("p", re.sub("`([^`]+)`", r"<code>\1</code>", text), class_=class_) for text in texts)


def _reproduction(answer: Answer, command: str) -> str:
    """The command, what else can be done with the answer, and versions."""
    also = "".join(element("p", escape(f"{words}:")) + _code(line) for words, line in answer.also)
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    system = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    words = f"{answer.intervals} Versions: {versions}, {system}."
    return _code(command) + also + element("p", escape(words), class_="em-muted")


def _code(command: str) -> str:
    return element("pre", element("code", escape(command)))


@functools.cache
def _asset(name: str) -> str:
    content = files("energymodel.report").joinpath(name).read_text(encoding="utf-8")
    return chart_css() + content if name.endswith(".css") else content


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
