"""How fast is each implementation of each kernel on this machine, and how near to what the chip can do?

Prints the chip, points (problems, steps) per second of every implementation that runs here, the ratio to plain XLA, and
on a GPU the share of the estimated limit and the ratio to CuPy and Torch where they are installed. Interpretation is no
measurement and is left out. `--write FOLDER` keeps the table as JSON with date and chip.
"""

import argparse
import datetime
import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.learning.loss_law import ChinchillaLaw
from energymodel.numerics import as_real
from energymodel_kernels.batched_newton import System, batched_newton
from energymodel_kernels.batched_newton import shapes as newton_shapes
from energymodel_kernels.fused_sweep import Axis, Best, ParetoBins, fused_sweep
from energymodel_kernels.fused_sweep import shapes as sweep_shapes
from energymodel_kernels.ode_ensemble import LossPlan, ThermalPlan, heat_rate, loss_rate_of, ode_ensemble
from energymodel_kernels.ode_ensemble import shapes as ode_shapes

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.append(str(Path(__file__).resolve().parent))
from machine import present
from peers import PEERS

from sweep_model import sweep_model

REPEATS, LONG = 5, 10.0  # s
SPECIAL = 17  # exponentials and logarithms of a point of the model
ON = {"cpu": ("xla",), "gpu": ("xla", "pallas_triton", "pallas_mosaic_gpu"), "tpu": ("xla", "pallas_tpu")}
SMALL = {"cpu"}  # platforms that take the first shape of each list only
LIMITS = (2e4, 70.0, 2e6)
AXES = {
    "batch": (0.05, 64.0, True),
    "clock": (0.5, 2.2, False),
    "nodes": (4.0, 1024.0, True),
    "voltage": (0.6, 1.15, False),
}
LAW = ChinchillaLaw(*map(as_real, (1.8172, 482.01, 0.3478, 2085.43, 0.3658)))
KEEPS = {"best": Best(), "top 32": Best(32), "32 bins": ParetoBins(0, 1e3, 2e4, 32, logarithmic=True)}


class Case(NamedTuple):
    """Something to time: what it is, its unit, how many units a call computes, special functions per unit."""

    name: str
    unit: str
    work: float
    call: Callable[[str, bool], Callable[[], Any]]
    special: float | None = None


def model(point: Any, _: Any) -> Any:
    energy, duration, temperature, power = sweep_model(*point, xp=jnp)
    return energy, (duration, temperature, power)


def sweeps(shapes: dict[str, tuple[int, ...]]) -> Iterator[Case]:
    for name, counts in shapes.items():
        axes = {axis: Axis(low, high, n, log) for (axis, (low, high, log)), n in zip(AXES.items(), counts, strict=True)}
        for kept, keep in KEEPS.items():

            def call(implementation: str, approximate: bool, axes: Any = axes, keep: Any = keep) -> Callable[[], Any]:
                return lambda: fused_sweep(
                    model, axes, limits=LIMITS, keep=keep, implementation=implementation, approximate=approximate
                )

            yield Case(f"fused_sweep, {name} points, {kept}", "point", prod(counts), call, SPECIAL)


def systems(problems: int, n: int, m: int) -> System:
    draw = np.random.default_rng(0)
    root = draw.normal(size=(problems, n, n))
    parts = System(
        root @ root.transpose(0, 2, 1) / n,
        draw.normal(size=(problems, m, n)),
        np.exp(draw.normal(size=(problems, m))),
        np.exp(draw.normal(size=(problems, n))),
        np.ones((problems, n)),
        np.zeros(problems),
        draw.normal(size=(problems, n)),
        draw.normal(size=(problems, m)),
    )
    return jax.tree.map(lambda part: jnp.asarray(part, jnp.float32), parts)


def steps_of_newton(shapes: dict[str, tuple[int, int, int]]) -> Iterator[Case]:
    for name, (problems, n, m) in shapes.items():
        parts = systems(problems, n, m)

        def call(implementation: str, approximate: bool, parts: Any = parts) -> Callable[[], Any]:
            return lambda: batched_newton(parts, implementation=implementation)

        yield Case(f"batched_newton, {name}, {m} rows", "system", problems, call)


def ensembles(shapes: dict[str, tuple[int, int, int]]) -> Iterator[Case]:
    for name, (plans, steps, saves) in shapes.items():
        spread = jnp.geomspace(1e8, 1e9, plans)
        runs = LossPlan(70e9, spread, 4e6, 1e7, LAW)
        chips = ThermalPlan(jnp.linspace(100.0, 700.0, plans), 300.0, 0.05, 300.0)
        for equation, rate, start, given in (("loss", loss_rate_of, 2.5, runs), ("heat", heat_rate, 310.0, chips)):

            def call(
                implementation: str,
                approximate: bool,
                rate: Any = rate,
                start: Any = start,
                given: Any = given,
                steps: int = steps,
                saves: int = saves,
            ) -> Callable[[], Any]:
                return lambda: ode_ensemble(
                    rate,
                    start,
                    given,
                    step=1.0,
                    steps=steps,
                    saves=saves,
                    implementation=implementation,
                    approximate=approximate,
                )

            yield Case(f"ode_ensemble, {equation}, {name}, {steps} steps", "step", plans * steps, call)


def seconds(call: Callable[[], Any]) -> float:
    """Least of some repetitions, after one that compiles; of one where that takes long."""
    jax.block_until_ready(call())
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < LONG:
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return min(times)


def cases(most: int | None) -> Iterator[Case]:
    """All cases, or those of the first shapes of each list."""
    yield from sweeps(dict(list(sweep_shapes.TIMED.items())[:most]))
    yield from steps_of_newton(dict(list(newton_shapes.TIMED.items())[:most]))
    yield from ensembles(dict(list(ode_shapes.TIMED.items())[:most]))


def variants(platform: str) -> Iterator[tuple[str, str, bool]]:
    for implementation in ON.get(platform, ("xla",)):
        yield implementation, implementation, False
        if implementation in ("pallas_triton", "pallas_mosaic_gpu"):
            yield f"{implementation}, special functions", implementation, True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="folder for the JSON")
    folder = parser.parse_args().write
    platform, chip = jax.default_backend(), present()
    print(f"{chip.name if chip else jax.devices()[0].device_kind}, float32, least of up to {REPEATS} runs")
    if chip:
        print(f"limits: {chip.special / 1e9:.0f} G special functions/s, {chip.issue / 1e9:.0f} G instructions/s")
    rows = []
    for case in cases(1 if platform in SMALL else None):
        print(f"{case.name}:")
        plain = None
        for label, implementation, approximate in variants(platform):
            if approximate and case.unit == "system":
                continue
            try:
                taken = seconds(case.call(implementation, approximate))
            except ValueError as error:  # a size that an implementation does not take
                print(f"  {label}: {error}")
                continue
            plain = taken if implementation == "xla" else plain
            rate = case.work / taken
            line = f"  {label}: {rate / 1e9:.4g} G{case.unit}/s"
            line += f", {plain / taken:.2f} x plain XLA" if plain else ""
            share = None
            if chip and case.special:
                share = rate * case.special / chip.special
                line += f", {100 * share:.0f} % of the limit of special functions"
            print(line)
            rows.append({"case": case.name, "implementation": label, "rate": rate, "unit": case.unit, "share": share})
        for peer, time_of in PEERS.items():
            if chip and case.name.endswith("best") and find_spec(peer):
                taken = time_of(case.work, LIMITS)
                versus = f", plain XLA is {taken / plain:.2f} x faster" if plain else ""
                print(f"  {peer}: {case.work / taken / 1e9:.4g} G{case.unit}/s{versus}")
                rows.append({"case": case.name, "implementation": peer, "rate": case.work / taken, "unit": case.unit})
    if folder:
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        result = {"date": today, "chip": chip.name if chip else platform, "jax": jax.__version__, "rows": rows}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"kernels-{today}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
