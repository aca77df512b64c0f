"""The page on trust says what the results of the experiments say."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def trust_page():
    sys.path.insert(0, str(ROOT / "experiments"))
    try:
        return importlib.import_module("trust_page")
    finally:
        sys.path.remove(str(ROOT / "experiments"))


def test_page_is_of_these_results(trust_page):
    written = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    assert written == trust_page.page(trust_page.results()), "run: python experiments/trust_page.py"


def test_page_begins_with_a_verdict_and_one_figure(trust_page):
    stored = trust_page.results()
    verdict, figure, tables = trust_page.page(stored).partition("![Predicted against measured step time, by set](")
    assert figure
    assert "![" not in verdict + tables
    assert "|---" not in verdict
    assert (ROOT / "docs" / tables.partition(")")[0]).is_file()
    assert 3 <= len(re.findall(r"\.\s", verdict.partition("-->")[2])) <= 5
    stored["05_loss_law"]["accuracy"][0]["mean_error"] = 0.123
    stored["01_step_time"]["sets"][0]["mean_percent"] = 45.6
    numbers = trust_page.headline(stored)
    assert (numbers["loss"], numbers["most"]) == ("12 %", "46 %")
    assert "size one of 12 %" in trust_page.page(stored).partition("![")[0]


def test_every_experiment_stands_there(trust_page):
    written = trust_page.page(trust_page.results())
    for path in (ROOT / "experiments").glob("*/result.json"):
        assert f"`experiments/{path.parent.name}`" in written
        for row in json.loads(path.read_text(encoding="utf-8")).get("accuracy", []):
            assert 0.0 <= row["mean_error"] <= row["largest_error"]
            assert row["count"] >= 1
            assert row["prediction"] in written
            assert row["held_out"]
            assert row["range"]


def test_row_by_hand(trust_page):
    row = {
        "prediction": "power",
        "mean_error": 0.0182,
        "largest_error": 0.62,
        "count": 11,
        "held_out": "benchmark",
        "range": "8 chips",
        "reference": "",
    }
    assert trust_page.row_of(row) == "| power | 1.8 % | 62 % | 11 | benchmark | 8 chips |  |"
    assert trust_page.row_of(row | {"count": 1, "mean_error": 0.0054}).startswith("| power | 0.54 % |  | 1 |")
