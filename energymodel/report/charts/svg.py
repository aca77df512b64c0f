"""How does a chart write SVG: elements with escaped attributes and text?"""

import html
from typing import Any

HIDDEN = "\N{REPLACEMENT CHARACTER}"
"""Stands for characters that do not print: controls, and marks that reverse the direction of text."""


def clean(text: str) -> str:
    """Text without characters that do not print, such as bidirectional overrides."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if one.isspace() else HIDDEN for one in text)


def escape(text: str) -> str:
    """Text that is safe between tags and in quoted attributes of HTML and SVG."""
    return html.escape(clean(text), quote=True)


def number(value: float) -> str:
    """A coordinate to a hundredth of a pixel."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def element(name: str, *children: str, **attributes: Any) -> str:
    """An element around children that are markup already; `class_` becomes `class`, `text_anchor` `text-anchor`."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(value) if isinstance(value, float) else escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(children)}</{name}>"


def text(content: str, x: float, y: float, *, size: float = 12.0, anchor: str = "start", class_: str = "") -> str:
    """A line of text; `y` is its baseline."""
    return element(
        "text",
        escape(content),
        x=float(x),
        y=float(y),
        font_size=float(size),
        text_anchor=None if anchor == "start" else anchor,
        class_=class_ or None,
    )


def note(content: str) -> str:
    """What hovering over the element around it shows; it may have lines."""
    return element("title", "\n".join(map(escape, content.split("\n")))) if content else ""


def rectangle(
    x: float, y: float, width: float, height: float, class_: str, hover: str = "", fill: str | None = None
) -> str:
    """A filled box."""
    box = {"x": float(x), "y": float(y), "width": float(max(width, 0.0)), "height": float(height)}
    return element("rect", note(hover), **box, class_=class_, fill=fill)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)
