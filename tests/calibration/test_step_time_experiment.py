"""Do the cluster presets reproduce the errors that experiments/01_step_time states, on part of its data?"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from energymodel.calibration.predict import predict

FOLDER = Path(__file__).parents[2] / "experiments" / "01_step_time"
RESULT = json.loads((FOLDER / "result.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def adapters():
    spec = importlib.util.spec_from_file_location("step_time_adapters", FOLDER / "adapters.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "file", "name", "limit"),
    [
        ("korthikanti", "megatron_a100_iteration_times.csv", "korthikanti", 0.06),
        ("vtrain", "vtrain_a100_iteration_times.csv", "vtrain-multi", 0.09),
        ("vtrain", "vtrain_a100_iteration_times.csv", "vtrain-single", 0.07),
    ],
)
def test_presets_predict_measured_steps(adapters, source, file, name, limit):
    rows = [
        row for row in getattr(adapters, source)(adapters.read(FOLDER.parent / "data" / file)) if row["set"] == name
    ]
    rows = rows[:: max(1, len(rows) // 100)]
    measured = np.asarray([float(row["step_time_s"]) for row in rows])
    error = np.abs(predict(rows).table()["step_time_s"] / measured - 1.0)
    assert np.mean(error) <= limit


def test_result_states_each_set():
    assert {"korthikanti", "vtrain-single", "vtrain-multi", "nanotron", "mpt"} <= set(RESULT["sets"])
    assert RESULT["sets"]["nanotron"]["median_percent"] <= 8.0
    assert RESULT["sets"]["nanotron, MFU > 25 %"]["mean_percent"] <= 6.0
    assert RESULT["sets"]["vtrain-single"]["mean_percent"] <= 7.0


def test_fitted_constants_lie_within_their_physical_range():
    for constants in RESULT["constants"].values():
        assert len(constants) <= 6
        for path, (value, low, high) in constants.items():
            assert low <= value <= high
            if path.endswith("efficiency"):
                assert 0.0 < value < 1.0
