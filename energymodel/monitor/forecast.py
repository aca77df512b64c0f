"""Where does a run go, if its plan is kept, and what would a new plan for its rest save?"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import numpy as np

from energymodel.design.replan import Forecast, MeasuredRun, Replan, Rest, replan, rest_of
from energymodel.monitor.loss_forecast import decayed_loss, final_loss, fit_course, measured_loss
from energymodel.monitor.run_state import RunState
from energymodel.system.evaluate import evaluate_once

CHANGED = 0.02
"""The pace of now differs from the mean so far beyond this share [1]."""
LEAST_PROGRESS = 1e-3
"""Share of the run before which nothing is forecast."""
ALMOST_ALL = 1.0 - 1e-6
"""Share of the tokens that is said of a run that has ended, of which there would be no rest [1]."""


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
    rest: Rest


def forecast(state: RunState) -> RunForecast | None:
    """The end of the run; nothing at its very start.

    The loss is that of the run's own course where that can be fitted, else of the law; at the end, of the last steps.

    **Raises:** `InputError` for a state that the plan cannot have.
    """
    if state.progress < LEAST_PROGRESS or not state.time > 0.0:
        return None
    expected = state.expected
    course = fit_course(*state.course(), state.warm_tokens)
    loss = None if course is None else decayed_loss(course, expected)
    measured = state.measured(loss)
    measured = measured._replace(tokens=min(measured.tokens, ALMOST_ALL * expected.tokens))
    rest = rest_of(expected.scenario, measured)
    with jax.enable_x64(True):
        outcome = jax.tree.map(np.asarray, evaluate_once(rest.scenario.system, rest.scenario.plan))
    totals = {name: _at_pace_of_now(state, one, rest.used.get(name)) for name, one in rest.forecast(outcome).items()}
    if state.progress >= 1.0 and math.isfinite(state.loss):
        totals["loss"] = Forecast(*measured_loss(state.loss))
    elif course is not None:
        totals["loss"] = Forecast(*final_loss(course, expected))
    return RunForecast(totals, rest.used, measured, rest)


def _at_pace_of_now(state: RunState, whole: Forecast, used: float | None) -> Forecast:
    """A total whose rest goes on at the pace of the last steps, where that has left the mean pace so far.

    The interval holds both paces: the old one may come back.
    """
    pace = state.step_time / state.mean_step_time
    if used is None or not abs(pace - 1.0) > CHANGED:
        return whole
    rest = (one - used for one in whole)
    value, lower, upper = rest
    return Forecast(used + pace * value, used + min(pace, 1.0) * lower, used + max(pace, 1.0) * upper)


def better_plan(state: RunState, found: RunForecast, progress: Callable[[str], None] | None = None) -> Replan:
    """The best plan for the rest of the run; it takes a search."""
    return replan(state.expected.scenario, found.measured, progress=progress)
