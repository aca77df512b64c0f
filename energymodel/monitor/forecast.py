"""End of a run if its plan is kept."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np

from energymodel.monitor.expectation import fit_course
from energymodel.monitor.run_state import RunState, mean_spread
from energymodel.search.replan import NORMAL_90, Forecast, MeasuredRun, rest_of
from energymodel.system.evaluate import evaluate_once

CHANGED = 0.02  # pace or power of now differ from the mean so far beyond this share [1]
BY_POWER = ("energy", "equipment_energy", "carbon")  # totals that follow the power
LEAST_PROGRESS = 1e-3  # share of the run before which nothing is forecast
ALMOST_ALL = 1.0 - 1e-6  # share of the tokens that is said of a run that has ended, of which there would be no rest [1]


@dataclass(frozen=True)
class RunForecast:
    """The end of a run, by what was measured so far.

    - `totals`: time, energy, money, carbon, equipment_energy and final loss of the whole run, with 90 % intervals.
    - `used`: the same so far, but for the loss.
    - `measured`: what they follow from.
    """

    totals: Mapping[str, Forecast]
    used: Mapping[str, float]
    measured: MeasuredRun


def forecast(state: RunState) -> RunForecast | None:
    """The end of the run; nothing at its very start.

    The loss is that of the run's own course where that can be fitted, else of the law; at the end, of the last steps.

    **Raises:** `InputError` for a state that the plan cannot have.
    """
    if state.progress < LEAST_PROGRESS or not state.time > 0.0:
        return None
    expected, prior = state.expected, state.expected.course_prior
    course = state.course()
    fitted = fit_course(course, prior, state.warm_tokens)
    # A rate that has fallen below that of the plan's end stays there.
    end = min(expected.end_rate, float(course.rate[-1])) if len(course.rate) else expected.end_rate
    loss = None if fitted is None else fitted.at(state.tokens, end).value
    measured = state.measured(loss)
    measured = measured._replace(tokens=min(measured.tokens, ALMOST_ALL * expected.tokens))
    rest = rest_of(expected.scenario, measured)
    with jax.enable_x64(True):
        outcome = jax.tree.map(np.asarray, evaluate_once(rest.scenario.system, rest.scenario.plan))
    totals = {
        name: _as_of_now(state, name, total, rest.used.get(name)) for name, total in rest.forecast(outcome).items()
    }
    if state.progress >= 1.0 and math.isfinite(state.loss):
        totals["loss"] = Forecast.of(state.loss, prior.end_noise)
    elif fitted is not None:
        totals["loss"] = fitted.at(expected.tokens, end)
    else:
        value, lower, upper = totals["loss"]  # of the law, before the run's own course is known
        totals["loss"] = Forecast.of(value, math.hypot((upper - lower) / (2.0 * NORMAL_90), prior.law_error))
    return RunForecast(totals, rest.used, measured)


def _as_of_now(state: RunState, name: str, total: Forecast, used: float | None) -> Forecast:
    """A total whose rest goes on at the pace and the power of now, where these have left their means so far.

    The interval also holds what is usual for the run without its start: that may come back.
    """
    if used is None:
        return total
    mean, spread = state.mean_step_time, mean_spread(state.usual_times, state.progress)
    paces = _left(state.step_time / mean, state.usual_step_time / mean)
    scale = 1.0 - state.start_pause / state.time
    if name in BY_POWER:
        nodes = state.nodes
        if nodes:
            scale *= _left(float(np.mean([node.power_now for node in nodes])) / state.node_power)[0]
        of_power = max((mean_spread(node.powers, state.progress) for node in nodes), default=0.0)
        spread = math.hypot(spread, of_power, state.expected.course_prior.power_drift)
    value, lower, upper = (scale * (end - used) for end in total)
    low, high = (math.hypot(value - end, NORMAL_90 * spread * value) for end in (lower, upper))
    return Forecast(
        used + paces[0] * value, used + min(paces) * max(value - low, 0.0), used + max(paces) * (value + high)
    )


def _left(*ratios: float) -> tuple[float, ...]:
    """Ratios to the mean so far; 1 where they have not left it, or are not known."""
    return tuple(ratio if abs(ratio - 1.0) > CHANGED else 1.0 for ratio in ratios)
