"""Malformed input is accepted or refused in one line: random files, values, command lines; and each form by itself."""

import datetime
import importlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from energymodel.calibration.kinds import KINDS
from energymodel.errors import InputError
from energymodel.scenarios.document import CALIBRATIONS, parse_document
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


def with_calibration(kind="step-time", **changed):
    names = ["software.product_efficiency", "accelerator.overhead_time"]
    numbers = {"values": [0.8, 0.07], "slopes": [0.8, 0.07], "coordinates": [-0.2, -2.6], "scatter": 0.09}
    table = {"names": names, **numbers, "covariance": [[0.003, 0.001], [0.001, 0.01]], **changed}
    return {"base": SMALL, "calibration": {kind: {key: value for key, value in table.items() if value is not None}}}


def test_a_calibration_is_kept():
    tables = with_calibration()
    assert load_scenario(tables).tables["calibration"] == tables["calibration"]


def test_the_kinds_of_calibration_are_those_that_can_be_fitted():
    assert set(CALIBRATIONS) == set(KINDS)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (with_calibration(kind="step-tme"), 'unknown kind "step-tme". Did you mean "step-time"?'),
        (with_calibration(slope=[1.0]), 'calibration.step-time: unknown key "slope". Did you mean "slopes"?'),
        (with_calibration(names=None), "names is missing beside"),
        (with_calibration(values=[1.0]), "calibration.step-time.values: 1 numbers for 2 names"),
        (with_calibration(covariance=[[1.0, 0.0]]), "2 names"),
        (with_calibration(covariance=[[1.0], [0.0]]), "not square, 2 by 2"),
        (with_calibration(covariance=[[1.0, 2.0], [2.0, 1.0]]), "symmetric and positive"),
        (with_calibration(covariance=[[1.0, 0.5], [0.4, 1.0]]), "symmetric and positive"),
        (with_calibration(covariance=[[1e308, 1e308], [1e308, -1e308]]), "symmetric and positive"),
        (with_calibration(scatter=-1.0), "calibration.step-time.scatter: -1 is negative"),
        (with_calibration(names=["software.product_efficiency", "x.y"]), 'system has no "x.y"'),
        ({"base": SMALL, "calibration": {"power": {"lowest_power_cap": 300.0}}}, "rated_power is missing"),
        ({"base": SMALL, "calibration": {"power": {"rated_power": 0.0}}}, "calibration.power.rated_power: 0 is not"),
        ({"base": SMALL, "calibration": {"power": 3}}, "calibration.power: a table is needed, not 3"),
        ({"base": SMALL, "calibration": 3}, "calibration: a table is needed, not 3"),
    ],
)
def test_a_calibration_that_does_not_fit_together(tables, message):
    with pytest.raises(InputError) as refused:
        load_scenario(tables)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("system.accelerator.rated_power", {"value": 700, "unit": [-np.inf]}, "rated_power.unit"),
        ("system.accelerator.rated_power", {"value": 700, "unit": "W", "distribution": 0.5}, "0.5 is not a text"),
        ("system.accelerator.rated_power", {"value": 700, "unit": "W", "kind": 5}, "kind: 5 is not a text"),
        ("system.accelerator.rated_power", {"unit": "W"}, "value is missing"),
        ("system.accelerator.rated_power", datetime.date(2026, 1, 1), "neither a number nor a text"),
        ("system.accelerator.rated_power", True, "True is neither a number"),
        ("system.accelerator.rated_power", 1 << 20_000, "more digits than are read"),
        ("optimize.fix", [1 << 20_000], "more digits than are read"),
        ("system.learning.loss_law", {"component": [-1]}, "component: [-1] is not a text"),
        ("system.learning.loss_law", {"preset": 5}, "preset: 5 is not a text"),
        ("system.workload", [1.0], "a table or a preset name is needed"),
        ("system.workload", "x" * 5000, "has 5000 characters"),
        ("plan.layout", "tensor", "a table is needed"),
        ("plan.goal", {"tokens": [1.0]}, "[1.0]"),
        ("plan.batch", [], "plan.batch: the list is empty"),
        ("optimize.vary", ".", '"." is not PATH=LOW:HIGH'),
        ("optimize.vary", 0, "vary: 0 is not a list"),
        ("optimize.fix", [0], "fix[0]: 0 is not a text"),
        ("optimize.knots", 2.5, "2.5 is not a whole number of knots"),
        ("optimize.minimize", "energy^1e30", "1e+30 is no power of energy"),
        ("uncertainty.plan.clock", 0.5, "0.5 is not a text"),
        ("uncertainty.plan.clock", "joint nothing", 'unknown joint distribution "nothing"'),
        ("uncertainty.plan.clock", "lognormal 1e300", "too large to be drawn with"),
        ("system.note", "a\x1b[31mb", "holds the control character"),
        ("system.note", "a\u202eb", "holds the control character"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 80 else type(value).__name__,
)
def test_a_value_of_another_kind(path, value, message):
    with pytest.raises(InputError) as refused:
        load_scenario(SMALL, {path: value})
    assert message in str(refused.value), str(refused.value)
    assert "\n" not in str(refused.value)


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
