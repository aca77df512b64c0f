"""Meters of the devices of this machine, read while it trains."""

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from energymodel.errors import InputError
from energymodel.readers.lines import POWER_OR_HEAT, reading_of
from energymodel.readers.log_records import NOT_SAID, PowerReading


@runtime_checkable
class Meter(Protocol):
    """Something that reads all devices at once."""

    def read(self) -> list[PowerReading]:
        """One reading of each device, of now; none where nothing is left to read."""
        ...


class RecordedMeter:
    """A meter that gives readings of a file, those of one time at each call: for tests and for replays."""

    def __init__(self, readings: Iterable[PowerReading]) -> None:
        self._readings: Iterator[PowerReading] = iter(readings)
        self._next = next(self._readings, None)

    def read(self) -> list[PowerReading]:
        """The readings of the next time."""
        readings: list[PowerReading] = []
        while self._next is not None and (not readings or self._next.time == readings[0].time):
            readings.append(self._next)
            self._next = next(self._readings, None)
        return readings


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
            raise InputError(f"No GPU can be read: {error}. Monitor a log of power instead.") from error
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
            power_limit=1e-3 * ask(nvml.nvmlDeviceGetEnforcedPowerLimit, device),
            throttled=NOT_SAID if math.isnan(reasons) else float(bool(int(reasons) & POWER_OR_HEAT)),
        )

    def _ask(self, question: Any, *arguments: Any) -> float:
        """What a GPU answers; not said where it cannot."""
        try:
            return float(question(*arguments))
        except self._nvml.NVMLError:
            return NOT_SAID
