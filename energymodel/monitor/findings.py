"""What is wrong with a run, by comparison with itself and with its plan."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.stats import poisson

from energymodel.constants import ZERO_CELSIUS
from energymodel.monitor.run_state import RECENT, DeviceState, RunState
from energymodel.readers.log_records import is_chip
from energymodel.readers.logged_run import TO_SIGMA, relative_scatter
from energymodel.units import format_quantity

SLOWER = 0.05  # steps are slower than before beyond this share, and beyond the scatter
SLOW_CHIP = 0.03  # A chip straggles if its clock is this much below the others' median [1]
OFTEN = 0.2  # A device is throttled, or at its cap, in at least this share of the readings
AT_CAP = 0.98  # power beyond this share of the limit is at the limit [1]
CHECKPOINT = 2.0  # A checkpoint is slow beyond this multiple of the planned pause
SHORT_PAUSE = 5.0  # pauses below this do not matter [s]
UNLIKELY = 0.05  # failures are too many where as many or more had at most this probability
OFF_PLAN = 0.1  # A step time or a power differs from the plan beyond this share [1]
SPIKE = 8.0  # A rise of the loss in one step is a spike beyond so many deviations of the last ones
UNUSED = 0.5  # A device that draws less than this share of what the others do is not used by the run [1]
FEWEST = 10  # steps or readings without which there is no finding


class Finding(NamedTuple):
    """Something that costs time or energy: what it is, in one word and in a sentence with its numbers."""

    kind: str
    message: str


def findings(state: RunState) -> list[Finding]:
    """All that is wrong now, the costly first."""
    if not state.has_begun:
        return []
    parts = (_loss, _failures, _stragglers, _slower, _throttled, _capped, _checkpoints, _plan)
    return [finding for part in parts for finding in part(state)]


def _loss(state: RunState) -> Iterator[Finding]:
    losses = np.array([loss for _, loss in state.recent_losses])
    if state.not_finite:
        yield Finding("loss", f"{state.not_finite} steps had no finite loss.")
    if len(losses) >= FEWEST:
        rises = np.diff(losses)
        before, last = rises[:-1], rises[-1]
        usual = float(np.median(before))
        spread = TO_SIGMA * float(np.median(np.abs(before - usual)))
        if spread > 0.0 and last > usual + SPIKE * spread:
            yield Finding("loss", f"The loss rose by {last:.3g} nat/token in one step.")


def _failures(state: RunState) -> Iterator[Finding]:
    mtbf = float(state.expected.scenario.system.reliability.chip_mtbf)
    mean = state.expected.chips * state.time / mtbf
    if state.failures and float(poisson.sf(state.failures - 1, mean)) < UNLIKELY:
        expected = f"{mean:.2g}" if mean >= 0.01 else "less than 0.01"
        yield Finding(
            "failures",
            f"{state.failures} interruption{'s' * (state.failures > 1)} where the plan expects {expected}: "
            "look for a node that fails.",
        )


def _stragglers(state: RunState) -> Iterator[Finding]:
    training = _training(state)
    clocks = {name: device.clock for name, device in training.items() if math.isfinite(device.clock)}
    if len(clocks) < 3:
        return
    middle = float(np.median(list(clocks.values())))
    for name, clock in clocks.items():
        if clock < (1.0 - SLOW_CHIP) * middle and len(state.devices[name].clocks) >= FEWEST:
            yield Finding(
                "straggler",
                f"Device {name} runs at {format_quantity(clock, 'Hz')}, the others at {format_quantity(middle, 'Hz')}: "
                "all of them wait for it.",
            )


def _training(state: RunState) -> dict[str, DeviceState]:
    """Devices that take part: one that draws far less than the others is not used by the run."""
    powers = {name: device.busy_power for name, device in state.meters.items() if is_chip(name)}
    finite = [power for power in powers.values() if math.isfinite(power)]
    lowest = UNUSED * float(np.median(finite)) if finite else 0.0
    return {name: state.meters[name] for name, power in powers.items() if not power < lowest}


def _slower(state: RunState) -> Iterator[Finding]:
    times = np.asarray(state.step_times)
    last = min(len(times) // 3, RECENT)
    if last < FEWEST:
        return
    recent, before = times[-last:], times[last:-last]
    now, then = float(np.median(recent)), float(np.median(before))
    spread = relative_scatter(before) * math.sqrt(1.0 / last + 1.0 / len(before))
    if now > (1.0 + max(SLOWER, 5.0 * spread)) * then:
        yield Finding(
            "straggler",
            f"Steps take {100.0 * (now / then - 1.0):.0f} % longer than before ({format_quantity(now, 's')} instead of "
            f"{format_quantity(then, 's')}): look for a slow device or link.",
        )


def _throttled(state: RunState) -> Iterator[Finding]:
    limit = float(state.expected.scenario.system.accelerator.maximum_temperature)
    meters = state.meters
    often = {
        name: share
        for name, device in meters.items()
        if len(device.throttled) >= FEWEST and (share := float(np.mean(device.throttled))) >= OFTEN
    }
    if often:
        share = f"{100.0 * float(np.mean(list(often.values()))):.0f} % of the readings"
        who = f"Device {next(iter(often))} slows its clock" if len(often) == 1 else ""
        who = who or f"{len(often)} of {len(meters)} devices slow their clocks"
        yield Finding("throttling", f"{who} for power or heat in {share}.")
    for name, device in meters.items():
        if name not in often and device.temperature > limit:
            hot, most = (f"{kelvin - ZERO_CELSIUS:.0f} °C" for kelvin in (device.temperature, limit))
            yield Finding("throttling", f"Device {name} has {hot}, and may have {most}.")


def _capped(state: RunState) -> Iterator[Finding]:
    limits = [
        device.limit
        for device in state.meters.values()
        if math.isfinite(device.limit)
        and len(device.powers) >= FEWEST
        and float(np.mean(np.asarray(device.powers) >= AT_CAP * device.limit)) >= OFTEN
    ]
    if limits:
        yield Finding(
            "power-cap",
            f"{len(limits)} of {len(state.meters)} devices are at their power limit of "
            f"{format_quantity(limits[-1], 'W')}: it sets the clock.",
        )


def _checkpoints(state: RunState) -> Iterator[Finding]:
    if not state.checkpoints:
        return
    pause = float(np.median(state.checkpoints))
    planned = float(state.expected.scenario.system.reliability.checkpoint_time)
    if pause > CHECKPOINT * planned and pause > SHORT_PAUSE:
        share = sum(state.checkpoints) / state.time if state.time > 0.0 else 0.0
        yield Finding(
            "checkpoint",
            f"A checkpoint stops the run for {format_quantity(pause, 's')}, not for {format_quantity(planned, 's')}: "
            f"{100.0 * share:.2g} % of the time so far.",
        )


def _plan(state: RunState) -> Iterator[Finding]:
    expected = state.expected
    now, planned, at = state.usual_step_time, expected.step_time, ""
    batch = state.tokens_per_step
    if math.isfinite(batch) and abs(batch / expected.batch - 1.0) > 0.01:
        yield Finding("batch", f"A step has {batch:,.0f} tokens, and {expected.batch:,.0f} in the plan.")
        planned *= batch / expected.batch
        at = f" for their batch ({format_quantity(planned, 's')})"
    if len(state.step_times) >= FEWEST and abs(now / planned - 1.0) > OFF_PLAN:
        word = "longer" if now > planned else "shorter"
        off = f"{100.0 * abs(now / planned - 1.0):.0f} % {word} than planned{at}"
        yield Finding("plan", f"Steps take {format_quantity(now, 's')}, {off}.")
    chips = [name for name in state.meters if is_chip(name)]
    if len(chips) > expected.chips:
        yield Finding(
            "plan",
            f"{len(chips)} devices have meters, and the plan has {expected.chips:,.0f} chips: its energy is forecast.",
        )
    power, busy = state.chip_power, float(expected.outcome.power_busy)
    if math.isfinite(power) and abs(power / busy - 1.0) > OFF_PLAN:
        word = "more" if power > busy else "less"
        yield Finding(
            "plan",
            f"A chip draws {format_quantity(power, 'W')}, {100.0 * abs(power / busy - 1.0):.0f} % {word} than planned.",
        )
