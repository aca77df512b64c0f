"""Speed on one GPU, beside CUDA by hand, CuPy, Torch, plain `jax.vmap` and the machine's CPU.

Prints, within five minutes, chip, versions and date, and a table for each kind of work: seconds of the first call and
of a later one, the rate, and the ratio to the first line of its table; sweeps and the solver are also compared with
float64 on the CPU. A peer that is not installed and a case that fails take a line each. Without a GPU the same script
runs smaller cases on the CPU.
"""

import argparse
import datetime
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from math import prod
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import energymodel as em
from energymodel.learning.loss_law import ChinchillaLaw
from energymodel.numerics import as_real
from energymodel.solver import RESULTS, Values, minimize_many
from energymodel.solver.solution import result_is
from energymodel_kernels.batched_newton import System, batched_newton
from energymodel_kernels.fused_sweep import Axis, Best, ParetoBins, fused_sweep
from energymodel_kernels.ode_ensemble import LossPlan, ThermalPlan, heat_rate, loss_rate_of, ode_ensemble

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.append(str(Path(__file__).resolve().parent / "kernels"))
from machine import present
from peers import PEERS

from solver import reference_problem
from sweep_model import sweep_model

ON_GPU = jax.default_backend() == "gpu"
REPEATS, LONG = 4, 4.0  # s
BUDGET = 280.0  # s
SCENARIO = "llama-3.1-405b-h100"
LIMITS = (2e4, 70.0, 2e6)
AXES = {
    "batch": (0.05, 64.0, True),
    "clock": (0.5, 2.2, False),
    "nodes": (4.0, 1024.0, True),
    "voltage": (0.6, 1.15, False),
}
LAW = ChinchillaLaw(*map(as_real, (1.8172, 482.01, 0.3478, 2085.43, 0.3658)))
IMPLEMENTATIONS = {
    "XLA": {"implementation": "xla"},
    "Triton": {"implementation": "pallas_triton"},
    "Triton, special function units": {"implementation": "pallas_triton", "approximate": True},
}
if not ON_GPU:
    del IMPLEMENTATIONS["Triton"], IMPLEMENTATIONS["Triton, special function units"]


class Case(NamedTuple):
    """Something to time: its name, its units of work and what runs it; `seconds` if it times itself."""

    name: str
    work: float
    run: Callable[[], Any]
    seconds: bool = False


class Group(NamedTuple):
    """Cases that compute the same thing, the first of which the others are compared with."""

    name: str
    unit: str
    cases: Iterator[Case]


def size(on_gpu: float, on_cpu: float) -> int:
    return int(on_gpu if ON_GPU else on_cpu)


def evaluate_points() -> Iterator[Case]:
    """`evaluate` at random batches, clocks and coolant temperatures, and the product's own sweep."""
    scenario = em.load_scenario(SCENARIO)
    points = size(2**24, 2**12)
    draw = np.random.default_rng(0)
    batch = float(np.ravel(scenario.plan.batch)[0])
    drawn = [batch * draw.uniform(0.5, 2, points), draw.uniform(0.6, 1, points), draw.uniform(288, 303, points)]
    varied = jnp.asarray(np.stack(drawn, 1), jnp.float32)

    def outputs(numbers: Any) -> Any:
        plan = eqx.tree_at(
            lambda plan: (plan.batch, plan.clock, plan.coolant_temperature),
            scenario.plan,
            (jnp.broadcast_to(numbers[0], jnp.shape(scenario.plan.batch)), numbers[1], numbers[2]),
        )
        outcome = em.evaluate(scenario.system, plan)
        return jnp.stack([outcome.energy.total, outcome.time])

    values = jax.jit(jax.vmap(outputs))
    slopes = jax.jit(jax.vmap(jax.value_and_grad(lambda numbers: outputs(numbers)[0])))
    yield Case("plain jax.vmap", points, lambda: values(varied))
    yield Case("plain jax.vmap, value and gradient by three numbers", points / 8, lambda: slopes(varied[: points // 8]))
    counts = (100, 50, 40, 1000) if ON_GPU else (10, 5, 5, 20)
    lowest, points = itertools.count(8.0, 0.01), prod(counts)

    def swept(keep: str) -> Any:
        """A sweep with numbers of its own, for which nothing may be compiled again."""
        axes = {
            "plan.batch": f"{next(lowest):.2f}..32 Mi token log {counts[0]}",
            "plan.clock": f"0.6..1 linear {counts[1]}",
            "plan.coolant_temperature": f"15..30 °C linear {counts[2]}",
            "plan.power_cap": f"500..700 W linear {counts[3]}",
        }
        return em.sweep(scenario, axes, keep)

    for keep in ("best", "pareto:energy,time"):
        yield Case(f"em.sweep, {points:.1e} points, {keep}", points, lambda k=keep: swept(k))


def schematic(point: Any, _: Any) -> Any:
    energy, duration, temperature, power = sweep_model(*point, xp=jnp)
    return energy, (duration, temperature, power)


def by_hand(values_per_axis: int, *options: str) -> float:
    """Seconds of the CUDA kernel on a grid of `values_per_axis` to the fourth points."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "sweep_model"
        source = str(Path(__file__).resolve().parent / "kernels" / "sweep_model.cu")
        subprocess.run(["nvcc", "-O3", "-arch=native", *options, source, "-o", program], check=True)
        ran = subprocess.run([program, str(values_per_axis)], capture_output=True, text=True, check=True)
    return float(ran.stdout.split()[1]) / 1e3


def grid(points: float) -> dict[str, Axis]:
    counts = {1e6: (10, 10, 100, 100), 1e7: (100, 10, 100, 100), 1e8: (100,) * 4, 1e9: (100, 1000, 100, 100)}
    chosen = counts.get(points, (1000, 1000, 100, 100))
    return {name: Axis(low, high, n, log) for (name, (low, high, log)), n in zip(AXES.items(), chosen, strict=True)}


def sweeps(points: float, keep: Any, *, peers: bool) -> Iterator[Case]:
    """The schematic model on a grid, by hand, by the kernels and by peers."""
    if peers and which("nvcc") and ON_GPU:
        count = round(points**0.25)
        for name, options in (("CUDA by hand", ()), ("CUDA by hand, -use_fast_math", ("-use_fast_math",))):
            yield Case(name, count**4, lambda o=options: by_hand(count, *o), seconds=True)
    for name, options in IMPLEMENTATIONS.items():
        call = lambda o=options: fused_sweep(schematic, grid(points), limits=LIMITS, keep=keep, **o)  # noqa: E731
        yield Case(f"fused_sweep, {name}", points, call)
    for name, seconds_of in PEERS.items() if peers and ON_GPU else ():
        if find_spec(name):
            yield Case(name, points, lambda s=seconds_of: s(points, LIMITS), seconds=True)


def newton_steps(problems: int, variables: int, rows: int) -> Iterator[Case]:
    draw = np.random.default_rng(0)
    root = draw.normal(size=(problems, variables, variables))
    system = System(
        root @ root.transpose(0, 2, 1) / variables,
        draw.normal(size=(problems, rows, variables)),
        np.exp(draw.normal(size=(problems, rows))),
        np.exp(draw.normal(size=(problems, variables))),
        np.ones((problems, variables)),
        np.zeros(problems),
        draw.normal(size=(problems, variables)),
        draw.normal(size=(problems, rows)),
    )
    parts = jax.tree.map(lambda part: jnp.asarray(part, jnp.float32), system)
    for name, options in list(IMPLEMENTATIONS.items())[:2]:
        yield Case(f"batched_newton, {name}", problems, lambda o=options: batched_newton(parts, **o))


def trajectories(rate: Any, start: float, plans: Any, count: int, steps: int = 1000) -> Iterator[Case]:
    for name, options in IMPLEMENTATIONS.items():
        call = lambda o=options: ode_ensemble(rate, start, plans, step=1.0, steps=steps, **o)  # noqa: E731
        yield Case(f"ode_ensemble, {name}", count * steps, call)


def design_values(x: Any, scenario: Any) -> Values:
    return Values(*reference_problem.problem(x, scenario))


def lanes(count: int, **options: Any) -> Any:
    starts = np.tile(reference_problem.START, (count, 1))
    bounds = (reference_problem.LOWER, reference_problem.UPPER)
    return minimize_many(design_values, starts, (reference_problem.scenarios(count),), bounds=bounds, **options)


def solver() -> Iterator[Case]:
    for count in (1024, 65_536, 1_048_576) if ON_GPU else (256,):
        yield Case(f"minimize_many, {count:,} lanes", count, lambda c=count: lanes(c))


def optimize() -> Iterator[Case]:
    command = [sys.executable, "-m", "energymodel", "optimize", SCENARIO]
    for name, variables in (("with a GPU", {}), ("JAX_PLATFORMS=cpu", {"JAX_PLATFORMS": "cpu"})):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, **variables, "JAX_COMPILATION_CACHE_DIR": folder}
            run = lambda e=environment: subprocess.run(command, env=e, check=True, capture_output=True)  # noqa: E731
            yield Case(f"energymodel optimize {SCENARIO}, {name}", 1, run)


def groups() -> Iterator[Group]:
    yield Group("evaluate", "point", evaluate_points())
    for points in (1e7, 1e8, 1e9, 1e10) if ON_GPU else (1e6,):
        yield Group(f"sweep_model, best of {points:.0e}", "point", sweeps(points, Best(), peers=True))
    bins = ParetoBins(0, 1e3, 2e4, 32, logarithmic=True)
    yield Group("sweep_model, 32 bins", "point", sweeps(1e9 if ON_GPU else 1e6, bins, peers=False))
    for variables, rows, problems in ((12, 20, size(65_536, 512)), (40, 60, size(16_384, 64))):
        yield Group(f"Newton systems of {variables} variables", "system", newton_steps(problems, variables, rows))
    plans = size(100_000, 1_000)
    losses = LossPlan(70e9, jnp.geomspace(1e8, 1e9, plans), 4e6, 1e7, LAW)
    yield Group("loss over time", "step", trajectories(loss_rate_of, 2.5, losses, plans))
    chips = ThermalPlan(jnp.linspace(100.0, 700.0, plans), 300.0, 0.05, 300.0)
    yield Group("heat over time", "step", trajectories(heat_rate, 310.0, chips, plans))
    yield Group("solver, 12 variables, float64", "lane", solver())
    if ON_GPU:
        yield Group("optimize", "run", optimize())


def timed(case: Case) -> tuple[float, float]:
    """Seconds of the first call and the shortest of some later ones."""
    if case.seconds:
        fastest = case.run()
        return fastest, fastest
    start = time.perf_counter()
    jax.block_until_ready(case.run())
    first = time.perf_counter() - start
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < LONG:
        start = time.perf_counter()
        jax.block_until_ready(case.run())
        times.append(time.perf_counter() - start)
    return first, min(times)


def check() -> None:
    """Largest differences between this device in float32 or 64 and the CPU in float64."""
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        axes = [np.geomspace(a, b, 10) if log else np.linspace(a, b, 10) for a, b, log in AXES.values()]
        energy, *others = sweep_model(*np.meshgrid(*axes, indexing="ij"), xp=np)
        limited = np.all([value <= limit for value, limit in zip(others, LIMITS, strict=True)], axis=0)
        minimum = float(np.where(limited, energy, np.inf).min())
        expected = lanes(64, devices=jax.devices("cpu"))
    small = {name: Axis(low, high, 10, log) for name, (low, high, log) in AXES.items()}
    for name, options in IMPLEMENTATIONS.items():
        best = fused_sweep(schematic, small, limits=LIMITS, **options)
        print(f"  fused_sweep, {name}: minimum differs by {float(best.objective[0]) / minimum - 1:.1e}", flush=True)
    result = lanes(64)
    both = result_is(result.result, RESULTS.successful) & result_is(expected.result, RESULTS.successful)
    apart = np.abs(np.asarray(result.x) - np.asarray(expected.x))[both].max()
    print(f"  minimize_many: {both.sum()} of 64 lanes converge on both, x differs by {apart:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="tables whose name holds this")
    parser.add_argument("--write", type=Path, help="file for the rows as JSON")
    arguments = parser.parse_args()
    begun, chip = time.perf_counter(), present()
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    device = chip.name if chip else jax.devices()[0].device_kind
    print(f"{device}, JAX {jax.__version__}, Python {sys.version.split()[0]}, energymodel {em.__version__}, {today}")
    rows = []
    for group in groups():
        if arguments.only not in group.name:
            continue
        print(f"\n{group.name}", flush=True)
        reference = None
        for case in group.cases:
            if time.perf_counter() - begun > BUDGET:
                print(f"  {case.name}: skipped, {BUDGET:.0f} s are over", flush=True)
                continue
            try:
                first, again = timed(case)
            except Exception as error:  # one failing case leaves the others
                print(f"  {case.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                traceback.print_exc(limit=-3, file=sys.stderr)
                continue
            reference = reference or case.work / again
            ratio = case.work / again / reference
            print(
                f"  {case.name:<52} first {first:8.2f} s, again {again * 1e3:10.2f} ms, "
                f"{case.work / again:.3g} {group.unit}/s, {ratio:.2f} x",
                flush=True,
            )
            rows.append({"group": group.name, "case": case.name, "first": first, "again": again, "work": case.work})
    if not arguments.only:
        print("\nbeside float64 on the CPU", flush=True)
        try:
            check()
        except Exception:  # as above
            traceback.print_exc(limit=-5)
    print(f"\n{time.perf_counter() - begun:.0f} s")
    if arguments.write:
        record = {"date": today, "device": device, "jax": jax.__version__, "rows": rows}
        arguments.write.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
