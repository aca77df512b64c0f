"""A run at one moment, what is wrong with it, and its forms for machines: JSON lines and Prometheus' text."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import poisson

from energymodel.constants import ZERO_CELSIUS
from energymodel.monitor.forecast import RunForecast
from energymodel.monitor.run_state import RECENT, RunState
from energymodel.readers.expressions import data_file
from energymodel.readers.log_records import is_chip
from energymodel.readers.logged_run import TO_SIGMA, relative_scatter
from energymodel.readers.metered import median
from energymodel.search.replan import Replan
from energymodel.units import format_quantity

SLOWER = 0.05  # steps are slower than before beyond this share, and beyond the scatter
SLOW_CHIP = 0.03  # A chip straggles if its clock is this much below the others' median [1]
OFTEN = 0.2  # A device is throttled, or at its cap, in at least this share of the readings
AT_CAP = 0.98  # power beyond this share of the limit is at the limit [1]
CHECKPOINT = 2.0  # A checkpoint is slow beyond this multiple of the planned pause
SHORT_PAUSE = 5.0  # pauses below this do not matter [s]
UNLIKELY = 0.05  # failures are too many where as many or more had at most this probability
OTHER_BATCH = 0.01  # A batch differs from the plan beyond this share [1]
OFF_PLAN = 0.1  # A step time or a power differs from the plan beyond this share [1]
SPIKE = 8.0  # A rise of the loss in one step is a spike beyond so many deviations of the last ones
UNUSED = 0.5  # A device that draws less than this share of what the others do is not used by the run [1]
FEWEST, FEWEST_CLOCKS = 10, 3  # steps or readings, and devices with clocks, without which there is no finding


class Finding(NamedTuple):
    """Something that costs time or energy: what it is, in one word and in a sentence with its numbers."""

    kind: str
    message: str


def findings(state: RunState) -> list[Finding]:
    """All that is wrong now, the costly first."""
    if not state.has_begun:
        return []
    return [Finding(kind, message) for kind, check in CHECKS for message in check(state)]


def _loss(state: RunState) -> Iterator[str]:
    losses = np.array([loss for _, loss in state.recent_losses])
    if state.not_finite:
        yield f"{state.not_finite} steps had no finite loss."
    if len(losses) >= FEWEST:
        *before, last = np.diff(losses)
        usual = np.median(before)
        spread = TO_SIGMA * np.median(np.abs(before - usual))
        if spread > 0.0 and last > usual + SPIKE * spread:
            yield f"The loss rose by {last:.3g} nat/token in one step."


def _failures(state: RunState) -> Iterator[str]:
    mean = state.expected.chips * state.time / float(state.expected.scenario.system.reliability.chip_mtbf)
    if state.failures and float(poisson.sf(state.failures - 1, mean)) < UNLIKELY:
        expected = f"{mean:.2g}" if mean >= 0.01 else "less than 0.01"
        yield (
            f"{state.failures} interruption{'s' * (state.failures > 1)} where the plan expects {expected}: "
            "look for a node that fails."
        )


def _stragglers(state: RunState) -> Iterator[str]:
    powers = {name: device.busy_power for name, device in state.meters.items() if is_chip(name)}
    lowest = UNUSED * median([power for power in powers.values() if math.isfinite(power)])
    clocks = {name: state.devices[name].clock for name, power in powers.items() if not power < lowest}
    clocks = {name: clock for name, clock in clocks.items() if math.isfinite(clock)}
    middle = median([*clocks.values()])
    for name, clock in clocks.items():
        is_slow = clock < (1.0 - SLOW_CHIP) * middle and len(state.devices[name].clocks) >= FEWEST
        if is_slow and len(clocks) >= FEWEST_CLOCKS:
            yield (
                f"Device {name} runs at {format_quantity(clock, 'Hz')}, the others at {format_quantity(middle, 'Hz')}: "
                "all of them wait for it."
            )


def _slower(state: RunState) -> Iterator[str]:
    times = np.asarray(state.step_times)
    last = min(len(times) // 3, RECENT)
    if last < FEWEST:
        return
    before = times[last:-last]
    now, then = float(np.median(times[-last:])), float(np.median(before))
    spread = relative_scatter(before) * math.sqrt(1.0 / last + 1.0 / len(before))
    if now > (1.0 + max(SLOWER, 5.0 * spread)) * then:
        yield (
            f"Steps take {100.0 * (now / then - 1.0):.0f} % longer than before ({format_quantity(now, 's')} instead of "
            f"{format_quantity(then, 's')}): look for a slow device or link."
        )


def _throttled(state: RunState) -> Iterator[str]:
    limit = float(state.expected.scenario.system.accelerator.maximum_temperature)
    meters = state.meters
    shares = {name: np.mean(of.throttled) for name, of in meters.items() if len(of.throttled) >= FEWEST}
    often = {name: share for name, share in shares.items() if share >= OFTEN}
    if often:
        who = f"{len(often)} of {len(meters)} devices slow their clocks"
        if len(often) == 1:
            who = f"Device {next(iter(often))} slows its clock"
        yield f"{who} for power or heat in {100.0 * np.mean([*often.values()]):.0f} % of the readings."
    for name, device in meters.items():
        if name not in often and device.temperature > limit:
            hot, most = (f"{kelvin - ZERO_CELSIUS:.0f} °C" for kelvin in (device.temperature, limit))
            yield f"Device {name} has {hot}, and may have {most}."


def _capped(state: RunState) -> Iterator[str]:
    read = [device for device in state.meters.values() if len(device.powers) >= FEWEST]
    limits = [of.limit for of in read if np.mean(np.asarray(of.powers) >= AT_CAP * of.limit) >= OFTEN]
    if limits:
        yield (
            f"{len(limits)} of {len(state.meters)} devices are at their power limit of "
            f"{format_quantity(limits[-1], 'W')}: it sets the clock."
        )


def _checkpoints(state: RunState) -> Iterator[str]:
    pause = median(state.checkpoints)
    planned = float(state.expected.scenario.system.reliability.checkpoint_time)
    if pause > CHECKPOINT * planned and pause > SHORT_PAUSE:
        share = sum(state.checkpoints) / state.time if state.time > 0.0 else 0.0
        yield (
            f"A checkpoint stops the run for {format_quantity(pause, 's')}, not for {format_quantity(planned, 's')}: "
            f"{100.0 * share:.2g} % of the time so far."
        )


def _batch(state: RunState) -> Iterator[str]:
    batch, planned = state.tokens_per_step, state.expected.batch
    if abs(batch / planned - 1.0) > OTHER_BATCH:
        yield f"A step has {batch:,.0f} tokens, and {planned:,.0f} in the plan."


def _plan(state: RunState) -> Iterator[str]:
    expected = state.expected
    now, planned, at = state.usual_step_time, expected.step_time, ""
    if any(_batch(state)):
        planned *= state.tokens_per_step / expected.batch
        at = f" for their batch ({format_quantity(planned, 's')})"
    if len(state.step_times) >= FEWEST and abs(now / planned - 1.0) > OFF_PLAN:
        word = "longer" if now > planned else "shorter"
        off = f"{100.0 * abs(now / planned - 1.0):.0f} % {word} than planned{at}"
        yield f"Steps take {format_quantity(now, 's')}, {off}."
    chips = sum(map(is_chip, state.meters))
    if chips > expected.chips:
        yield f"{chips} devices have meters, and the plan has {expected.chips:,.0f} chips: its energy is forecast."
    power, busy = state.chip_power, float(expected.outcome.power_busy)
    if abs(power / busy - 1.0) > OFF_PLAN:
        off = f"{100.0 * abs(power / busy - 1.0):.0f} % {'more' if power > busy else 'less'}"
        yield f"A chip draws {format_quantity(power, 'W')}, {off} than planned."


CHECKS = (
    ("loss", _loss),
    ("failures", _failures),
    ("straggler", _stragglers),
    ("straggler", _slower),
    ("throttling", _throttled),
    ("power-cap", _capped),
    ("checkpoint", _checkpoints),
    ("batch", _batch),
    ("plan", _plan),
)
_NAMES = data_file(__file__, "status.toml")
UNITS, STATE = _NAMES["units"], _NAMES["state"]
"""What totals and the state of a run are called in JSON and in Prometheus' text."""
PARTS = {"value": "", "lower": "_lower", "upper": "_upper"}
PREFIX = "energymodel"


@dataclass(frozen=True)
class Status:
    """A run at one moment: its state, what is wrong, its end by the last forecast, and the new plan for its rest."""

    state: RunState
    findings: tuple[Finding, ...]
    forecast: RunForecast | None
    plan: Replan | None = None


def status_line(status: Status) -> str:
    """A run at one moment as one line of JSON, in SI; `so_far` is what `energymodel replan --so-far` reads."""
    return json.dumps(_tree(status))


def _tree(status: Status) -> dict[str, Any]:
    state, forecast = status.state, status.forecast
    tree: dict[str, Any] = {
        "step": None if state.last is None else state.last.step,
        **{name: attrgetter(attribute)(state) for name, (attribute, _) in STATE.items()},
        "law_loss_nat_per_token": state.expected.loss(state.tokens) if state.tokens > 0.0 else None,
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


def _finite(tree: Any) -> Any:
    """The tree with None for what is not finite, which JSON has no word for."""
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def prometheus_text(status: Status) -> str:
    """Gauges in Prometheus' text format, for the text-file collector of a node exporter."""
    tree = _tree(status)
    used, forecast = tree.get("used", {}), tree.get("forecast", {})
    kinds = Counter(finding.kind for finding in status.findings)
    gauges = [(name, "", tree[key]) for key, (_, name) in STATE.items()]
    gauges += [("finding", f'{{kind="{kind}"}}', count) for kind, count in kinds.items()]
    for name, (short, unit) in UNITS.items():
        gauges.append((f"used_{name}_{unit}", "", used.get(f"{name}_{short}")))
        for part, value in forecast.get(f"{name}_{short}", {}).items():
            gauges.append((f"forecast_{name}{PARTS[part]}_{unit}", "", value))
    finite = [gauge for gauge in gauges if gauge[2] is not None]
    lines = []
    for name, of_name in itertools.groupby(finite, key=lambda gauge: gauge[0]):
        lines.append(f"# TYPE {PREFIX}_{name} gauge")
        lines += [f"{PREFIX}_{name}{labels} {float(value)!r}" for _, labels, value in of_name]
    return "\n".join(lines) + "\n"
