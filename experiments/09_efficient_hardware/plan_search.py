"""The best plan and hardware together at each step towards the bound, over all layouts."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hardware import TODAY, Choice, Technology, build, todays_choice
from jaxtyping import Array

import energymodel as em
from energymodel.runtime.compilation import compiler_options, concurrently
from energymodel.scenarios.scenario import Scenario
from energymodel.search.layouts import chips_per_replica, fits, take
from energymodel.search.problem import Criteria, DesignProblem, Formulation, formulate
from energymodel.search.training_run import TrainingRun
from energymodel.solver.minimize import RESULTS, SolverOptions, Values
from energymodel.solver.minimize_many import minimize_many
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import candidates
from energymodel.system.outcome import TrainingOutcome

MULTIPLES = (TODAY, 1e8, 3e7, 1e7, 3e6, 1e6, 1e5, 1e4, 1e3, 3e2, 1e2)  # k_B T ln 2 per operation
WORLDS = ("logic", "all")  # what gets better
AIMS = ("etp", "energy")  # energy times time; energy within the time that the run takes today
SUPPLY = "system.facility.power_supply.rated_power"
PLAN = ("plan.batch", "plan.coolant_temperature", "plan.chips", "system.facility.cooling.loop.flow", SUPPLY)
BOUNDS = {
    "plan.batch": (2.0**18, 2.0**31),  # token
    "plan.coolant_temperature": (283.15, 313.15),  # K, up to that of class W40
    "plan.chips": (8.0, 16384.0),
    "system.facility.cooling.loop.flow": (0.2, 3.0),
    SUPPLY: (0.01, 4000.0),  # W
    "voltage": (0.15, 1.0),  # V
    "size": (1e-6, 1.0),
    "cache": (2.0**20, 1.5e9),  # B
    "inner_lanes": (0.01, 200.0),
    "outer_lanes": (0.01, 200.0),
}
FAR = 1e10  # s: no limit of the time
COARSE = {"plan.chips": (512.0, 2048.0, 16384.0), "voltage": (0.5, 1.0), "size": (0.01, 1.0)}
FINE = {
    "plan.batch": (1.2e7, 2.4e7, 5e7),
    "plan.chips": (512.0, 2048.0, 16384.0),
    "voltage": (0.4, 1.0),
    "size": (1e-3, 0.05, 1.0),
}
COARSE_MULTIPLES = (0, 5, 10)
KEPT, SEARCHED = 80, 6  # layouts that a step passes on to the second screening, and to the search
PASSES = 2  # searches from the optima of the neighbors
CHUNK = 1024
VIOLATION_PRICE = 10.0  # of a screening; a limit may be worth more, so that what is kept must obey them all
BROKEN = 1e-5  # violation of all limits in the logarithm that counts as none
NEARBY, ROUNDS, ELITE = 1024, 48, 64  # random points about an optimum, how often, and how many shape the next round
WIDEST, SMALLEST_STEP = 0.03, 1e-6  # of the steps in the logarithm
OPTIONS = SolverOptions(hessian="differences", max_iterations=150)


class Step(NamedTuple):
    """One problem: what is aimed at, what gets better, and how near the bound it is."""

    aim: str
    world: str
    multiple: float

    @property
    def technology(self) -> Technology:
        """The hardware of the step."""
        factor, everything = TODAY / self.multiple, float(self.world == "all")
        return Technology(np.asarray(factor), np.asarray(factor**everything), np.asarray(everything))


STEPS = tuple(Step(aim, world, multiple) for aim in AIMS for world in WORLDS for multiple in MULTIPLES)


@dataclasses.dataclass(frozen=True)
class Design:
    """Objective and limits of a plan together with the hardware that it runs on; the choices come last in a point."""

    form: Formulation

    def __call__(self, point: Array, layout: Any, target: Criteria, technology: Technology, run: TrainingRun) -> Values:
        """Logarithms of the objective and of each output over its limit."""
        plan, system = self.parts(point, technology, run)
        return self.form.values(plan, layout, target, TrainingRun(system, run.plan))

    def system_and_plan(
        self, point: Array, layout: Any, target: Criteria, technology: Technology, run: TrainingRun
    ) -> Any:
        """System and training plan of a point."""
        plan, system = self.parts(point, technology, run)
        return self.form.at(plan, layout, target, TrainingRun(system, run.plan))

    def parts(self, point: Array, technology: Technology, run: TrainingRun) -> tuple[Array, Any]:
        """The plan's share of a point, and the system that its choices make; one variable rates both supplies."""
        plan, chosen = point[: len(PLAN)], jnp.exp(point[len(PLAN) :])
        system = build(run.system, technology, Choice(*chosen))
        ratio = system.facility.uninterruptible.rated_power / system.facility.power_supply.rated_power
        rating = ratio * jnp.exp(plan[PLAN.index(SUPPLY)])
        return plan, eqx.tree_at(lambda system: system.facility.uninterruptible.rated_power, system, rating)


@dataclasses.dataclass(frozen=True)
class Question:
    """The problem of all steps: scenario, today's outcome, and the layouts that come into question."""

    scenario: Scenario
    today: TrainingOutcome
    problem: DesignProblem
    design: Design

    def target(self, step: Step) -> Criteria:
        """What a step minimizes, and its limits."""
        own = self.problem.criteria
        energy_alone = step.aim == "energy"
        powers = {name: np.asarray(0.0) for name in own.powers}
        powers |= {"energy": np.asarray(1.0), "time": np.asarray(0.0 if energy_alone else 1.0)}
        time = np.asarray(self.today.time if energy_alone else FAR, np.float64)
        return Criteria(powers, {**own.limits, "time": time})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates of a point."""
        return (*self.problem.formulation.paths, *(field.name for field in dataclasses.fields(Choice)))

    @property
    def box(self) -> np.ndarray:
        """Logarithms of the bounds."""
        return np.log(np.array([BOUNDS[name] for name in self.names])).T


def question() -> Question:
    """The published run of Llama 3.1 405B, cooled by water, to its own loss, at a site of 25 MW."""
    changes = {
        "system.facility": "direct-liquid",
        "system.facility.power_limit": "25 MW",
        "system.other_stages": "0",
        "plan.power_cap": "1200 W",
        "system.accelerator.rated_power": "1200 W",
    }
    scenario = em.load_scenario("llama-3.1-405b-h100", changes)
    today = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
    limits = {"chips": BOUNDS["plan.chips"][1], "time": FAR}
    scenario = scenario.with_question("etp", limits, {path: BOUNDS[path] for path in PLAN}, ["plan.clock"])
    problem = formulate(scenario, today)
    return Question(scenario, today, problem, Design(problem.formulation))


class Found(NamedTuple):
    """The best lane of each step: its layout, its point, and how the solver ended."""

    layout: list[int]
    x: np.ndarray
    value: np.ndarray
    multipliers: np.ndarray
    solved: np.ndarray


def search(asked: Question) -> tuple[Any, Found]:
    """Relaxed optima of all steps, and the lattice of layouts that they refer to.

    All layouts that fit are screened on a coarse grid at a few steps, those kept on a finer grid at every step; the
    best are searched together, and again from the optima of the neighboring steps.
    """
    problem = asked.problem
    lattice = candidates(problem.run.system, problem.run.plan.layout, BOUNDS["plan.chips"][1])
    lattice = take(lattice, np.flatnonzero(fits(problem, lattice, BOUNDS["plan.chips"][1])))
    looked = [step for step in STEPS if step.multiple in [MULTIPLES[index] for index in COARSE_MULTIPLES]]
    best_indices = [np.argsort(screen(asked, lattice, step, COARSE)[1], kind="stable")[:KEPT] for step in looked]
    fitting = len(lattice.tensor)
    lattice = take(lattice, np.unique(np.concatenate(best_indices)))
    print(f"{fitting} layouts fit, {len(lattice.tensor)} are screened at every step", flush=True)
    lanes = []
    for index, step in enumerate(STEPS):
        start, merit = screen(asked, lattice, step, FINE)
        lanes += [(index, int(layout), start[layout]) for layout in np.argsort(merit, kind="stable")[:SEARCHED]]
    result = _solve(asked, lattice, lanes)
    for _ in range(PASSES):
        again = [
            (index, result.layout[other], result.x[other])
            for index, step in enumerate(STEPS)
            for other in (index - 1, index, index + 1)
            if 0 <= other < len(STEPS) and STEPS[other][:2] == step[:2]
        ]
        result = _better(result, _solve(asked, lattice, again))
    return lattice, result


def grid(asked: Question, axes: Mapping[str, Sequence[float]]) -> np.ndarray:
    """Points of a screening, in logarithms; what has no axis is as today."""
    now = todays_choice(asked.problem.run.system)
    sides = []
    for name, low, high in zip(asked.names, *asked.box, strict=True):
        own = asked.problem.start(name) if name in PLAN else float(getattr(now, name))
        sides.append(np.clip(np.log(np.array(axes.get(name, (own,)))), low, high))
    return np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, len(sides))


@eqx.filter_jit(compiler_options=compiler_options())  # pyright: ignore[reportCallIssue]
def merits(
    design: Design,
    points: Array,
    layouts: Any,
    target: Criteria,
    made: Technology,
    run: TrainingRun,
    tolerated: float | Array,
) -> Array:
    """Objective with a price on violations, for pairs of point and layout; infinite beyond what is tolerated."""

    def merit_of(point: Array, layout: Any) -> Array:
        values = design(point, layout, target, made, run)
        broken = jnp.sum(jnp.maximum(values.inequalities, 0.0))
        merit = jnp.where(broken > tolerated, jnp.inf, values.objective + VIOLATION_PRICE * broken)
        return jnp.where(jnp.isfinite(merit), merit, jnp.inf)

    return jax.vmap(merit_of)(points, layouts)


def merits_of(
    asked: Question, points: np.ndarray, lattice: Any, owner: np.ndarray, step: Step, tolerated: float = math.inf
) -> np.ndarray:
    """Merits of points, each in the layout at its place, in chunks of one compiled size.

    Points that break all limits together by more than `tolerated`, in the logarithm, are infinitely bad.
    """

    def chunk(first: int) -> np.ndarray:
        index = np.minimum(np.arange(first, first + CHUNK), len(points) - 1)
        layouts = take(lattice, owner[index])
        target, made = asked.target(step), step.technology
        run = asked.problem.run
        return np.asarray(
            merits(asked.design, jnp.asarray(points[index]), layouts, target, made, run, jnp.asarray(tolerated))
        )

    return np.concatenate(concurrently(chunk, range(0, len(points), CHUNK)))[: len(points)]


def screen(
    asked: Question, lattice: Any, step: Step, axes: Mapping[str, Sequence[float]]
) -> tuple[np.ndarray, np.ndarray]:
    """The best point of a grid for each layout, and its merit."""
    points, least = grid(asked, axes), np.log(chips_per_replica(lattice))
    owner = np.repeat(np.arange(len(least)), len(points))
    each = np.tile(points, (len(least), 1))
    chips_index = asked.names.index("plan.chips")
    each[:, chips_index] = np.maximum(each[:, chips_index], least[owner])
    merit = merits_of(asked, each, lattice, owner, step).reshape(len(least), len(points))
    best = np.argmin(merit, axis=1)
    row = np.arange(len(least))
    return each.reshape(len(least), len(points), -1)[row, best], merit[row, best]


def _solve(asked: Question, lattice: Any, lanes: Sequence[tuple[int, int, np.ndarray]]) -> Found:
    """Search lanes of (step, layout, start) together; the best lane of each step."""
    index, layout, start = (np.array(column) for column in zip(*lanes, strict=True))
    layouts = take(lattice, layout)
    least, most = (np.tile(side, (len(start), 1)) for side in asked.box)
    chips_index = asked.names.index("plan.chips")
    least[:, chips_index] = np.maximum(least[:, chips_index], np.log(chips_per_replica(layouts)))
    targets, made = (
        jax.tree.map(lambda *leaves: np.array(leaves)[index], *each)
        for each in ([asked.target(step) for step in STEPS], [step.technology for step in STEPS])
    )
    solution = minimize_many(
        asked.design,
        np.clip(start, least, most),
        (layouts, targets, made),
        shared=(asked.problem.run,),
        bounds=(least, most),
        options=OPTIONS,
    )
    broken = np.sum(np.maximum(-solution.slacks.inequalities, 0.0), axis=-1)
    value = np.where(np.isfinite(solution.value) & (broken < BROKEN), solution.value, np.inf)
    best = [int(np.flatnonzero(index == step)[np.argmin(value[index == step])]) for step in range(len(STEPS))]
    solved = np.asarray(solution.result == RESULTS.successful)
    multipliers = np.asarray(solution.multipliers.inequalities)
    return Found([int(layout[lane]) for lane in best], solution.x[best], value[best], multipliers[best], solved[best])


def _better(first: Found, other: Found) -> Found:
    """The better of two at each step; of equally good ones the one whose optimality the solver shows."""
    change = other.value < first.value - np.where(other.solved, -1e-9, 1e-9)
    layout = [b if c else a for a, b, c in zip(first.layout, other.layout, change, strict=True)]
    arrays = (
        np.where(change.reshape(-1, *[1] * (a.ndim - 1)), b, a) for a, b in zip(first[1:], other[1:], strict=True)
    )
    return Found(layout, *arrays)


def polished(asked: Question, lattice: Any, optimum: Found) -> tuple[Found, np.ndarray]:
    """Better points about each optimum within the limits, and by how much a random neighbor still beats them [1].

    Where gradient communication is just hidden, the objective has a kink that runs askew to the coordinates, and the
    solver stops on its flank. Each round draws normal steps from the spread of the best of the round before, so that
    they line up with the kink [estimation of distribution: Larranaga & Lozano 2002]. What breaks a limit is no better.
    """
    rng = np.random.default_rng(0)
    high, chips_index = asked.box[1], asked.names.index("plan.chips")
    x, gains = optimum.x.copy(), []
    replica = np.log(chips_per_replica(take(lattice, np.array(optimum.layout))))
    for index, step in enumerate(STEPS):
        owner = np.full(NEARBY, optimum.layout[index])
        low = asked.box[0].copy()
        low[chips_index] = max(low[chips_index], replica[index])

        def merit_of(points: np.ndarray, owner: np.ndarray = owner, step: Step = step) -> np.ndarray:
            return merits_of(asked, points, lattice, owner[: len(points)], step, BROKEN)

        value = merit_of(x[index][None])[0]
        spread = WIDEST * np.eye(x.shape[1])
        for _ in range(ROUNDS):
            steps = rng.standard_normal((NEARBY, x.shape[1])) @ spread
            steps *= 10.0 ** rng.uniform(-1.0, 0.0, (NEARBY, 1))
            points = np.clip(x[index] + steps, low, high)
            merit = merit_of(points)
            elite = points[np.argsort(merit, kind="stable")[:ELITE]] - x[index]
            if np.min(merit) < value:
                x[index], value = points[np.argmin(merit)], np.min(merit)
            moments = elite.T @ elite / ELITE + np.diag(np.full(x.shape[1], SMALLEST_STEP**2))
            spread = np.linalg.cholesky(moments).T
        widths = np.geomspace(0.1, 1e-4, NEARBY)[:, None]
        nearby = merit_of(np.clip(x[index] + widths * rng.standard_normal((NEARBY, x.shape[1])), low, high))
        gains.append(max(0.0, value - np.min(nearby)))
    return optimum._replace(x=x), np.expm1(np.array(gains))
