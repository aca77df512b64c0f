"""Are logs and meters joined by time, and is the energy of a phase the integral of its power?"""

import csv
import math
from datetime import UTC, datetime

import numpy as np
import pytest

from energymodel.calibration.calibrate_logs import calibrate_logs, is_training_log
from energymodel.calibration.measured_table import measured_csv, measured_rows
from energymodel.errors import InputError
from energymodel.presets.pieces import scenario_of_pieces
from energymodel.readers.measured_log import measure_logs
from energymodel.readers.measured_power import BUSY, IDLE, WAITING

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


def test_steps_and_power_are_joined(tmp_path):
    found = measure_logs(write_run(tmp_path))
    (row,) = found.rows
    assert (row.step_time, row.sequences, row.devices, row.how) == (STEP, 64.0, 4, "sampled")
    assert row.power == pytest.approx(TRAINS + 1.5, rel=0.01)  # devices draw 0 to 3 W more
    assert row.energy == pytest.approx(row.power * STEP)
    assert (row.clock, row.temperature) == (1.755e9, 338.15)
    assert row.loss == pytest.approx(2.62, abs=0.02)
    energy = {one.phase: one for one in found.phases}
    assert energy["checkpoint"].duration == pytest.approx(SAVE + STEP)
    assert energy["checkpoint"].energy == pytest.approx(4 * (SAVE * 201.5 + STEP * 501.5), rel=0.03)
    assert energy["training"].energy == pytest.approx(4 * 39 * STEP * 501.5, rel=0.01)
    assert any("1 checkpoint steps left out" in note for note in found.notes)


@pytest.mark.parametrize("hours", [5.5, -8.0])
def test_clocks_of_two_zones_are_joined(tmp_path, hours):
    found = measure_logs(write_run(tmp_path, shift=3600.0 * hours))
    assert found.rows[0].power == pytest.approx(TRAINS + 1.5, rel=0.01)
    assert any(f"moved by {-hours:+g} h" in note for note in found.notes)


def test_an_offset_moves_the_meters(tmp_path):
    files = write_run(tmp_path, shift=200.0)
    assert measure_logs(files, offset=-200.0).rows[0].power == pytest.approx(TRAINS + 1.5, rel=0.01)


def test_readings_of_another_day_are_no_readings(tmp_path):
    found = measure_logs(write_run(tmp_path, shift=1e6))
    assert math.isnan(found.rows[0].power)
    assert any("--offset" in note for note in found.notes)


def test_short_runs_have_no_power(tmp_path):
    found = measure_logs(write_run(tmp_path, steps=4))
    assert math.isnan(found.rows[0].power)
    assert any("less than 10 s" in note for note in found.notes)


def test_power_alone_is_divided_by_its_level(tmp_path):
    levels = [(30.0, 70.0), (50.0, 200.0), (120.0, 650.0), (20.0, 70.0)]
    values = np.concatenate([np.full(int(length), watts) for length, watts in levels])
    file = tmp_path / "power.csv"
    file.write_text("\n".join(["time_s,power_w", *(f"{at},{watts}" for at, watts in enumerate(values))]))
    found = measure_logs([file])
    energy = {one.phase: one.energy for one in found.phases}
    assert set(energy) == {BUSY, WAITING, IDLE}
    whole = float(np.sum(0.5 * (values[1:] + values[:-1])))
    assert sum(energy.values()) == pytest.approx(whole)
    assert energy[BUSY] == pytest.approx(120.0 * 650.0, rel=0.02)


def test_rows_are_those_that_predict_reads(tmp_path):
    scenario = scenario_of_pieces("test-1b", "h100-sxm", 4, "50 G").scenario
    (row,) = measured_rows(measure_logs(write_run(tmp_path)), scenario)
    assert (row["accelerator"], row["layers"], row["batch_sequences"]) == ("h100-sxm", 16.0, 64.0)
    assert row["clock"] == pytest.approx(1.755e9 / float(scenario.system.accelerator.reference_clock))
    text = measured_csv([row])
    (read,) = csv.DictReader(text.splitlines())
    assert float(read["step_time_s"]) == STEP
    assert float(read["time_s"]) == STEP


def test_logs_are_calibrated_without_a_table(tmp_path):
    log, meter = write_run(tmp_path)
    scenario = scenario_of_pieces("test-1b", "h100-sxm", 4, "50 G").scenario
    found = calibrate_logs("step-time", [log, meter], scenario)
    assert (found.rows, found.source) == (1, "train.log, gpu.csv")
    assert "tmp" not in str(found.tables)
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
    file = tmp_path / "x.log"
    file.write_text("hello")
    with pytest.raises(InputError, match="no training log and no log of power"):
        measure_logs([file])
    with pytest.raises(InputError, match="Cannot read"):
        measure_logs([tmp_path / "none.log"])
