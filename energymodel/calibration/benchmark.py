"""The machine at hand as an accelerator: its kernels timed, its power metered, and the numbers that follow."""

import math
import os
import platform
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from energymodel.calibration.calibrate import Calibration, calibrate
from energymodel.calibration.cluster_source import named_preset
from energymodel.calibration.timed_kernels import Reader, Row, kernel_rows, of_meter, timed
from energymodel.errors import InputError
from energymodel.readers.meters import CpuMeter, Meter, NvmlMeter
from energymodel.rendered import Rendered
from energymodel.scenarios.components import resolve
from energymodel.system.accelerator import Accelerator

BUSY = 0.2  # share of the time that others may use the device
REST = 0.05  # of the time of all kernels, in which the device rests, and no less than:
SHORTEST_REST = 0.5  # [s]
OTHERWISE = "l4"  # preset of a device whose name says none: a small card


@dataclass(frozen=True)
class Benchmark(Rendered):
    """Result of `benchmark`: rows of kernels, what they say of the accelerator, and what was not measured and why."""

    device: str
    like: str  # preset of the numbers that are not measured
    rows: tuple[Mapping[str, Any], ...]  # as `calibrate("kernels", rows)` reads them
    missing: tuple[str, ...]
    calibration: Calibration
    by_preset: np.ndarray  # times of the rows that have one, by the numbers of the preset [s]


def benchmark(
    *,
    like: str | None = None,
    seconds: float = 60.0,
    meter: Meter | None = None,
    busy: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Benchmark:
    """Measure the devices of this machine on which JAX runs, and fit the numbers of an accelerator.

    Times of kernels, and their power where there is a meter: of GPUs of NVIDIA by NVML, of processors by RAPL. No clock
    and no limit is changed.

    **Arguments:**

    - `like`: preset or file with the numbers that are not measured; by default that of the device by its name.
    - `seconds`: that kernels run in all; compiling and fitting take about half a minute more [s].
    - `meter`: other than that of the device.
    - `busy`: measure although others use the device.
    - `progress`: called with what is being done.

    **Raises:** `InputError` for a busy device, and an unknown preset.
    """
    if not 0.0 < seconds < math.inf:
        raise InputError(f"seconds: {seconds:g} s is no time to measure in. Give for example 60.")
    device, missing, rows = jax.local_devices()[0], list[str](), list[Row]()
    name, on_cpu = device_name(device), device.platform == "cpu"
    if like is None:
        try:
            like = OTHERWISE if on_cpu else named_preset(name, "hardware", "")
        except InputError:
            like = OTHERWISE
    try:
        host = jax.local_devices(backend="cpu")[0]  # constants are fitted in float64
    except RuntimeError:
        host = device
    has_fp8 = resolve(like, Accelerator, "like")["peak_flops_fp8"]["value"] > 0.0 and not on_cpu
    read = _reader(device.platform, meter, missing)
    rest = max(REST * seconds, SHORTEST_REST)
    progress(f"0 % of {seconds:g} s: {name} at rest ...")
    if read is not None:
        before = read()
        time.sleep(rest)
        after = read()
        if not busy and after.utilization > BUSY:
            share = f"{100 * after.utilization:.0f} % of the last {rest:.1f} s"
            raise InputError(f"{name} is busy, {share}. Stop what runs on it, or measure all the same with --busy.")
        rows.append({"kernel": "idle", **of_meter(before, after)})
    if not any("power_w" in row for row in rows):
        missing.append("power and energy")
    end, fused, formats = time.monotonic() + seconds, device.platform == "gpu", ("bf16", "fp32", "fp8")[: 2 + has_fp8]
    try:
        kernels = list(kernel_rows(formats, fused))
    except Exception as error:  # whatever says that the device cannot
        missing.append(f"fused attention ({str(error).splitlines()[0]})")
        kernels, fused = list(kernel_rows(formats, fused=False)), False
    for index, row in enumerate(kernels):
        left, label = max(end - time.monotonic(), 0.0), " ".join(map(str, row.values()))
        progress(f"{100 * (1.0 - left / seconds):.0f} % of {seconds:g} s: {label} ...")
        try:
            rows.append(timed(row, left / (len(kernels) - index), read, fused=fused))
        except Exception as error:  # or that its memory is full
            missing.append(f"{label} ({str(error).splitlines()[0]})")
    named, source = [{"device": name, **row} for row in rows], "benchmark"
    with jax.default_device(host):
        fitted = calibrate("kernels", named, prior=like, source=source, progress=progress)
        fit, times = fitted.fit, np.array([row["time_s"] for row in rows if "time_s" in row])
        errors = fit.at(fit.problem.table, fit.prior.mean[None]).errors[0, : len(times), 0]
    return Benchmark(name, like, tuple(rows), tuple(missing), fitted, times * np.exp(errors))


def device_name(device: Any) -> str:
    """What the device calls itself; of a processor its model and how many of them there are."""
    if device.platform != "cpu":
        return device.device_kind
    path = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", path.read_text()) if path.exists() else None
    return f"{os.cpu_count()} processors {model[1].strip() if model else platform.processor() or platform.machine()}"


def _reader(platform: str, meter: Meter | None, missing: list[str]) -> Reader | None:
    """What reads the meter of a device; why there is none is noted."""
    try:
        meter = meter or {"cpu": CpuMeter, "gpu": NvmlMeter}[platform]()
    except (KeyError, InputError) as error:
        missing.append(f"load and clock ({error if isinstance(error, InputError) else f'{platform}: no meter'})")
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    index = int(visible) if platform == "gpu" and visible.isdigit() else 0
    return lambda: meter.read()[index]
