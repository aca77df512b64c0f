"""A sweep survives kills, damaged tiles, full disks and other processes, and gives the same bits."""

import errno
import functools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import energymodel as em
from energymodel.errors import InputError
from energymodel.sweeps import ledger as ledger_module
from energymodel.sweeps.ledger import Ledger, fingerprint
from energymodel.sweeps.sweep import prepare_sweep
from sweeps.sweep_models import LIMITS, Sum, axes, sweep_model

WORKER = Path(__file__).with_name("worker.py")
ROOT = Path(__file__).parents[2]


def start(*arguments, **environment):
    path = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), str(ROOT / "tests")])
    return subprocess.Popen(
        [sys.executable, str(WORKER), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    return output


def opened(folder, prepared):
    return Ledger(folder, fingerprint(prepared.program, prepared.tables), prepared.program.state_shapes())


def sweep(folder, **changes):
    arguments = {"minimize": "energy", "limits": LIMITS, "chunk": 60, "tile": 120, "resume": folder, **changes}
    return em.sweep(sweep_model, axes(7, 5, 9, 6), "top:3", **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, 20])
def test_kills_change_no_bit(tmp_path, kills):
    finish(start("-", tmp_path / "whole"))
    folder, chance = tmp_path / "run", random.Random(1)
    for _ in range(kills):
        process = start(folder, tmp_path / "never")
        while process.poll() is None and not list((folder / "tiles").glob("*.tile")):
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    output = finish(start(folder, tmp_path / "resumed"))
    assert "tiles are finished" in output
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()
    assert len((tmp_path / "whole").read_bytes()) > 0


def tiles_of(folder):
    return sorted((folder / "tiles").glob("*.tile"))


def test_damaged_tiles_are_computed_again(tmp_path):
    first = sweep(tmp_path / "run")
    files = tiles_of(tmp_path / "run")
    intact = [path.read_bytes() for path in files]
    assert len(files) > 4
    files[0].write_bytes(intact[0][:40])
    middle = len(intact[1]) // 2
    files[1].write_bytes(intact[1][:middle] + bytes([intact[1][middle] ^ 1]) + intact[1][middle + 1 :])
    files[2].write_bytes(intact[3])
    files[4].unlink()
    (tmp_path / "run" / "tiles" / ".x.part").write_bytes(b"half")
    told = []
    again = sweep(tmp_path / "run", progress=told.append)
    assert any(f"{len(files) - 4} of {len(files)} tiles are finished" in sentence for sentence in told)
    assert [path.read_bytes() for path in files] == intact
    assert not list((tmp_path / "run").rglob("*.part"))
    assert sweep(None).winners == first.winners == again.winners


def test_tiles_of_another_sweep_are_foreign(tmp_path):
    sweep(tmp_path / "one")
    sweep(tmp_path / "two", limits={**LIMITS, "time": 1.0e4})
    own, other = tiles_of(tmp_path / "one")[3], tiles_of(tmp_path / "two")[3]
    own.write_bytes(other.read_bytes())
    assert sweep(tmp_path / "one").winners == sweep(None).winners
    assert own.read_bytes() != other.read_bytes()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"limits": {"time": 1.0}}, "keep was"),
        ({"tile": 240}, "tiles.count was"),
        ({"precision": 64}, "precision was 32, is 64"),
    ],
)
def test_changed_sweep_is_refused(tmp_path, changes, words):
    sweep(tmp_path / "run")
    with pytest.raises(InputError, match=words):
        sweep(tmp_path / "run", **changes)


def test_changed_axes_and_models_are_refused(tmp_path):
    em.sweep(lambda x: {"y": x}, {"x": "0:1:5"}, minimize="y", resume=tmp_path)
    for other, axis, words in ((lambda x: {"y": x}, "0:1:6", "axes"), (lambda x: {"y": jnp.sin(x)}, "0:1:5", "model")):
        with pytest.raises(InputError, match=f"holds another sweep: {words} was"):
            em.sweep(other, {"x": axis}, minimize="y", resume=tmp_path)


def test_functions_differ_by_what_they_hold():
    def scaled(factor):
        return lambda x: {"y": factor * x}

    def power(x, exponent):
        return {"y": x**exponent}

    def typed(source):
        """A function typed at a prompt, of no module and no file."""
        return eval(source, {})

    class Line(eqx.Module):
        slope: float
        offsets: Any

        def __call__(self, x):
            return {"y": self.slope * x + self.offsets}

    class Offset(Sum):
        def update(self, state, picked, chunk):
            return state + jnp.sum(picked) + 1.0

    def known(function, keep: Any = "best"):
        named = fingerprint(prepare_sweep(function, {"x": "0:1:5"}, keep, "y").program)
        return named["model"], named["numbers"], named["keep"]

    pairs = [
        (scaled(1.0), scaled(2.0)),
        (scaled(np.ones(())), scaled(np.zeros(()))),
        (typed("lambda x: {'y': 2 * x}"), typed("lambda x: {'y': 3 * x}")),
        (functools.partial(power, exponent=2.0), functools.partial(power, exponent=3.0)),
        (Line(1.0, np.zeros(())), Line(2.0, np.zeros(()))),
        (Line(1.0, np.zeros(())), Line(1.0, np.ones(()))),
        (Line(1.0, 0.0).__call__, Line(2.0, 0.0).__call__),
    ]
    for first, second in pairs:
        assert known(first) != known(second)
        assert "0x" not in str(known(first)).replace("0x ", "")
    assert known(scaled(3.0)) == known(scaled(3.0))
    assert known(scaled(3.0), Sum()) != known(scaled(3.0), Offset())


def test_changed_scenario_is_refused(tmp_path):
    scenario = em.load_scenario("test-1b-h100")
    other = em.load_scenario("test-1b-h100", ["plan.power_cap=600 W"])
    first, second = (
        prepare_sweep(each, {"plan.clock": "0.5:1:3"}, "best", "energy", {}, order=["plan.clock"])
        for each in (scenario, other)
    )
    with opened(tmp_path, first):
        pass
    with pytest.raises(InputError, match=r"holds another sweep: scenario\.plan\.power_cap was .*, is '600 W'"):
        opened(tmp_path, second).__enter__()


def test_second_process_is_refused(tmp_path):
    prepared = prepare_sweep(sweep_model, axes(3, 3, 3, 3), "best", "energy", LIMITS)
    with opened(tmp_path, prepared), pytest.raises(InputError, match="another sweep runs"):
        opened(tmp_path, prepared).__enter__()
    with opened(tmp_path, prepared) as free:
        assert free.finished(1) == set()


def test_full_disk_loses_no_finished_tile(tmp_path, monkeypatch):
    real, written = os.fsync, []

    def full(descriptor):
        if len(written) == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(descriptor)
        return real(descriptor)

    monkeypatch.setattr(ledger_module.os, "fsync", full)
    with pytest.raises(InputError, match="the disk is full"):
        sweep(tmp_path / "run")
    assert len(tiles_of(tmp_path / "run")) == 3  # run.json is the other one
    monkeypatch.setattr(ledger_module.os, "fsync", real)
    assert sweep(tmp_path / "run").winners == sweep(None).winners


def test_broken_run_file_and_folder_are_named(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        sweep(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        sweep(tmp_path / "file")


def test_full_array_goes_to_zarr(tmp_path):
    grid_axes = axes(3, 4, 5, 6)
    arguments: Any = {"chunk": 40, "tile": 80}
    plain = em.sweep(sweep_model, grid_axes, "full:energy,time", **arguments).to_xarray()
    swept = em.sweep(sweep_model, grid_axes, "full:energy,time", resume=tmp_path, **arguments)
    stored = swept.to_xarray()
    assert swept.store == tmp_path / "sweep.zarr"
    assert dict(stored.sizes) == {"batch": 3, "clock": 4, "nodes": 5, "voltage": 6}
    np.testing.assert_array_equal(stored["clock"].values, grid_axes[1].values)
    for name in ("energy", "time"):
        assert stored[name].attrs["units"] == "1"
        np.testing.assert_array_equal(stored[name].values, plain[name].values)
    again = em.sweep(sweep_model, grid_axes, "full:energy,time", resume=tmp_path, **arguments)
    np.testing.assert_array_equal(again.to_xarray()["energy"].values, plain["energy"].values)
    with pytest.raises(InputError, match="only a full array"):
        em.sweep(sweep_model, grid_axes, minimize="energy").to_xarray()
