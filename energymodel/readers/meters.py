"""Meters of this machine: GPUs by NVML, processors by RAPL and the kernel's counters, and recorded readings."""

import itertools
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from energymodel.errors import InputError
from energymodel.readers.lines import POWER_OR_HEAT, reading_of
from energymodel.readers.log_records import NOT_SAID, PowerReading

POWERCAP = Path("/sys/class/powercap")
LOAD = Path("/proc/stat")


@runtime_checkable
class Meter(Protocol):
    """Something that reads all devices at once."""

    def read(self) -> list[PowerReading]:
        """One reading of each device, of now; none where nothing is left to read."""
        ...


class RecordedMeter:
    """A meter that gives readings of a file, those of one time at each call: for tests and for replays."""

    def __init__(self, readings: Iterable[PowerReading]) -> None:
        self._by_time = itertools.groupby(readings, key=lambda reading: reading.time)

    def read(self) -> list[PowerReading]:
        """The readings of the next time."""
        return list(next(self._by_time, (math.nan, ()))[1])


class NvmlMeter:
    """The GPUs of NVIDIA in this machine, by their own energy counters where they have them.

    **Raises:** `InputError` if `nvidia-ml-py` is not installed, or there is no driver and no GPU.
    """

    def __init__(self) -> None:
        try:
            import pynvml  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise InputError(
                'Reading GPUs needs nvidia-ml-py. Install it: pip install "energymodel[monitor]".'
            ) from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise InputError(f"No GPU can be read: {error}. Without it, `monitor` reads logs of power.") from error
        self._devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]

    def read(self) -> list[PowerReading]:
        """One reading of each GPU."""
        now = time.time()
        return [self._of(index, device, now) for index, device in enumerate(self._devices)]

    def _of(self, index: int, device: Any, now: float) -> PowerReading:
        nvml, ask = self._nvml, self._ask
        reasons = ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, device)
        return reading_of(
            str(index),
            now,
            power=1e-3 * ask(nvml.nvmlDeviceGetPowerUsage, device),
            energy=1e-3 * ask(nvml.nvmlDeviceGetTotalEnergyConsumption, device),
            clock=1e6 * ask(nvml.nvmlDeviceGetClockInfo, device, nvml.NVML_CLOCK_SM),
            temperature=ask(nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU),
            utilization=0.01 * ask(lambda device: nvml.nvmlDeviceGetUtilizationRates(device).gpu, device),
            power_limit=1e-3 * ask(nvml.nvmlDeviceGetEnforcedPowerLimit, device),
            throttled=NOT_SAID if math.isnan(reasons) else float(bool(int(reasons) & POWER_OR_HEAT)),
        )

    def _ask(self, question: Any, *arguments: Any) -> float:
        """What a GPU answers; not said where it cannot."""
        try:
            return float(question(*arguments))
        except self._nvml.NVMLError:
            return NOT_SAID


class CpuMeter:
    """The processors of this machine as one device: their load, and their energy where RAPL can be read."""

    def __init__(self, powercap: Path = POWERCAP, load: Path = LOAD) -> None:
        self._load, self._ticks = load, (0.0, 0.0)
        zones = [zone for zone in powercap.glob("intel-rapl:*") if _text(zone / "name").startswith(("package", "dram"))]
        self._last = {zone: _text(zone / "energy_uj") for zone in zones}
        self._sum = 0.0 if zones and all(self._last.values()) else NOT_SAID

    def read(self) -> list[PowerReading]:
        """One reading: energy since the meter was made, and load since the reading before."""
        for zone, last in self._last.items() if not math.isnan(self._sum) else ():
            self._last[zone] = now = _text(zone / "energy_uj")
            span = float(_text(zone / "max_energy_range_uj") or math.inf)
            self._sum += 1e-6 * ((float(now) - float(last)) % span)
        user, nice, system, idle, waiting, *rest = map(float, (_text(self._load) or "cpu 0 0 0 0 0").split()[1:9])
        busy, all_ = user + nice + system + sum(rest), user + nice + system + idle + waiting + sum(rest)
        before, self._ticks = self._ticks, (busy, all_)
        load = (busy - before[0]) / (all_ - before[1]) if all_ > before[1] else NOT_SAID
        return [reading_of("cpu", time.time(), energy=self._sum, utilization=load)]


def _text(path: Path) -> str:
    """What a file of the kernel says; nothing where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
