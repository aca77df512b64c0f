"""The batch along the progress of a run, and its saving over the best constant batch.

A young model learns as much from a small batch as from a large one; what a step costs besides its tokens argues for
large ones. The best compromise grows with the critical batch, `B(x) = sqrt(phi B_h B_n(x))` (docs/physics.md A0.12).
Here the batch at each knot of progress is a variable of the design search, through the loss ODE and the whole model of
a step, whatever the objective and the limits.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from closed_forms import adaptive_batch as best_batch
from closed_forms import constant_batch
from jaxtyping import Array, Float

from energymodel.errors import InputError
from energymodel.learning.learning import CriticalBatchLearning
from energymodel.numerics import Numeric
from energymodel.performance.parallelism import data_parallel_degree
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.question import TOKENS
from energymodel.scenarios.scenario import Scenario
from energymodel.search.problem import Criteria, DesignProblem, Formulation, excess, formulate
from energymodel.search.training_run import TrainingRun
from energymodel.solver import RESULTS, Solution, SolverOptions, Values, minimize_first_order, minimize_many
from energymodel.system.evaluate import evaluate, evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import limited_values, log_objective, objective_value, parse_objective
from energymodel.system.plan import TrainingPlan
from energymodel.system.run_outcome import money_until
from energymodel.system.training_system import TrainingSystem, learning_of, parameters_in_loss

DENSE_OPTIONS = SolverOptions(hessian="differences", max_iterations=100)
RUN_TOTALS = frozenset({"energy", "time", "money", "carbon"})
"""What a schedule adds up step by step, so that the closed form holds for it."""

BATCH_FREE = frozenset({"facility_power", "power_peak", "power_busy", "temperature", "heat_flux", "clock"})
"""What does not depend on the batch, so that a limit on it leaves the closed form as it is."""

LOWEST_PRICE = 1e-6  # elasticity below which a limit does not bind
HELD = ("plan.chips", "plan.clock", "plan.coolant_temperature")


class BatchRule(NamedTuple):
    """Best batches in closed form, where a step costs `c (B + phi B_h)` [docs/physics.md A0.12].

    - `fixed_cost_batch`: phi B_h, tokens that would cost as much as a step does besides its tokens [token]: of the
      objective and of the limits at their prices, from the tangent at the best constant batch.
    - `batch`: `sqrt(phi B_h B_n(x))` at the knots, 0 at the start [token].
    - `constant`: `sqrt(phi B_h / <1/B_n>)` [token].
    """

    fixed_cost_batch: Float[Array | np.ndarray, ""]
    batch: Float[Array | np.ndarray, " knots"]
    constant: Float[Array | np.ndarray, ""]


@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """A plan whose batch a search chose.

    - `plan`, `outcome`: `plan.batch` holds one batch, or its knots, equally spaced in progress [token].
    - `value`: the objective, in its unit.
    - `rule`: the closed form at the prices of this search, `None` where the law of learning has no critical batch, or
      one that bends more sharply than the hyperbola of the closed form (`sharpness`).
    - `prices`: elasticities of the limits, as in `Price`; 0 for those that do not bind.
    - `success`, `message`: whether the search converged, and what next.
    """

    plan: TrainingPlan
    outcome: TrainingOutcome
    value: float
    rule: BatchRule | None
    prices: Mapping[str, float]
    success: bool
    message: str


@dataclasses.dataclass(frozen=True)
class AdaptiveBatch:
    """The best schedule of the batch beside the best constant one, at the same loss and within the same limits.

    A schedule may keep limits that no constant batch does. `rounded_plan` and `rounded_outcome` are those of the
    schedule with whole micro-batches at each knot.
    """

    scenario: Scenario
    schedule: BatchPlan
    constant: BatchPlan
    rounded_plan: TrainingPlan
    rounded_outcome: TrainingOutcome

    @property
    def progress(self) -> Float[np.ndarray, " knots"]:
        """Share of the run's effective tokens at each knot [1]."""
        return np.linspace(0.0, 1.0, self.schedule.plan.knots)

    @property
    def gain(self) -> float:
        """Share of the objective that the schedule saves over the best constant batch, NaN if there is none [1]."""
        return 1.0 - self.schedule.value / self.constant.value if self.constant.success else float("nan")

    @property
    def step_ratio(self) -> float:
        """Optimizer steps of the schedule over those of the best constant batch [1]."""
        return float(self.schedule.outcome.steps / self.constant.outcome.steps)


@dataclasses.dataclass(frozen=True)
class ScheduleForm:
    """The form of the problem: logarithms of the micro-batches per replica at each knot, then the variables of `form`.

    Counted in micro-batches per replica, a schedule fits its layout as long as it stays above one. `tied` is 1 for a
    constant batch, that of the first knot, and 0 for a schedule: both are the same program.
    """

    form: Formulation
    knots: int

    @partial(jax.jit, static_argnums=0, inline=True)  # one trace of the model serves all its derivatives
    def __call__(
        self, point: Float[Array | np.ndarray, " n"], tied: Numeric, target: Criteria, run: TrainingRun
    ) -> Values:
        """Logarithms of the objective and of value over limit."""
        system, plan = self.at(point, tied, target, run)
        outcome = evaluate(system, plan)
        values = limited_values(system, plan, outcome)
        rows = [excess(name, values[name], target.limits[name]) for name in self.form.rows]
        powers = {name: target.powers[name] for name in self.form.objectives}
        return Values(log_objective(outcome, powers), jnp.stack(rows))

    def at(
        self, point: Float[Array | np.ndarray, " n"], tied: Numeric, target: Criteria, run: TrainingRun
    ) -> tuple[TrainingSystem, TrainingPlan]:
        """System and plan at a point, with the loss limit as goal."""
        knots, rest = point[: self.knots], point[self.knots :]
        system, plan = self.form.at(rest, run.plan.layout, target, run)
        micro_batches = jnp.exp(knots[0] + (1.0 - tied) * (knots - knots[0]))
        return system, eqx.tree_at(lambda plan: plan.batch, plan, micro_batches * least_batch(system, plan))


def adaptive_batch(
    scenario: Scenario,
    knots: int = 8,
    minimize: str = "energy",
    limits: Mapping[str, Any] | None = None,
    vary: Mapping[str, tuple[Any, Any]] | None = None,
    fix: Sequence[str] = HELD,
    method: Literal["first_order", "dense"] = "first_order",
) -> AdaptiveBatch:
    """Find the batch as a function of progress that minimizes the objective at the loss of the scenario's own plan.

    The layout stays. Logarithms of the batch at the knots are the variables, linear in progress between. The best
    constant batch is found within the same limits.

    **Arguments:**

    - `scenario`: with a constant batch.
    - `knots`: knots of the schedule, equally spaced in progress [1], at least 2.
    - `minimize`: `"energy"` [J], `"time"` [s], `"money"` [USD], `"carbon"` [kg] or `"etp"` [J s].
    - `limits`: as in `optimize`; unless given, loss, time and chips are those of the scenario's own plan.
    - `vary`: bounds of further variables by dotted path; those of `plan.batch` bound every knot [token].
    - `fix`: paths that keep the scenario's value; clock, chips and coolant unless given.
    - `method`: `"first_order"` for any number of knots, or the interior point of `minimize`, `"dense"`, which takes
      longer to compile and to run, for up to about 32 as a check.

    **Raises:** `InputError` for fewer than two knots, or a limit, path or objective that does not exist.
    """
    if knots < 2:
        raise InputError(f"adaptive_batch: {knots} knots make no schedule. Give at least 2.")
    with jax.enable_x64(True):
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        fix = [path for path in fix if path not in (vary or {})]
        problem = formulate(scenario.with_question(minimize, limits, vary, fix), baseline)
        if TOKENS in problem.formulation.paths:
            raise InputError("adaptive_batch: the loss is held; minimize energy, time, money or carbon.")
        form, solutions = _best_batches(problem, knots, method)
        return _adaptive_batch(scenario, problem, form, solutions)


def least_batch(system: TrainingSystem, plan: TrainingPlan) -> Float[Array, ""]:
    """The fewest micro-batches m of the schedule for every replica, `m d b s` [token] [Narayanan et al. 2021].

    Whole multiples of it are batches that the pipeline runs.
    """
    layout = plan.layout
    data = data_parallel_degree(plan.chips, layout.tensor, layout.pipeline, layout.context)
    return data * layout.fewest_microbatches * layout.microbatch * system.workload.sequence


def _best_batches(problem: DesignProblem, knots: int, method: str) -> tuple[ScheduleForm, list[Solution]]:
    """Best schedule of so many knots, and best constant batch."""
    run, target, bounds = problem.run, problem.criteria, problem.bounds
    paths = tuple(path for path in problem.formulation.paths if path != "plan.batch")
    others = dataclasses.replace(problem.formulation, paths=paths)
    smallest = float(least_batch(run.system, run.plan))
    own = float(np.reshape(run.plan.batch, ()))
    low, high = np.maximum(np.array(bounds.get("plan.batch", (own, own))) / smallest, 1.0)
    ranges = [others.coordinate(path, np.array(bounds[path])) for path in paths]
    sides = np.array([np.log([low, high])] * knots + ranges)
    values = [others.coordinate(path, run.number(path)) for path in paths]
    start = np.clip(np.array([np.log(own / smallest)] * knots + values), sides[:, 0], sides[:, 1])
    form = ScheduleForm(others, knots)
    lower, upper = np.stack([sides[:, 0]] * 2), np.stack([sides[:, 1]] * 2)
    lower[1, 1:knots] = upper[1, 1:knots] = start[0]  # the other knots of a constant batch say nothing
    tied = np.array([0.0, 1.0])
    if method == "first_order":
        each = [_first_order(form, start, (tied[i], target, run), (lower[i], upper[i])) for i in range(2)]
    else:
        both = minimize_many(
            form, np.stack([start] * 2), (tied,), shared=(target, run), bounds=(lower, upper), options=DENSE_OPTIONS
        )
        each = [jax.tree.map(lambda leaf, i=i: leaf[i], both) for i in range(2)]
    return form, _numpy(each)


def _minimize_first_order(form: ScheduleForm, start: Array, args: tuple, bounds: tuple[Array, Array]) -> Solution:
    return minimize_first_order(form, start, args=args, bounds=bounds)


_first_order = Compiled(_minimize_first_order, once=True)


def _adaptive_batch(
    scenario: Scenario, problem: DesignProblem, form: ScheduleForm, solutions: list[Solution]
) -> AdaptiveBatch:
    run, target, minimize = problem.run, problem.criteria, problem.minimize
    (system, plan), (other_system, constant_plan) = (
        _numpy(form.at(solution.x, tied, target, run)) for solution, tied in zip(solutions, (0.0, 1.0), strict=True)
    )
    constant_plan = eqx.tree_at(lambda plan: plan.batch, constant_plan, constant_plan.batch[:1])
    prices = [
        dict(zip(form.form.rows, map(float, solution.multipliers.inequalities), strict=True)) for solution in solutions
    ]
    binding = {name for by_name in prices for name, price in by_name.items() if abs(price) > LOWEST_PRICE}
    totals_only = {*parse_objective(minimize).names()} <= RUN_TOTALS and binding <= RUN_TOTALS | BATCH_FREE
    law = system.learning.critical_batch if isinstance(system.learning, CriticalBatchLearning) else None
    is_hyperbola = float(getattr(law, "sharpness", 1.0)) == 1.0 and not float(getattr(law, "small_batch_share", 0.0))
    ruled = totals_only and law is not None and is_hyperbola

    def plan_of(i: int, system: TrainingSystem, plan: TrainingPlan) -> BatchPlan:
        # All else as in the plan, the batch where the constant search ended.
        at = eqx.tree_at(lambda plan: plan.batch, plan, constant_plan.batch)
        outcome = _numpy(evaluate_once(system, plan))
        return BatchPlan(
            plan=plan,
            outcome=outcome,
            value=float(objective_value(outcome, minimize)),
            rule=_numpy(_closed_form(form, target, prices[i], system, at)) if ruled else None,
            prices=prices[i],
            success=bool(solutions[i].result == RESULTS.successful),
            message=RESULTS[solutions[i].result],
        )

    smallest = float(least_batch(system, plan))
    rounded = np.maximum(np.round(plan.batch / smallest), 1.0) * smallest
    rounded_plan = eqx.tree_at(lambda plan: plan.batch, plan, rounded)
    schedule, constant = plan_of(0, system, plan), plan_of(1, other_system, constant_plan)
    return AdaptiveBatch(scenario, schedule, constant, rounded_plan, _numpy(evaluate_once(system, rounded_plan)))


def _batch_rule(
    form: ScheduleForm, target: Criteria, prices: dict[str, Numeric], system: TrainingSystem, plan: TrainingPlan
) -> BatchRule:
    """The rule for the cost of a step at the plan's one batch, in the objective and the limits at their prices."""
    batch = jnp.reshape(plan.batch, ())
    ones = jnp.ones_like(batch)

    def run(batch: Array) -> TrainingOutcome:
        return evaluate(system, eqx.tree_at(lambda plan: plan.batch, plan, batch[None]))

    def step(batch: Array) -> Array:
        outcome = run(batch)
        return jnp.stack([outcome.energy.total, outcome.time]) / outcome.steps

    outcome = run(batch)
    totals = jnp.stack([outcome.energy.total, outcome.time])
    weights = jax.grad(lambda totals: _lagrangian(target, prices, system, plan, outcome, totals))(totals)
    cost, slope = jax.jvp(step, (batch,), (ones,))
    fixed = (weights @ cost) / (weights @ slope) - batch

    learning, parameters = learning_of(system, plan), parameters_in_loss(system)
    law = system.learning
    assert isinstance(law, CriticalBatchLearning)  # the caller asks for no other
    end = learning.effective_tokens(parameters, outcome.loss)
    x = end * np.linspace(0.0, 1.0, form.knots)
    # The law is that of all tokens seen, the progress that of this run.
    seen, loss = jnp.asarray(system.tokens_seen), learning.loss(parameters, x)
    critical = law.critical_batch.instantaneous(seen + x, loss)
    begun = seen > 0.0
    start = jnp.where(begun, seen, end)
    before = jnp.where(begun, start / law.critical_batch.run_level(start, loss[0]), 0.0)
    mean = end / ((seen + end) / law.critical_batch.run_level(seen + end, outcome.loss) - before)
    return BatchRule(fixed, best_batch(critical, fixed, 1.0), constant_batch(mean, fixed, 1.0))


_closed_form = Compiled(_batch_rule, once=True)


def _lagrangian(
    target: Criteria,
    prices: dict[str, Numeric],
    system: TrainingSystem,
    plan: TrainingPlan,
    outcome: TrainingOutcome,
    totals: Array,
) -> Array:
    """Logarithm of the objective, and of the limited quantities at their prices, of a run with such energy and time."""
    energy, time = totals
    chip, market = system.accelerator, system.market
    values = {
        "energy": energy,
        "time": time,
        "money": money_until(system, plan, outcome, time, energy),
        "carbon": market.carbon.operational(energy) + market.carbon.embodied(chip.embodied_carbon, plan.chips, time),
    }
    weights = {name: target.powers.get(name, 0.0) + prices.get(name, 0.0) for name in values}
    return sum((weights[name] * jnp.log(values[name]) for name in values), start=jnp.zeros_like(energy))


def _numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
