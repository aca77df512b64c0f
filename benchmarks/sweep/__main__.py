"""A sweep beside NumPy, Numba, numexpr, naive JAX and C++: one table, in one run.

`python benchmarks/sweep [--points 100] [--only model|evaluate|samples]`: `sweep_model` with so many values an axis,
float32, minimum energy within three limits; then other reductions, memory, scaling; `evaluate` of the README scenario;
and random samples of both.
"""

import argparse
import ctypes
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
TESTS = HERE.parents[1] / "tests"
sys.path.insert(0, str(TESTS))
CORES = len(os.sched_getaffinity(0))
LIMITS = {"time": 2.0e4, "power": 2.0e6, "temperature": 70.0}
SCENARIO = "llama-3.1-405b-h100"
FLOP_PER_POINT = 150  # besides 17 exp and log, 2 sqrt
CALCULON, LLM_ANALYSIS = 0.2e3, 2.0e3  # layouts per second and core, by the published figures of their authors
REPEATS = 3


def values(count: int) -> list[np.ndarray]:
    """Values of the four axes."""
    axes = [
        np.geomspace(0.05, 64, count),
        np.linspace(0.5, 2.2, count),
        np.geomspace(4, 1024, count),
        np.linspace(0.6, 1.15, count),
    ]
    return [axis.astype(np.float32) for axis in axes]


def permitted(outputs, xp):
    """Energy within the limits, infinity elsewhere."""
    energy, duration, temperature, power = outputs
    return xp.where((duration <= 2.0e4) & (power <= 2.0e6) & (temperature <= 70.0), energy, np.float32(np.inf))


def numpy_peer(count: int, outer: int) -> Callable[[], float]:
    from sweep_model import sweep_model

    batch, clock, nodes, voltage = values(count)
    inner = (nodes[:, None], voltage[None, :])

    def run() -> float:
        chunks = ((b, c) for b in batch[:: len(batch) // outer] for c in clock[:: len(clock) // outer])
        return min(float(permitted(sweep_model(b, c, *inner, np), np).min()) for b, c in chunks)

    return run


def numexpr_peer(count: int, outer: int) -> Callable[[], float]:
    import ast

    import numexpr

    axes = dict(zip(("batch", "clock", "nodes", "voltage"), values(count), strict=True))
    numexpr.set_num_threads(CORES)

    # Each assignment of the model is one expression: its parts would otherwise be written out again and again.
    model: Any = ast.parse(TESTS.joinpath("sweep_model.py").read_text()).body[-1]
    steps: list[tuple[str, str]] = []

    def flat(statements) -> None:
        for statement in statements:
            if isinstance(statement, ast.For):
                for _ in range(3):
                    flat(statement.body)
            elif isinstance(statement, ast.Assign):
                target, value = statement.targets[0], statement.value
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs = list(zip(target.elts, value.elts, strict=True))
                else:
                    pairs = [(target, value)]
                steps.extend((ast.unparse(name), ast.unparse(value).replace("xp.", "")) for name, value in pairs)

    flat(model.body)

    def run() -> float:
        best = math.inf
        for b in axes["batch"][:: count // outer]:
            for c in axes["clock"][:: count // outer]:
                names = {"batch": b, "clock": c, "nodes": axes["nodes"][:, None], "voltage": axes["voltage"][None, :]}
                for name, expression in steps:
                    names[name] = numexpr.evaluate(expression, names, truediv=True, casting="same_kind")
                outputs = (names["energy"], names["time"], names["junction"], names["site"])
                best = min(best, float(permitted(outputs, np).min()))
        return best

    return run


def numba_peer(count: int) -> Callable[[], float]:
    import ast

    import numba

    # The same source, compiled for scalars: `xp.` becomes `math.`.
    function = ast.parse(TESTS.joinpath("sweep_model.py").read_text()).body[-1]
    source = ast.unparse(function).replace("xp.", "math.").replace(", xp)", ")")
    namespace: dict = {"math": math}
    exec(source, namespace)
    model = numba.njit(fastmath=True, inline="always")(namespace["sweep_model"])

    @numba.njit(parallel=True, fastmath=True)
    def run(batch, clock, nodes, voltage):
        best = np.full(batch.size, np.float32(3.0e38))
        for b in numba.prange(batch.size):
            least = np.float32(3.0e38)
            for c in range(clock.size):
                for n in range(nodes.size):
                    for v in range(voltage.size):
                        energy, duration, temperature, power = model(batch[b], clock[c], nodes[n], voltage[v])
                        if duration <= 2.0e4 and power <= 2.0e6 and temperature <= 70.0 and energy < least:
                            least = energy
            best[b] = least
        return best.min()

    axes = values(count)
    numba.set_num_threads(CORES)
    run(*(axis[:2] for axis in axes))
    return lambda: float(run(*axes))


def cpp_peer(count: int, flags: str) -> Callable[[], float] | None:
    compiler = shutil.which("g++")
    if compiler is None:
        return None
    folder = tempfile.mkdtemp()
    library = f"{folder}/sweep.so"
    command = [compiler, "-O3", "-ffast-math", "-fopenmp", *flags.split(), "-shared", "-fPIC", "-o", library]
    subprocess.run([*command, str(HERE / "sweep_model.cpp"), "-lmvec"], check=True)
    sweep = ctypes.CDLL(library).sweep
    sweep.restype = ctypes.c_float
    axes = values(count)
    arguments = [part for axis in axes for part in (axis.ctypes.data_as(ctypes.c_void_p), ctypes.c_int(len(axis)))]
    best_index = ctypes.c_int64()
    return lambda: float(sweep(*arguments, ctypes.byref(best_index), ctypes.c_int(CORES)))


def naive_peer(count: int) -> Callable[[], float]:
    import jax
    import jax.numpy as jnp

    from sweep_model import sweep_model

    axes = [jnp.asarray(axis) for axis in values(count)]
    total, chunk = count**4, 2**18

    def point(index):
        own = []
        for axis in reversed(axes):
            own.append(axis[index % count])
            index = index // count
        return permitted(sweep_model(*reversed(own), xp=jnp), jnp)

    @jax.jit
    def run():
        def step(number, best):
            index = number * chunk + jnp.arange(chunk)
            result = jnp.where(index < total, jax.vmap(point)(jnp.minimum(index, total - 1)), jnp.inf)
            return jnp.minimum(best, jnp.min(result))

        return jax.lax.fori_loop(0, -(-total // chunk), step, jnp.float32(jnp.inf))

    jax.block_until_ready(run())
    return lambda: float(run())


def ours(count: int, keep="best", **options) -> Callable[[], float]:
    import jax.numpy as jnp

    from energymodel.sweeps.axes import Axis
    from energymodel.sweeps.best_points import Top
    from energymodel.sweeps.engines import in_process
    from energymodel.sweeps.prepared_sweep import OrderedMerge
    from energymodel.sweeps.sweep import prepare_sweep
    from sweep_model import sweep_model

    def model(batch, clock, nodes, voltage):
        outputs = sweep_model(batch, clock, nodes, voltage, jnp)
        return dict(zip(("energy", "time", "temperature", "power"), outputs, strict=True))

    axes = [Axis(name, axis) for name, axis in zip(("batch", "clock", "nodes", "voltage"), values(count), strict=True)]
    if keep == "minimum":
        keep = Top("energy", 1, {name: (-math.inf, limit) for name, limit in LIMITS.items()}, spare=0)
    program = prepare_sweep(model, axes, keep, "energy", LIMITS, **options).program
    program.compile()

    def run() -> float:
        merged = OrderedMerge(program.reduction)
        for number, state in in_process(program, range(program.grid.tiles)):
            merged.add(number, state)
        state = merged.finish()
        return float(np.ravel(state[0])[0]) if isinstance(state, tuple) else math.nan

    return run


def peer(make: Callable[..., Callable[[], float] | None], *arguments: Any) -> Callable[[], float] | None:
    """A run of a peer, if it is installed."""
    try:
        return make(*arguments)
    except ImportError:
        return None


def timed(run: Callable[[], float], repeats: int) -> tuple[float, float, float]:
    """Value, lowest wall time and lowest processor time of some runs [s]."""
    walls, used = [], []
    value = math.nan
    for _ in range(repeats):
        start, busy = time.perf_counter(), time.process_time()
        value = run()
        walls.append(time.perf_counter() - start)
        used.append(time.process_time() - busy)
    return value, min(walls), min(used)


def row(name: str, points: int, run: Callable[[], float] | None, repeats: int = REPEATS) -> float:
    """Print a line; million points per second."""
    if run is None:
        print(f"{name:<44} {'not installed':>14}")
        return math.nan
    value, wall, busy = timed(run, repeats)
    print(f"{name:<44} {points / wall / 1e6:>9.1f} {points / busy / 1e6:>12.1f} {value:>14.6g}", flush=True)
    return points / wall / 1e6


def peak() -> float:
    """Largest memory of this process so far [MB]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def flops() -> float:
    """Float32 multiply-add rate of a loop that stays in registers [FLOP/s], all cores: what this machine can do."""
    import jax
    import jax.numpy as jnp

    from energymodel.runtime.compilation import compiler_options

    steps, size = 2000, 2**14 * CORES

    def chain(x):
        for _ in range(steps // 100):
            x = jax.lax.fori_loop(0, 1, lambda _, y: y * 0.999 + 0.001, x)
            for _ in range(99):
                x = x * jnp.float32(0.999) + jnp.float32(0.001)
        return x

    run = jax.jit(chain, compiler_options=compiler_options(tile=True))
    x = jnp.ones(size, jnp.float32)
    jax.block_until_ready(run(x))
    start = time.perf_counter()
    jax.block_until_ready(run(x))
    return 2.0 * steps * size / (time.perf_counter() - start)


def model_table(count: int) -> None:
    """`sweep_model` by all peers, other reductions, memory, scaling."""
    points = count**4
    outer = count // (count // 10)  # chunks of peers that would take minutes: so many batches and clocks
    some = len(range(0, count, count // outer)) ** 2 * count**2
    print(f"sweep_model, {points:.3g} points, float32, {CORES} cores; minimum energy within three limits")
    print(f"{'':<44} {'Mpoint/s':>9} {'per core':>12} {'min. energy':>14}")
    minimum = ours(count, "minimum")
    minimum()
    before = peak()
    own = row("this library, minimum", points, minimum)
    growth = peak() - before
    rates = {
        "NumPy, chunks in cache": row("NumPy, chunks in cache", some, numpy_peer(count, outer), 1),
        "Numba, parallel, fastmath": row("Numba, parallel, fastmath", points, peer(numba_peer, count), 1),
        "numexpr": row("numexpr", some, peer(numexpr_peer, count, outer), 1),
        "JAX, flat index": row("JAX, flat index", points, naive_peer(count), 1),
        "C++, AVX2": row("C++, AVX2", points, cpp_peer(count, "-mavx2 -mfma")),
        "C++, widest vectors": row(
            "C++, widest vectors", points, cpp_peer(count, "-march=native -mprefer-vector-width=512")
        ),
    }
    again = row("this library, minimum (again)", points, minimum)
    own = max(own, again)
    results = {}
    for word in ("best", "top:32", "count", "along:batch,voltage", "pareto:energy,time"):
        results[word] = row(f"this library, {word}", points, ours(count, word), 2)
    print()
    for name, rate in rates.items():
        print(f"ratio to {name:<34} {own / rate:>9.2f}")
    for word, rate in results.items():
        print(f"ratio of {word:<26} to minimum {rate / own:>9.2f}")
    print(f"memory growth at {points:.3g} points {growth:>9.1f} MB (peak {peak():.0f} MB)")
    rate = flops()
    print(
        f"arithmetic peak {rate / 1e9:.0f} GFLOP/s; share without exp and log {own * 1e6 * FLOP_PER_POINT / rate:.2f}"
    )
    print("\nscaling")
    for values_per_axis in (32, 57, 100, 178):
        row(f"this library, {values_per_axis**4:.3g} points", values_per_axis**4, ours(values_per_axis, "minimum"), 1)


def evaluate_table() -> None:
    """`evaluate` of the README's scenario over six axes at two sizes, and layouts per second."""
    import energymodel as em
    from energymodel.sweeps.sweep import prepare_sweep

    scenario = em.load_scenario(SCENARIO)
    print(f"\nevaluate of {SCENARIO}: batch x clock x power cap x chips x coolant x 64 layouts, float32, {CORES} cores")
    rates = {}
    for sizes in ((10, 5, 5, 8, 8), (25, 25, 10, 25, 10)):
        axes = dict(
            zip(
                ("plan.batch", "plan.clock", "plan.power_cap", "plan.chips", "plan.coolant_temperature"),
                (
                    f"4..64 Mi token log {sizes[0]}",
                    f"0.5..1 linear {sizes[1]}",
                    f"400..700 W linear {sizes[2]}",
                    f"4096..16384 log {sizes[3]}",
                    f"15..45 °C linear {sizes[4]}",
                ),
                strict=True,
            )
        )
        prepared = prepare_sweep(scenario, {**axes, "plan.layout": "64"}, "best", "energy", {"time": "120 days"})
        prepared.program.run(0)
        swept = prepared.run()
        rates[swept.points] = swept.points / swept.seconds
        print(
            f"{swept.points:.3g} points: {swept.seconds:.2f} s, {rates[swept.points] / 1e6:.1f} Mpoint/s, best "
            f"{swept.best.value:.6g} J; order {', '.join(axis.name.split('.')[-1] for axis in swept.axes)}",
            flush=True,
        )
    small, large = rates.values()
    print(f"rate of the large grid over the small one {large / small:.2f}")
    prepared = prepare_sweep(scenario, {"plan.layout": "all", "plan.batch": "4..64 Mi token log 16"}, "best", "energy")
    prepared.program.compile()
    swept = prepared.run()
    layouts = swept.points / swept.seconds / CORES
    print(f"layouts with a batch, each its own point: {layouts / 1e3:.0f} thousand/s/core")
    print(f"ratio to Calculon's {CALCULON:.0f}/s/core {layouts / CALCULON:.0f}")
    print(f"ratio to llm-analysis' {LLM_ANALYSIS:.0f}/s/core {layouts / LLM_ANALYSIS:.0f}")


def samples_table(count: int) -> None:
    """Random samples of `sweep_model` against a loop in NumPy, and of the README's scenario."""
    import jax.numpy as jnp

    import energymodel as em
    from energymodel.sweeps.monte_carlo import prepare_monte_carlo
    from sweep_model import sweep_model

    numbers = {
        "batch": (4.0, "lognormal 0.3"),
        "clock": (1.5, "normal 0.1"),
        "nodes": (256.0, "lognormal 0.2"),
        "voltage": (0.9, "normal 0.03"),
    }

    def model(batch, clock, nodes, voltage):
        outputs = sweep_model(batch, clock, nodes, voltage, jnp)
        return dict(zip(("energy", "time", "temperature", "power"), outputs, strict=True))

    def loop() -> float:
        random, energies, held = np.random.default_rng(0), [], 0
        for _ in range(count // 2**14):
            z = random.standard_normal((4, 2**14), np.float32)
            batch, nodes = (
                numbers[name][0] * np.exp(z[row] * spread)
                for name, row, spread in (("batch", 0, np.float32(0.3)), ("nodes", 1, np.float32(0.2)))
            )
            outputs = sweep_model(batch, 1.5 + np.float32(0.1) * z[2], nodes, 0.9 + np.float32(0.03) * z[3], np)
            energies.append(outputs[0])
            held += int(np.isfinite(permitted(outputs, np)).sum())
        return float(np.quantile(np.concatenate(energies), 0.5))

    def drawn(sweep: Any) -> Callable[[], float]:
        sweep.program.compile()
        return lambda: sweep.run().result.spreads["energy"].quantiles[0.5]

    print(f"\nrandom samples, float32, {CORES} cores; median of energy")
    print(f"{'':<44} {'Mpoint/s':>9} {'per core':>12} {'median':>14}")
    sweep = prepare_monte_carlo(
        model, count, numbers=numbers, of=["energy"], limits=LIMITS, indices=False
    ).distributions
    own = row("this library, sweep_model", sweep.program.grid.points, drawn(sweep))
    peer = row("NumPy in chunks, one thread", count // 2**14 * 2**14, loop, 1)
    print(f"ratio to NumPy {own / peer:.2f}")
    scenario = em.load_scenario(SCENARIO)
    sweep = prepare_monte_carlo(scenario, count, limits={"time": "100 days"}, indices=False).distributions
    points = sweep.program.grid.points
    rate = row(f"{SCENARIO}, all outputs", points, drawn(sweep), 1)
    print(f"{points:,} samples of the scenario after compilation: {points / rate / 1e6:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100, help="values of an axis of sweep_model")
    parser.add_argument("--only", choices=("model", "evaluate", "samples"), help="one of the tables")
    parser.add_argument("--samples", type=int, default=1_000_000, help="random samples")
    arguments = parser.parse_args()
    if arguments.only in (None, "model"):
        model_table(arguments.points)
    if arguments.only in (None, "evaluate"):
        evaluate_table()
    if arguments.only in (None, "samples"):
        samples_table(arguments.samples)


if __name__ == "__main__":
    main()
