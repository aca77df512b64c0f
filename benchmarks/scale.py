"""Growth of costs with points, layouts, lanes and variables, up to 1e12 points, and the price of Dask.

`python benchmarks/scale.py [--only points layouts lanes variables dask] [--seconds 60]`: for each, CPU seconds of ever
larger problems that differ in one number only, and the exponent p of `cost = a + b n^p` with a 95 % interval. Sizes
take turns, and the lowest CPU time of each counts, which the load of others disturbs least.

- points: the minimum of `sweep_model` on a grid whose outermost axis grows, up to the largest grid that `--seconds`
  allow; what the rate makes of `--points` on `--workers` like a core of this machine.
- layouts: those that the search of `llama-3.1-405b-h100` screens on its coarse grid, repeated where more are asked for.
- lanes: problems of `benchmarks/design/lanes_per_second.py` in one call of `minimize_many`.
- variables: 8 lanes that divide a budget among so many tasks, with dense second derivatives.
- dask: tiles of two sizes on Dask workers beside as many threads of one process.
"""

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])  # of Dask workers
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # from 128 variables on, its threads take 8 times the CPU time

LIMITS = {"time": 2.0e4, "power": 2.0e6, "temperature": 70.0}
INNER = 1024
"""Points of a grid for each value of its outermost axis: 8 x 8 x 16, rows of whole vector registers."""
OUTER = tuple(4**power for power in range(11))
LAYOUTS = (96, 192, 384, 768, 1536, 3072, 6144, 12288)
LANES = (64, 128, 256, 512, 1024, 2048, 4096)
CHUNK = 64
VARIABLES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
BUDGETS = 8
ROUNDS = 7
SHORTEST = 0.05
"""CPU seconds that are timed at once at least."""
LARGE_TILE = 2**26
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}
"""Settings of Dask with which its processes do little beside their tasks."""

Run = Callable[[], Any]


def cpu_of(run: Run) -> float:
    """CPU seconds of a call, from as many calls as take `SHORTEST`."""
    count, spent = 0, 0.0
    start = time.process_time()
    while spent < SHORTEST:
        run()
        count, spent = count + 1, time.process_time() - start
    return spent / count


def lowest(runs: Mapping[int, Run]) -> dict[int, float]:
    """Lowest CPU seconds of each size, in turns; the first call compiles and does not count."""
    for run in runs.values():
        run()
    rounds = [{size: cpu_of(run) for size, run in runs.items()} for _ in range(ROUNDS)]
    return {size: min(costs[size] for costs in rounds) for size in runs}


def table(name: str, costs: Mapping[int, float]) -> None:
    """Costs by size, and the exponent of what grows."""
    print(f"\n{name:>12} {'CPU s':>10} {'thousand per CPU s':>19}")
    for size, cost in costs.items():
        print(f"{size:>12.4g} {cost:>10.4f} {size / cost / 1e3:>19.4g}")
    fixed, power, half = fitted(np.array(list(costs), float), np.array(list(costs.values())))
    print(f"cost = {fixed:.2g} s + b n^p: p = {power:.3f} +- {half:.3f} (95 %, {len(costs)} sizes)", flush=True)


def fitted(sizes: np.ndarray, costs: np.ndarray) -> tuple[float, float, float]:
    """Fixed cost [s], exponent and half its 95 % interval, by least squares of the logarithm of the cost."""
    from scipy.optimize import curve_fit
    from scipy.stats import t

    def logarithm(size: np.ndarray, fixed: float, growing: float, power: float) -> np.ndarray:
        return np.logaddexp(fixed, growing + power * np.log(size / sizes[-1]))

    start = (np.log(costs[0]) - 1.0, np.log(costs[-1]), 1.0)
    solution, covariance = curve_fit(logarithm, sizes, np.log(costs), start, maxfev=10_000)
    half = t.ppf(0.975, len(sizes) - 3) * np.sqrt(covariance[2, 2])
    return float(np.exp(solution[0])), float(solution[2]), float(half)


def model(batch: Any, clock: Any, nodes: Any, voltage: Any) -> dict[str, Any]:
    import jax.numpy as jnp

    from sweep_model import sweep_model

    outputs = sweep_model(batch, clock, nodes, voltage, jnp)
    return dict(zip(("energy", "time", "temperature", "power"), outputs, strict=True))


def prepared(counts: Sequence[int], tile: int | None = None, order: Any = None) -> Any:
    """The sweep with so many values of each axis."""
    from energymodel.sweeps.sweep import prepare_sweep

    ends = {"batch": (0.05, 64), "clock": (0.5, 2.2), "nodes": (4, 1024), "voltage": (0.6, 1.15)}
    axes = {name: np.linspace(low, high, n) for (name, (low, high)), n in zip(ends.items(), counts, strict=True)}
    return prepare_sweep(model, axes, "best", "energy", LIMITS, tile=tile, order=order)


def points_table(seconds: float, target: float, workers: int) -> None:
    """Cost by points, and the extrapolation."""
    from energymodel.sweeps.engines import in_process

    order = ("batch", "clock", "nodes", "voltage")
    runs: dict[int, Run] = {}
    for outer in OUTER:
        program = prepared((outer, 8, 8, 16), order=order).program

        def run(program: Any = program) -> None:
            for _ in in_process(program, range(program.grid.tiles)):
                pass

        run()
        runs[INNER * outer] = run
        # The next grid is four times as large; all of them together take a third more.
        if 4.0 / 3.0 * ROUNDS * 4.0 * cpu_of(run) > seconds:
            break
    costs = lowest(runs)
    table("points", costs)
    size, cost = list(costs.items())[-1]
    took = target / size * cost / workers
    print(
        f"{target:.3g} points on {workers} workers, each as fast as a core here: {took:.0f} s, "
        "if cost stays proportional to points and merging and scheduling stay hidden"
    )


def layouts_table() -> None:
    """Cost of a screening by layouts."""
    import jax

    import energymodel as em
    from energymodel.scenarios.question import Question
    from energymodel.search.layouts import fitting_layouts, take
    from energymodel.search.problem import formulate
    from energymodel.search.relaxation import COARSE, screen
    from energymodel.system.evaluate import evaluate_once

    scenario = em.load_scenario("llama-3.1-405b-h100")
    with jax.enable_x64(True):
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        problem = formulate(dataclasses.replace(scenario, optimize=Question("energy")), baseline)
        lattice, _ = fitting_layouts(problem)
        parts = {size: take(lattice, np.resize(np.arange(len(lattice.tensor)), size)) for size in LAYOUTS}
        table("layouts", lowest({size: partial(screen, problem, part, COARSE) for size, part in parts.items()}))


def lanes_table() -> None:
    """Cost of `minimize_many` by lanes."""
    from energymodel.solver import Values, minimize_many
    from solver import reference_problem as reference

    def objective(x: Any, scenario: Any) -> Values:
        return Values(*reference.problem(x, scenario))

    def solve(scenarios: np.ndarray) -> Any:
        start = np.tile(reference.START, (len(scenarios), 1))
        bounds = (reference.LOWER, reference.UPPER)
        return minimize_many(objective, start, (scenarios,), bounds=bounds, chunk=CHUNK)

    scenarios = reference.scenarios(LANES[-1])
    table("lanes", lowest({size: partial(solve, scenarios[:size]) for size in LANES}))


def variables_table() -> None:
    """Cost of `minimize_many` by variables: tasks whose times fall with their shares of a budget, and couple."""
    import jax
    import jax.numpy as jnp

    from energymodel.solver import RESULTS, minimize_many

    def time_of(log_share: Any, work: Any) -> Any:
        times = work * jnp.exp(-log_share)
        return jnp.log(jnp.sum(times) + jnp.sum(times**4) ** 0.25)

    def above_budget(log_share: Any, work: Any) -> Any:
        return jax.nn.logsumexp(log_share)

    def solve(work: np.ndarray) -> Any:
        count = work.shape[1]
        start = np.full(work.shape, np.log(0.5 / count))
        return minimize_many(time_of, start, (work,), bounds=(-20.0, 0.0), inequalities=above_budget)

    draw = np.random.default_rng(0)
    works = {count: np.exp(draw.normal(size=(BUDGETS, count))) for count in VARIABLES}
    assert all(np.all(solve(work).result == RESULTS.successful) for work in works.values())
    table("variables", lowest({count: partial(solve, work) for count, work in works.items()}))


def dask_table(count: int, workers: int, tile: int | None, settings: Mapping[str, Any]) -> None:
    """CPU and wall seconds on Dask workers beside threads of one process, in turns.

    What the Dask processes take while they idle is no cost of the threads.
    """
    from dask.config import set as with_settings
    from distributed import Client, LocalCluster

    sweep = prepared((count,) * 4, tile)
    local: Any = LocalCluster
    with (
        with_settings(settings),
        local(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as connected,
    ):
        client: Any = connected
        engine = f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"

        def busy() -> float:
            return time.process_time() + sum(client.run(time.process_time).values())

        results = {name: sweep.run(engine=name) for name in ("process", engine)}  # compiles
        assert results["process"].best == results[engine].best
        spent: dict[str, list[tuple[float, float]]] = {"process": [], engine: []}
        for _ in range(ROUNDS):
            for name, costs in spent.items():
                cpu, wall = busy(), time.perf_counter()
                sweep.run(engine=name)
                wall = time.perf_counter() - wall
                costs.append((busy() - cpu, wall))
        cpu, wall = busy(), time.perf_counter()
        time.sleep(5.0)
        idle = (busy() - cpu) / (time.perf_counter() - wall)
    spent["process"] = [(cpu - idle * wall, wall) for cpu, wall in spent["process"]]
    print(
        f"\n{count**4:.3g} points in {sweep.program.grid.tiles} tiles, {workers} threads or Dask workers"
        f"{' with quiet settings' if settings else ''}, lowest of {ROUNDS} in turns; idle Dask processes take "
        f"{100.0 * idle:.1f} % of a core"
    )
    for column, title in enumerate(("CPU s", "wall s")):
        own, other = (min(each[column] for each in spent[name]) for name in ("process", engine))
        print(f"{title:>7}: threads {own:.2f}, Dask {other:.2f}, {100.0 * (other / own - 1.0):+.1f} %")


def main() -> None:
    names = ("points", "layouts", "lanes", "variables", "dask")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time for ever larger grids")
    parser.add_argument("--points", type=float, default=1e12, help="points to extrapolate to")
    parser.add_argument("--workers", type=int, default=256, help="workers to extrapolate to")
    parser.add_argument("--dask", type=int, default=178, help="values of an axis of the sweep on Dask")
    arguments = parser.parse_args()
    tables: dict[str, Run] = {
        "points": partial(points_table, arguments.seconds, arguments.points, arguments.workers),
        "layouts": layouts_table,
        "lanes": lanes_table,
        "variables": variables_table,
    }
    for name, run in tables.items():
        if name in arguments.only:
            run()
    if "dask" in arguments.only:
        for tile, settings in ((None, {}), (None, QUIET), (LARGE_TILE, QUIET)):
            dask_table(arguments.dask, len(os.sched_getaffinity(0)), tile, settings)


if __name__ == "__main__":
    main()
