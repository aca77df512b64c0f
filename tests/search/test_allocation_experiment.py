"""Does the experiment on power allocation still give what it states?"""

import numpy as np
import pytest

from experiment import Experiment

EXPERIMENT = Experiment("11_power_allocation")


def test_every_search_ended_well_and_no_time_was_lost():
    result = EXPERIMENT.stated()
    assert all(row["solved"] for rows in result.values() for row in rows)
    at_once = {row["per"]: row for row in result["pipelines"] if row["ranks"] == 4 and row["time_ratio"] < 1.0 + 1e-5}
    assert set(at_once) == {"rank", "phase", "operation"}
    assert at_once["operation"]["energy_ratio"] < at_once["phase"]["energy_ratio"] < at_once["rank"]["energy_ratio"]
    for row in result["site"]:
        parts = ["compute", "memory", "network", "host", "delivery_loss", "cooling", "other"]
        drawn = sum(row[f"{part}_w"] for part in parts)
        assert drawn <= row["limit_w"] * (1 + 1e-7)
        if row["price_token_per_j"] > 1e-6:  # elsewhere every part runs at full rate
            np.testing.assert_allclose(drawn, row["limit_w"], rtol=1e-7)


@pytest.mark.slow
def test_the_experiment_gives_what_it_states():
    found = EXPERIMENT.module("run").compute()
    for name, rows in EXPERIMENT.stated().items():
        for row, again in zip(rows, found[name], strict=True):
            for key, value in row.items():
                # What has no effect, such as the clock of a device that hardly works, is not held to many digits.
                if isinstance(value, float) and key.startswith(("step_time", "energy", "throughput", "time_ratio")):
                    np.testing.assert_allclose(again[key], value, rtol=1e-5, err_msg=f"{name} {key}")
