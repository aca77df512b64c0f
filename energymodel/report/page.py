"""Answers as one page of HTML that loads nothing: styles and script are within it and allowed by their hashes."""

import base64
import functools
import hashlib
import platform
import re
from importlib.metadata import version
from importlib.resources import files

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.cells import DATA, FULL, PAGE, SHORT, Cell, Column, Quantity
from energymodel.report.charts.figure import NARROW, chart_css
from energymodel.report.charts.svg import element, escape
from energymodel.report.drawing import svg
from energymodel.report.number import PRIOR_MARK, Layout, interval, layout_of_column, sentence, text

VERSIONS = ("energymodel", "jax", "numpy", "scipy")
ROWS = 500
"""Rows of a table; files have all."""
WIDTH = 860.0
"""Width of figures on a wide page [px]."""


def page_html(answer: Answer, command: str) -> str:
    """The page: a summary with the first figure, a section for each table with its figures, and how to repeat it."""
    style, script = _asset("page.css"), _asset("page.js")
    sections = [
        (table.title, _charts(answer, table), table)
        for table in answer.tables
        if table.rows and (table.level < DATA or _charts(answer, table))
    ]
    titles = [*(title for title, _, _ in sections), *(["Notes"] if answer.notes else []), "Repeat it"]
    bodies = ["".join(charts) + _section_table(table, charts, answer) for _, charts, table in sections]
    bodies += [_paragraphs(answer.notes)] if answer.notes else []
    bodies.append(_reproduction(answer, command))
    links = [element("a", escape(title), href=f"#section-{index}") for index, title in enumerate(titles)]
    parts = [
        element("section", element("h2", escape(title)), body, id=f"section-{index}")
        for index, (title, body) in enumerate(zip(titles, bodies, strict=True))
    ]
    summary = element(
        "section",
        element("h2", "Summary"),
        _paragraphs(answer.sentences, "em-lead"),
        _paragraphs(answer.warnings, "em-warning"),
        figure(answer, answer.charts[0]) if answer.charts else "",
        class_="em-summary",
    )
    head, short = escape(answer.title), escape(sentence(answer.headline))
    header = element("header", element("h1", head), element("p", short, class_="em-answer"))
    allowed = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"{allowed}; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="energymodel {version("energymodel")}">\n'
        f"<title>{head}: {short}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + element("main", header, summary, element("nav", *links, aria_label="Sections"), "\n".join(parts))
        + f"\n<script>{script}</script>\n</body>\n</html>\n"
    )


def figure(answer: Answer, chart: Chart, width: float = WIDTH, *, narrow: bool = True) -> str:
    """A figure with its title; with `narrow` laid out for narrow screens, too, and the style shows what fits."""
    words = element("strong", escape(sentence(chart.title)))
    words += element("span", escape(chart.subtitle)) if chart.subtitle else ""
    drawings = [element("div", svg(answer, chart, width), class_="em-wide" if narrow else None)]
    drawings += [element("div", svg(answer, chart, NARROW), class_="em-narrow")] if narrow else []
    return element("figure", element("figcaption", words), *drawings, class_="em-figure")


def _charts(answer: Answer, table: Table) -> list[str]:
    return [figure(answer, chart) for chart in answer.charts[1:] if chart.table == table.name]


def _section_table(table: Table, charts: list[str], answer: Answer) -> str:
    note = element("p", escape(table.note), class_="em-muted") if table.note else ""
    if table.level == DATA:
        return note
    full = table_html(table, PAGE)
    if charts or table.level >= FULL:
        return note + folded("Data" if charts else "All rows", full, "em-data")
    short = table_html(table, SHORT)
    return short + note + (folded("All numbers", full, "em-data") if full != short else "")


def table_html(table: Table, level: int) -> str:
    """A table as the terminal shows it, with the same words and digits; cells keep all digits in `data-csv`."""
    indices = [index for index, column in enumerate(table.columns) if column.level <= level]
    lines = []
    if table.tall:
        heads = [element("th", "", scope="col"), *(_head(label, "") for label in table.labels)]
        for index in indices:
            cells = [
                _cell(row[index], table.column_of(number, table.columns[index]))
                for number, row in enumerate(table.rows)
            ]
            title = table.columns[index].title
            if any(row[index] not in (None, "") for row in table.rows):
                lines.append(element("tr", element("th", escape(title), scope="row", data_csv=title), *cells))
        head = element("thead", element("tr", *heads)) if len(table.rows) > 1 else ""
    else:
        columns = [table.columns[index] for index in indices]
        layouts = {
            index: layout_of_column([row[index] for row in table.rows], table.columns[index]) for index in indices
        }
        rows = [table.rows[i] for i in table.short] if table.short is not None and level < FULL else table.rows
        for row in rows[:ROWS]:
            cells = [_cell(row[index], table.columns[index], layouts[index], index == indices[0]) for index in indices]
            lines.append(element("tr", *cells))
        titled = any(column.title for column in columns)
        heads = [_head(column.title, f" [{column.unit}]", words=column.kind == "words") for column in columns]
        head = element("thead", element("tr", *heads)) if titled else ""
    hidden = len(table.rows) - ROWS
    more = element("p", f"{hidden:,} more rows: write them with -o FILE.csv", class_="em-muted") if hidden > 0 else ""
    inside = element("table", head, element("tbody", *lines), class_="em-table")
    return element("div", inside, more, _reasons(table, indices), class_="em-scroll")


def _head(title: str, unit: str, *, words: bool = False) -> str:
    return element(
        "th",
        escape(title),
        scope="col",
        class_=None if words else "em-number",
        data_csv=title if words else title + unit,
    )


def _cell(cell: Cell, column: Column, layout: Layout | None = None, is_head: bool = False) -> str:
    words = escape(text(cell, column, layout))
    if not isinstance(cell, Quantity):
        return element("th", words, scope="row") if is_head else element("td", words)
    ends = interval(cell, column, layout)
    small = " " + element("small", escape(ends)) if ends else ""
    exact = repr(float(cell.value))
    return element("td", words + small, class_="em-number", data_csv=exact, title=cell.prior or None)


def _reasons(table: Table, indices: list[int]) -> str:
    """Why numbers are priors, for those who cannot hover."""
    reasons = {
        table.columns[index].title: cell.prior
        for row in table.rows
        for index, cell in enumerate(row)
        if index in indices and isinstance(cell, Quantity) and cell.prior
    }
    items = [element("li", escape(f"{title}: {reason}")) for title, reason in reasons.items()]
    return folded(f"{PRIOR_MARK} assumed, not measured", element("ul", *items)) if items else ""


def folded(words: str, body: str, class_: str = "em-more") -> str:
    """Markup that opens where a reader asks for it."""
    return element("details", element("summary", escape(words)), body, class_=class_)


def _paragraphs(sentences: object, class_: str | None = None) -> str:
    return "".join(element("p", _prose(words), class_=class_) for words in sentences)  # type: ignore[attr-defined]


def _prose(words: Sentence) -> str:
    """A sentence whose `commands` are set as such."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(" ".join(sentence(words).split())))


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
