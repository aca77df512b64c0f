"""The page on trust says what the results of the experiments say."""

import importlib
import json
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
