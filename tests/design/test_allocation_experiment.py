"""Does the experiment on power allocation still give what it states?"""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "11_power_allocation"


def stated():
    return json.loads((EXPERIMENT / "result.json").read_text(encoding="utf-8"))


def test_every_search_ended_well_and_no_time_was_lost():
    result = stated()
    assert all(row["solved"] for rows in result.values() for row in rows)
    at_once = {row["per"]: row for row in result["pipelines"] if row["ranks"] == 4 and row["time_ratio"] < 1.0 + 1e-5}
    assert set(at_once) == {"rank", "phase", "operation"}
    assert at_once["operation"]["energy_ratio"] < at_once["phase"]["energy_ratio"] < at_once["rank"]["energy_ratio"]
    for row in result["site"]:
        parts = ["compute", "memory", "network", "host", "delivery_loss", "cooling", "other"]
        np.testing.assert_allclose(sum(row[f"{part}_w"] for part in parts), row["limit_w"], rtol=1e-7)


@pytest.mark.slow
def test_the_experiment_gives_what_it_states():
    spec = importlib.util.spec_from_file_location("power_allocation", EXPERIMENT / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.compute()
    for name, rows in stated().items():
        for row, again in zip(rows, found[name], strict=True):
            for key, value in row.items():
                # What has no effect, such as the clock of a device that hardly works, is not held to many digits.
                if isinstance(value, float) and key.startswith(("step_time", "energy", "throughput", "time_ratio")):
                    np.testing.assert_allclose(again[key], value, rtol=1e-5, err_msg=f"{name} {key}")
