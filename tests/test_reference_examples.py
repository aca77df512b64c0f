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


def examples(*, slow: bool) -> doctest.DocTest:
    """All examples of the page as one session, without those that take long unless they are wanted."""
    test = doctest.DocTestParser().get_doctest(PAGE.read_text(encoding="utf-8"), {}, PAGE.name, str(PAGE), 0)
    test.examples = [entry for entry in test.examples if slow or not entry.source.endswith(SLOW)]
    return test


def run(test: doctest.DocTest) -> str:
    """What differs from the page, as text."""
    message: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS, verbose=False).run(test, out=message.append)
    return "".join(message)


def test_examples(monkeypatch):
    monkeypatch.chdir(ROOT)
    session = examples(slow=False)
    assert len(session.examples) > 15
    assert run(session) == ""


@pytest.mark.slow
def test_all_examples(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert run(examples(slow=True)) == ""


def test_each_public_name_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"\*\*`(\w+)`\*\*", text))
    offered = {name for name in em.__all__ if not isinstance(getattr(em, name), types.ModuleType)}
    assert offered - named == set()
    called = set(re.findall(r"\bem\.(\w+)", text))
    functions = {name for name in offered if isinstance(getattr(em, name), types.FunctionType)}
    assert functions - called == {"trainer_callback"}, "it needs transformers"


def test_a_wrong_example_is_noticed():
    session = examples(slow=False)
    session.examples = [
        entry for entry in session.examples if "load_scenario" in entry.source or "clock" in entry.source
    ][:2]
    session.examples.append(doctest.Example("1 + 1\n", "3\n"))
    assert "Expected:\n    3\nGot:\n    2" in run(session)
