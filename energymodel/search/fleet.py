"""Groups of unlike devices that train one model together, and their best clocks, batch and shares of the work."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.errors import InputError, suggest
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.checks import check_ports
from energymodel.scenarios.document import FLEET
from energymodel.scenarios.layers import named_tables, with_bases
from energymodel.scenarios.question import Limits, Minimize
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.search.model_shape import around
from energymodel.search.problem import Criteria, DesignProblem, Formulation, excess
from energymodel.search.relaxation import solve_relaxed
from energymodel.solver import RESULTS, Solution, Values, result_is
from energymodel.system.evaluate import evaluate_once
from energymodel.system.fleet import FleetOutcome, Group, Groups, evaluate_fleet
from energymodel.system.outcome import Slack, TrainingOutcome
from energymodel.system.outputs import OF_THE_PLAN, log_objective, output, parse_number, parse_objective
from energymodel.system.plan import ParallelLayout, TargetLoss, TrainingPlan
from energymodel.system.plan_rules import microbatch_tokens, multiple_count

MOST = 8  # groups
PATHS = {key: f"system.{key}" for key in ("accelerator", "node", "network")}
PATHS |= {key: f"plan.{key}" for key in ("clock", "power_cap")}
KEYS = (*PATHS, "chips")
OF_OWN_DEVICES = ("plan.chips", "plan.clock", "plan.power_cap")
FORM = 'a further group such as "a100-sxm4-80gb 1024"'

_evaluate = Compiled(evaluate_fleet, once=True)
BATCH_RANGE = 16.0  # of the batch of the plan, on either side
MARGIN = 1e-6  # by which a plan may break a limit
START = 0.9  # of the range of clocks
SLACKS = [field.name for field in dataclasses.fields(Slack) if field.name != "information"]  # which no clock obeys


class FleetGroup(NamedTuple):
    """Like devices of a fleet: their name, the scenario in which they train alone, and the table that stated them."""

    name: str
    scenario: Scenario
    table: Mapping[str, Any]

    @property
    def replicas(self) -> float:
        """Whole replicas of the model that the group holds [1]."""
        layout = self.scenario.plan.layout
        return float(self.scenario.plan.chips) / float(layout.tensor * layout.pipeline * layout.context)


class Fleet(NamedTuple):
    """Groups of unlike devices; the first one is that of the scenario, and its question is asked of all."""

    groups: tuple[FleetGroup, ...]

    @property
    def main(self) -> Scenario:
        """Scenario of the first group."""
        return self.groups[0].scenario

    @property
    def pairs(self) -> tuple[Group, ...]:
        """System and plan of each group."""
        return tuple((group.scenario.system, group.scenario.plan) for group in self.groups)

    @property
    def microbatches(self) -> float:
        """Micro-batches of the mean replica in a step of the plan [1]."""
        tokens = sum(microbatch_tokens(system, plan) for system, plan in self.pairs)
        return float(np.reshape(self.main.plan.batch, ())) / tokens

    @property
    def named_tables(self) -> dict[str, Any]:
        """Name and tables of the scenario with those of the further groups; `load_fleet` reads them."""
        return {**self.main.named_tables, FLEET: {group.name: group.table for group in self.groups[1:]}}

    def evaluate_alone(self) -> TrainingOutcome:
        """Outcome of the first group without the others, in float64."""
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, evaluate_once(*self.pairs[0]))

    def evaluate(self, work: Groups | np.ndarray | None = None) -> FleetOutcome:
        """`system.fleet.evaluate_fleet`, compiled, in float64."""
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, _evaluate(self.pairs, work))

    def with_plans(self, plans: Sequence[TrainingPlan]) -> "Fleet":
        """The same groups with other plans."""
        pairs = zip(self.groups, plans, strict=True)
        return Fleet(
            tuple(group._replace(scenario=dataclasses.replace(group.scenario, plan=plan)) for group, plan in pairs)
        )


def load_fleet(
    source: str | Path | Mapping[str, Any],
    groups: Sequence[str] = (),
    changes: Sequence[str] | Mapping[str, Any] = (),
    cluster: str | Path | None = None,
) -> Fleet:
    """Read a scenario with further groups of devices, from its tables `[fleet.NAME]` and from texts.

    A table holds `accelerator` and `chips`, and may hold `node` and `network` (by default those that belong to the
    accelerator), `clock` and `power_cap` (the highest clock and the rated power). Everything else is that of the
    scenario: model, layout, batch, goal, software, building, prices.

    **Arguments:**

    - `source`, `changes`, `cluster`: as in `load_scenario`; changes are those of the scenario's own devices, and of
      all where they name neither accelerator nor node nor network.
    - `groups`: accelerator and number of chips, such as `"a100-sxm4-80gb 1024"`, and what else a table may hold:
      `"a100-sxm4-80gb 1024 network=infiniband-400g power_cap=350W"`.

    **Raises:** `InputError` for a group that cannot be, has no whole replicas, or one too many; for a batch or a clock
    that changes with progress.
    """
    name, tables = named_tables(source)
    tables = with_bases(tables, name)
    further = {key: dict(table) for key, table in tables.pop(FLEET, {}).items()}
    for text in groups:
        words = text.split()
        pairs = [(key, value) for key, _, value in (option.partition("=") for option in words[2:])]
        if len(words) < 2 or not all(key and value for key, value in pairs):
            raise InputError(f'fleet: "{text}" is not an accelerator and its number of chips. Give {FORM}.')
        names = [words[0], *(f"{words[0]}-{number}" for number in range(2, MOST + 2))]
        name_of_group = next(key for key in names if key not in further)
        further[name_of_group] = {"accelerator": words[0], "chips": words[1], **dict(pairs)}
    if not 0 < len(further) < MOST:
        raise InputError(f"fleet: {len(further)} further groups of devices. Give 1 to {MOST - 1}: --group with {FORM}.")
    main = load_scenario({"name": name, **tables}, changes, cluster)
    if main.plan.knots > 1:
        raise InputError("plan.batch: a fleet needs one value for the whole run. Give one number.")
    devices = tables.get("system", {}).get("accelerator")
    if not isinstance(devices, str):
        devices = str(main.tables["system"]["accelerator"].get("title", "own devices"))
    pairs = changes.items() if isinstance(changes, Mapping) else (change.partition("=")[::2] for change in changes)
    common = {path.strip(): value for path, value in pairs if path.strip() not in OF_OWN_DEVICES}
    plan = {key: value for key, value in tables.get("plan", {}).items() if key not in ("clock", "power_cap")}
    own = {"name": name, **tables, "plan": plan}
    fleet = Fleet((FleetGroup(devices, main, {}), *(_loaded(*of, own, common, cluster) for of in further.items())))
    chips = sum(float(group.scenario.plan.chips) for group in fleet.groups)
    for group in fleet.groups:
        check_ports(group.scenario.system, chips)
        if abs(group.replicas - round(group.replicas)) > 1e-9 or group.replicas < 1.0:
            raise InputError(
                f"fleet.{group.name}.chips: {float(group.scenario.plan.chips):g} chips are {group.replicas:g} "
                "replicas in the layout of the plan. Give a multiple of tensor times pipeline times context."
            )
    fewest = math.ceil(float(main.plan.layout.fewest_microbatches))
    if (each := fleet.microbatches) < fewest:
        raise InputError(
            f"plan.batch: {each:.4g} micro-batches for each replica of the fleet are fewer than {fewest}, which the "
            "schedule needs. Take a larger batch or fewer chips."
        )
    return fleet


def _loaded(
    name: str, table: Mapping[str, Any], source: Any, changes: Mapping[str, Any], cluster: str | Path | None
) -> FleetGroup:
    """A further group, as the scenario with its devices."""
    for key in table:
        if key not in KEYS:
            raise InputError(f'fleet.{name}: unknown key "{key}". {suggest(key, KEYS)}')
    for key in ("accelerator", "chips"):
        if key not in table:
            raise InputError(f"fleet.{name}: {key} is missing. A group has an accelerator and a number of chips.")
    devices = {path: table[key] for key, path in PATHS.items() if key in table}
    try:
        scenario = load_scenario(source, {**changes, **devices}, cluster)
    except InputError as error:
        raise InputError(f"fleet.{name}: {error}") from error
    chips = parse_number(table["chips"], "1", f"fleet.{name}.chips")
    if not (math.isfinite(chips) and chips >= 1.0):
        raise InputError(f"fleet.{name}.chips: {table['chips']} is not a number of chips. Give for example 1024.")
    plan = eqx.tree_at(lambda leaf: leaf.chips, scenario.plan, np.asarray(chips))
    return FleetGroup(name, dataclasses.replace(scenario, plan=plan), table)


class FleetOptimum(NamedTuple):
    """The best plan of a fleet, whole micro-batches for every replica, and what it is compared with.

    - `fleet`, `outcome`: groups with the clocks and the batch of the optimum, and what they yield.
    - `microbatches`: of a replica of each group in a step [1].
    - `own`: outcome of the fleet with the clocks and the batch of its plans, at the same loss; `even` of the optimum
      if every chip took the same share of a batch; `alone` that of the first group alone, with its own plan.
    - `minimize`, `limits` in SI, and `prices`: by how many percent the objective falls if a limit rises by one percent.
    - `success`: whether it is optimal and keeps its limits; else `message` says why not.
    """

    fleet: Fleet
    outcome: FleetOutcome
    microbatches: tuple[int, ...]
    own: FleetOutcome
    even: FleetOutcome
    alone: TrainingOutcome
    minimize: str
    limits: Mapping[str, float]
    prices: Mapping[str, float]
    success: bool
    message: str


def optimize_fleet(fleet: Fleet, minimize: Minimize | None = None, limits: Limits | None = None) -> FleetOptimum:
    """Clocks of all groups, batch and division of the work with the least energy, time or money, within limits.

    In the search the work is divided so that all groups end a step together. At its end every replica has whole
    micro-batches, and batch and clocks are found anew for the numbers around. Unless limits are given, loss and time
    are those of the fleet with its own plans. Limits of temperature, memory and so on hold for each group, those of the
    building for all together.

    **Arguments:**

    - `minimize`, `limits`: as in `optimize`; by default what the scenario asks.

    **Raises:** `InputError` for a limit that this search does not know, and for a loss that cannot be reached.
    """
    question = fleet.main.with_question(minimize, limits).optimize
    if unknown := [name for name in question.limits if name in OF_THE_PLAN]:
        raise InputError(f"limit {unknown[0]}: a fleet has it as given. Leave it out, or change the scenario.")
    if others := [*question.vary, *question.fix, *["plan.batch@0..1"] * bool(question.knots)]:
        raise InputError(
            f"optimize {others[0]}: a fleet varies its clocks, batch and shares of the work. Leave it out."
        )
    powers = dict(parse_objective(question.minimize).factors)
    if "loss" in powers:
        raise InputError("minimize loss: a fleet is searched at a given loss. Minimize energy, time, money or carbon.")
    with jax.enable_x64(True):
        aim = question.limits.get("loss", float(fleet.evaluate().job.loss))
        fleet = fleet.with_plans(
            [dataclasses.replace(plan, goal=TargetLoss(np.asarray(aim))) for _, plan in fleet.pairs]
        )
        # The fleet with its own clocks and a batch near its own: the fastest with whole micro-batches.
        clocks = np.log([float(plan.clock) for _, plan in fleet.pairs])
        ways = _whole_ways(fleet, np.asarray(fleet.evaluate().work))
        tried = [(_at(fleet, np.array([*clocks, *work, 0.0]))[1], counts) for counts, work in ways.items()]
        own, own_counts = min(tried, key=lambda pair: float(pair[0].job.time))
        held = {} if "time" in powers else {"time": float(own.job.time)}
        held |= {name: value for name, value in question.limits.items() if name != "loss"}
        problem = _problem(fleet, question.minimize, held, own)
        # The best of the whole micro-batches around those of the search, or of the plan, each with clocks of its own.
        relaxed = _searched(problem, fleet, np.log(own.work)[None], varies=True)
        ways = _whole_ways(fleet, np.exp(relaxed.x[0, len(clocks) : -1])) | {own_counts: ways[own_counts]}
        solution = _searched(problem, fleet, np.array([*ways.values()]), varies=False)
        ends = []
        for point in solution.x:
            moved, outcome = _at(fleet, point)
            excesses = {name: float(excess(name, output(outcome.job, name), limit)) for name, limit in held.items()}
            excesses |= {name: -float(getattr(outcome.job.slack, name)) for name in SLACKS}
            ends.append((moved, outcome, [name for name, more in excesses.items() if more > MARGIN]))
        order = [(len(broken), float(log_objective(outcome.job, powers))) for _, outcome, broken in ends]
        lane = min(range(len(ends)), key=order.__getitem__)
        best, outcome, broken = ends[lane]
        result = jax.tree.map(lambda leaf: leaf[lane], solution.result)
        optimal = bool(result_is(result, RESULTS.successful, RESULTS.rounded))
        prices = zip(sorted(held), np.asarray(solution.multipliers.inequalities)[lane], strict=False)
        return FleetOptimum(
            fleet=best,
            outcome=outcome,
            microbatches=list(ways)[lane],
            own=own,
            even=best.evaluate(np.ones(len(fleet.groups))),
            alone=fleet.evaluate_alone(),
            minimize=question.minimize,
            limits={"loss": aim, **held},
            prices={} if broken else {name: float(price) for name, price in prices},
            success=not broken and optimal,
            message=f"It does not keep {', '.join(broken)}." if broken else "" if optimal else str(RESULTS[result]),
        )


class FleetFormulation(Formulation):
    """Logarithms of clocks, of the batches of a chip over that of the plan, and of the step time without exchange.

    In place of a run are the groups with their own plans, and the time of a step of these without exchange, the unit of
    the search [s]. Rows are the limits, the slacks, and the own time of each group over that of a step, of which the
    last has no name, as that of the micro-batches has none elsewhere.
    """

    def values(self, point: Array | np.ndarray, layout: ParallelLayout, criteria: Criteria, run: Any) -> Values:
        """Objective and rows of the groups at a point, in the layout that they have."""
        groups, own_time = run
        plans, work = _plans_at(point, groups)
        time = own_time * jnp.exp(point[-1])
        outcome = evaluate_fleet([(system, plan) for (system, _), plan in zip(groups, plans, strict=True)], work, time)
        rows = [excess(name, output(outcome.job, name), criteria.limits[name]) for name in sorted(criteria.limits)]
        rows += [-getattr(outcome.job.slack, name) for name in SLACKS]
        rows = jnp.append(jnp.stack(rows), jnp.log(outcome.work_time / time))
        return Values(log_objective(outcome.job, criteria.powers), rows)


def _plans_at(point: Array | np.ndarray, groups: tuple[Group, ...]) -> tuple[list[TrainingPlan], Groups]:
    """Plans of the groups at a point, and the work of the groups."""
    clocks, batches = jnp.exp(jnp.reshape(jnp.asarray(point)[:-1], (2, -1)))
    chips = jnp.stack([jnp.asarray(plan.chips) for _, plan in groups])
    mean = jnp.sum(chips * batches) / jnp.sum(chips)
    plans = [
        eqx.tree_at(lambda leaf: (leaf.clock, leaf.batch), plan, (clock, jnp.asarray(plan.batch) * mean))
        for (_, plan), clock in zip(groups, clocks, strict=True)
    ]
    return plans, batches / mean


def _at(fleet: Fleet, point: np.ndarray) -> tuple[Fleet, FleetOutcome]:
    """The fleet at a point, and its outcome."""
    plans, work = _plans_at(point, fleet.pairs)
    fleet = fleet.with_plans([jax.tree.map(np.asarray, plan) for plan in plans])
    return fleet, fleet.evaluate(np.asarray(work))


def _problem(fleet: Fleet, minimize: str, limits: Mapping[str, float], own: FleetOutcome) -> DesignProblem:
    """The search as a problem; a replica has at least the micro-batches that its schedule needs."""
    fewest = math.ceil(float(fleet.main.plan.layout.fewest_microbatches)) / fleet.microbatches
    names = [group.name for group in fleet.groups]
    lowest = [float(system.accelerator.minimum_clock) for system, _ in fleet.pairs]
    bounds = {f"{name}.clock": (clock, 1.0) for name, clock in zip(names, lowest, strict=True)}
    bounds |= {f"{name}.batch": (fewest, BATCH_RANGE) for name in names} | {"time": (BATCH_RANGE**-2, BATCH_RANGE**2)}
    powers = dict(parse_objective(minimize).factors)
    formulation = FleetFormulation(tuple(bounds), tuple(powers), (*sorted(limits), *SLACKS, *names[:-1]))
    criteria = jax.tree.map(np.asarray, Criteria(powers, dict(limits)))
    run = cast(Any, (fleet.pairs, np.max(own.work_time)))
    return DesignProblem(formulation, run, criteria, minimize, limits, bounds)


def _searched(
    problem: DesignProblem, fleet: Fleet, batches: Float[np.ndarray, "lanes groups"], *, varies: bool
) -> Solution:
    """Best clocks and batches, or best clocks alone; a lane for each logarithm of the batches of a chip."""
    lower, upper = problem.boxes(len(batches))
    groups = batches.shape[1]
    if not varies:
        lower[:, groups:-1] = upper[:, groups:-1] = batches
    time = np.full((len(batches), 1), -math.log(START))
    start = np.clip(np.hstack([(1.0 - START) * lower[:, :groups], batches, time]), lower, upper)
    lanes = jax.tree.map(lambda leaf: np.full(len(batches), float(leaf)), fleet.main.plan.layout)
    return solve_relaxed(problem, lanes, start, bounds=(lower, upper))


def _whole_ways(fleet: Fleet, work: np.ndarray) -> dict[tuple[int, ...], np.ndarray]:
    """Whole micro-batches of a replica around a batch of a chip over the mean of the plan; its logarithm for each."""
    layout = fleet.main.plan.layout
    multiple = multiple_count(fleet.main.system, layout)
    fewest = multiple * math.ceil(float(layout.fewest_microbatches) / multiple)
    near = [{max(fewest, count) for count in around(float(exact), multiple)} for exact in work * fleet.microbatches]
    ways = itertools.product(*map(sorted, near))
    return {counts: np.log(np.array(counts) / fleet.microbatches) for counts in ways}
