"""Real logs of power, and what is known of them.

The files are not part of the project: `ENERGYMODEL_USER_FILES` names a folder with a folder `logs`, beside which a
folder `data` holds tables of power.
"""

import csv
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.readers.metered import Metered, by_device, merge_devices
from energymodel.readers.power_log import Skipped, power_kind, read_power

FOLDER = os.environ.get("ENERGYMODEL_USER_FILES", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FOLDER, reason="ENERGYMODEL_USER_FILES names no folder of logs")]
LOGS, DATA = Path(FOLDER) / "logs", Path(FOLDER).parent / "data"


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
