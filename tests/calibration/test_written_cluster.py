"""The cluster that `calibrate step-time` writes."""

import csv
import json

import jax
import numpy as np
import pytest

import energymodel as em
from calibration.files import constants_of, scenario_file
from cli.shell import numbers, run
from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.calibration.step_prediction import predict, with_constants
from energymodel.report.answers.calibrate import calibrate_answer
from energymodel.scenarios.distributions import parse_distribution
from energymodel.scenarios.step_population import STEP_CONSTANTS

ROWS = [
    {"model": "megatron-22b", "chips": 8 * n, "tensor": t, "pipeline": 1, "batch_sequences": 16 * n, "microbatch": m}
    for n, t, m in ((1, 8, 2), (1, 4, 1), (2, 8, 4), (4, 8, 1), (8, 4, 2))
]
COMMON = {"zero": 0, "recomputation": "full", "sequence_parallel": 0, "flash": 0}
PRIOR = "a100-sxm4-80gb + megatron-2022 + dgx-a100 + infiniband-200g"
TRUTH = {"accelerator.gemm_efficiency": 0.6, "node.scale_up.efficiency": 0.5}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A table of steps of a slower cluster, what was fitted to it, and the file that was written."""
    folder = tmp_path_factory.mktemp("written")
    rows = [row | COMMON | {"cluster": "slower"} for row in ROWS]
    with jax.enable_x64(True):
        slower = with_constants(
            cluster_scenario("megatron-a100").system, {name: np.asarray(value) for name, value in TRUTH.items()}
        )
    times = predict(rows, {"slower": slower}).table()["step_time_s"]
    times = times * np.exp(np.random.default_rng(1).normal(0.0, 0.03, len(times)))
    table = folder / "steps.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "step_time_ms", "our notes"])
        writer.writeheader()
        writer.writerows(
            row | {"cluster": "", "step_time_ms": 1e3 * value} for row, value in zip(rows, times, strict=True)
        )
    fitted = em.calibrate("step-time", table, prior="megatron-a100", choices=em.TableChoices(ignore=("our notes",)))
    return table, fitted, scenario_file(folder, fitted, "mine.toml"), times


def test_the_written_file_has_the_printed_errors(measured):
    table, fitted, written, times = measured
    assert len(fitted.undetermined) > 1  # five rows cannot tell all constants
    predicted = predict(table, cluster=written, choices=em.TableChoices(ignore=("all",))).table()["step_time_s"]
    error = 100.0 * np.mean(np.abs(predicted / times - 1.0))
    assert error == pytest.approx(fitted.in_fit["step time"], rel=1e-6)


def test_all_fitted_constants_are_written_and_undetermined_ones_flagged(measured):
    _, fitted, written, _ = measured
    origins = em.load_scenario(written).provenance
    for constant in fitted.constants:
        origin = origins[f"system.{constant.name}"]
        assert origin.kind == ("measured" if constant.determined else "prior")
        assert ("not determined" in origin.source) != constant.determined


def test_updated_constants_are_surer_than_before_and_the_level_is_known_best(measured):
    table, fitted, _, times = measured
    before = predict(table, cluster=PRIOR, choices=em.TableChoices(ignore=("all",))).table()["step_time_s"]
    (_, low, high), (_, least, most) = fitted.common
    assert low < np.exp(np.mean(np.log(times / before))) < high  # a slower cluster
    assert np.log(high / low) < 0.5 * np.log(most / least)
    for constant in fitted.constants:
        (low, high), (least, most) = (
            map(STEP_CONSTANTS[constant.name].coordinate, ends) for ends in (constant.ends, constant.before)
        )
        assert constant.updated == (high - low <= 0.9 * (most - least))
    updated = [constant.name for constant in fitted.constants if constant.updated]
    assert 0 < len(updated) < len(fitted.constants)
    told = " ".join(sentence.words for sentence in calibrate_answer(fitted).sentences)
    assert "Step times as a whole are" in told
    kept = told.partition("No surer than before these measurements: ")[2].partition(". ")[0].split(", ")
    assert sorted([*kept, *updated]) == sorted(STEP_CONSTANTS)


def test_hardly_a_sample_of_a_share_exceeds_one(measured):
    _, fitted, written, _ = measured
    uncertainty = em.load_scenario(written).uncertainty
    shares = [constant for constant in fitted.constants if STEP_CONSTANTS[constant.name].upper == 1.0]
    assert "network.link.efficiency" in {constant.name for constant in shares}
    for constant in shares:
        distribution = parse_distribution(uncertainty[f"system.{constant.name}"], constant.name, "1", constant.value)
        assert distribution.quantiles(constant.value, [0.998])[0] < 1.0


def test_the_title_names_the_table_and_the_cluster(measured):
    _, _, written, _ = measured
    title = "calibrated from steps.csv on Megatron-LM 2022 on DGX A100 (Selene)"
    assert em.load_scenario(written).title == title
    again = em.load_scenario("test-1b-h100", cluster=written)
    assert again.title == f"Test model of 1.2B parameters on 8 NVIDIA A100 SXM4 ({title})"


def test_every_command_takes_the_file_as_a_cluster(measured):
    _, fitted, written, _ = measured
    values = {name: constant.value for name, constant in constants_of(fitted).items()}
    scenario = em.load_scenario("test-1b-h100", {"system.network.link.efficiency": 0.5}, written)
    assert float(scenario.system.software.product_efficiency) == pytest.approx(values["software.product_efficiency"])
    assert float(scenario.system.node.scale_up.latency) == pytest.approx(values["node.scale_up.latency"])
    assert float(scenario.system.network.link.efficiency) == 0.5
    assert scenario.tables["system"]["accelerator"]["title"] == "NVIDIA A100 SXM4, 80 GB"
    for command in ("evaluate", "optimize", "pareto", "limits", "sensitivity", "sweep"):
        assert "--cluster" in run(command, "--help").stdout
        refused = run(command, "test-1b-h100", "--cluster", str(written.with_name("none.toml")), *GRID.get(command, ()))
        assert refused.exit_code == 2
        assert "none.toml: no such file" in refused.stderr


GRID = {"sweep": ("--axis", "plan.clock=0.5:1:3")}


def test_predict_names_the_file_in_a_table_and_keeps_the_columns_of_the_input(measured, tmp_path):
    table, fitted, written, times = measured
    lines = table.read_text(encoding="utf-8").splitlines()
    column = lines[0].split(",").index("cluster")
    named = [",".join([*(cells := line.split(","))[:column], "mine.toml", *cells[column + 1 :]]) for line in lines[1:]]
    beside, output = written.with_name("named.csv"), tmp_path / "out.csv"
    beside.write_text("\n".join((lines[0], *named)) + "\n", encoding="utf-8")
    result = run("predict", str(beside), "--ignore-columns", "our notes", "--json", "-o", str(output))
    assert result.exit_code == 0, result.stderr
    tree = json.loads(result.stdout)
    assert 100.0 * numbers(tree, "errors")["mean"] == pytest.approx(fitted.in_fit["step time"], rel=1e-6)
    written_rows = list(csv.DictReader(output.read_text(encoding="utf-8").splitlines()))
    assert list(written_rows[0])[: len(lines[0].split(","))] == lines[0].split(",")
    assert float(written_rows[0]["step_time_ms"]) == pytest.approx(1e3 * times[0])
    assert float(written_rows[0]["predicted_step_time_s"]) == pytest.approx(numbers(tree, "steps")["step_time"])
    slower = run(
        "predict", str(beside), "--ignore-columns", "all", "--json", "--set", "system.node.scale_up.efficiency=0.2"
    )
    assert numbers(json.loads(slower.stdout), "steps")["step_time"] > numbers(tree, "steps")["step_time"]


def test_a_framework_that_shards_less_lowers_the_stage_with_a_warning(measured):
    _, _, written, _ = measured
    layout = {"layout": {"zero": 2, "pipeline": 2}}
    tables = {"base": "test-1b-h100", "system": {"software": "meta-fsdp"}, "plan": layout}
    with pytest.warns(UserWarning, match="runs ZeRO 1 with pipeline parallelism"):
        scenario = em.load_scenario(tables, (), written)
    assert float(scenario.plan.layout.shard_gradients) == 0.0
    with pytest.raises(em.InputError, match="does not shard gradients"):
        em.load_scenario(tables, {"plan.layout.zero": 2}, written)
