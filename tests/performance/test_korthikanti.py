"""The eight measured step times of Korthikanti et al. 2022, table 5, with the constants of the cluster preset.

They are fitted to all clusters together, of which these runs are one (21_unseen_clusters).
"""

import csv
from pathlib import Path

import jax
import numpy as np
import pytest

from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate_once

TABLE = Path(__file__).parents[2] / "experiments" / "data" / "megatron_a100_iteration_times.csv"
SEQUENCE, VOCABULARY, PEAK = 2048, 51200, 312e12
MICROBATCH = {"GPT-22B": 4}  # sequences; 1 for the larger models [Korthikanti et al. 2022, table 3]
# docs/physics.md B3: model FLOP/s over peak that the measured times imply, full and selective recomputation
IMPLIED_MFU = {
    "GPT-22B": {"full": 0.323, "selective": 0.417},
    "GPT-175B": {"full": 0.390, "selective": 0.514},
    "GPT-530B": {"full": 0.432, "selective": 0.560},
    "GPT-1T": {"full": 0.426, "selective": 0.563},
}
with TABLE.open(encoding="utf-8") as file:
    ROWS = [row for row in csv.DictReader(file) if row["source"].startswith("Korthikanti")]
EACH_ROW = pytest.mark.parametrize(
    "number", range(len(ROWS)), ids=[f"{row['model']}-{row['recompute']}" for row in ROWS]
)


def scenario(row):
    system = {
        "workload": f"megatron-{row['model'].removeprefix('GPT-').lower()}",
        "accelerator": "a100-sxm4-80gb",
        "node": "dgx-a100",
        "network": "infiniband-200g",
        "software": "megatron-2022",
        "facility": "air-cooled",
        "production_slowdown": 1.0,  # benchmarks
    }
    layout = {
        "tensor": int(row["tp"]),
        "pipeline": int(row["pp"]),
        "virtual_stages": float(row["interleaved_chunks"]),
        "microbatch": MICROBATCH.get(row["model"], 1),
        "sequence_parallel": float(row["sequence_parallel"] == "True"),
        "recomputation": row["recompute"],
        "zero": 0,
    }
    batch = f"{int(row['global_batch_sequences']) * SEQUENCE} tokens"
    plan = {"chips": int(row["n_gpu"]), "batch": batch, "goal": {"tokens": "300 G tokens"}, "layout": layout}
    return load_scenario({"base": "_common", "system": system, "plan": plan}, cluster="megatron-a100")


@pytest.fixture(scope="module")
def outcomes():
    with jax.enable_x64(True):
        return [evaluate_once(case.system, case.plan) for case in map(scenario, ROWS)]


@EACH_ROW
def test_presets_have_the_shape_and_place_of_the_row(number):
    """Layers, hidden size and heads of the row; parameters within 2 % of the model's name; 8 x 200 Gbit/s per node."""
    row, system = ROWS[number], scenario(ROWS[number]).system
    workload = system.workload
    shape = [float(row[name]) for name in ("num_layers", "hidden_size", "num_heads")]
    assert [float(workload.layers), float(workload.hidden), float(workload.heads)] == shape
    np.testing.assert_allclose(workload.parameters, float(row["params"]), rtol=0.02)
    assert (row["gpu"], int(row["seq_len_tokens"])) == ("A100-SXM4-80GB", SEQUENCE)
    assert system.accelerator.peak_flops == PEAK
    assert system.network.link.lanes * system.network.link.lane_bandwidth == 25e9


def test_errors_of_the_step_times(outcomes):
    predicted = np.array([float(outcome.step_time.total) for outcome in outcomes])
    errors = predicted / np.array([float(row["iteration_time_s"]) for row in ROWS]) - 1.0
    report = ", ".join(
        f"{row['model']} {row['recompute']} {error:+.1%}" for row, error in zip(ROWS, errors, strict=True)
    )
    assert len(errors) == 8
    assert np.mean(np.abs(errors)) <= 0.06, report
    assert np.max(np.abs(errors)) <= 0.08, report
    full = np.array([row["recompute"] == "full" for row in ROWS])
    assert max(abs(np.mean(errors[full])), abs(np.mean(errors[~full]))) <= 0.06, report


def test_full_recomputation_costs_time(outcomes):
    """The faster one of each pair is the one that was measured faster, by at least half of the measured gain."""
    for model in IMPLIED_MFU:
        pair = {row["recompute"]: index for index, row in enumerate(ROWS) if row["model"] == model}
        gain = float(outcomes[pair["full"]].step_time.total / outcomes[pair["selective"]].step_time.total) - 1.0
        times = {kind: float(ROWS[index]["iteration_time_s"]) for kind, index in pair.items()}
        assert gain >= 0.5 * (times["full"] / times["selective"] - 1.0)


@EACH_ROW
def test_utilization_is_that_of_the_paper_at_the_measured_time(number, outcomes):
    """The paper has attention without mask, `72 B L s h^2 [1 + s/(6h) + V/(12 h L)] / (G Fdot t)`; `mfu` has 6 N.

    Full recomputation repeats a third of all layers, selective a third of attention, neither the output head.
    """
    row, outcome = ROWS[number], outcomes[number]
    layers, hidden, time = float(row["num_layers"]), float(row["hidden_size"]), float(row["iteration_time_s"])
    head, attention = VOCABULARY / (12.0 * hidden * layers), SEQUENCE / (6.0 * hidden)
    sequences = float(row["global_batch_sequences"])
    flops = 72.0 * sequences * layers * SEQUENCE * hidden**2 * (1.0 + attention + head)
    implied = flops / (float(row["n_gpu"]) * PEAK * time)
    assert implied == pytest.approx(IMPLIED_MFU[row["model"]][row["recompute"]], abs=5e-4)
    with_attention = float(outcome.mfu) * (1.0 + attention / (1.0 + head))
    assert with_attention * float(outcome.step_time.total) / time == pytest.approx(implied, rel=1e-9)
    masked = attention / 2.0
    repeated = (1.0 + masked) / 3.0 if row["recompute"] == "full" else masked / 3.0
    expected = (1.0 + masked + head + repeated) / (1.0 + head)
    assert float(outcome.hfu / outcome.mfu) == pytest.approx(expected, rel=1e-9)
