"""The batches of lowest energy, money and time, by the model and by closed and literal formulas.

Chips, layout, clock and loss are those of the scenario; only the batch changes, and with it the tokens to the loss.
"""

from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from adaptive_batch import adaptive_batch, least_batch
from closed_forms import (
    adaptive_batch_cost,
    break_even_batch,
    constant_batch_cost,
    cost_optimal_batch,
    energy_ratio,
    time_ratio,
)

import energymodel as em
from energymodel.economics.cost import OwnedPrice
from energymodel.learning.critical_batch import token_ratio
from energymodel.learning.learning import CriticalBatchLearning
from energymodel.performance.saturation import energy_optimal_batch, time_optimal_batch
from energymodel.runtime.compilation import compiler_options
from energymodel.sources import stated_optimal_batch
from energymodel.system.evaluate import evaluate_once
from energymodel.system.plan import TargetLoss
from energymodel.system.training_system import learning_of, parameters_in_loss

SCENARIOS = {
    "llama-3.1-405b-h100": "Llama 3.1 405B, 16,384 H100",
    "llama-3.1-70b-b200": "Llama 3.1 70B, 2,048 B200",
    "olmo-2-13b-h100": "OLMo 2 13B, 1,024 H100",
    "gpt3-175b-h100": "GPT-3 175B, 512 H100",
    "chinchilla-70b-tpu-v4": "Chinchilla 70B, 1,024 TPU v4",
    "deepseek-v3-h800": "DeepSeek-V3, 2,048 H800",
    "near-limit-hardware": "Llama 3.1 405B, 128 near-limit",
    "test-1b-h100": "Test model 1.2B, 8 H100",
}
OBJECTIVES = ("energy", "money", "time")
POINTS = 401
ROUNDS = 4  # of zooming: each narrows the range two hundredfold
MOST = 10.0  # critical batches: the largest batch considered
STEP = 1e-4  # of the batch, for slopes
TOLERATED = 0.01  # extra cost of a batch that counts as good
KNOTS = 16  # of the schedule
NO_HURRY = 1000.0  # times the run's own time: a limit that does not bind


class Totals(NamedTuple):
    """What a run takes at each batch, in SI."""

    energy: Any
    money: Any
    time: Any
    tokens: Any
    power: Any


def _run_totals(system: Any, plan: Any, batches: Any) -> Totals:
    def run(batch: Any) -> Totals:
        outcome = em.evaluate(system, eqx.tree_at(lambda plan: plan.batch, plan, batch[None]))
        return Totals(outcome.energy.total, outcome.money, outcome.time, outcome.tokens, outcome.power_average)

    return jax.vmap(run)(batches)


@cache
def _compiled() -> Any:
    return eqx.filter_jit(_run_totals, compiler_options=compiler_options(once=True))  # pyright: ignore[reportCallIssue]


class Run:
    """A scenario whose loss is held while its batch changes."""

    def __init__(self, name: str) -> None:
        """Read the scenario, and take its own loss as the goal; closed forms hold for a hyperbola of the batch."""
        self.scenario = em.load_scenario(name, {"system.learning.critical_batch": "bergsma-2025"})
        self.system = self.scenario.system
        outcome = evaluate_once(self.system, self.scenario.plan)
        goal = TargetLoss(np.asarray(outcome.loss))
        self.plan = eqx.tree_at(lambda plan: plan.goal, self.scenario.plan, goal)
        self.own = float(self.plan.batch[0])
        self.least = float(least_batch(self.system, self.plan))
        learning = self.system.learning
        assert isinstance(learning, CriticalBatchLearning)
        learned = learning_of(self.system, self.plan)
        self.progress = float(learned.effective_tokens(parameters_in_loss(self.system), outcome.loss))
        self.critical = float(learning.critical_batch.run_level(self.progress, outcome.loss))
        self.exponent = float(getattr(learning.critical_batch, "exponent", np.nan))

    def totals(self, batches: Any) -> Totals:
        """Totals at any number of batches, in calls of one compiled size."""
        batches = np.atleast_1d(batches)
        filled = np.resize(batches, max(POINTS, len(batches)))
        return Totals(*(np.asarray(part)[: len(batches)] for part in _compiled()(self.system, self.plan, filled)))

    def best(self, objective: str) -> tuple[float, float]:
        """Batch of least cost between the smallest of the layout and ten critical batches, and that cost."""
        low, high = np.log(self.least), np.log(MOST * self.critical)
        grid = values = np.zeros(0)
        for _ in range(ROUNDS):
            grid = np.linspace(low, high, POINTS)
            values = getattr(self.totals(np.exp(grid)), objective)
            best_index = int(np.argmin(values))
            low, high = grid[max(best_index - 1, 0)], grid[min(best_index + 1, POINTS - 1)]
        return float(np.exp(grid[np.argmin(values)])), float(np.min(values))

    def good(self, objective: str) -> tuple[float, float]:
        """Range of batches that cost at most 1 % more than the best."""
        grid = np.linspace(np.log(self.least), np.log(MOST * self.critical), 10 * POINTS)
        values = getattr(self.totals(np.exp(grid)), objective)
        inside = np.exp(grid[values <= (1.0 + TOLERATED) * np.min(values)])
        return float(inside[0]), float(inside[-1])


class Tangent(NamedTuple):
    """A step as fixed cost and cost per token, from its slope at a batch [docs/physics.md A0.9].

    `half_batch` B_h [token], `idle_power` P_i and `work_power` P_d [W], `hardware_price` c [USD/s], `energy_price` p
    [USD/J], `full_rate` 1/tau [token/s].
    """

    half_batch: float
    idle_power: float
    work_power: float
    hardware_price: float
    energy_price: float
    full_rate: float

    @property
    def idle_share(self) -> float:
        """Power while nothing but the fixed part of a step runs, over full power [1]."""
        return self.idle_power / (self.idle_power + self.work_power)


def tangent(run: Run, batch: float) -> Tangent:
    """Fixed and marginal time, energy and money of a step at a batch; above it, where no smaller batch runs."""
    runs_below = batch * (1.0 - STEP) >= run.least
    batches = batch * (1.0 + STEP * (np.array([-1.0, 0.0, 1.0]) if runs_below else np.array([0.0, 1.0, 2.0])))
    totals = run.totals(batches)
    steps = totals.tokens / batches
    per_step = {name: getattr(totals, name) / steps for name in OBJECTIVES}
    slope = {name: (value[2] - value[0]) / (batches[2] - batches[0]) for name, value in per_step.items()}
    fixed = {name: value[1] - slope[name] * batches[1] for name, value in per_step.items()}
    price = run.system.market.price
    energy_price = float(price.electricity) if isinstance(price, OwnedPrice) else 0.0
    idle = fixed["energy"] / fixed["time"]
    return Tangent(
        half_batch=float(fixed["time"] / slope["time"]),
        idle_power=float(idle),
        work_power=float(slope["energy"] / slope["time"] - idle),
        hardware_price=float((totals.money[1] - energy_price * totals.energy[1]) / totals.time[1]),
        energy_price=energy_price,
        full_rate=float(1.0 / slope["time"]),
    )


def optima(name: str, run: Run) -> dict[str, Any]:
    """Best batches by search and in closed form, and what the scenario's own batch costs beside them."""
    line = tangent(run, run.own)
    powers = line.idle_power, line.work_power
    closed = {
        "energy": energy_optimal_batch(run.critical, line.half_batch, *powers),
        "money": cost_optimal_batch(run.critical, line.half_batch, *powers, line.hardware_price, line.energy_price),
        "time": time_optimal_batch(run.critical, line.half_batch),
    }
    own = run.totals(run.own)
    row: dict[str, Any] = {
        "scenario": name,
        "own_token": run.own,
        "least_token": run.least,
        "critical_token": run.critical,
        "half_token": line.half_batch,
        "idle_share": line.idle_share,
    }
    for objective in OBJECTIVES:
        batch, value = run.best(objective)
        low, high = run.good(objective)
        row |= {
            f"{objective}_token": batch,
            f"{objective}_closed_token": float(closed[objective]),
            f"{objective}_low_token": low,
            f"{objective}_high_token": high,
            f"{objective}_of_own": round(float(getattr(own, objective)[0]) / value - 1.0, 12) + 0.0,
        }
    return row | {"at_least_batch": bool(row["energy_token"] < run.least * (1.0 + 1e-6))}


def literal(name: str, run: Run, row: dict[str, Any]) -> dict[str, Any]:
    """`B* = (beta gamma W/T0)^(1/(gamma-beta))` with the exponents that e(B) and R(B) have at the scenario's batch.

    Its W is the mean power, its T0 the throughput without fixed times, in W and in kW. The energy before it has no
    stationary batch: what it costs to follow that to the end of the range.
    """
    line = tangent(run, run.own)
    beta = run.own / (run.own + run.critical)
    gamma = line.half_batch / (run.own + line.half_batch)
    power = float(run.totals(run.own).power[0])
    end = run.least if gamma < beta else MOST * run.critical
    best = float(run.totals(row["energy_token"]).energy[0])
    at_optimum = tangent(run, row["time_token"])
    return {
        "scenario": name,
        "beta": beta,
        "gamma": gamma,
        "exponent": 1.0 / (gamma - beta),
        "joule_per_token": power / line.full_rate,
        "stated_token_in_w": float(stated_optimal_batch(beta, gamma, power, line.full_rate)),
        "stated_token_in_kw": float(stated_optimal_batch(beta, gamma, power / 1e3, line.full_rate)),
        "best_token": row["energy_token"],
        "power_law_token": end,
        "power_law_energy": float(run.totals(end).energy[0]) / best,
        "beta_at_time_optimum": row["time_token"] / (row["time_token"] + run.critical),
        "gamma_at_time_optimum": at_optimum.half_batch / (row["time_token"] + at_optimum.half_batch),
    }


def pairs(name: str, run: Run, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Throughput and power that a second batch gains, beside those that it needs."""
    cases = [
        ("half of own", run.own, 0.5 * run.own),
        ("twice own", run.own, 2.0 * run.own),
        ("energy's to time's", row["energy_token"], row["time_token"]),
    ]
    rows = []
    for title, first, second in cases:
        totals = run.totals([first, second])
        rate = totals.tokens / totals.time
        tokens = float(token_ratio(first, second, run.critical))
        throughput, power = float(rate[1] / rate[0]), float(totals.power[1] / totals.power[0])
        line = tangent(run, first)
        rows.append(
            {
                "scenario": name,
                "pair": title,
                "first_token": first,
                "second_token": second,
                "second_fits": second >= run.least * (1.0 - 1e-6),
                "needs_throughput": tokens,
                "has_throughput": throughput,
                "time_ratio": float(time_ratio(throughput, tokens)),
                "time_evaluated": float(totals.time[1] / totals.time[0]),
                "may_draw_per_token": 1.0 / tokens,
                "draws_per_token": power / throughput,
                "energy_ratio": float(energy_ratio(throughput, power, tokens)),
                "energy_evaluated": float(totals.energy[1] / totals.energy[0]),
                "same_time_token": float(break_even_batch(first, run.critical, line.half_batch, 1.0)),
                "same_energy_token": float(break_even_batch(first, run.critical, line.half_batch, line.idle_share)),
            }
        )
    return rows


def schedules(name: str, run: Run) -> list[dict[str, Any]]:
    """The best schedule of the batch over progress beside the best constant batch."""
    rows = []
    far = float(run.totals(run.own).time[0]) * NO_HURRY
    for objective in ("energy", "time"):
        limits = {"time": far} if objective == "energy" else {}
        result = adaptive_batch(run.scenario, KNOTS, minimize=objective, limits=limits)
        row: dict[str, Any] = {
            "scenario": name,
            "minimize": objective,
            "constant_token": float(result.constant.plan.batch[0]),
            "first_token": float(result.schedule.plan.batch[0]),
            "middle_token": float(np.interp(0.5, result.progress, result.schedule.plan.batch)),
            "last_token": float(result.schedule.plan.batch[-1]),
            "saved": result.gain,
            "step_ratio": result.step_ratio,
            "solved": result.schedule.success and result.constant.success,
        }
        if result.schedule.rule is not None and result.constant.rule is not None:
            fixed = result.constant.rule.fixed_cost_batch
            level = constant_batch_cost(run.critical, fixed)
            row["saved_closed"] = float(1.0 - adaptive_batch_cost(run.critical, fixed, run.exponent) / level)
            row["last_closed_token"] = float(result.schedule.rule.batch[-1])
        rows.append(row)
    return rows


class Curve(NamedTuple):
    """Cost over its least along the batch, for the figure."""

    title: str
    batch: Any
    relative: dict[str, Any]
    row: dict[str, Any]


def curve(title: str, run: Run, row: dict[str, Any]) -> Curve:
    """Thirtyfold to both sides of the batch of least time."""
    batch = row["time_token"] * np.exp(np.linspace(-np.log(30.0), np.log(30.0), POINTS))
    totals = run.totals(batch)
    best = {name: float(getattr(run.totals(row[f"{name}_token"]), name)[0]) for name in OBJECTIVES}
    return Curve(title, batch, {name: getattr(totals, name) / best[name] for name in OBJECTIVES}, row)


def compute(names: Any = tuple(SCENARIOS)) -> tuple[dict[str, list[dict[str, Any]]], list[Curve]]:
    """The tables of best batches, of the literal formula, of schedules and of pairs, and the curves."""
    tables: dict[str, list[dict[str, Any]]] = {"batches": [], "literal": [], "schedules": [], "pairs": []}
    curves = []
    with jax.enable_x64(True):
        for name in names:
            run = Run(name)
            row = optima(name, run)
            tables["batches"].append(row)
            tables["literal"].append(literal(name, run, row))
            tables["pairs"] += pairs(name, run, row)
            tables["schedules"] += schedules(name, run)
            curves.append(curve(SCENARIOS[name], run, row))
    return tables, curves
