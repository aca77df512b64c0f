"""How do the costs of a sweep grow with its points, what would 1e12 of them take, and what does Dask lose?

`python benchmarks/sweep/scale.py [--seconds 60] [--points 1e12] [--workers 256]`: CPU seconds of the minimum of
`sweep_model` over ever larger grids until the time is used up, their exponent with a 95 % interval, and what the rates
make of so many points on so many workers like a core of this machine. Then tiles of two sizes on Dask workers beside
as many threads of one process.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parents[2] / "tests"
sys.path.insert(0, str(TESTS))
os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])  # of Dask workers

LIMITS = {"time": 2.0e4, "power": 2.0e6, "temperature": 70.0}
VALUES = (6, 10, 18, 32, 57, 75, 100, 133, 178, 237, 316)
SATURATED = 1e7
"""Points from which on a grid is several tiles, so that starting costs little."""
ROUNDS = 3
LARGE_TILE = 2**26


def model(batch: Any, clock: Any, nodes: Any, voltage: Any) -> dict[str, Any]:
    import jax.numpy as jnp

    from sweep_model import sweep_model

    outputs = sweep_model(batch, clock, nodes, voltage, jnp)
    return dict(zip(("energy", "time", "temperature", "power"), outputs, strict=True))


def prepared(count: int, tile: int | None = None) -> Any:
    """The sweep with so many values an axis."""
    from energymodel.sweeps.sweep import prepare_sweep

    axes = {
        "batch": np.geomspace(0.05, 64, count),
        "clock": np.linspace(0.5, 2.2, count),
        "nodes": np.geomspace(4, 1024, count),
        "voltage": np.linspace(0.6, 1.15, count),
    }
    return prepare_sweep(model, axes, "best", "energy", LIMITS, tile=tile)


def timed(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    run()
    return clock() - start


def points_table(seconds: float, target: float, workers: int) -> None:
    """CPU seconds by points, their exponent, and the extrapolation."""
    from energymodel.sweeps.engines import in_process

    start, points, used = time.perf_counter(), [], []
    print(f"{'points':>10} {'CPU s':>10} {'Mpoint/CPU-s':>13}")
    for count in VALUES:
        if points and (time.perf_counter() - start) + 4.0 * used[-1] * (count**4 / points[-1]) > seconds:
            break
        program = prepared(count).program
        program.run(0)

        def run(program: Any = program) -> None:
            for _ in in_process(program, range(program.grid.tiles)):
                pass

        points.append(float(count**4))
        used.append(min(timed(run, time.process_time) for _ in range(3)))
        print(f"{points[-1]:>10.3g} {used[-1]:>10.4f} {points[-1] / used[-1] / 1e6:>13.1f}", flush=True)
    large = np.array(points) >= SATURATED
    if large.sum() < 3:
        print(f"fewer than three grids above {SATURATED:.0e} points: raise --seconds for an exponent")
        return
    from scipy.stats import linregress, t

    fit: Any = linregress(np.log(np.array(points)[large]), np.log(np.array(used)[large]))
    half = t.ppf(0.975, large.sum() - 2) * fit.stderr
    print(f"exponent of cost from {SATURATED:.0e} points: {fit.slope:.3f} +- {half:.3f} (95 %, {large.sum()} grids)")
    rates = np.array(points)[large] / np.array(used)[large]
    low, high = (target / rate / workers for rate in (rates.max(), rates.min()))
    print(
        f"{target:.3g} points on {workers} workers, each as fast as a core here: {low:.0f} to {high:.0f} s, "
        "if cost stays proportional to points and merging and scheduling stay hidden"
    )


def dask_table(count: int, workers: int, tile: int | None = None) -> None:
    """CPU and wall seconds on Dask workers beside threads of one process, in turns."""
    from distributed import Client, LocalCluster

    sweep = prepared(count, tile)
    local: Any = LocalCluster
    with (
        local(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as connected,
    ):
        client: Any = connected
        engine = f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"

        def busy() -> float:
            return time.process_time() + sum(client.run(time.process_time).values())

        results = {name: sweep.run(engine=name) for name in ("process", engine)}  # compiles
        assert results["process"].best == results[engine].best
        walls: dict[str, list[float]] = {"process": [], engine: []}
        cpus: dict[str, list[float]] = {"process": [], engine: []}
        for _ in range(ROUNDS):
            for name in walls:
                before = busy()
                walls[name].append(timed(lambda name=name: sweep.run(engine=name), time.perf_counter))
                cpus[name].append(busy() - before)
    print(
        f"\n{count**4:.3g} points in {sweep.program.grid.tiles} tiles, {workers} threads or Dask workers, "
        f"median of {ROUNDS} in turns"
    )
    for title, found in (("CPU s", cpus), ("wall s", walls)):
        one, other = (statistics.median(found[name]) for name in ("process", engine))
        lost = 100.0 * (other / one - 1.0)
        print(f"{title:>7}: threads {one:.2f}, Dask {other:.2f}, {lost:+.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for ever larger grids")
    parser.add_argument("--points", type=float, default=1e12, help="points to extrapolate to")
    parser.add_argument("--workers", type=int, default=256, help="workers to extrapolate to")
    parser.add_argument("--dask", type=int, default=178, help="values of an axis of the sweep on Dask; 0 leaves it out")
    arguments = parser.parse_args()
    points_table(arguments.seconds, arguments.points, arguments.workers)
    if arguments.dask:
        for tile in (None, LARGE_TILE):
            dask_table(arguments.dask, len(os.sched_getaffinity(0)), tile)


if __name__ == "__main__":
    main()
