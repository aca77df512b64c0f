"""Logs and meters joined by time, and energy of phases."""

import csv
import math
from datetime import UTC, datetime

import numpy as np
import pytest

from energymodel.calibration.calibrate_logs import calibrate_logs, is_training_log, measured_rows
from energymodel.errors import InputError
from energymodel.readers.logged_run import WAITING
from energymodel.readers.measured_log import measure_logs
from energymodel.readers.metered import BUSY, IDLE
from energymodel.report.answers.measure import rows_table
from energymodel.report.data import csv_text
from energymodel.scenarios.pieces import scenario_of_pieces

START = 1_770_000_000.0
STEP, SAVE = 2.0, 12.0
TRAINS, SAVES = 500.0, 200.0


def moment(seconds: float, separator: str = "-") -> str:
    when = datetime.fromtimestamp(START + seconds, UTC)
    return when.strftime(f"%Y{separator}%m{separator}%d %H:%M:%S.%f")


def write_run(folder, *, shift=0.0, steps=40, devices=4):
    """A run that writes a checkpoint before its 20th step, and readings of its devices."""
    lines, power, now = [], [], 0.0
    for step in range(1, steps + 1):
        if step == 20:
            lines.append(f" [{moment(now)}] saving checkpoint at iteration 19 to x")
            power.append((now, now + SAVE, SAVES))
            now += SAVE
        power.append((now, now + STEP, TRAINS))
        now += STEP
        took = STEP + (SAVE if step == 20 else 0.0)
        lines.append(
            f" [{moment(now)}] iteration {step}/ 100 | elapsed time per iteration (ms): {1e3 * took} | "
            f"global batch size: 64 | lm loss: {3.0 - 0.01 * step} | grad norm: 1.0 |"
        )
    log, meter = folder / "train.log", folder / "gpu.csv"
    log.write_text("\n".join(lines))
    rows = ["timestamp, index, power.draw [W], clocks.current.sm [MHz], temperature.gpu"]
    for tick in np.arange(0.0, now, 0.5):
        watts = next(value for begin, end, value in power if begin <= tick < end)
        stamp = moment(tick + shift, "/")[:-3]
        rows += [f"{stamp}, {device}, {watts + device:.2f} W, 1755 MHz, 65" for device in range(devices)]
    meter.write_text("\n".join(rows))
    return log, meter


def measured(folder, name, *lines):
    """What a file of some lines measures."""
    file = folder / name
    file.write_text("\n".join(lines))
    return measure_logs([file])


def test_steps_and_power_are_joined(tmp_path):
    logs = measure_logs(write_run(tmp_path))
    (row,) = logs.rows
    assert (row.step_time, row.sequences, row.devices, row.how) == (STEP, 64.0, 4, "sampled")
    assert row.power == pytest.approx(TRAINS + 1.5, rel=0.01)  # devices draw 0 to 3 W more
    assert row.energy == pytest.approx(row.power * STEP)
    assert (row.clock, row.temperature) == (1.755e9, 338.15)
    assert row.loss == pytest.approx(2.62, abs=0.02)
    energy = {phase.phase: phase for phase in logs.phases}
    assert energy["checkpoint"].duration == pytest.approx(SAVE + STEP)
    assert energy["checkpoint"].energy == pytest.approx(4 * (SAVE * 201.5 + STEP * 501.5), rel=0.03)
    assert energy["training"].energy == pytest.approx(4 * 39 * STEP * 501.5, rel=0.01)
    assert any("1 checkpoint step left out" in note for note in logs.notes)


@pytest.mark.parametrize("hours", [5.5, -8.0])
def test_clocks_of_two_zones_are_joined(tmp_path, hours):
    logs = measure_logs(write_run(tmp_path, shift=3600.0 * hours))
    assert logs.rows[0].power == pytest.approx(TRAINS + 1.5, rel=0.01)
    assert any(f"moved by {-hours:+g} h" in note for note in logs.notes)


def test_an_offset_moves_the_meters(tmp_path):
    files = write_run(tmp_path, shift=200.0)
    assert measure_logs(files, offset=-200.0).rows[0].power == pytest.approx(TRAINS + 1.5, rel=0.01)


def test_readings_of_another_day_are_no_readings(tmp_path):
    logs = measure_logs(write_run(tmp_path, shift=1e6))
    assert math.isnan(logs.rows[0].power)
    assert any("--offset" in note for note in logs.notes)


def test_short_runs_have_no_power(tmp_path):
    logs = measure_logs(write_run(tmp_path, steps=4))
    assert math.isnan(logs.rows[0].power)
    assert any("less than 10 s" in note for note in logs.notes)


def test_power_alone_is_divided_by_its_level(tmp_path):
    levels = [(30.0, 70.0), (50.0, 200.0), (120.0, 650.0), (20.0, 70.0)]
    values = np.concatenate([np.full(int(length), watts) for length, watts in levels])
    rows = (f"{at},{watts}" for at, watts in enumerate(values))
    logs = measured(tmp_path, "power.csv", "time_s,power_w", *rows)
    energy = {phase.phase: phase.energy for phase in logs.phases}
    assert set(energy) == {BUSY, WAITING, IDLE}
    trapezoid = float(np.sum(0.5 * (values[1:] + values[:-1])))
    assert sum(energy.values()) == pytest.approx(trapezoid)
    assert energy[BUSY] == pytest.approx(120.0 * 650.0, rel=0.02)


def test_rows_are_those_that_predict_reads(tmp_path):
    scenario = scenario_of_pieces("test-1b", "h100-sxm", 4, "50 G").scenario
    (row,) = measured_rows(measure_logs(write_run(tmp_path)), scenario)
    assert (row["accelerator"], row["layers"], row["batch_sequences"]) == ("h100-sxm", 16.0, 64.0)
    assert row["clock"] == pytest.approx(1.755e9 / float(scenario.system.accelerator.reference_clock))
    (read,) = csv.DictReader(csv_text(rows_table([row])).splitlines())
    assert float(read["step_time_s"]) == STEP
    assert float(read["time_s"]) == STEP


def test_logs_are_calibrated_without_a_table(tmp_path):
    log, meter = write_run(tmp_path)
    scenario = scenario_of_pieces("test-1b", "h100-sxm", 4, "50 G").scenario
    result = calibrate_logs("step-time", [log, meter], scenario)
    assert (result.rows, result.source) == (1, "train.log, gpu.csv")
    assert "tmp" not in str(result.tables)
    with pytest.raises(InputError, match="does not say model and layout"):
        calibrate_logs("step-time", [log, meter])


def test_tables_are_no_logs(tmp_path):
    table = tmp_path / "steps.csv"
    table.write_text("layers,step,loss\n1,2,3\n")
    assert not is_training_log(table)
    exported = tmp_path / "w.csv"
    exported.write_text('"Step","a - loss"\n"1","2"\n')
    assert is_training_log(exported)
    assert is_training_log(write_run(tmp_path)[0])


def test_what_cannot_be_measured_is_refused(tmp_path):
    with pytest.raises(InputError, match="no training log and no log of power"):
        measured(tmp_path, "x.log", "hello")
    with pytest.raises(InputError, match="Cannot read"):
        measure_logs([tmp_path / "none.log"])


def test_energies_are_those_of_counters_where_meters_have_them(tmp_path):
    # Power is sampled at 100 W throughout, and the counter rises by 110 W.
    samples = [
        f'DCGM_FI_DEV_{metric}{{gpu="0"}} {value} {1000 * (1_770_000_000 + at)}'
        for at in range(0, 300, 15)
        for metric, value in (("POWER_USAGE", 100.0), ("TOTAL_ENERGY_CONSUMPTION", 5_000_000 + 110_000 * at))
    ]
    logs = measured(tmp_path, "gpu.prom", *samples)
    assert [(phase.phase, phase.energy) for phase in logs.phases] == [(BUSY, pytest.approx(285 * 110.0))]
    assert [(device.device, device.how) for device in logs.devices] == [("0", "counter")]


def test_runs_of_codecarbon_leave_the_time_between_them_out(tmp_path):
    rows = [  # end [s], duration [s], energy of the GPU [kWh]: two rows of a run are cumulative
        (100, 100, 0.1, "a"),
        (200, 200, 0.3, "a"),
        (2000, 50, 0.05, "b"),
    ]
    header = "timestamp,project_name,run_id,duration,gpu_power,gpu_energy,energy_consumed,gpu_count"
    lines = (f"{moment(end)},p,{run},{took},900,{energy},{energy},1" for end, took, energy, run in rows)
    logs = measured(tmp_path, "emissions.csv", header, *lines)
    assert sum(phase.energy for phase in logs.phases) == pytest.approx(0.35 * 3.6e6)
    assert sum(phase.duration for phase in logs.phases) == pytest.approx(250.0, abs=1e-3)
    assert {device.device: device.energy for device in logs.devices} == {"gpu": pytest.approx(0.35 * 3.6e6)}


def test_windows_of_zeus_leave_the_time_between_them_out(tmp_path):
    lines = [f"{START + 20 * at},step,9.0,{3000 + at},{2000 + at}" for at in range(5)]
    logs = measured(tmp_path, "zeus.csv", "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy", *lines)
    assert sum(phase.energy for phase in logs.phases) == pytest.approx(5 * 5000 + 2 * 10)
    assert sum(phase.duration for phase in logs.phases) == pytest.approx(45.0)


def test_a_single_scrape_tells_power_and_no_energy(tmp_path):
    logs = measured(tmp_path, "a.prom", 'DCGM_FI_DEV_POWER_USAGE{gpu="0"} 35.7', 'DCGM_FI_DEV_SM_CLOCK{gpu="0"} 210')
    (only,) = logs.devices
    assert (only.device, only.readings, only.power, only.clock) == ("0", 1, 35.7, 210e6)
    assert math.isnan(only.energy)
    assert any("read once" in note for note in logs.notes)


def test_devices_of_all_hosts_are_added_up_and_runs_of_a_table_are_not(tmp_path):
    rows = [f"{START + at},n{node},{gpu},100" for at in range(30) for node in (1, 2) for gpu in (0, 1)]
    (phase,) = measured(tmp_path, "hosts.csv", "timestamp,host,gpu_index,power_w", *rows).phases
    assert phase.energy == pytest.approx(29 * 4 * 100.0)
    rows = [f"{every},{at},100" for every in (1, 50) for at in range(30)]
    runs = measured(tmp_path, "runs.csv", "checkpoint_every,second,power_w", *rows)
    assert [(phase.group, phase.energy) for phase in runs.phases] == [
        ("1", pytest.approx(2900.0)),
        ("50", pytest.approx(2900.0)),
    ]


def test_a_loss_alone_is_a_row_without_a_time(tmp_path):
    logs = measured(tmp_path, "run-1-tag-train_loss.csv", "Wall time,Step,Value", "1770000000.5,1,0.75")
    assert (logs.rows[0].loss, math.isnan(logs.rows[0].step_time)) == (0.75, True)
    assert any("no training step has a time" in note for note in logs.notes)


def test_power_of_nodes_and_hosts_is_not_that_of_chips(tmp_path):
    log, meter = write_run(tmp_path)
    ticks = np.arange(0.0, 92.0, 1.0)
    node, host = tmp_path / "node.csv", tmp_path / "host.csv"
    node.write_text("\n".join(["timestamp,power_w", *(f"{START + tick},6000" for tick in ticks)]))
    host.write_text("\n".join(["timestamp,package-0_uj", *(f"{START + tick},{1e8 * tick:.0f}" for tick in ticks)]))
    logs = measure_logs([log, meter, node, host])
    energy = {phase.group: phase.energy for phase in logs.phases if phase.phase == "checkpoint"}
    assert energy[f"{log} (nodes)"] == pytest.approx(6000.0 * (SAVE + STEP))
    assert energy[str(log)] == pytest.approx((4 * 201.5 + 100.0) * SAVE + (4 * 501.5 + 100.0) * STEP, rel=0.03)
    (row,) = logs.rows
    assert (row.power, row.node_power) == (pytest.approx(TRAINS + 1.5, rel=0.01), pytest.approx(6000.0))
    (row,) = measure_logs([log, node]).rows
    assert (math.isnan(row.power), row.node_power) == (True, pytest.approx(6000.0))
    with pytest.raises(InputError, match="no meter of a node"):
        calibrate_logs("node", [log, meter])


CARBON = (
    "timestamp,run_id,duration,cpu_power,gpu_power,cpu_energy,gpu_energy,ram_energy,energy_consumed,gpu_count\n"
    "2026-02-01T12:00:00,a,7200,180,{power},0.36,{energy},0.1,{total},8\n"
)


@pytest.mark.parametrize(
    ("energy", "power", "each", "words"),
    [
        (5.04, 2520.0, 315.0, ""),  # 5,040 Wh / 2 h / 8
        (5.04, 232.0, 315.0, "samples of its power have a mean of 232 W, its counter of energy has 2520 W"),
        (0.0, 0.0, math.nan, "gpu: the meter of 8 chips reads 0 W all the time"),
    ],
)
def test_power_of_a_chip_is_not_mixed_with_its_host_and_lying_meters_are_named(tmp_path, energy, power, each, words):
    path = tmp_path / "emissions.csv"
    path.write_text(CARBON.format(power=power, energy=energy, total=0.46 + energy))
    logs = measure_logs([path])
    assert logs.phases[0].power == pytest.approx(each, nan_ok=True)
    assert logs.phases[0].energy == pytest.approx(3.6e6 * (0.46 + energy))
    assert [words in note for note in logs.notes] == ([True] if words else [])


TITAN = "[titan] 2026-01-01 10:00:{second:02d},000 - root - INFO - step: {step}  loss: {loss}  tps: {rate}\n"


@pytest.mark.parametrize("rows", [2, 3])
def test_the_step_that_compiles_does_not_count(tmp_path, rows):
    path = tmp_path / "train.log"
    lines = [(1, 1, 11.0, "87"), (7, 10, -1.0, "5,615"), (14, 20, 10.0, "5,615")]
    names = ("second", "step", "loss", "rate")
    path.write_text("".join(TITAN.format(**dict(zip(names, line, strict=True))) for line in lines[:rows]))
    logs = measure_logs([path])
    assert logs.rows[0].token_rate == 5615.0
    assert logs.rows[0].steps == rows - 1
    assert any("loss below zero in 1 step is refused" in note for note in logs.notes)
    assert logs.rows[0].loss == pytest.approx(10.0 if rows == 3 else math.nan, nan_ok=True)
