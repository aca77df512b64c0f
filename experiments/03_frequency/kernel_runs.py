"""Time, power and energy of GPU kernels at lower clocks, predicted from the highest."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration import device_power
from energymodel.calibration.constant_priors import ConstantPrior, ConstantPriors, Values
from energymodel.calibration.device_power import NOISE, OPTIONS, Profiles
from energymodel.calibration.kernel_clock import CONSTANTS, LOWEST_SHARE, kernel_errors, memory_path_time, split_power
from energymodel.calibration.least_squares import ErrorFunction, FitProblem, FitResult, fit, held_out_errors
from energymodel.numerics import Numeric
from energymodel.physics.switching import busy_power
from energymodel.physics.voltage import posynomial_voltage

DATA = Path(__file__).parents[1] / "data"
LOWEST = 0.35  # of the highest clock: below, the floor form of voltage is not valid [docs/physics.md E]
SECOND = 0.68  # of the highest clock, near which a kernel is measured a second time
ACTIVITIES = ("sm_active_frac", "fp32_active_frac", "fp64_active_frac")


class Measured(NamedTuple):
    """Settings of one GPU by row: their suite, benchmark and kernel, profiles, counters of the profile."""

    suite: np.ndarray
    benchmark: np.ndarray
    kernel: np.ndarray
    clock_hz: np.ndarray
    runs: Profiles
    activity: np.ndarray

    @property
    def tested(self) -> np.ndarray:
        """Rows below the profile, and within the range of clocks for which the law is meant."""
        clock = np.asarray(self.runs.clock)
        return (clock < 1.0) & (clock >= LOWEST)


class Counted(NamedTuple):
    """Kernels whose power was not measured, with activities of the core's units at the highest clock."""

    runs: Profiles
    activity: np.ndarray


class Twice(NamedTuple):
    """Kernels whose time is known at a second clock: clock over the highest, and time over that of the profile [1]."""

    runs: Profiles
    clock: np.ndarray
    time: np.ndarray


def rows_of(gpu: str = "") -> list[dict[str, str]]:
    """Rows of the file, of one GPU or all."""
    with (DATA / "dvfs_kernels_v100_rtx8000.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if gpu in ("", row["gpu"])]


def gpus() -> list[str]:
    """GPUs in the file."""
    return list(dict.fromkeys(row["gpu"] for row in rows_of()))


def measured(gpu: str) -> Measured:
    """Kernels of a GPU, with their profiles at the highest clock."""
    rows = rows_of(gpu)

    def column(name: str) -> np.ndarray:
        return np.array([float(row[name] or "nan") for row in rows])

    kernel = np.array(["/".join((row["benchmark"], row["kernel"], row["arg"])) for row in rows])
    clock = column("core_clock_hz")
    counters = {name: np.nan_to_num(column(name)) for name in ("dram_active_frac", *ACTIVITIES)}
    runs, _ = device_power.profiles(
        kernel,
        np.ones(len(rows)),
        np.full(len(rows), np.inf),
        column("kernel_time_s"),
        column("average_power_w"),
        clock=clock,
        memory_activity=counters["dram_active_frac"],
    )
    tops = {name: int(np.argmax(np.where(kernel == name, clock, 0.0))) for name in dict.fromkeys(kernel.tolist())}
    first = np.array([tops[name] for name in kernel.tolist()])
    return Measured(
        suite=np.array([row["suite"] for row in rows]),
        benchmark=np.array([row["benchmark"] for row in rows]),
        kernel=kernel,
        clock_hz=clock,
        runs=runs,
        activity=np.stack([counters[name][first] for name in ACTIVITIES], axis=1),
    )


def measured_twice(data: Measured) -> Twice:
    """The same kernels with their times near a second clock."""
    clock, again = np.asarray(data.runs.clock), np.zeros(len(data.kernel), int)
    for name in dict.fromkeys(data.kernel.tolist()):
        own = np.flatnonzero(data.kernel == name)
        again[own] = own[np.argmin(np.abs(clock[own] - SECOND))]
    return Twice(data.runs, clock[again], np.asarray(data.runs.time)[again] / np.asarray(data.runs.reference_time))


def share_from_stretch(stretch: Numeric, clock: Numeric, path: Numeric, overlap: Numeric) -> Float[Array, "..."]:
    """Share of memory of a kernel whose stretch s is known at one clock, the inverse of `kernel_stretch`.

    `x = (phi^-p - s^p) / (phi^-p - g^p)` [derivation: linear in x].

    **Arguments:**

    - `stretch`: s [1].
    - `clock`, `path`, `overlap`: as in `kernel_stretch`; the clock is below 1, and its path faster than the core.

    **Returns:** share [1], held within 0 to 1.
    """
    core = jnp.asarray(clock) ** -jnp.asarray(overlap)
    between = core - jnp.asarray(path) ** overlap
    resolved = between > LOWEST_SHARE
    share = (core - jnp.asarray(stretch) ** overlap) / jnp.where(resolved, between, 1.0)
    return jnp.where(resolved, jnp.clip(share, 0.0, 1.0), 0.0)


def twice_errors(values: Values, table: Any) -> Float[Array, "rows 2"]:
    """Logarithmic errors where the share of memory follows from the time at a second clock."""
    path = memory_path_time(table.clock, values["path_clock"], values["path_exponent"])
    return kernel_errors(values, table.runs, share_from_stretch(table.time, table.clock, path, values["overlap"]))


def posynomial_errors(values: Values, runs: Any) -> Float[Array, "rows 2"]:
    """The form for few data: `P = P_s + kappa ((1 - m) phi + m phi^3)`, `t = t_1 ((1 - mu) / phi + mu)`."""
    k = Profiles(*map(jnp.asarray, runs))
    static = values["static"] * k.rated_power
    voltage = posynomial_voltage(k.clock, values["cubic_share"])
    watt = busy_power(static, (k.reference_power - static) * k.clock, voltage)
    memory_share = values["memory_time"] * k.memory_activity
    time = k.reference_time * ((1.0 - memory_share) / k.clock + memory_share)
    return jnp.stack([jnp.log(time / k.time), jnp.log(jnp.maximum(watt, 1.0) / k.power)], axis=1)


POSYNOMIAL: ConstantPriors = {
    "static": ConstantPrior(0.12, 0.4, unit="device power"),
    "cubic_share": ConstantPrior(0.5, 0.3, 0.0, 1.0),
    "memory_time": ConstantPrior(0.6, 0.3, 0.0, 1.0),
}


def counted_errors(values: Values, table: Any) -> Float[Array, "rows 1"]:
    """Errors of power where no power of the kernel was measured: its core's power follows from counters."""
    k, activity = Profiles(*map(jnp.asarray, table.runs)), jnp.asarray(table.activity)
    core = sum(activity[:, unit] * values[name] for unit, name in enumerate(ACTIVITIES))
    share = values["static"] + values["clocking"] + values["memory"] * k.memory_activity + core
    watt = split_power(values, k._replace(reference_power=share * k.rated_power)).power
    return jnp.log(watt / k.power)[:, None]


COUNTED: ConstantPriors = {**CONSTANTS, **{name: ConstantPrior(0.15, 0.7, unit="device power") for name in ACTIVITIES}}


def split(data: Measured, result: FitResult) -> dict[str, np.ndarray]:
    """Shares of the power of each kernel at the highest clock."""
    with jax.enable_x64(True):
        parts = split_power(result.values, data.runs)
    top = np.asarray(data.runs.clock) == 1.0
    return {name: np.asarray(getattr(parts, name) / parts.power)[top] for name in ("static", "memory", "core")}


def fitted(errors: ErrorFunction, constants: ConstantPriors, table: Any, rows: np.ndarray) -> FitResult:
    """Constants of some rows."""
    return fit(FitProblem(errors, constants, table, rows.astype(float), NOISE, OPTIONS))


class Protocol(NamedTuple):
    """What is known of a kernel and which fit predicts it; errors of the rows, and which of them are judged."""

    name: str
    held_out: str
    errors: np.ndarray
    judged: np.ndarray
    fit: FitResult


def protocols(gpu: str) -> Iterator[Protocol]:
    """Every way in which a kernel is predicted here."""
    data = measured(gpu)
    tested, word = data.tested, "benchmark"

    def without(
        errors: ErrorFunction, constants: ConstantPriors, table: Any, rows: np.ndarray
    ) -> tuple[FitResult, np.ndarray]:
        fit_result = fitted(errors, constants, table, rows)
        return fit_result, held_out_errors(fit_result, data.benchmark)

    result, blind = without(kernel_errors, CONSTANTS, data.runs, tested)
    yield Protocol("one clock", word, blind, tested, result)
    twice = measured_twice(data)
    later = tested & (np.asarray(data.runs.clock) != twice.clock)
    second, blind = without(twice_errors, CONSTANTS, twice, later)
    yield Protocol("two clocks", word, blind, later, second)
    clocks = np.unique(data.clock_hz[tested])
    other = tested & np.isin(data.clock_hz, clocks[1::2])
    yield Protocol("one clock", "every other clock", *_new(data.runs, tested & ~other, other))
    real = data.suite == "real"
    if np.any(real) and not np.all(real):
        yield Protocol(
            "one clock", "real kernels, from microbenchmarks", *_new(data.runs, tested & ~real, tested & real)
        )
    simple, blind = without(posynomial_errors, POSYNOMIAL, data.runs, tested)
    yield Protocol("one clock, posynomial", word, blind, tested, simple)
    plain, blind = without(device_power.power_errors, device_power.power_constants(), data.runs, tested)
    yield Protocol("one clock, without counters", word, blind, tested, plain)
    anywhere = np.asarray(data.runs.clock) >= LOWEST
    counted, blind = without(counted_errors, COUNTED, Counted(data.runs, data.activity), anywhere)
    yield Protocol("counters only", word, blind, anywhere, counted)


def _new(table: Profiles, chosen: np.ndarray, judged: np.ndarray) -> tuple[np.ndarray, np.ndarray, FitResult]:
    fit_result = fitted(kernel_errors, CONSTANTS, table, chosen)
    return fit_result.errors, judged, fit_result


def percent_of(errors: np.ndarray) -> dict[str, float]:
    """Mean and largest size of relative errors of time, power and energy [1]."""
    parts = {"power": errors[:, -1]}
    if errors.shape[1] == 2:
        parts = {"time": errors[:, 0], "power": errors[:, 1], "energy": errors.sum(axis=1)}
    sizes = {name: np.abs(np.expm1(part)) for name, part in parts.items()}
    means = {f"{name}_error": float(np.mean(size)) for name, size in sizes.items()}
    return means | {f"{name}_largest": float(np.max(size)) for name, size in sizes.items()}


class Choice(NamedTuple):
    """Clocks chosen for each kernel, in order of the kernels, and what they cost above the measured best [1]."""

    kernels: list[str]
    best: np.ndarray
    chosen: np.ndarray
    regret: np.ndarray
    saving: np.ndarray


def choices(data: Measured, errors: np.ndarray | None, single: Callable[[np.ndarray], int] | None = None) -> Choice:
    """The measured clock of lowest predicted energy of each kernel, or `single` one for all.

    Saving is what the measured best clock saves of the energy at the highest.
    """
    energy = np.asarray(data.runs.time * data.runs.power)
    clock = np.asarray(data.runs.clock)
    predicted = energy if errors is None else energy * np.exp(np.where(clock < 1.0, errors.sum(axis=1), 0.0))
    names = list(dict.fromkeys(data.kernel.tolist()))
    best, chosen, regret, saving = [], [], [], []
    for name in names:
        own = np.flatnonzero((data.kernel == name) & (clock >= LOWEST))
        own = own[np.argsort(clock[own])]
        lowest = own[np.argmin(energy[own])]
        choice = own[np.argmin(predicted[own])] if single is None else own[single(clock[own])]
        best.append(data.clock_hz[lowest])
        chosen.append(data.clock_hz[choice])
        regret.append(energy[choice] / energy[lowest] - 1.0)
        saving.append(1.0 - energy[lowest] / energy[own[-1]])
    return Choice(names, *(np.array(part) for part in (best, chosen, regret, saving)))
