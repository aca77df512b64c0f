"""Does the fit of experiment 01 find the constants that made the data, with honest intervals, and hold groups out?"""

import numpy as np
import pytest

from energymodel.calibration.cluster_source import cluster_system
from energymodel.calibration.layout_table import layouts
from energymodel.calibration.predicted_step import with_constants
from energymodel.calibration.step_prediction import predict
from experiment import Experiment

TRUTH = {"accelerator.gemm_efficiency": 0.66, "node.scale_up.efficiency": 0.55}
CLUSTER_FIT = Experiment("01_step_time").module("cluster_fit")
CONSTANTS = (
    CLUSTER_FIT.ClusterConstant("accelerator.gemm_efficiency", 0.8, 1.0, 0.3, 0.95),
    CLUSTER_FIT.ClusterConstant("node.scale_up.efficiency", 0.8, 1.0, 0.2, 1.0),
)


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(1)
    rows = [
        {
            "cluster": "megatron-a100",
            "layers": 24,
            "hidden": hidden,
            "heads": hidden // 128,
            "vocabulary": 51200,
            "sequence": 2048,
            "chips": 8,
            "batch_sequences": 32,
            "tensor": tensor,
            "microbatch": micro,
            "group": str(hidden),
        }
        for hidden in (2048, 4096, 8192)
        for tensor in (1, 4, 8)
        for micro in (1, 4)
    ]
    system = cluster_system("megatron-a100")
    truth = with_constants(system, TRUTH)
    times = predict(layouts(rows), {"megatron-a100": truth}).table()["step_time_s"] * np.exp(rng.normal(0, 0.01, 18))
    times[3] *= 4.0  # a run that something else slowed
    rows = [{**row, "step_time_s": time} for row, time in zip(rows, times, strict=True)]
    return CLUSTER_FIT.fit_cluster(system, layouts(rows), CONSTANTS, [row["group"] for row in rows])


def test_constants_are_found_within_their_intervals_despite_an_outlier(found):
    np.testing.assert_allclose(found.values, [*TRUTH.values()], rtol=0.05)
    assert np.all(found.low < found.values)
    assert np.all(found.values < found.high)
    assert np.all(np.log(found.high / found.low) < 0.5)


def test_errors_are_those_of_the_noise_and_the_outlier_stands_out(found):
    others = np.delete(found.held_out, 3)
    assert np.median(np.abs(others)) < 0.02
    np.testing.assert_allclose(found.held_out[3], -np.log(4.0), atol=0.1)
    assert np.any(found.held_out != found.residual)
