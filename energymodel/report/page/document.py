"""What is a report page: a summary, sections, how to repeat it, all in one file that loads nothing?"""

import base64
import functools
import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import NamedTuple

from energymodel.report.charts.chart import AbstractChart, chart_css
from energymodel.report.charts.figure import figure_html
from energymodel.report.charts.svg import element, escape
from energymodel.report.page.markup import paragraphs

VERSIONS = ("energymodel", "jax", "numpy", "scipy")
WIDTH = 860.0
"""Width of figures on a wide page [px]."""


class Section(NamedTuple):
    """A part of a page: its title, and markup."""

    title: str
    markup: str


class Page(NamedTuple):
    """An answer for a page.

    - `title`: what it is about, such as the scenario's title.
    - `answer`: the answer in a few words.
    - `summary`: at most three sentences; `figure` is the one figure beside them.
    - `sections`: those without markup are left out.
    - `command`: the command that repeats it; `also` are further commands, each with what it does.
    """

    title: str
    answer: str
    summary: Sequence[str]
    figure: AbstractChart | None
    sections: Sequence[Section]
    command: str
    also: Sequence[tuple[str, str]] = ()


def figure(chart: AbstractChart) -> str:
    """A figure of a page, for wide and narrow screens."""
    return figure_html(chart, WIDTH)


def page_html(page: Page) -> str:
    """The page as one file: styles and script are within it and allowed by their hashes, and nothing else is."""
    style, script = _style(), _script()
    sections = [one for one in page.sections if one.markup]
    sections.append(Section("Repeat it", _reproduction(page)))
    names = [f"section-{place}" for place, _ in enumerate(sections)]
    links = [element("a", escape(one.title), href=f"#{name}") for one, name in zip(sections, names, strict=True)]
    parts = [
        element("section", element("h2", escape(one.title)), one.markup, id=name)
        for one, name in zip(sections, names, strict=True)
    ]
    summary = element(
        "section",
        element("h2", "Summary"),
        paragraphs(page.summary, "em-lead"),
        figure(page.figure) if page.figure is not None else "",
        class_="em-summary",
    )
    head = element("header", element("h1", escape(page.title)), element("p", escape(page.answer), class_="em-answer"))
    allowed = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    policy = f"{allowed}; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="energymodel {version("energymodel")}">\n'
        f"<title>{escape(page.title)}: {escape(page.answer)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + element("main", head, summary, element("nav", *links, aria_label="Sections"), "\n".join(parts))
        + f"\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _reproduction(page: Page) -> str:
    """The command, what else can be done with the answer, and versions."""
    also = [f"{element('p', escape(words))}{_code(command)}" for words, command in page.also]
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    system = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return (
        _code(page.command)
        + "".join(also)
        + element("p", escape(f"Versions: {versions}, {system}."), class_="em-muted")
    )


def _code(command: str) -> str:
    return element("pre", element("code", escape(command)))


@functools.cache
def _style() -> str:
    return chart_css() + files("energymodel.report.page").joinpath("page.css").read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    return files("energymodel.report.page").joinpath("page.js").read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
