"""Kind `kernels`: rates, latencies and energies of a chip from kernels timed on it, and of collectives in its node."""

from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.calibration_case import CHIP, CalibrationCase, Candidates, Grouping, WrittenNumber
from energymodel.calibration.cluster_source import PLACEHOLDER, named_preset
from energymodel.calibration.constant_priors import ConstantPrior, Rows, Values
from energymodel.calibration.least_squares import FitProblem
from energymodel.calibration.step_prediction import with_constants
from energymodel.errors import InputError, suggest
from energymodel.numerics import p_norm
from energymodel.performance.collectives import node_collective_time
from energymodel.performance.kernels import exponential_slowdown, forward_attention_time, product_time
from energymodel.readers.table import Measurements
from energymodel.scenarios.files import read_preset
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.system.training_system import TrainingSystem

FORMATS = {"bf16": ("peak_flops", 2.0), "fp8": ("peak_flops_fp8", 1.0), "fp32": ("peak_flops_fp32", 4.0)}
"""Peak rate of each format of products, and bytes of a number."""
_PRODUCT, _ATTENTION = ("m", "n", "k"), ("batch", "heads", "sequence_length", "head_size")
SHAPES: Mapping[str, tuple[str, ...]] = {
    "product": _PRODUCT,
    "attention": _ATTENTION,
    "attention-training": _ATTENTION,
    "elementwise": ("size_b",),
    "all-reduce": ("ranks", "size_b"),
    "launch": (),
    "idle": (),
}
"""Kernels, and the columns that their time follows from."""
CODES = {kernel: float(code) for code, kernel in enumerate(SHAPES)}
UNUSED = {"m": 0.0, "n": 0.0, "k": 0.0, **dict.fromkeys(_ATTENTION, 1.0), "size_b": 0.0, "ranks": 2.0}
"""What stands in columns that a kernel has no need of."""
DETERMINED: Mapping[str, tuple[str, ...]] = {
    "bf16 product": ("accelerator.gemm_efficiency", "accelerator.gemm_edge", "accelerator.product_latency"),
    "fp8 product": ("accelerator.fp8_gemm_efficiency", "accelerator.fp8_gemm_edge"),
    "attention": tuple(f"accelerator.attention_{name}" for name in ("efficiency", "half_keys", "tail")),
    "attention-training": ("accelerator.attention_backward",),
    "elementwise": ("accelerator.memory_efficiency",),
    "all-reduce": ("node.scale_up.efficiency", "node.collectives.start_latency"),
    "launch": ("accelerator.product_latency",),
    "idle": ("accelerator.idle_power",),
    "power": ("accelerator.fixed_power", "accelerator.busy_power", "accelerator.memory_energy"),
}
"""Numbers of a system that kernels determine."""
TRAINING = 3.5  # operations of both passes of attention over those forward: of five products back, two are forward
FIRST = {"1": 100.0, "s": 3e-6, "W": 100.0, "J/bit": 4e-12}  # medians of numbers that are 0 in the prior
HEADROOM = 1.1  # of the peaks of a chip without a data sheet over its fastest kernels
NOISE = 0.05
LOWEST_POWER = 1e-2  # of the measured one, that a prediction counts as
FEWEST_SHAPES = 3  # of a kernel, that one of them is predicted from others


class MeasuredKernels(NamedTuple):
    """Kernels with their time, and again with their power where it was measured.

    `rows` are the columns of the kind, with `code` of the kernel, `width` of a number [B], and `of_power`, 1 in a row
    of a power.
    """

    system: TrainingSystem  # with all other constants
    rows: Mapping[str, Rows]


def kernel_work(rows: Mapping[str, Any]) -> tuple[Any, Any]:
    """Operations that a causal mask leaves [FLOP], and bytes that are read and written at least [B], of forward passes.

    Of an all-reduce, the buffer.
    """
    m, n, k, batch, heads, length, head = (rows[name] for name in (*_PRODUCT, *_ATTENTION))
    attends = (rows["code"] == CODES["attention"]) | (rows["code"] == CODES["attention-training"])
    vectors = attends * batch * heads * length * head
    moved = rows["size_b"] + rows["width"] * (m * k + k * n) + 2.0 * m * n + 8.0 * vectors
    return 2.0 * (m * n * k + vectors * length), moved


def kernel_errors(values: Values, kernels: MeasuredKernels) -> Float[Array, "rows 1"]:
    """Logarithmic errors of times, by the laws of `performance` as `evaluate` takes them, or of powers.

    A power is `P = P_s + (e F v^2 + e_m Q) / t` over the measured time.
    """
    rows, system = {name: jnp.asarray(column) for name, column in kernels.rows.items()}, kernels.system
    system = with_constants(system, values)
    (operations, moved), chip, node = kernel_work(rows), system.accelerator, system.node
    clock, narrow = rows["clock_hz"] / chip.reference_clock, rows["width"] == 1.0
    fp8, bf16 = chip.peak_flops_fp8 * chip.fp8_gemm_efficiency, chip.peak_flops * jnp.asarray(chip.gemm_efficiency)
    rate, edge = jnp.where(narrow, fp8, bf16), jnp.where(narrow, chip.fp8_gemm_edge, chip.gemm_edge)
    stream = moved / chip.sustained_bandwidth
    arithmetic = product_time(operations, 2.0 * rows["m"] * rows["n"], rate, edge) / clock
    length, slowdown = rows["sequence_length"], exponential_slowdown(rows["head_size"], chip.attention_half_head)
    attention, queries = chip.peak_flops * chip.attention_efficiency * clock, rows["batch"] * rows["heads"] * length
    tails = chip.attention_half_keys, chip.attention_tail
    forward = forward_attention_time(operations, attention / slowdown, 0.5 * length, queries, *tails)
    link = node.scale_up.latency, node.scale_up.bandwidth(), node.collectives, 2.0
    times = {
        "product": chip.product_latency + p_norm(chip.roofline_exponent, arithmetic, stream),
        "attention": forward,
        "attention-training": forward * (1.0 + jnp.asarray(chip.attention_backward)),
        "elementwise": chip.product_latency + stream,
        "all-reduce": node_collective_time(rows["ranks"], moved, *link),
        "launch": chip.product_latency + 0.0 * stream,
        "idle": rows["time_s"],
    }
    code, of_power, voltage = rows["code"], rows["of_power"] > 0.0, chip.voltage(clock)
    time = jnp.select([code == CODES[kernel] for kernel in times], list(times.values()))
    energy = operations * chip.energy_per_flop * voltage**2 * jnp.where(narrow, chip.fp8_energy_ratio, 1.0)
    energy = energy * jnp.where(code == CODES["attention-training"], TRAINING, 1.0) + chip.traffic_energy * moved
    power = chip.static_power(voltage, rows["temperature_k"]) + energy / rows["time_s"]
    power = jnp.maximum(jnp.where(code == CODES["idle"], chip.idle_power, power), LOWEST_POWER * rows["power_w"])
    return jnp.log(jnp.where(of_power, power / rows["power_w"], time / rows["time_s"]))[:, None]


def kernels_case(table: Measurements, prior: Scenario | None) -> CalibrationCase:
    """Numbers of a chip that the kernels of a table determine, over those of the prior.

    Of a device that is not the prior's chip nothing is rated: its peaks lie a tenth above its fastest kernels, and
    numbers of the prior that are not measured become priors.

    **Raises:** `InputError` for an unknown kernel or format, a missing number, and several devices.
    """
    scenario = prior or load_scenario(PLACEHOLDER)
    title = str(scenario.tables["system"]["accelerator"].get("title", "the chip"))
    device, rated = _device(table, title)
    words, labels = _labels(table)
    rows, chosen = _rows(table, words, scenario.system)
    words, labels = np.array(words)[chosen], np.array(labels)[chosen].tolist()
    peaks: dict[str, WrittenNumber] = {}
    if not rated:
        rows["clock_hz"][:] = scenario.system.accelerator.reference_clock  # of the peaks, whatever that is
        peaks = _peaks(rows, words)
    system = with_constants(scenario.system, {path: number.value for path, number in peaks.items()})
    determined = [path for word in dict.fromkeys(words.tolist()) for path in DETERMINED.get(word, ())]
    determined += DETERMINED["power"] if np.any((words != "idle") & (rows["of_power"] > 0.0)) else ()
    if "fp8 product" in words and float(system.accelerator.peak_flops_fp8) == 0.0:
        raise InputError(f"{table.path}: {title} has no products in fp8. Leave them out, or name another --prior.")
    constants = {}
    for path in dict.fromkeys(determined):
        own, unit = float(reduce(getattr, path.split("."), system)), scenario.provenance[f"system.{path}"].unit
        is_share, factor = path.endswith("efficiency"), 2.0 if unit == "s" else 1.0  # of which the prior hardly matters
        median, upper = (min(own, 0.98), 1.0) if is_share else (own or FIRST[unit], np.inf)
        constants[path] = ConstantPrior(median, 0.3 if is_share else factor, 0.0, upper, unit, widest=10.0)
    numbers = {path: WrittenNumber(of.unit, constant=path) for path, of in constants.items()} | peaks
    numbers = {f"system.{path}": number for path, number in numbers.items()}
    kernels, alone = MeasuredKernels(system, rows), [len({*np.array(labels)[words == word].tolist()}) for word in words]
    return CalibrationCase(
        # No number that is fitted is one of products in fp32.
        fit=FitProblem(kernel_errors, constants, kernels, words != "fp32 product", NOISE),
        groups=Grouping(np.array(labels), "shape"),
        outputs={"time and power" if np.any(rows["of_power"]) else "time": (1.0,)},
        along=("measured time [s]", rows["time_s"]),
        candidates=Candidates(kernels, labels),
        numbers=numbers,
        words={} if rated else _unmeasured(device, title, scenario, numbers),
        notes=[] if rated else [f"{device} is no preset: its peak rates lie a tenth above its fastest kernels."],
        trained_on=np.array(alone) < FEWEST_SHAPES,
    )


def _device(table: Measurements, title: str) -> tuple[str, bool]:
    """The device of a table, and whether it is the chip of that title, whose peaks a data sheet states."""
    device, *others = sorted({*table.text("device", "").tolist()})
    if others:
        raise InputError(f'{table.path}: devices {device} and {others[0]}. Choose one with --where "device={device}".')
    if device in ("", title):  # such as that of a benchmark whose file is the prior
        return title, True
    try:
        return device, read_preset("hardware", named_preset(device, "hardware", ""))["title"] == title
    except InputError:
        return device, False


def _labels(table: Measurements) -> tuple[list[str], list[str]]:
    """Kernels with the format of products, and what each was with its shape."""
    words, labels = [], []
    for row, (kernel, precision) in enumerate(zip(table.columns["kernel"], table.text("precision", ""), strict=True)):
        if kernel not in SHAPES:
            raise table.error(row, f'unknown kernel "{kernel}". {suggest(kernel, SHAPES)}', "kernel")
        if kernel == "product" and precision not in FORMATS:
            raise table.error(row, f'unknown format "{precision}". {suggest(precision, FORMATS)}', "precision")
        shape = [table.columns[name][row] if name in table.columns else np.nan for name in SHAPES[kernel]]
        if not np.all(np.isfinite(shape)):
            raise table.error(row, f"part of its shape is missing. {kernel} needs {', '.join(SHAPES[kernel])}.")
        words.append(f"{precision} product" if kernel == "product" else str(kernel))
        labels.append(f"{words[-1]} {' x '.join(f'{number:.6g}' for number in shape)}".strip())
    return words, labels


def _rows(table: Measurements, words: list[str], system: TrainingSystem) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of rows with a time, then of rows with a power, and which rows of the table they are."""
    chip, unknown, word = system.accelerator, np.full(len(table), np.nan), np.array(words)
    usual = {"clock_hz": chip.reference_clock, "temperature_k": chip.leakage.reference_temperature}
    rows = {}
    for name, otherwise in {**UNUSED, **usual, "time_s": 1.0, "power_w": 1.0}.items():
        own = table.columns.get(name, unknown)
        rows[name] = np.where(np.isfinite(own), own, float(otherwise))
    rows["code"] = np.array([CODES[kernel] for kernel in table.columns["kernel"].tolist()])
    rows["width"] = np.array([FORMATS.get(of.partition(" ")[0], FORMATS["bf16"])[1] for of in words])
    metered = np.isfinite(table.columns.get("power_w", unknown))
    metered &= ~np.isin(word, ("fp32 product", "launch", "all-reduce"))
    timed = np.isfinite(table.columns["time_s"]) & (word != "idle")
    chosen = np.concatenate([np.flatnonzero(timed), np.flatnonzero(metered)])
    of_power = np.repeat([0.0, 1.0], [np.sum(timed), np.sum(metered)])
    return {**{name: column[chosen] for name, column in rows.items()}, "of_power": of_power}, chosen


def _peaks(rows: Mapping[str, np.ndarray], words: np.ndarray) -> dict[str, WrittenNumber]:
    """Peak rates of a chip without a data sheet, by path in a system; none of formats that were not measured."""
    operations, moved = kernel_work(rows)
    rates = {f"{name} product": (path, "FLOP/s", operations) for name, (path, _) in FORMATS.items()}
    rates |= {f"{name} product": (f"peak_flops_{name}", "FLOP/s", operations) for name in ("tf32", "fp4")}
    rates["elementwise"], peaks = ("memory_bandwidth", "B/s", moved), {}
    for word, (path, unit, amount) in rates.items():
        fastest = np.max((amount / rows["time_s"])[words == word], initial=0.0)
        if fastest == 0.0 and word in ("bf16 product", "elementwise"):
            raise InputError(f"kernels: no {word}, to which others refer. Measure some, or name the chip's --prior.")
        peaks[f"accelerator.{path}"] = WrittenNumber(unit, HEADROOM * float(fastest))
    return peaks


def _unmeasured(device: str, title: str, scenario: Scenario, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The title of a device, and as priors the numbers of the prior's chip that it has not."""
    words: dict[str, Any] = {f"{CHIP}.title": device}
    for path, origin in scenario.provenance.items():
        if path.startswith(CHIP) and path not in numbers and not origin.is_definition:
            value = float(reduce(getattr, path.split("."), scenario))
            source = f"{title}, not measured on {device}: {origin.source}"
            spread = {"distribution": origin.distribution} if origin.distribution else {}
            words[path] = {"value": value, "unit": origin.unit, "kind": "prior", "source": source, **spread}
    return words
