"""Devices, processes and a cluster give the same bits as one process."""

import socket
import time

import pytest

from energymodel.errors import InputError
from energymodel.sweeps import engines
from sweeps.test_ledger import finish, start, sweep


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "result"
    finish(start("-", path, "process"))
    return path.read_bytes()


@pytest.mark.slow
def test_eight_devices_of_one_host(tmp_path, single):
    finish(start("-", tmp_path / "result", "devices", XLA_FLAGS="--xla_force_host_platform_device_count=8"))
    assert (tmp_path / "result").read_bytes() == single


@pytest.mark.slow
def test_two_processes_over_gloo(tmp_path, single):
    port = free_port()
    both = [start(tmp_path / "run", tmp_path / f"{index}", "distributed", 2, index, port) for index in range(2)]
    for process in both:
        finish(process)
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes() == single
    # The tiles of the first process serve one process alone.
    assert "tiles are finished" in finish(start(tmp_path / "run", tmp_path / "alone", "process"))
    assert (tmp_path / "alone").read_bytes() == single


@pytest.mark.slow
def test_dask_worker_is_killed(tmp_path, single):
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", scheduler_port=0
    ) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        process = start(tmp_path / "run", tmp_path / "result", f"dask://{address}")
        while process.poll() is None and not list((tmp_path / "run" / "tiles").glob("*.tile")):
            time.sleep(0.05)
        worker = next(iter(cluster.workers.values()))
        victim = worker.pid
        worker.process.process._process.kill()
        assert victim
        finish(process)
    assert (tmp_path / "result").read_bytes() == single


def test_unknown_engine_is_named(monkeypatch):
    monkeypatch.setattr(engines, "TIMEOUT", "1s")
    with pytest.raises(InputError, match='unknown "cloud"'):
        sweep(None, engine="cloud")
    with pytest.raises(InputError, match="no scheduler answers"):
        sweep(None, engine="dask://localhost:9")
    assert callable(engines.engine_of(None))
