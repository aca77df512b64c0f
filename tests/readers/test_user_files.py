"""Real logs of training and of power, and what is known of them; numbers are counted without the readers.

The files are not part of the project: `ENERGYMODEL_USER_FILES` names a folder with a folder `logs`, beside which a
folder `data` holds tables of power.
"""

import csv
import json
import math
import os
import re
from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.logged_run import logged_run
from energymodel.readers.metered import Metered, by_device, merge_devices
from energymodel.readers.power_log import Skipped, power_kind, read_power
from energymodel.readers.step_log import read_steps

FOLDER = os.environ.get("ENERGYMODEL_USER_FILES", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FOLDER, reason="ENERGYMODEL_USER_FILES names no folder of logs")]
LOGS, DATA = Path(FOLDER) / "logs", Path(FOLDER).parent / "data"


def read(name: str) -> tuple[str, list[LoggedStep], list[LogEvent]]:
    log = read_steps(LOGS / name)
    records = list(log)
    return (
        log.kind,
        [record for record in records if isinstance(record, LoggedStep)],
        [record for record in records if isinstance(record, LogEvent)],
    )


def behind(name: str, word: str) -> list[float]:
    """The numbers that stand behind a word in each line, cut out without any of the readers."""
    lines = [line for line in (LOGS / name).read_text().splitlines() if word in line]
    return [float(line.split(word, 1)[1].split()[0].rstrip(",%|").replace(",", "")) for line in lines]


@pytest.mark.parametrize("name", ["megatron_energy.log", "megatron_mixtral_16xh100.log"])
def test_megatron(name: str) -> None:
    kind, steps, events = read(name)
    assert (kind, events) == ("megatron", [])
    assert [step.step_time * 1e3 for step in steps] == pytest.approx(behind(name, "per iteration (ms):"))
    assert [step.flops_rate / 1e12 for step in steps] == pytest.approx(behind(name, "(TFLOP/s/GPU):"))
    assert [step.sequences for step in steps] == behind(name, "global batch size:")
    assert [step.loss for step in steps] == behind(name, "lm loss:")
    clock = [step.time for step in steps]
    passed = (clock[-1] - clock[0]) / (len(clock) - 1)
    assert passed == pytest.approx(median(step.step_time for step in steps), abs=0.1)
    if "energy" in name:
        assert [step.energy for step in steps] == behind(name, "(J/iter/GPU):")
        assert [step.power * step.step_time for step in steps] == pytest.approx([s.energy for s in steps], rel=1e-3)


def test_torchtitan() -> None:
    kind, steps, _ = read("torchtitan_b200_ranks.log")
    assert kind == "torchtitan"
    name = "torchtitan_b200_ranks.log"
    rates = dict(zip(behind(name, "step:"), behind(name, "tps:"), strict=True))
    assert [step.step for step in steps] == sorted(rates)
    assert median(step.token_rate for step in steps) == pytest.approx(median(rates.values()), rel=1e-3)
    assert steps[1].step_time == pytest.approx(19.145 - 17.508)


def test_maxtext() -> None:
    kind, steps, _ = read("maxtext.log")
    assert kind == "maxtext"
    assert median(step.step_time for step in steps) == median(behind("maxtext.log", "seconds:"))
    assert [step.token_rate for step in steps] == behind("maxtext.log", "Tokens/s/device:")


def test_mlperf() -> None:
    kind, steps, events = read("mlperf_lora_mi355x.txt")
    assert kind == "mlperf"
    text = (LOGS / "mlperf_lora_mi355x.txt").read_text().splitlines()
    entries = [json.loads(line.split(":::MLLOG", 1)[1]) for line in text if ":::MLLOG" in line]
    batch = next(entry["value"] for entry in entries if entry["key"] == "global_batch_size")
    starts = [entry for entry in entries if entry["key"] == "block_start"]
    stops = [entry for entry in entries if entry["key"] == "block_stop"]
    means = [
        (stop["time_ms"] - start["time_ms"]) * 1e-3 / (stop["metadata"]["curr_global_step"] - start_samples / batch)
        for start, stop in zip(starts, stops, strict=True)
        for start_samples in [start["metadata"]["samples_count"]]
    ]
    assert [step.step_time for step in steps] == pytest.approx(means)
    assert [step.step for step in steps] == [stop["metadata"]["curr_global_step"] for stop in stops]
    evaluations = [event for event in events if event.kind == "evaluation"]
    assert [event.value for event in evaluations] == [e["value"] for e in entries if e["key"] == "eval_accuracy"]
    stop = next(event for event in events if event.kind == "stop")
    assert stop.duration == pytest.approx(666.789, abs=0.01)


def test_tensorboard() -> None:
    kind, steps, _ = read("tensorboard_scalar.csv")
    assert (kind, [(step.step, step.time) for step in steps]) == ("tensorboard", [(1, 1698314503.5367975)])
    assert math.isnan(steps[0].loss)  # no name of a scalar in the name of the file


def test_power_readings_are_no_training_log() -> None:
    for name in ("nvidia_smi_8xh100.csv", "codecarbon_emissions_v2.csv", "dcgm_exporter_l40s.prom"):
        with pytest.raises(InputError, match="no line is one of a training log"):
            read_steps(LOGS / name)


def test_medians_of_real_logs_are_those_of_a_count_by_hand():
    texts = {name: (LOGS / name).read_text() for name in ("megatron_energy.log", "megatron_mixtral_16xh100.log")}
    for name, text in texts.items():
        counted = median(float(number) for number in re.findall(r"iteration \(ms\): ([\d.]+)", text))
        assert np.median(logged_run(read_steps(LOGS / name)).column("step_time")) == pytest.approx(1e-3 * counted)
    maxtext = re.findall(r"seconds: ([\d.]+)", (LOGS / "maxtext.log").read_text())
    usual = [float(number) for number in maxtext[2:]]
    assert np.median(logged_run(read_steps(LOGS / "maxtext.log")).column("step_time")) == median(usual)
    titan = logged_run(read_steps(LOGS / "torchtitan_b200_ranks.log"))
    assert list(titan.columns["step"]) == [4.0, 5.0]
    assert np.median(titan.column("step_time")) == pytest.approx(1.637)
    blocks = logged_run(read_steps(LOGS / "mlperf_lora_mi355x.txt"))
    rates = re.findall(r'"throughput": ([\d.]+)', (LOGS / "mlperf_lora_mi355x.txt").read_text())
    assert np.median(blocks.column("step_time")) == pytest.approx(8.0 / median(map(float, rates)), rel=2e-3)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("file", "kind", "devices"),
    [
        ("nvidia_smi_8xh100.csv", "nvidia-smi", "0 1 2 3 4 5 6 7"),
        ("dcgm_exporter_l40s.prom", "dcgm", "0"),
        ("dcgm_exporter_mig.prom", "dcgm", "0 1"),
        ("codecarbon_emissions_v2.csv", "codecarbon", "cpu gpu node ram"),
    ],
)
def test_kind_and_devices(file, kind, devices):
    skipped = Skipped()
    assert power_kind(LOGS / file) == kind
    readings = by_device(read_power(LOGS / file, skipped=skipped))
    assert {name.partition(" (")[0] for name in readings} == set(devices.split())
    assert not any("line" in reason for reason in skipped)


def test_eight_devices_without_a_column_of_devices():
    # Every eighth row is that of the device with little memory in use: the first of each sample.
    readings = list(read_power(LOGS / "nvidia_smi_8xh100.csv"))
    rows = rows_of(LOGS / "nvidia_smi_8xh100.csv")
    little = [float(row[" power.draw [W]"].split()[0]) for row in rows if "543" not in row[" memory.used [MiB]"]]
    assert [reading.power for reading in readings if reading.device == "0"] == little
    spread = [np.ptp([reading.power for reading in rows]) for name, rows in by_device(readings).items() if name != "0"]
    assert max(spread) < 1.0  # idle devices draw what they drew before: no row is another device's
    # The file begins with the last row of a sample and ends before the last device of another.
    merged = merge_devices(readings, interval=0.1)
    np.testing.assert_allclose(merged.total[2:40] / 8, merged.mean[2:40])


def test_energies_of_codecarbon_are_those_of_its_rows():
    rows = rows_of(LOGS / "codecarbon_emissions_v2.csv")
    devices = by_device(read_power(LOGS / "codecarbon_emissions_v2.csv"))
    last: dict[tuple[str, int], float] = {}
    for row in rows:
        if not row["energy_consumed"]:
            continue  # a run that was stopped before its first measurement
        stop = np.datetime64(row["timestamp"]).astype("datetime64[s]").astype(float)
        last[row["run_id"], round((stop - float(row["duration"])) / 3)] = float(row["energy_consumed"]) * 3.6e6
    total = sum(
        reading.energy
        for name, readings in devices.items()
        if name.startswith("node")
        for reading, after in zip(readings, [*readings[1:], None], strict=True)
        if after is None or after.fresh
    )
    assert total == pytest.approx(sum(last.values()), rel=1e-9)


def test_energies_of_runs_are_those_of_a_trapezoid():
    runs = defaultdict(list)
    for row in rows_of(DATA / "power_trace_8xh100_1s.csv"):
        runs[row["checkpoint_every_steps"]].append((float(row["second"]), float(row["mean_w"])))
    summary = {row["checkpoint_every_steps"]: row for row in rows_of(DATA / "power_trace_8xh100_summary.csv")}
    devices = by_device(read_power(DATA / "power_trace_8xh100_1s.csv"))
    assert set(devices) == {f"{run}:node" for run in runs}
    for run, samples in runs.items():
        time, power = np.asarray(samples).T
        meter = Metered(devices[f"{run}:node"])
        energy = meter.energy([(time[0], time[-1])])[0]
        assert energy == pytest.approx(np.trapezoid(power, time), rel=1e-9)
        assert energy == pytest.approx(float(summary[run]["energy_j"]), rel=0.01)
        for start in np.arange(time[0] + 0.3, time[-1] - 60, 47.7):  # phases that begin between readings
            fine = np.linspace(start, start + 55.5, 20_001)
            expected = np.trapezoid(np.interp(fine, time, power), fine)
            assert meter.energy([(start, start + 55.5)])[0] == pytest.approx(expected, rel=0.001)


def test_energies_of_nodes_are_those_of_a_trapezoid():
    runs = defaultdict(list)
    for row in rows_of(DATA / "mlperf_power_traces.csv"):
        name = "/".join(row[key] for key in ("round", "submitter", "system", "benchmark", "run"))
        runs[f"{name}:node"].append((float(row["t_since_run_start_s"]), float(row["mean_node_power_w"])))
    devices = by_device(read_power(DATA / "mlperf_power_traces.csv"))
    assert set(devices) == set(runs)
    for name, samples in runs.items():
        time, power = np.asarray(samples).T
        energy, seconds, measured = Metered(devices[name]).energy([(time[0], time[-1])])
        if seconds == pytest.approx(time[-1] - time[0]):
            assert energy == pytest.approx(np.trapezoid(power, time), rel=1e-9)
        assert measured > 0.9 * (time[-1] - time[0])


def test_all_other_files_are_refused_or_read():
    for path in [*sorted(LOGS.iterdir()), *sorted(DATA.glob("*.csv"))]:
        try:
            count = sum(1 for _ in read_power(path))
        except InputError:
            continue
        assert count > 0
