"""What a scenario refuses, whoever says it and wherever, with one line that names what is wrong."""

import datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml

import energymodel as em
from energymodel.calibration.kinds import KINDS
from energymodel.scenarios.document import CALIBRATIONS
from energymodel.scenarios.scenario import load_scenario
from energymodel.sweeps.scenario_axes import scenario_axis

SMALL = "test-1b-h100"
REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8"))
RATED = "system.accelerator.rated_power"
OTHERS = [
    (RATED, {"value": 700, "unit": [-np.inf]}, "rated_power.unit"),
    (RATED, datetime.date(2026, 1, 1), "neither a number nor a text"),
    (RATED, 1 << 20_000, "more digits than are read"),
    ("optimize.fix", [1 << 20_000], "more digits than are read"),
    ("system.workload", "x" * 5000, "has 5000 characters"),
]
CALIBRATION = {
    "names": ["software.product_efficiency", "accelerator.overhead_time"],
    "values": [0.8, 0.07],
    "slopes": [0.8, 0.07],
    "coordinates": [-0.2, -2.6],
    "covariance": [[0.003, 0.001], [0.001, 0.01]],
    "scatter": 0.09,
}


@pytest.fixture(scope="module")
def scenario():
    return load_scenario(SMALL)


def short(value):
    return value if isinstance(value, str) and len(value) < 80 else type(value).__name__


def refusal(ask, *arguments, **named):
    """The one line with which something is refused."""
    with pytest.raises(em.InputError) as refused:
        ask(*arguments, **named)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [*REFUSED["changes"], *OTHERS],
    ids=lambda value: value if isinstance(value, str) and len(value) < 80 else type(value).__name__,
)
def test_a_change_that_cannot_be(path, value, words):
    message = refusal(load_scenario, SMALL, {path: value})
    assert all(word in message for word in (words if isinstance(words, list) else [words])), message


@pytest.mark.parametrize(("path", "value", "message"), REFUSED["impossible"])
def test_an_impossible_value_is_refused_by_name_everywhere(scenario, path, value, message):
    assert f"{path}: {message}" in refusal(load_scenario, SMALL, {path: value})
    assert f"vary {path}: {message}" in refusal(scenario.with_question, vary={path: (value, value)})
    assert f"axis {path}: {message}" in refusal(scenario_axis, scenario, path, value)


@pytest.mark.parametrize(("changed", "message"), REFUSED["calibrations"])
def test_a_calibration_that_does_not_fit_together(changed, message):
    kind = changed.get("kind", "step-time")
    table = {key: value for key, value in (CALIBRATION | changed).items() if value is not None and key != "kind"}
    section = changed.get("section", {kind: table})
    assert message in refusal(load_scenario, {"base": SMALL, "calibration": section})


def test_a_calibration_that_fits_together_is_part_of_the_scenario():
    section = {"step-time": CALIBRATION}
    assert load_scenario({"base": SMALL, "calibration": section}).tables["calibration"] == section
    assert set(CALIBRATIONS) == set(KINDS)


@pytest.mark.parametrize(("section", "message"), REFUSED["questions"])
def test_one_message_for_files_and_for_python(scenario, section, message):
    in_file = refusal(load_scenario, {"base": SMALL, "optimize": section})
    assert message in in_file
    if isinstance(section, dict) and "minimise" not in section:
        every = (em.optimize, em.pareto, partial(em.sensitivity, optimum=True))
        for ask in every[:1] if "minimize" in section else every:
            assert refusal(ask, scenario, **section) == in_file
