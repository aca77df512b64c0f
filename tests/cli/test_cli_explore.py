"""`explore` from the command line: what it prints and opens, and what it needs."""

import importlib.util
import re

import pytest

from cli.shell import SMALL, run
from energymodel.explorer.explorer import Explorer
from energymodel.explorer.server import ExplorerServer

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]{40,}/")


@pytest.fixture
def served(monkeypatch):
    """What commands open and serve, without a model that is compiled."""
    found = {"opened": [], "served": []}
    monkeypatch.setattr(Explorer, "__init__", lambda self, scenario: None)

    def serve(server):
        found["served"].append(server.address)
        server._socket.close()

    monkeypatch.setattr(ExplorerServer, "serve", serve)
    monkeypatch.setattr("webbrowser.open", found["opened"].append)
    return found


def test_address_is_printed_and_opened(served):
    result = run("explore", SMALL, "--set", "plan.chips=16")
    assert result.exit_code == 0
    assert served["opened"] == served["served"]
    assert ADDRESS.fullmatch(served["opened"][0])
    assert result.stdout.strip().endswith(served["opened"][0])
    assert "this machine only" in result.stderr


def test_no_browser_is_opened_if_none_is_wanted(served):
    assert run("explore", SMALL, "--no-browser").exit_code == 0
    assert served["opened"] == []
    assert len(served["served"]) == 1


def test_missing_package_names_the_extra(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else found(name))
    result = run("explore", SMALL)
    assert result.exit_code == 2
    assert result.stderr.strip() == (
        'energymodel: error: explore needs uvicorn. Install it: pip install "energymodel[explore]".'
    )


def test_bad_scenario_is_refused_before_anything_is_compiled():
    result = run("explore", "no-such-scenario")
    assert result.exit_code == 2
    assert "no-such-scenario" in result.stderr
