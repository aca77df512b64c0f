"""A run at one moment, what is wrong with it, and its forms for machines: JSON lines and Prometheus' text."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import poisson

from energymodel.constants import ZERO_CELSIUS
from energymodel.monitor.forecast import RunForecast
from energymodel.monitor.run_state import RECENT, DeviceState, RunState
from energymodel.readers.log_records import is_chip
from energymodel.readers.logged_run import TO_SIGMA, relative_scatter
from energymodel.search.replan import Replan
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


UNITS = {
    "time": ("s", "seconds"),
    "energy": ("j", "joules"),
    "equipment_energy": ("j", "joules"),
    "money": ("usd", "usd"),
    "carbon": ("kg", "kilograms"),
    "loss": ("nat_per_token",) * 2,
}
"""Units of totals in JSON and in Prometheus' text."""
STATE = {
    "progress": "progress_ratio",
    "tokens": "tokens",
    "time_s": "elapsed_seconds",
    "step_time_s": "step_time_seconds",
    "planned_step_time_s": "planned_step_time_seconds",
    "loss_nat_per_token": "loss_nat_per_token",
    "chip_power_w": "chip_power_watts",
    "node_power_w": "node_power_watts",
    "failures": "failures",
}
"""Numbers of a state in JSON and in Prometheus' text."""
PREFIX = "energymodel"


@dataclass(frozen=True)
class Status:
    """A run at one moment.

    - `state`: of the run.
    - `findings`: what is wrong.
    - `forecast`: its end, by the last forecast; nothing before the first.
    - `plan`: what a new plan for the rest changes and saves, if one was searched for.
    """

    state: RunState
    findings: tuple[Finding, ...]
    forecast: RunForecast | None
    plan: Replan | None = None


def status_tree(status: Status) -> dict[str, Any]:
    """A run at one moment, in SI; `so_far` is what `energymodel replan --so-far` reads."""
    state, forecast = status.state, status.forecast
    tree: dict[str, Any] = {
        "step": None if state.last is None else state.last.step,
        "progress": state.progress,
        "tokens": state.tokens,
        "time_s": state.time,
        "step_time_s": state.step_time,
        "planned_step_time_s": state.expected.step_time,
        "loss_nat_per_token": state.loss,
        "law_loss_nat_per_token": state.expected.loss(state.tokens) if state.tokens > 0.0 else None,
        "chip_power_w": state.chip_power,
        "node_power_w": state.node_power,
        "failures": state.failures,
        "findings": [finding._asdict() for finding in status.findings],
    }
    if forecast is not None:
        tree["used"] = {f"{name}_{UNITS[name][0]}": value for name, value in forecast.used.items() if name in UNITS}
        tree["forecast"] = {f"{name}_{UNITS[name][0]}": total._asdict() for name, total in forecast.totals.items()}
        tree["so_far"] = {name: value for name, value in forecast.measured._asdict().items() if value is not None}
    if status.plan is not None:
        optimum = status.plan.optimum
        tree["replan"] = {"saving": status.plan.saving, "result": optimum.result, "minimize": optimum.minimize}
    return _finite(tree)


def status_line(status: Status) -> str:
    """The same as one line of JSON."""
    return json.dumps(status_tree(status))


def _finite(tree: Any) -> Any:
    """The tree with null for what is not finite, which JSON has no word for."""
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def prometheus_text(status: Status) -> str:
    """Gauges in Prometheus' text format, for the text-file collector of a node exporter."""
    tree = status_tree(status)
    gauges: dict[str, Mapping[str, float | None]] = {name: {"": tree[key]} for key, name in STATE.items()}
    kinds = [finding.kind for finding in status.findings]
    gauges["finding"] = {f'{{kind="{kind}"}}': kinds.count(kind) for kind in dict.fromkeys(kinds)}
    if status.forecast is not None:
        for name, value in status.forecast.used.items():
            if name in UNITS:
                gauges[f"used_{name}_{UNITS[name][1]}"] = {"": value}
        for name, total in status.forecast.totals.items():
            for key, value in zip(("", "_lower", "_upper"), total, strict=True):
                gauges[f"forecast_{name}{key}_{UNITS[name][1]}"] = {"": value}
    lines = []
    for name, values in gauges.items():
        finite = {labels: value for labels, value in values.items() if value is not None and math.isfinite(value)}
        lines += [f"# TYPE {PREFIX}_{name} gauge"] if finite else []
        lines += [f"{PREFIX}_{name}{labels} {float(value)!r}" for labels, value in finite.items()]
    return "\n".join(lines) + "\n"
