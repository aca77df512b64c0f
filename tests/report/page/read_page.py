"""What is on a page: its titles, figures, tables, and everything that it could load or run."""

import base64
import hashlib
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link"}


@dataclass
class ReadPage(HTMLParser):
    """A page that was parsed: texts of headings, attributes of all elements, rows of the tables behind figures."""

    markup: str
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    tables: list[list[list[str]]] = field(default_factory=list)
    inline: dict[str, list[str]] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "h2":
            self.headings.append("")
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append(dict(attrs).get("data-csv") or "")
        if tag in ("style", "script"):
            self.inline.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        at = self.open[-1] if self.open else ""
        if at in ("style", "script"):
            self.inline[at][-1] += data
            return
        self.text.append(data)
        if at == "h2":
            self.headings[-1] += data
        if at in ("td", "th") and not dict(self.elements[-1][1]).get("data-csv"):
            self.tables[-1][-1][-1] += data

    def count(self, tag: str, class_: str = "") -> int:
        """Elements of a kind, of a class if one is given."""
        return sum(name == tag and class_ in (own.get("class") or "") for name, own in self.elements)

    def numbers(self, label: str) -> set[float]:
        """Numbers with all digits, in rows of any table that begin with a label."""
        rows = [row for table in self.tables for row in table if row and row[0] == label]
        return {float(cell) for row in rows for cell in row[1:] if re.fullmatch(r"-?[\d.]+(?:e[-+]?\d+)?", cell)}


def assert_sound(markup: str, *, data: bool = True, drawn: bool = True) -> ReadPage:
    """A page loads nothing, runs nothing but what its policy names by hash, and explains each of its figures.

    **Arguments:**

    - `data`: whether each figure has its own table; `drawn`: whether there is one.
    """
    page = ReadPage(markup)
    assert not page.open
    assert len(markup.encode()) < 3_000_000
    addresses = set(
        re.findall(r"(?:https?:)?//[\w.]+[^\s\"'<)]*", re.sub(r"<(style|script)>.*?</\1>", "", markup, flags=re.S))
    )
    assert addresses <= {"http://www.w3.org/2000/svg"}
    for _, attributes in page.elements:
        assert not {"style", "src", "srcset", "data", "action"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")
    policy = next(own["content"] for tag, own in page.elements if tag == "meta" and "http-equiv" in own)
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind, texts in page.inline.items():
        assert len(texts) == 1
        digest = base64.b64encode(hashlib.sha256(texts[0].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    names = [own["id"] for _, own in page.elements if own.get("id")]
    assert len(names) == len(set(names))
    figures = page.count("figure")
    assert drawn == bool(figures)
    assert page.count("svg", "em-chart") == 2 * figures  # for wide and for narrow screens
    assert not data or page.count("details", "em-data") == figures
    assert len(re.findall(r"<svg [^>]*role=\"img\"[^>]*><title>[^<]+</title><desc>[^<]+</desc>", markup)) == 2 * figures
    return page
