"""Responses of outputs and of the optimum to every number of a scenario."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.rendered import Rendered
from energymodel.scenarios.checks import COUNTS, check_plan
from energymodel.scenarios.components import Provenance
from energymodel.scenarios.distributions import NumberDistribution
from energymodel.scenarios.question import Limits, Minimize, Ranges
from energymodel.scenarios.scenario import Scenario, distributions
from energymodel.search.envelope import NOT_CONVERGED, Limit, differentiate
from energymodel.search.optimize import optimize
from energymodel.search.problem import check_plain
from energymodel.search.result import Optimum, SearchResult
from energymodel.search.training_run import LIMITS_OF_SYSTEM, UNITS, TrainingRun, expand, is_gain
from energymodel.system.plan_rules import microbatch_tokens, multiple_count

SHARES = (0.05, 0.95)
"""Probabilities of the quantiles at which uncertain numbers are set."""
OF = ("energy", "time", "money", "carbon", "loss")
RESOLVED = 6  # uncertain numbers for which the optimum is searched again
MEASURE, CHANGE, FREE, GIVEN = "measure", "change", "free", "given"
STEP = 0.1  # of a decision that may take any value
TEMPERATURE_STEP = 5.0  # K


@dataclasses.dataclass(frozen=True)
class Effect:
    """How one output responds to one number.

    - `derivative`: SI unit of the output per SI unit of the number.
    - `elasticity`: `d ln y / d ln x`, `None` where number or output is zero: the derivative stands alone.
    - `low`, `high`: the output with the number at its `low` and `high` value, `None` if it has none.
    - `exact`: whether those come from the model, not from the elasticity.
    """

    derivative: float
    elasticity: float | None
    low: float | None = None
    high: float | None = None
    exact: bool = True


@dataclasses.dataclass(frozen=True)
class NumberEffects:
    """A number of the scenario and what follows from it.

    - `value`, `low`, `high`: in `unit`; its 5 % and 95 % quantiles, or for a decision the next values to choose.
    - `provenance`: kind (prior, measured, specification, published, derived, definition, given), source.
    - `distribution`: what is known of it, `None` if the scenario says nothing.
    - `action`: `"change"` for a decision, `"measure"` for knowledge that is uncertain or a prior, `"free"` for a
      decision that the search has taken, `"given"` for the rest.
    - `effects`: by name of the output.
    - `breaks`: limits of the system that hold at the value, but not at `low` and at `high`.
    - `is_difference`: whether a temperature is a difference, so that 5 K is not -268 °C.
    """

    path: str
    value: float
    provenance: Provenance
    distribution: NumberDistribution | None
    action: str
    low: float | None
    high: float | None
    effects: Mapping[str, Effect]
    breaks: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    is_difference: bool = False

    @property
    def unit(self) -> str:
        """SI unit of the number."""
        return self.provenance.unit

    @property
    def is_uncertain(self) -> bool:
        """Whether `low` and `high` are quantiles."""
        return self.distribution is not None and self.distribution.has_quantiles

    def changes(self, output: str, value: float) -> tuple[float, float]:
        """Relative change of an output of this value at `low` and `high`, zero where there is none [1].

        Where the output is zero, the change is absolute.
        """
        effect, scale = self.effects[output], abs(value) or 1.0
        low, high = (0.0 if end is None else (end - value) / scale for end in (effect.low, effect.high))
        return low, high

    def size(self, output: str, value: float) -> float:
        """Root mean square of both changes of the output; infinite where the model has no answer."""
        low, high = self.changes(output, value)
        return math.hypot(low, high) / math.sqrt(2.0) if math.isfinite(low + high) else math.inf


@dataclasses.dataclass(frozen=True)
class Sensitivity(Rendered):
    """How outputs respond to every number of a scenario; all numbers in SI, NumPy float64.

    `values` holds the outputs by name: those of the scenario's own plan, or the optimal value. `optimum` is the search
    that it belongs to, with its `limits`; `result` and `message` say whether it can be trusted.
    """

    scenario: Scenario
    values: Mapping[str, float]
    rows: tuple[NumberEffects, ...]
    optimum: Optimum | None = None
    limits: tuple[Limit, ...] = ()
    result: SearchResult = SearchResult.successful
    message: str = ""

    @property
    def units(self) -> dict[str, str]:
        """SI units of the outputs by name, in the order in which they were asked for."""
        return {name: self.optimum.value_unit if self.optimum else UNITS[name] for name in self.values}

    @property
    def success(self) -> bool:
        """Whether the numbers can be trusted."""
        return self.result == SearchResult.successful

    @property
    def first(self) -> str:
        """The output that is meant where none is named."""
        return next(iter(self.values))

    def by_uncertainty(self, output: str | None = None) -> list[NumberEffects]:
        """Uncertain numbers, the one whose uncertainty moves the output most first."""
        sizes = self._sizes(output)
        return sorted((row for row in self.rows if row.is_uncertain), key=lambda row: -sizes[row.path])

    def by_elasticity(self, output: str | None = None) -> list[NumberEffects]:
        """All numbers, the one with the largest elasticity of the output first; those without an elasticity last."""
        name = output or self.first
        return sorted(self.rows, key=lambda row: math.inf if (e := row.effects[name].elasticity) is None else -abs(e))

    def by_step(self, output: str | None = None) -> list[NumberEffects]:
        """Decisions with another value to choose, the one whose next value improves the output most first."""
        name = output or self.first
        sign = -1.0 if is_gain(name) else 1.0
        rows = [row for row in self.rows if row.action == CHANGE and (row.low, row.high) != (None, None)]
        return sorted(rows, key=lambda row: min(sign * change for change in row.changes(name, self.values[name])))

    def shares(self, output: str | None = None) -> dict[str, float]:
        """Share of each uncertain number in the variance of an output, all independent, to first order [1]."""
        squares = {path: size * size for path, size in self._sizes(output).items() if math.isfinite(size)}
        total = sum(squares.values())
        return {path: square / total if total else 0.0 for path, square in squares.items()}

    def prior_share(self, output: str | None = None) -> float:
        """Share of priors in the variance of an output, as `shares`; zero if nothing uncertain moves it [1]."""
        shares = self.shares(output)
        return sum((shares.get(row.path, 0.0) for row in self.rows if row.provenance.is_prior), 0.0)

    def together(self, output: str | None = None) -> float:
        """Relative change of an output that all uncertain numbers together reach in either direction, with the
        probability of the quantiles: the root of the sum of squares, for independent numbers to first order [1].
        """
        return math.hypot(*filter(math.isfinite, self._sizes(output).values()))

    def _sizes(self, output: str | None) -> dict[str, float]:
        """Size of each uncertain number's effect."""
        name = output or self.first
        return {row.path: row.size(name, self.values[name]) for row in self.rows if row.is_uncertain}


def sensitivity(
    scenario: Scenario,
    of: Sequence[str] = OF,
    *,
    optimum: bool = False,
    minimize: Minimize | None = None,
    limits: Limits | None = None,
    vary: Ranges | None = None,
    fix: Sequence[str] = (),
    resolve: int = RESOLVED,
    progress: Callable[[str], None] | None = None,
) -> Sensitivity:
    """How outputs, or the optimum, respond to every number of a scenario, and what its uncertainty does to them.

    For the plan as given, elasticities are exact derivatives and the outputs at the 5 % and 95 % quantiles of each
    uncertain number, one at a time, are exact. Numbers of a joint distribution are varied alone if they are hardly
    correlated.

    For the optimum, the derivative of the optimal value by each number is that of the Lagrangian at the relaxed
    optimum of the winning layout [envelope theorem]. It is the derivative of what `optimize` answers for the scenario:
    limits that are given stay, and those taken from the scenario (loss, time and chips of its own plan; power,
    temperature, memory and heat flux of its hardware) move with it. The optimum at the quantiles is that of the
    elasticity, `V (x / x0)^e`, and searched again in the same layout for the numbers with the largest effects.

    **Arguments:**

    - `scenario`: from `load_scenario`.
    - `of`: names of outputs in `energymodel.search.training_run.UNITS`, for the plan as given.
    - `optimum`: ask for the optimum instead; `minimize`, `limits`, `vary` and `fix` as in `optimize`.
    - `resolve`: uncertain numbers for which the optimum is searched again.
    - `progress`: called with a sentence at every stage.

    **Returns:** `Sensitivity`.

    **Raises:** `InputError` for an unknown output, a distribution that cannot be read, or as `optimize`.
    """
    names = tuple(dict.fromkeys(of))
    if not names:
        raise InputError('of: no output is named. Name one, such as "energy".')
    for name in names:
        if name not in UNITS:
            raise InputError(f'Unknown output "{name}". {suggest(name, UNITS)}')
    tell = progress or (lambda sentence: None)
    if optimum:
        scenario = scenario.with_question(minimize, limits, vary, fix)
    elif minimize or limits or vary or fix:
        raise InputError("sensitivity: minimize, limits, vary and fix are about the optimum: set optimum=True.")
    with jax.enable_x64(True):
        uncertain = distributions(scenario, TrainingRun(scenario.system, scenario.plan).values)
        if optimum:
            return _of_optimum(scenario, uncertain, resolve, tell)
        return _of_plan(scenario, uncertain, names, tell)


def _of_plan(
    scenario: Scenario, uncertain: Mapping[str, NumberDistribution], names: tuple[str, ...], tell: Callable[[str], None]
) -> Sensitivity:
    run = TrainingRun(scenario.system, scenario.plan)
    values, places, differences = run.values, run.places, run.differences
    tell(f"differentiating {len(names)} outputs by {len(values)} numbers")
    actions = {path: _action(path, scenario, uncertain.get(path)) for path in values}
    ends = {
        path: _quantiles(uncertain.get(path), value)
        or (next_values(scenario, path) if actions[path] == CHANGE else (None, None))
        for path, value in values.items()
    }
    moves = [(path, end) for path, pair in ends.items() for end in pair if end is not None]
    vectors = np.stack([run.vector, *(run.changed(path, end) for path, end in moves)])
    everything = (*names, *LIMITS_OF_SYSTEM)
    table, slopes = expand(run, everything, vectors)
    own = dict(zip(everything, map(float, table[0]), strict=True))
    outputs = dict(zip(moves, table[1:], strict=True))

    def broken(end: np.ndarray | None) -> tuple[str, ...]:
        """Limits that hold at the value of a number but not at this end."""
        slacks = () if end is None else end[len(names) :]
        limits = zip(LIMITS_OF_SYSTEM, slacks, strict=end is not None)
        return tuple(name.removeprefix("slack.") for name, slack in limits if slack < 1.0 <= own[name])

    rows = []
    for path, value in values.items():
        low, high = (None if end is None else outputs[path, end] for end in ends[path])
        slope = slopes[:, places[path]] @ (run.vector[places[path]] / value if value else np.ones(1))
        effects = {
            name: Effect(
                derivative=float(slope[i]),
                elasticity=_elasticity(float(slope[i]), value, own[name]),
                low=None if low is None else float(low[i]),
                high=None if high is None else float(high[i]),
            )
            for i, name in enumerate(names)
        }
        origin = scenario.provenance[path], uncertain.get(path), actions[path]
        breaks = broken(low), broken(high)
        rows.append(NumberEffects(path, value, *origin, *ends[path], effects, breaks, path in differences))
    return Sensitivity(scenario, {name: own[name] for name in names}, tuple(rows))


def _of_optimum(
    scenario: Scenario, uncertain: Mapping[str, NumberDistribution], resolve: int, tell: Callable[[str], None]
) -> Sensitivity:
    check_plain(scenario)
    run = TrainingRun(scenario.system, scenario.plan)
    best = optimize(scenario, progress=tell, tolerance=0.0)  # derivatives are those of the exact optimum
    name = best.minimize
    if best.result not in (SearchResult.successful, SearchResult.not_converged):
        return Sensitivity(scenario, {name: best.value}, (), best, (), best.result, best.message)
    tell(f"differentiating the lowest {name} by {len(run.values)} numbers")
    around = differentiate(best)
    if around.derivatives is None:
        return Sensitivity(scenario, {name: best.value}, (), best, (), SearchResult.not_converged, NOT_CONVERGED)
    rows, differences = [], run.differences
    for path, value in run.values.items():
        slope, distribution = around.derivatives[path], uncertain.get(path)
        elasticity = _elasticity(slope, value, around.value)
        ends = _quantiles(distribution, value) or (None, None)
        low, high = (
            None
            if end is None
            else around.value + slope * (end - value)
            if elasticity is None or end / value <= 0.0
            else around.value * (end / value) ** elasticity  # to first order in logarithms
            for end in ends
        )
        effects = {name: Effect(slope, elasticity, low, high, exact=False)}
        action = FREE if path in around.free else _action(path, scenario, distribution)
        origin, difference = scenario.provenance[path], path in differences
        rows.append(NumberEffects(path, value, origin, distribution, action, *ends, effects, is_difference=difference))
    answer = Sensitivity(scenario, {name: around.value}, tuple(rows), best, around.limits, best.result, best.message)
    # The optimum is searched again at the quantiles of the numbers with the largest effects.
    rows = {row.path: row for row in answer.rows}
    for row in [row for row in answer.by_uncertainty()[:resolve] if row.size(name, around.value) > 0.0]:
        tell(f"searching again with {row.path} at both ends of its range")
        try:
            ends = [around.search(row.path, end) for end in (row.low, row.high) if end is not None]
        except KeyboardInterrupt:
            message = "Interrupted while searching again; the other effects are those of the elasticities."
            answer = dataclasses.replace(answer, result=SearchResult.interrupted, message=message)
            break
        effect = dataclasses.replace(row.effects[name], low=ends[0], high=ends[1], exact=True)
        rows[row.path] = dataclasses.replace(row, effects={name: effect})
    return dataclasses.replace(answer, rows=tuple(rows.values()))


def _quantiles(distribution: NumberDistribution | None, value: float) -> tuple[float, float] | None:
    if distribution is None or not distribution.has_quantiles:
        return None
    low, high = map(float, distribution.quantiles(value, SHARES))
    return low, high


def _elasticity(slope: float, number: float, output: float) -> float | None:
    return slope * number / output if number and output else None


def _action(path: str, scenario: Scenario, distribution: NumberDistribution | None) -> str:
    if distribution is not None and not scenario.provenance[path].is_definition:
        return MEASURE
    if path.startswith("plan.") or path in scenario.optimize.vary:
        return CHANGE
    return MEASURE if scenario.provenance[path].is_prior else GIVEN


def next_values(scenario: Scenario, path: str) -> tuple[float | None, float | None]:
    """The next lower and the next higher value of a decision with which the plan can still be run, in SI.

    Degrees of parallelism halve and double, switches turn, chips and batch change by a tenth in whole replicas and
    micro-batches as the schedule takes them, temperatures by 5 K, all else by a tenth; the clock stays within what the
    chip allows.
    """
    run, name = TrainingRun(scenario.system, scenario.plan), path.rpartition(".")[2]
    value, system, plan = run.values[path], run.system, run.plan
    group = float(plan.layout.tensor * plan.layout.pipeline * plan.layout.context)
    lower, higher = value * (1.0 - STEP), value * (1.0 + STEP)
    if path.startswith("plan.layout."):
        lower, higher = (value / 2.0, value * 2.0) if name in COUNTS else (0.0, 1.0)
    elif path in ("plan.chips", "plan.batch"):
        unit = group if name == "chips" else microbatch_tokens(system, plan) * multiple_count(system, plan.layout)
        lower, higher = unit * math.floor(lower / unit), unit * math.ceil(higher / unit)
    elif path == "plan.clock":
        lower, higher = max(lower, float(system.accelerator.minimum_clock)), min(higher, 1.0)
    elif scenario.provenance[path].unit == "K":
        lower, higher = value - TEMPERATURE_STEP, value + TEMPERATURE_STEP

    def can_run(end: float) -> bool:
        if (end <= 0.0 and not path.startswith("plan.layout.")) or math.isclose(end, value, rel_tol=1e-9):
            return False
        changed = run.at(run.changed(path, end))
        try:
            check_plan(changed.system, changed.plan)
        except InputError:
            return False
        return True

    lower, higher = (end if can_run(end) else None for end in (lower, higher))
    return lower, higher
