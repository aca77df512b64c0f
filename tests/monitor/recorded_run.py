"""Records of a run of `test-1b-h100` as its plan expects it, for tests that change one thing about it."""

import dataclasses
import functools
from datetime import UTC, datetime
from typing import Any

import numpy as np

from energymodel.monitor.expectation import Expectation, expectation_of
from energymodel.readers.log_records import LoggedStep, PowerReading, Record
from energymodel.scenarios.scenario import Scenario, load_scenario

START = 1_770_000_000.0
STEPS = 2_000
EVERY = 10
SECONDS_OF_METER = 20.0


@functools.cache
def plan() -> Scenario:
    scenario = load_scenario("test-1b-h100")
    batch = float(np.max(np.asarray(scenario.plan.batch)))
    return load_scenario("test-1b-h100", {"plan.goal": {"tokens": f"{STEPS * batch!r} token"}})


@functools.cache
def expected() -> Expectation:
    return expectation_of(plan())


def steps_until(share: float, *, slower: float = 1.0, loss: float = 0.0, every: int = EVERY) -> list[LoggedStep]:
    """Steps at the planned pace, with the loss of the law."""
    expectation, own = expected(), expected().step_time * slower
    return [
        LoggedStep(step, START + step * own, own, loss=expectation.loss(step * expectation.batch) + loss)
        for step in range(every, round(share * STEPS) + 1, every)
    ]


def readings_until(share: float, *, busier: float = 1.0, devices: int = 8, **more: Any) -> list[PowerReading]:
    """Readings of all devices at the planned power."""
    expectation = expected()
    power = float(expectation.outcome.power_busy) * busier
    seconds = share * STEPS * expectation.step_time
    numbers = {"clock": 1.755e9, "temperature": 330.0, "power_limit": 2.0 * power, "throttled": 0.0, **more}
    return [
        PowerReading(START + tick, str(device), power=power, **numbers)
        for tick in np.arange(0.0, seconds, SECONDS_OF_METER)
        for device in range(devices)
    ]


def changed(readings: list[PowerReading], device: str, **numbers: float) -> list[PowerReading]:
    """The same with other numbers of one device."""
    return [dataclasses.replace(reading, **numbers) if reading.device == device else reading for reading in readings]


def in_order(*parts: list[Record]) -> list[Record]:
    """Records of all parts by their times."""
    return sorted((record for part in parts for record in part), key=lambda record: record.time)


def write_log(path, steps: list[LoggedStep]) -> None:
    """The same steps as torchtitan prints them."""
    expectation = expected()
    lines = []
    for step in steps:
        when = datetime.fromtimestamp(step.time, UTC).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
        rate = expectation.batch / expectation.chips / step.step_time
        lines.append(
            f"[titan] {when} - root - INFO - step: {step.step:2}  loss: {step.loss:8.4f}  grad_norm: 1.0  "
            f"memory: 45.1GiB(57%)  tps: {rate:,.0f}  tflops: 400.0  mfu: 40%\n"
        )
    path.write_text("".join(lines))


def write_meter(path, readings: list[PowerReading]) -> None:
    """The same readings as nvidia-smi prints them."""
    lines = ["timestamp, index, power.draw [W], clocks.current.sm [MHz], temperature.gpu, enforced.power.limit [W]\n"]
    for reading in readings:
        when = datetime.fromtimestamp(reading.time, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        lines.append(
            f"{when}, {reading.device}, {reading.power:.2f} W, {reading.clock / 1e6:.0f} MHz, "
            f"{reading.temperature - 273.15:.0f}, {reading.power_limit:.2f} W\n"
        )
    path.write_text("".join(lines))
