"""Malformed input is accepted or refused in one line: random files, values, command lines; and each form by itself."""

import importlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.scenarios.document import parse_document
from energymodel.scenarios.scenario import load_scenario

SMALL = "test-1b-h100"
FUZZ = Path(__file__).parents[2] / "benchmarks" / "fuzz"
SEED = int(os.environ.get("ENERGYMODEL_FUZZ_SEED", "0"))


def faults(count: int, seed: int, kinds: tuple[str, ...]) -> list[str]:
    sys.path.insert(0, str(FUZZ))
    try:
        fuzz = importlib.import_module("fuzz")
        return [f"{fault.answer}\n{fault.what}" for fault in fuzz.faults(count, seed, kinds)]
    finally:
        sys.path.remove(str(FUZZ))


def test_random_malformed_input_is_answered_in_one_line():
    assert not faults(40, SEED, ("toml", "json", "axis", "ledger"))


@pytest.mark.slow
def test_much_random_malformed_input_is_answered_in_one_line():
    assert not faults(20_000, SEED + 1, ("toml", "json", "axis", "ledger", "command"))


def test_what_contains_itself_is_refused():
    tables: dict = {"base": SMALL}
    tables["system"] = tables
    with pytest.raises(InputError, match="levels deep"):
        parse_document(tables, "own")


def test_numbers_of_numpy_are_numbers():
    scenario = load_scenario(SMALL, {"plan.clock": np.float32(0.75), "optimize.vary.plan.clock": np.array([0.5, 1.0])})
    assert float(scenario.plan.clock) == 0.75
    assert scenario.optimize.vary == {"plan.clock": (0.5, 1.0)}


def test_ranges_may_be_texts_or_tables():
    texts = load_scenario({"base": SMALL, "optimize": {"vary": ["plan.clock=0.5:1"], "fix": "plan.batch"}})
    table = load_scenario({"base": SMALL, "optimize": {"vary": {"plan": {"clock": [0.5, 1]}}, "fix": ["plan.batch"]}})
    assert texts.optimize == table.optimize
