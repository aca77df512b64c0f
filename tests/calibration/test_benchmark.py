"""This machine measured for real: rows, meters, refusals, interruption, and the file that other commands take."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.calibration import timed_kernels
from energymodel.calibration.kinds import KINDS
from energymodel.cli.shell import write
from energymodel.readers.log_records import PowerReading
from energymodel.report import answers
from energymodel.report.data import csv_text
from energymodel.report.number import sentence
from energymodel.scenarios.files import companions, read_preset


class FakeMeter:
    """A meter that sees a load, 40 W at rest, and after that 100 W."""

    def __init__(self, load=0.0, power=100.0):
        self.load, self.power, self.energy, self.times = load, power, 0.0, []

    def read(self):
        self.times.append(time.time())
        if len(self.times) > 1:
            self.energy += (0.4 if len(self.times) == 2 else 1.0) * self.power * (self.times[-1] - self.times[-2])
        return [PowerReading(self.times[-1], "0", energy=self.energy, utilization=self.load)]


@pytest.fixture(scope="module")
def measured():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timed_kernels, "SHORTEST", 2e-4)  # small kernels
        said = []
        return em.benchmark(seconds=1.0, meter=FakeMeter(), progress=said.append), said


@pytest.fixture(scope="module")
def file(measured, tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "mine.toml"
    write(path, answers.calibration_toml(measured[0].calibration).encode())
    return str(path)


def test_each_kind_of_kernel_is_timed_with_an_interval(measured):
    result, said = measured
    timed = [row for row in result.rows if row["kernel"] != "idle"]
    kinds = {row["kernel"] for row in timed}
    assert kinds >= {"product", "attention", "attention-training", "elementwise", "launch"}
    assert {row["precision"] for row in timed if row["kernel"] == "product"} == {"bf16", "fp32"}
    assert all(0.0 < row["time_low_s"] <= row["time_s"] <= row["time_high_s"] for row in timed)
    np.testing.assert_allclose([row["power_w"] for row in result.rows], [40.0, *[100.0] * len(timed)], rtol=1e-6)
    assert result.missing == ()
    assert any(message.startswith(tuple("0123456789")) and "% of 1 s: product bf16" in message for message in said)


def test_an_unknown_preset_is_refused_before_anything_is_measured():
    meter = FakeMeter()
    with pytest.raises(em.InputError, match=r'Unknown preset "h100sxm".*Did you mean "h100-sxm"'):
        em.benchmark(like="h100sxm", seconds=60.0, meter=meter)
    assert meter.times == []


def test_the_answer_says_rates_energies_and_what_is_a_prior(measured, tmp_path):
    answer = answers.benchmark_answer(measured[0])
    rates = answer.table("rates")
    assert {str(row[0]) for row in rates.rows} >= {"bf16 product", "fp32 product", "attention", "elementwise", "launch"}
    texts = [sentence(words) for words in answer.sentences]
    assert any("J/FLOP" in text for text in texts)
    assert any("not measured are those of l4" in text for text in texts)
    path = tmp_path / "rows.csv"
    path.write_text(csv_text(answer.table("rows")))
    assert len(KINDS["kernels"].table(path)) == len(measured[0].rows)
    assert "<svg" in measured[0]._repr_html_()


def test_the_file_is_an_accelerator_and_a_scenario(file):
    run = em.load_scenario(file, {"plan.layout.microbatch": 1})
    assert "processors" in run.tables["system"]["accelerator"]["title"]
    assert np.asarray(em.evaluate(run.system, run.plan).energy.total) > 0.0
    pieces = em.scenario_of_pieces("test-1b", file, 8, "1 G").scenario
    assert pieces.system.accelerator.peak_flops == run.system.accelerator.peak_flops
    like = em.load_scenario("test-1b-h100", {"system.accelerator": "l4"})
    assert pieces.tables["system"]["node"]["title"] == like.tables["system"]["node"]["title"]


def test_an_accelerator_is_that_of_any_scenario_file(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        'base = "llama-3.1-405b-h100"\n[system.accelerator]\ngemm_efficiency = 0.5\n[system.node]\nchips = 4\n'
    )
    chip = read_preset("hardware", str(path))
    assert (chip["title"], chip["gemm_efficiency"]) == (read_preset("hardware", "h100-sxm")["title"], 0.5)
    assert companions(str(path))["node"] == {"preset": "dgx-h100", "chips": 4}
    path.write_text("[plan]\nchips = 8\n")
    with pytest.raises(em.InputError, match=r"own.toml: holds no \[system.accelerator\]"):
        read_preset("hardware", str(path))


def test_a_busy_device_is_refused():
    with pytest.raises(em.InputError, match=r"is busy, 90 % of the last 0\.5 s\. Stop what runs on it"):
        em.benchmark(seconds=1.0, meter=FakeMeter(load=0.9))
    with pytest.raises(em.InputError, match="seconds: 0 s is no time"):
        em.benchmark(seconds=0.0)


def test_what_could_not_be_measured_is_said(monkeypatch):
    rows = [{"kernel": "product", "precision": "bf16", "m": 64, "n": 64, "k": size} for size in (32, 64, 128)]
    rows.append({"kernel": "elementwise", "size_b": 1 << 16})

    def refusing(row, *arguments, **options):
        if row.get("k") == 128:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory\nand where")
        return timed_kernels.timed(row, *arguments, **options)

    monkeypatch.setattr("energymodel.calibration.benchmark.timed", refusing)
    monkeypatch.setattr("energymodel.calibration.benchmark.kernel_rows", lambda formats, fused: iter(rows))
    result = em.benchmark(seconds=0.1, meter=FakeMeter(power=math.nan))
    assert result.missing == ("power and energy", "product bf16 64 64 128 (RESOURCE_EXHAUSTED: out of memory)")
    chip = result.calibration.tables["system"]["accelerator"]
    assert chip["busy_power"]["kind"] == chip["idle_power"]["kind"] == "prior"
    assert any("Not measured: power and energy;" in sentence(of) for of in answers.benchmark_answer(result).sentences)


def test_collectives_run_on_several_devices():
    code = """
import json
from energymodel.calibration import timed_kernels as own
own.SHORTEST = 1e-4
rows = [row for row in own.kernel_rows(("bf16",), False) if row["kernel"] == "all-reduce"]
print(json.dumps([len(rows), own.timed(rows[4], 0.0)]))
"""
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    out = subprocess.run([sys.executable, "-c", code], env=flags, capture_output=True, text=True, check=True).stdout
    count, row = json.loads(out)
    assert (count, row["ranks"], row["size_b"]) == (8, 4, 1 << 14)  # of 2 and of 4 devices
    assert row["time_s"] > 0.0


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing(tmp_path, end):
    command = [sys.executable, "-m", "energymodel", "benchmark", "--busy", "--seconds", "60", "-o", "mine.toml"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "at rest" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(end)
        assert process.wait(60) != 0
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "mine.toml"
    write(path, b"old")
    monkeypatch.setattr(
        "energymodel.runtime.private_folder.os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
    )
    with pytest.raises(em.InputError, match="cannot be written"):
        write(path, b"new")
    assert (path.read_bytes(), [of.name for of in tmp_path.iterdir()]) == (b"old", ["mine.toml"])


def test_processors_are_metered_where_the_kernel_lets_us(tmp_path):
    zone, load = tmp_path / "intel-rapl:0", tmp_path / "stat"
    zone.mkdir()
    load.write_text("cpu  100 0 0 100 0 0 0 0 0 0\n")
    for name, text in {"name": "package-0", "energy_uj": "999000000", "max_energy_range_uj": "1000000000"}.items():
        (zone / name).write_text(text)
    meter = em.CpuMeter(tmp_path, load)
    meter.read()
    (zone / "energy_uj").write_text("4000000")  # it has wrapped around: 1 J before and 4 J after
    load.write_text("cpu  130 0 0 190 0 0 0 0 0 0\n")
    (reading,) = meter.read()
    np.testing.assert_allclose([reading.energy, reading.utilization], [5.0, 30 / 120])
    (zone / "energy_uj").unlink()  # what a user may not read
    assert math.isnan(em.CpuMeter(tmp_path, load).read()[0].energy)
