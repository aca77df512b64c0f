"""The best plan for the rest of a run, from what was measured of it so far."""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from scipy.special import ndtri

from energymodel.errors import InputError
from energymodel.scenarios.question import Limits, Minimize, Ranges
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.search.optimize import optimize
from energymodel.search.posterior import SHARES, Posterior, Update, failure_posterior, posterior_of, prior_of
from energymodel.search.result import Optimum
from energymodel.search.training_run import TrainingRun
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import OUTPUTS, output, parse_number, unit_of
from energymodel.system.plan import TokenBudget, TrainingPlan
from energymodel.system.run_outcome import money_until
from energymodel.system.training_system import learning_of, parameters_in_loss
from energymodel.units import format_quantity

NORMAL_90 = float(ndtri(SHARES[1]))  # standard deviations to either end of a 90 % interval
CAUTION = 1.15
"""Measured time over what the updated numbers explain, or the inverse, beyond which plans are not to be trusted [1]."""
UNLIKELY = 3.0
"""Standard deviations of its prior beyond which a number explains nothing [1]."""
MTBF = "system.reliability.chip_mtbf"
FORECAST = {name: {name: 1.0} for name in ("time", "energy", "money", "carbon", "loss")}
FORECAST["equipment_energy"] = {"energy": 1.0, "pue": -1.0}
"""What is forecast, as products of powers of outputs: totals of the facility and its equipment, and the final loss."""
MEASURED = {
    "time": ({"time": 1.0}, 0.01),
    "power": ({"power_average": 1.0}, 0.01),
    "equipment_power": ({"power_average": 1.0, "pue": -1.0}, 0.01),
    "chip_power": ({"power_busy": 1.0}, 0.05),  # of the meters within chips, as their makers state it
    "loss": ({"loss": 1.0}, 0.01),
}
"""What a measurement is, as a product of powers of outputs, and its standard deviation [1], of the loss [nat/token]."""
UNITS = {**dict(OUTPUTS), "power": "W", "equipment_power": "W", "chip_power": "W", "failures": "1"}


class MeasuredRun(NamedTuple):
    """What was measured of a run, from its start to now. In SI, or text with a unit; `None` was not measured.

    - `tokens`: processed and kept [token].
    - `time`: calendar time, failures and pauses included [s].
    - `loss`: now [nat/token], with the learning rate decayed or as the loss law would have it.
    - `power`: mean at the meter of the facility [W].
    - `equipment_power`: mean at the meters of all nodes and switches [W].
    - `chip_power`: mean of a chip at its own meter, while it trains [W].
    - `failures`: interruptions [1].
    """

    tokens: float | str
    time: float | str | None = None
    loss: float | str | None = None
    power: float | str | None = None
    equipment_power: float | str | None = None
    chip_power: float | str | None = None
    failures: float | str | None = None


class Forecast(NamedTuple):
    """An output of the whole run if the plan is kept, in SI, with its 90 % interval from the uncertain numbers."""

    value: float
    lower: float
    upper: float

    @classmethod
    def of(cls, value: float, spread: float) -> "Forecast":
        """A value with an error of this standard deviation."""
        return cls(value, value - NORMAL_90 * spread, value + NORMAL_90 * spread)


@dataclasses.dataclass(frozen=True)
class Rest:
    """The rest of a run as a scenario of its own.

    - `scenario`: numbers updated, learning continued from the progress made, limits less what is used up.
    - `updates`: numbers that the measurements moved, farthest first.
    - `used`: time, energy (of the facility, and of its equipment), money and carbon so far, measured or predicted.
    - `posterior`: all uncertain numbers, those with no effect included.
    - `unexplained`: what was used so far, over what the updated numbers give for them [1]. The rest goes on like that.
    """

    scenario: Scenario
    updates: tuple[Update, ...]
    used: Mapping[str, float]
    posterior: Posterior
    unexplained: Mapping[str, float]

    @property
    def caution(self) -> str:
        """A sentence where no likely numbers explain the time so far, else nothing."""
        ratio = self.unexplained["time"]
        if max(ratio, 1.0 / ratio) >= CAUTION:
            reason = f"The run so far took {ratio:.2g} times as long as the scenario explains with any of its numbers"
        else:
            distances = self.posterior.distances
            far = [distances.get(_in_rest(update.path), 0.0) for update in self.updates]
            if max(far, default=0.0) < UNLIKELY:
                return ""
            update = self.updates[int(np.argmax(far))]
            before, after = (format_quantity(value, update.unit) for value in (update.before, update.after))
            reason = (
                f"Only an unlikely number explains the run so far: {update.path} {after} instead of {before}, "
                f"{max(far):.1f} standard deviations of its prior away"
            )
        return (
            f"{reason}: what the scenario says of other plans is as uncertain. "
            "Measure a few steps of a new plan before you trust it."
        )

    def forecast(self, outcome: TrainingOutcome) -> dict[str, Forecast]:
        """Outputs of `FORECAST` of the whole run if its rest has this outcome under its own plan."""
        run = TrainingRun(self.scenario.system, self.scenario.plan)
        with jax.enable_x64(True):
            spreads = self.posterior.spread(run, list(FORECAST.values()))
        forecasts = {}
        for (name, powers), spread in zip(FORECAST.items(), spreads, strict=True):
            rest = math.prod(float(output(outcome, factor)) ** power for factor, power in powers.items())
            rest *= self.unexplained.get(name, 1.0)
            ends = (rest * math.exp(end * spread) for end in (0.0, -NORMAL_90, NORMAL_90))
            forecasts[name] = Forecast(*(self.used.get(name, 0.0) + end for end in ends))
        return forecasts


@dataclasses.dataclass(frozen=True)
class Replan:
    """The best plan for the rest of a run, beside going on as before.

    - `rest`: the rest as a scenario, with the numbers that were updated.
    - `optimum`: its best plan; `optimum.baseline` is the outcome of going on.
    - `forecast`: time and energy of the whole run if the plan is kept.
    """

    rest: Rest
    optimum: Optimum
    forecast: Mapping[str, Forecast]

    @property
    def saving(self) -> float:
        """Share of what is minimized that the new plan saves over the rest [1]."""
        return 1.0 - self.optimum.value / self.optimum.baseline_value


def replan(
    scenario: Scenario,
    measured: MeasuredRun,
    minimize: Minimize | None = None,
    limits: Limits | None = None,
    vary: Ranges | None = None,
    fix: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
    *,
    throw: bool = False,
) -> Replan:
    """Plan the rest of a run from what was measured of it.

    The uncertain numbers of the scenario are updated so that it predicts what was measured, each as far as its prior
    allows; the rest is then optimized like a run of its own. Limits of time, energy, money and carbon are those of the
    whole run. Unless limited, the rest takes no longer than going on, and reaches the same loss.

    **Arguments:**

    - `scenario`: the run as it was planned, of one constant batch, and has been run so far.
    - `measured`: its state now.
    - `minimize`, `limits`, `vary`, `fix`, `progress`, `throw`: as in `optimize`.

    **Returns:** `Replan`.

    **Raises:** `InputError` for a state that the plan cannot have, a run that is over, or a limit that is used up;
    `RuntimeError` if `throw`.
    """
    scenario = scenario.with_question(minimize, limits, vary, fix)
    if progress is not None:
        progress("updating the scenario's numbers")
    rest = rest_of(scenario, measured)
    optimum = optimize(rest.scenario, progress=progress, throw=throw)
    return Replan(rest, optimum, rest.forecast(optimum.baseline))


def rest_of(scenario: Scenario, measured: MeasuredRun) -> Rest:
    """The rest of a run as a scenario of its own, by the question of the scenario; see `replan`."""
    state, question, goal = _state(scenario, measured), scenario.optimize, scenario.plan.goal
    if question.knots:
        raise InputError("vary plan.batch@0..1: the rest of a run is planned with one batch. Leave it out here.")
    if "time" in state and "time" in question.limits:  # a mistake is reported before any work
        _limits_left({"time": question.limits["time"]}, state)
    with jax.enable_x64(True):
        plan = eqx.tree_at(lambda plan: plan.goal, scenario.plan, TokenBudget(np.asarray(state["tokens"])))
        updated, failures = _with_failures(scenario, state)
        run = TrainingRun(updated.system, plan)
        measurements = [
            (powers, state[name], error / state[name] if name == "loss" else error)
            for name, (powers, error) in MEASURED.items()
            if name in state
        ]
        posterior = posterior_of(prior_of(updated, run, "loss" in state), run, measurements)
        tables, values, moved = copy.deepcopy(dict(updated.tables)), posterior.values, posterior.moved()
        updates = [posterior.update(path, updated.provenance[path].unit) for path in moved]
        for path, unit, *_ in updates:
            _put(tables, path, values[path], unit, posterior.distribution(path))
        now = load_scenario({"name": scenario.name, **tables})
        outcome = jax.tree.map(np.asarray, evaluate_once(now.system, plan))
        parameters, batch = float(parameters_in_loss(now.system)), float(np.reshape(plan.batch, ()))
        done = float(learning_of(now.system, plan).run(parameters, state["tokens"], batch)[1])
    used = _used(state, now, plan, outcome)
    if isinstance(goal, TokenBudget):
        tables["plan"]["goal"] = {"tokens": f"{float(goal.tokens) - state['tokens']!r} token"}
    else:
        target = float(goal.loss)  # pyright: ignore[reportAttributeAccessIssue]
        if float(outcome.loss) <= target:
            raise InputError(f"The run has reached its {target:g} nat/token already: nothing is left to plan.")
        tables["plan"]["goal"] = {"loss": f"{target!r} nat/token"}
    tables["system"]["learning"] = {
        "component": "ContinuedLearning",
        "base": tables["system"]["learning"],
        "done": {"value": done, "unit": "token", "kind": "derived", "source": "progress of the run so far"},
    }
    tables["uncertainty"] = {_in_rest(path): text for path, text in tables["uncertainty"].items()}
    tables["optimize"] = {
        "minimize": question.minimize,
        "limits": _limits_left(question.limits, used),
        "vary": {_in_rest(path): list(bounds) for path, bounds in question.vary.items()},
        "fix": [_in_rest(path) for path in question.fix],
        "tolerance": question.tolerance,
        "block": question.block,
    }
    rest = load_scenario({"name": f"{scenario.name}-rest", **tables})
    unexplained = {name: used[name] / float(output(outcome, name)) for name in used if name != "equipment_energy"}
    unexplained["equipment_energy"] = unexplained["energy"]
    numbers = {_in_rest(path): number for path, number in posterior.numbers.items()}
    return Rest(rest, (*failures, *updates), used, dataclasses.replace(posterior, numbers=numbers), unexplained)


def _in_rest(path: str) -> str:
    return path.replace("system.learning.", "system.learning.base.", 1)


def _state(scenario: Scenario, measured: MeasuredRun) -> dict[str, float]:
    """What was measured, in SI."""
    if scenario.plan.knots > 1:
        raise InputError("plan.batch: a run in which it changes with progress cannot be planned anew. Give one number.")
    state = {}
    for name, measurement in measured._asdict().items():
        if measurement is None:
            continue
        value = state[name] = parse_number(measurement, UNITS[name], f"measured {name}")
        if not math.isfinite(value) or value < 0.0 or (value == 0.0 and name != "failures"):
            raise InputError(f"measured {name}: {measurement} is not a positive number in {UNITS[name]}.")
    if "failures" in state and "time" not in state:
        raise InputError("measured failures: give the time in which they happened as well.")
    if isinstance(scenario.plan.goal, TokenBudget) and state["tokens"] >= float(scenario.plan.goal.tokens):
        raise InputError(
            f"measured tokens: {format_quantity(state['tokens'], 'token')} are all of the "
            f"{format_quantity(float(scenario.plan.goal.tokens), 'token')} planned: nothing is left to plan."
        )
    return state


def _with_failures(scenario: Scenario, state: Mapping[str, float]) -> tuple[Scenario, list[Update]]:
    """The scenario with the failures seen in its failure rate."""
    text = scenario.uncertainty.get(MTBF, "")
    if "failures" not in state or not text.startswith("lognormal "):
        return scenario, []
    before, spread = float(scenario.system.reliability.chip_mtbf), float(text.split()[1])
    chip_time = float(scenario.plan.chips) * state["time"]
    after, left = failure_posterior(before, spread, chip_time, state["failures"])
    ends = (after * math.exp(ndtri(share) * left) for share in SHARES)
    tables = copy.deepcopy(dict(scenario.tables))
    _put(tables, MTBF, after, "s", f"lognormal {left:.6g}")
    return load_scenario({"name": scenario.name, **tables}), [Update(MTBF, "s", before, after, *ends)]


def _put(tables: dict[str, Any], path: str, value: float, unit: str, distribution: str) -> None:
    """Set a number of a resolved scenario as measured, with what is left of its uncertainty."""
    *parents, last = path.split(".")
    source = "prior and measurements of the run so far"
    number = {"value": value, "unit": unit, "kind": "measured", "source": source, "distribution": distribution}
    reduce(lambda node, part: node[part], parents, tables)[last] = number
    tables["uncertainty"] = {key: text for key, text in tables["uncertainty"].items() if key != path}


def _used(state: Mapping[str, float], now: Scenario, plan: TrainingPlan, outcome: TrainingOutcome) -> dict[str, float]:
    """Time and energy so far, measured where they were, and the money and carbon that follow from them."""
    time, pue = state.get("time", float(outcome.time)), float(outcome.pue)
    power = state["equipment_power"] * pue if "equipment_power" in state else float(outcome.power_average)
    energy = state.get("power", power) * time
    operational = float(outcome.carbon_operational) * energy / float(output(outcome, "energy"))
    embodied = float(outcome.carbon_embodied) * time / float(outcome.time)
    return {
        "time": time,
        "energy": energy,
        "equipment_energy": energy / pue,
        "money": float(money_until(now.system, plan, outcome, time, energy)),
        "carbon": operational + embodied,
        "carbon_operational": operational,
        "carbon_embodied": embodied,
    }


def _limits_left(limits: Mapping[str, float], used: Mapping[str, float]) -> dict[str, float]:
    left = {name: limit - used.get(name, 0.0) for name, limit in limits.items()}
    for name, rest in left.items():
        if rest <= 0.0:
            gone, limit = (format_quantity(value, unit_of(name)) for value in (used[name], limits[name]))
            raise InputError(
                f"limit {name}: the run has used {gone} of {limit}: nothing is left for its rest. Raise the limit."
            )
    return left
