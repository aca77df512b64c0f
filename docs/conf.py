"""Build the documentation: Sphinx with MyST and furo; tutorials are run, API pages come from the docstrings."""

import dataclasses
import os
import re
import sys
from importlib.metadata import version as installed_version
from typing import Any

from sphinx.application import Sphinx

from energymodel.runtime.cache_folder import keep_compiled_programs

# Notebooks call the command beside this Python, and share its compiled programs.
os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
keep_compiled_programs()

project = "energymodel"
author = "The energymodel authors"
copyright = author  # noqa: A001  (the name that Sphinx reads)
version = release = installed_version("energymodel")

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "_extensions"))
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "mathml"]
html_math_renderer = "mathml"
if not tags.has("check"):  # noqa: F821  (Sphinx defines it)
    extensions.append("sphinx.ext.viewcode")  # pages of source code take a third of the time of a build
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = "energymodel"

html_static_path = ["_static"]
html_css_files = ["figures.css"]

nb_execution_mode = "cache"  # a page is run again when its code changes
nb_execution_timeout = 300  # of a page [s]
nb_execution_raise_on_error = True
nb_merge_streams = True

# No dollarmath: prices such as "2.5 $/h" are not formulas. Mathematics stands in {math}.
myst_enable_extensions = ["amsmath", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# A name that a package passes on is documented once, where it is defined.
autodoc_default_options = {"members": True, "show-inheritance": True, "ignore-module-all": True}
add_module_names = False

CODE = re.compile(r"`+[^`]+`+")
FENCE = re.compile(r"^\s*```")


def _escape(text: str) -> str:
    """Keep bold, and take every other character of reStructuredText's markup as itself."""
    text = re.sub(r"(?<!\*)\*(?!\*)", r"\\*", text.replace("\\", "\\\\"))
    return re.sub(r"_(?=\W|$)", r"\\_", text.replace("|", r"\|"))


def _translate(line: str) -> str:
    """Turn a line of Markdown, as docstrings are written, into reStructuredText."""
    parts, end = [], 0
    for code in CODE.finditer(line):
        parts += [_escape(line[end : code.start()]), f"``{code.group().strip('`')}``"]
        # Markup must be followed by a space or punctuation; an empty escape stands for one.
        parts.append(r"\ " if code.end() < len(line) and line[code.end()].isalnum() else "")
        end = code.end()
    return "".join([*parts, _escape(line[end:])])


def _fields(component: type) -> list[str]:
    """List the fields of a component with their units."""
    lines = []
    for field in dataclasses.fields(component):
        unit, text = field.metadata.get("unit"), field.metadata.get("doc")
        if not field.name.startswith("_"):
            lines.append(f"- `{field.name}`{f' [{unit}]' if unit else ''}{f': {text}' if text else ''}")
    return ["", "**Fields:**", "", *lines, ""] if lines else []


def _markdown_docstring(_app: Sphinx, what: str, _name: str, value: Any, _options: Any, lines: list[str]) -> None:
    source = list(lines)
    if what == "class" and dataclasses.is_dataclass(value) and isinstance(value, type):
        source += _fields(value)
    translated: list[str] = []
    fenced = item = False
    for line in source:
        if FENCE.match(line):
            fenced = not fenced
            translated += ["", ".. code-block:: python", ""] if fenced else [""]
        elif fenced:
            translated.append(f"    {line}")
        else:
            item = line.lstrip().startswith("- ") or (item and bool(line.strip()))
            continued = item and not line.startswith((" ", "- "))
            translated.append(f"  {_translate(line)}" if continued else _translate(line))
    lines[:] = translated


def _say_times(app: Sphinx, error: Exception | None) -> None:
    """Print how long each page of code ran, now or when it was cached."""
    ran = {name: found["exec_data"] for name, found in app.env.nb_metadata.items() if found.get("exec_data")}
    times = {name: float(found["runtime"] or 0.0) for name, found in ran.items()}
    if error is None and times:
        each = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in sorted(times.items()))
        print(f"pages of code ran {sum(times.values()):.0f} s in all: {each}")


def _open_own_branch(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Show in the sidebar only what lies around a page: all 400 modules on each take a build four times as long."""
    if whole := context.get("toctree"):
        context["toctree"] = lambda **options: whole(**{**options, "collapse": True})


def setup(app: Sphinx) -> None:
    """Register the translation of docstrings, the sidebar, and the times of tutorials."""
    app.connect("autodoc-process-docstring", _markdown_docstring)
    app.connect("html-page-context", _open_own_branch, priority=400)  # before that of the theme
    app.connect("build-finished", _say_times)
