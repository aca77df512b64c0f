"""How do sentences, tables of the terminal and figures become parts of a page?"""

import re
from collections.abc import Container, Iterable

from rich.table import Table
from rich.text import Text

from energymodel.report.charts.svg import element, escape


def paragraph(sentence: str, class_: str | None = None) -> str:
    """A sentence or more."""
    return element("p", _prose(sentence), class_=class_) if sentence.strip() else ""


def paragraphs(sentences: Iterable[str], class_: str | None = None) -> str:
    """A paragraph for each line."""
    return "".join(paragraph(one, class_) for one in sentences)


def bullets(sentences: Iterable[str]) -> str:
    """A list."""
    items = [element("li", _prose(one)) for one in sentences]
    return element("ul", *items) if items else ""


def terminal_table(table: Table, *, title: bool = True, only: Container[str] | None = None) -> str:
    """A table as the terminal shows it, with the same words and digits.

    **Arguments:**

    - `title`: whether its title stands above it.
    - `only`: first cells of the rows that are kept; all by default.
    """
    kept = table.columns
    heads = [_plain(one.header) for one in kept]
    looks = ["em-number" if one.justify == "right" else None for one in kept]
    rows = []
    for cells in zip(*(list(one.cells) for one in kept), strict=True):
        words = [_plain(cell) for cell in cells]
        if only is not None and words[0] not in only:
            continue
        first = element("th", escape(words[0]), scope="row")
        rest = [element("td", escape(word), class_=look) for word, look in zip(words[1:], looks[1:], strict=True)]
        rows.append(element("tr", first, *rest))
    parts = []
    if title and table.title:
        parts.append(element("caption", escape(_plain(table.title))))
    if table.show_header and any(heads):
        shown = [element("th", escape(head), scope="col", class_=look) for head, look in zip(heads, looks, strict=True)]
        parts.append(element("thead", element("tr", *shown)))
    return element("div", element("table", *parts, element("tbody", *rows), class_="em-table"), class_="em-scroll")


def beside(*parts: str) -> str:
    """Parts side by side where the page is wide enough."""
    return element("div", *(element("div", one) for one in parts if one), class_="em-beside")


def folded(words: str, *parts: str) -> str:
    """Parts that open where one asks for them."""
    return element("details", element("summary", escape(words)), *parts, class_="em-more")


def _prose(sentence: str) -> str:
    """A sentence whose `commands` are set as such."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(" ".join(sentence.split())))


def _plain(cell: object) -> str:
    """Words of a cell, without the marks of its style."""
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain
