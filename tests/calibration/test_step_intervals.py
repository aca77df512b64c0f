"""Intervals of predicted step times, and their narrowing by measured rows."""

import math

import numpy as np
import pytest

import energymodel as em
from calibration.files import scenario_file
from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.calibration.kinds import KINDS
from energymodel.calibration.layout_table import inputs_of, layouts
from energymodel.calibration.step_prediction import known_constants, predict, step_time_spread
from energymodel.scenarios.step_population import NAMES

FITTED, UNFITTED = "megatron-a100", "a100-sxm4-80gb + megatron"
PATH = "software.product_efficiency"
ROWS = [
    {"model": "megatron-22b", "chips": 8, "tensor": t, "pipeline": 1, "batch_sequences": 16, "microbatch": m}
    for t, m in ((8, 2), (4, 1), (8, 4))
]


def interval(cluster, level="", changes=()):
    predicted = predict(ROWS, cluster=cluster, changes=changes).table()
    return predicted[f"step_time_low{level}_s"], predicted["step_time_s"], predicted[f"step_time_high{level}_s"]


@pytest.mark.parametrize("cluster", [FITTED, UNFITTED])
def test_ends_are_those_of_a_lognormal_distribution(cluster):
    # 1.64485 and 0.67449 standard deviations: 90 and 50 % of the normal distribution.
    (low, middle, high), (low_50, _, high_50) = interval(cluster), interval(cluster, "_50")
    assert np.all(low < low_50)
    assert np.all(high_50 < high)
    np.testing.assert_allclose(low * high, middle**2, rtol=1e-9)
    np.testing.assert_allclose(np.log(high / middle) / np.log(high_50 / middle), 1.64485 / 0.67449, rtol=1e-4)


def test_a_fitted_cluster_is_surer_than_one_of_its_chip_and_framework_and_that_than_a_new_framework():
    fitted, unfitted, unknown = (
        np.log(high / low) for low, _, high in map(interval, (FITTED, UNFITTED, "mi300x + maxtext"))
    )
    assert np.all(fitted < unfitted)
    assert np.all(unfitted < unknown)


def test_a_number_that_is_set_is_exact():
    free, held = (known_constants(cluster_scenario(UNFITTED, changes)) for changes in ([], [f"system.{PATH}=0.7"]))
    assert free is not None
    assert held is not None
    index, others = NAMES.index(PATH), np.arange(len(NAMES)) != NAMES.index(PATH)
    assert held[0].mean[index] == pytest.approx(math.log(0.7))
    assert not held[0].covariance[index].any()
    assert not held[0].covariance[:, index].any()
    rest = np.ix_(others, others)
    np.testing.assert_array_equal(held[0].covariance[rest], free[0].covariance[rest])
    assert free[0].covariance[index, index] > 0.0


def test_with_all_constants_exact_the_scatter_is_left():
    scenario = cluster_scenario(UNFITTED)
    constants, scatter = known_constants(scenario) or (None, 0.0)
    assert constants is not None
    exact = constants._replace(covariance=np.zeros((len(NAMES), len(NAMES))))
    inputs = inputs_of(layouts([{**row, "cluster": UNFITTED} for row in ROWS]))
    np.testing.assert_allclose(step_time_spread(exact, scatter, scenario.system, inputs), scatter, rtol=1e-12)


@pytest.mark.slow
def test_one_row_moves_the_level_of_all(tmp_path):
    """Calibration of the unfitted cluster to one row that is 1.5 times slower, without noise."""
    rows = [
        {
            "model": "megatron-22b",
            "chips": 8 * n,
            "tensor": t,
            "pipeline": 1,
            "batch_sequences": 16 * n,
            "microbatch": m,
        }
        for n in (1, 2, 4)
        for t, m in ((8, 2), (8, 4), (4, 1), (8, 1))
    ]
    before = predict(rows, {"it": cluster_scenario(UNFITTED).system}, cluster="it").table()["step_time_s"]
    measured = {**rows[0], "step_time_s": 1.5 * before[0]}
    written = scenario_file(tmp_path, em.calibrate("step-time", [measured], prior=UNFITTED))
    after = predict(rows, cluster=written).table()["step_time_s"]
    assert abs(np.mean(np.log(after / (1.5 * before)))) < 0.5 * math.log(1.5)


DEGREES = ("model", "chips", "tensor", "pipeline")
MEASURED = {
    "dense": [("llama-3.1-8b", 8, 1, 1), ("llama-3.1-8b", 8, 2, 1), ("llama-3.1-70b", 64, 4, 4)],
    "experts": [("deepseek-v3", 256, 1, 16), ("llama-3.1-8b", 16, 1, 1)],
    "one row": [("gpt3-175b", 64, 8, 8)],
}


@pytest.mark.parametrize("name", MEASURED)
def test_every_run_to_measure_next_divides_and_fits_on_the_chips_of_the_rows(name):
    fixed = {"batch_sequences": 512, "zero": 1, "sequence": 4096, "recomputation": "selective"}
    rows = [dict(zip(DEGREES, row, strict=True)) | fixed | {"step_time_s": 9.0} for row in MEASURED[name]]
    kind = KINDS["step-time"]
    case = kind.read(kind.table(rows), cluster_scenario("b200-sxm + megatron"))
    proposed = [dict(pair.split("=") for pair in words.split(", ")) for words in case.candidates.words]
    assert {row["model"] for row in proposed} == {row["model"] for row in rows}
    for row in proposed:
        chips, tensor, pipeline = (float(row[degree]) for degree in DEGREES[1:])
        assert {column: str(value) for column, value in fixed.items()}.items() <= row.items()
        assert (
            (row["model"], chips, tensor, pipeline) not in MEASURED[name]
            or row["microbatch"] != "1"
            or "virtual_stages" in row
        )
        assert chips <= max(chips for _, chips, *_ in MEASURED[name])
        data = chips / (tensor * pipeline)
        assert (data / float(row.get("expert", 1))).is_integer()
        assert (512.0 / (data * float(row["microbatch"]))).is_integer()
    predicted = predict(proposed, cluster="b200-sxm + megatron").table()
    assert np.all(predicted["out_of_memory_probability"] <= 0.05)


def test_rows_without_a_time_choose_the_run_to_measure_next():
    row = {"model": "llama-3.1-8b", "batch_sequences": 64, "zero": 1, "step_time_s": 9.0, "chips": 8}
    asked = {**row, "chips": 32, "tensor": 4, "pipeline": 4, "step_time_s": ""}
    kind = KINDS["step-time"]
    case = kind.read(kind.table([row, asked]), cluster_scenario("b200-sxm + megatron"))
    assert len(case.fit.table.measured) == 1
    np.testing.assert_array_equal(case.candidates.targets.rows["chips"], [32.0])
    assert {*case.candidates.table.rows["chips"]} == {4.0, 8.0, 32.0}
    assert case.candidates.of == "the step times of 1 row without one"
