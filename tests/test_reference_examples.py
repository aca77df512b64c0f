"""The examples of the reference run, one for each public function and class."""

import doctest
import re
import types

import pytest

import energymodel as em
from test_repository import ROOT

PAGE = ROOT / "docs" / "reference.md"
SLOW = "  # slow\n"
OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_examples(slow, monkeypatch):
    """All examples of the page as one session, without those that take long unless they are wanted."""
    monkeypatch.chdir(ROOT)
    test = doctest.DocTestParser().get_doctest(PAGE.read_text(encoding="utf-8"), {}, PAGE.name, str(PAGE), 0)
    test.examples = [entry for entry in test.examples if slow or not entry.source.endswith(SLOW)]
    assert len(test.examples) > 15
    differences: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS, verbose=False).run(test, out=differences.append)
    assert "".join(differences) == ""


def test_each_public_name_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"\*\*`(\w+)`\*\*", text))
    offered = {name for name in em.__all__ if not isinstance(getattr(em, name), types.ModuleType)}
    assert offered - named == set()
    called = set(re.findall(r"\bem\.(\w+)", text))
    functions = {name for name in offered if isinstance(getattr(em, name), types.FunctionType)}
    assert functions - called == {"trainer_callback"}, "it needs transformers"
