"""What should one change or measure next? How outputs and the optimum respond to every number of a scenario."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from energymodel.compilation import concurrently
from energymodel.design import envelope
from energymodel.design.numbers import (
    LIMITS_OF_SYSTEM,
    UNITS,
    Numbers,
    check_outputs,
    evaluate_vectors,
    gradient,
    is_gain,
)
from energymodel.design.optimize import optimize
from energymodel.design.result import Optimum
from energymodel.design.steps import steps
from energymodel.presets.components import Provenance
from energymodel.presets.distributions import Distribution, distributions
from energymodel.presets.scenario import Scenario

SHARES = (0.05, 0.95)
"""Probabilities of the quantiles at which uncertain numbers are set."""
OF = ("energy", "time", "money", "carbon", "loss")
RESOLVED = 6  # uncertain numbers for which the optimum is searched again
MEASURE, CHANGE, FREE, GIVEN = "measure", "change", "free", "given"


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
class Row:
    """A number of the scenario and what follows from it.

    - `value`, `low`, `high`: in `unit`; its 5 % and 95 % quantiles, or for a decision the next values to choose.
    - `provenance`: kind (prior, measured, specification, derived, given), source.
    - `distribution`: what is known of it, `None` if the scenario says nothing.
    - `action`: `"change"` for a decision, `"measure"` for knowledge that is uncertain or a prior, `"free"` for a
      decision that the search has taken, `"given"` for the rest.
    - `effects`: by name of the output.
    - `breaks`: limits of the system that hold at the value, but not at `low` and at `high`.
    """

    path: str
    value: float
    provenance: Provenance
    distribution: Distribution | None
    action: str
    low: float | None
    high: float | None
    effects: Mapping[str, Effect]
    breaks: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    is_difference: bool = False
    """Whether a temperature is a difference, so that 5 K is not -268 °C."""

    @property
    def unit(self) -> str:
        """SI unit of the number."""
        return self.provenance.unit

    @property
    def is_uncertain(self) -> bool:
        """Whether `low` and `high` are quantiles."""
        return self.distribution is not None and not self.distribution.is_joint

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
class Limit:
    """A limit of the search: its value in `unit`, how the optimal value responds, and whether it is the scenario's own.

    `follows` marks a limit that nobody gave: it is that of the scenario's own plan or hardware and moves with it.
    """

    name: str
    value: float
    unit: str
    elasticity: float
    derivative: float
    follows: bool


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """How outputs respond to every number of a scenario; all numbers in SI, NumPy float64.

    `values` holds the outputs by name: those of the scenario's own plan, or the optimal value. `optimum` is the search
    that it belongs to, with its `limits`; `result` and `message` say whether it can be trusted.
    """

    scenario: Scenario
    values: Mapping[str, float]
    rows: tuple[Row, ...]
    optimum: Optimum | None = None
    limits: tuple[Limit, ...] = ()
    result: str = "successful"
    message: str = ""

    @property
    def units(self) -> dict[str, str]:
        """SI units of the outputs by name, in the order in which they were asked for."""
        return {name: self.optimum.value_unit if self.optimum else UNITS[name] for name in self.values}

    @property
    def success(self) -> bool:
        """Whether the numbers can be trusted."""
        return self.result == "successful"

    def by_uncertainty(self, output: str | None = None) -> list[Row]:
        """Uncertain numbers, the one whose uncertainty moves the output most first."""
        name = output or next(iter(self.values))
        rows = [row for row in self.rows if row.is_uncertain]
        return sorted(rows, key=lambda row: -row.size(name, self.values[name]))

    def by_elasticity(self, output: str | None = None) -> list[Row]:
        """All numbers, the one with the largest elasticity of the output first; those without an elasticity last."""
        name = output or next(iter(self.values))

        def key(row: Row) -> float:
            elasticity = row.effects[name].elasticity
            return math.inf if elasticity is None else -abs(elasticity)

        return sorted(self.rows, key=key)

    def by_step(self, output: str | None = None) -> list[Row]:
        """Decisions with another value to choose, the one whose next value improves the output most first."""
        name = output or next(iter(self.values))
        sign = -1.0 if is_gain(name) else 1.0
        rows = [row for row in self.rows if row.action == CHANGE and (row.low, row.high) != (None, None)]
        return sorted(rows, key=lambda row: min(sign * change for change in row.changes(name, self.values[name])))

    def shares(self, output: str | None = None) -> dict[str, float]:
        """Share of each uncertain number in the variance of an output, all independent, to first order [1]."""
        squares = self._squares(output)
        whole = sum(squares.values())
        return {path: square / whole if whole else 0.0 for path, square in squares.items()}

    def together(self, output: str | None = None) -> float:
        """Relative change of an output that all uncertain numbers together reach in either direction, with the
        probability of the quantiles: the root of the sum of squares, for independent numbers to first order [1].
        """
        return math.sqrt(sum(self._squares(output).values()))

    def _squares(self, output: str | None) -> dict[str, float]:
        """Square of the size of each uncertain number, where it is finite."""
        name = output or next(iter(self.values))
        sizes = {row.path: row.size(name, self.values[name]) for row in self.rows if row.is_uncertain}
        return {path: size * size for path, size in sizes.items() if math.isfinite(size)}


def sensitivity(
    scenario: Scenario,
    of: Sequence[str] = OF,
    *,
    optimum: bool = False,
    minimize: str | None = None,
    limits: Mapping[str, Any] | None = None,
    vary: Mapping[str, tuple[Any, Any]] | None = None,
    fix: Sequence[str] = (),
    resolve: int = RESOLVED,
    progress: Callable[[str], None] | None = None,
) -> Sensitivity:
    """How outputs, or the optimum, respond to every number of a scenario, and what its uncertainty does to them.

    For the plan as given, elasticities are exact derivatives and the outputs at the 5 % and 95 % quantiles of each
    uncertain number, one at a time, are exact. Numbers of a joint distribution are not varied alone.

    For the optimum, the derivative of the optimal value by each number is that of the Lagrangian at the relaxed
    optimum of the winning layout [envelope theorem]. It is the derivative of what `optimize` answers for the scenario:
    limits that are given stay, and those taken from the scenario (loss, time and chips of its own plan; power,
    temperature, memory and heat flux of its hardware) move with it. The optimum at the quantiles is that of the
    elasticity, `V (x / x0)^e`, and searched again in the same layout for the numbers with the largest effects.

    **Arguments:**

    - `scenario`: from `load_scenario`.
    - `of`: names of outputs in `energymodel.design.numbers.UNITS`, for the plan as given.
    - `optimum`: ask for the optimum instead; `minimize`, `limits`, `vary` and `fix` as in `optimize`.
    - `resolve`: uncertain numbers for which the optimum is searched again.
    - `progress`: called with a sentence at every stage.

    **Returns:** `Sensitivity`.

    **Raises:** `InputError` for an unknown output, a distribution that cannot be read, or as `optimize`.
    """
    names = check_outputs(tuple(of))
    numbers = Numbers(scenario.system, scenario.plan)
    known = distributions(scenario, numbers.values)
    tell = progress or (lambda sentence: None)
    with jax.enable_x64(True):
        if optimum:
            asked = {"minimize": minimize, "limits": limits, "vary": vary, "fix": fix}
            return _of_optimum(scenario, numbers, known, asked, resolve, tell)
        return _of_plan(scenario, numbers, known, names, tell)


def _of_plan(
    scenario: Scenario,
    numbers: Numbers,
    known: Mapping[str, Distribution],
    names: tuple[str, ...],
    tell: Callable[[str], None],
) -> Sensitivity:
    values, places = numbers.values, numbers.places()
    tell(f"differentiating {len(names)} outputs by {len(values)} numbers")
    varied = (*scenario.optimize.get("vary", {}),)
    actions = {path: _action(path, scenario.provenance[path], known.get(path), varied) for path in values}
    ends = {
        path: _quantiles(known.get(path), value)
        or (steps(scenario, numbers, path) if actions[path] == CHANGE else (None, None))
        for path, value in values.items()
    }
    moves = [(path, end) for path, pair in ends.items() for end in pair if end is not None]
    vectors = np.stack([numbers.vector, *(numbers.changed(path, end) for path, end in moves)])
    everything = (*names, *LIMITS_OF_SYSTEM)
    # Two programs: compiled side by side, then run.
    slopes, table = concurrently(
        lambda task: task(),
        [
            lambda: np.stack([gradient(numbers, {name: 1.0}) for name in names]),
            lambda: evaluate_vectors(numbers, everything, vectors),
        ],
    )
    own = dict(zip(everything, map(float, table[0]), strict=True))
    found = dict(zip(moves, table[1:], strict=True))
    rows = []
    for path, value in values.items():
        outputs = [None if end is None else found[path, end] for end in ends[path]]
        slope = slopes[:, places[path]] @ (numbers.vector[places[path]] / value if value else np.ones(1))
        effects = {}
        for i, name in enumerate(names):
            low, high = (None if output is None else float(output[i]) for output in outputs)
            derivative = float(slope[i])
            effects[name] = Effect(derivative, _elasticity(derivative, value, own[name]), low, high)
        broken = [
            tuple(
                name.removeprefix("slack.")
                for i, name in enumerate(LIMITS_OF_SYSTEM)
                if output is not None and output[len(names) + i] < 1.0 <= own[name]
            )
            for output in outputs
        ]
        row = Row(
            path=path,
            value=value,
            provenance=scenario.provenance[path],
            distribution=known.get(path),
            action=actions[path],
            low=ends[path][0],
            high=ends[path][1],
            effects=effects,
            breaks=(broken[0], broken[1]),
            is_difference=path in numbers.differences,
        )
        rows.append(row)
    return Sensitivity(scenario, {name: own[name] for name in names}, tuple(rows))


def _of_optimum(
    scenario: Scenario,
    numbers: Numbers,
    known: Mapping[str, Distribution],
    asked: Mapping[str, Any],
    resolve: int,
    tell: Callable[[str], None],
) -> Sensitivity:
    best = optimize(scenario, **asked, progress=tell)
    name = best.minimize
    if best.result not in ("successful", "not converged"):
        return Sensitivity(scenario, {name: best.value}, (), best, (), best.result, best.message)
    tell(f"differentiating the least {name} by {len(numbers.values)} numbers")
    found = envelope.differentiate(best, asked)
    if found.derivatives is None:
        return Sensitivity(scenario, {name: best.value}, (), best, (), "not converged", envelope.NOT_CONVERGED)
    varied = (*scenario.optimize.get("vary", {}), *(asked["vary"] or {}))
    rows = []
    for path, value in numbers.values.items():
        slope = found.derivatives[path]
        elasticity = _elasticity(slope, value, found.value)
        ends = _quantiles(known.get(path), value) or (None, None)
        moved = [None if end is None else _to_first_order(found.value, slope, elasticity, value, end) for end in ends]
        action = _action(path, scenario.provenance[path], known.get(path), varied)
        effect = Effect(slope, elasticity, moved[0], moved[1], exact=False)
        if path in found.free:
            action = FREE
        origin, unlike = scenario.provenance[path], path in numbers.differences
        row = Row(path, value, origin, known.get(path), action, *ends, {name: effect}, is_difference=unlike)
        rows.append(row)
    limits = tuple(
        Limit(limit, asked_for, UNITS[limit], elasticity, derivative, limit in found.following)
        for limit, (asked_for, elasticity, derivative) in found.limits.items()
    )
    answer = Sensitivity(scenario, {name: found.value}, tuple(rows), best, limits, best.result, best.message)
    return _resolved(answer, found, resolve, tell)


def _resolved(answer: Sensitivity, found: "envelope.Envelope", count: int, tell: Callable[[str], None]) -> Sensitivity:
    """The same with the optimum searched again at the quantiles of the numbers with the largest effects."""
    name = next(iter(answer.values))
    rows = {row.path: row for row in answer.rows}
    chosen = [row for row in answer.by_uncertainty()[:count] if row.size(name, answer.values[name]) > 0.0]
    for row in chosen:
        tell(f"searching again with {row.path} at both ends of its range")
        try:
            ends = [found.search(row.path, end) for end in (row.low, row.high) if end is not None]
        except KeyboardInterrupt:
            message = "Interrupted while searching again; the other effects are those of the elasticities."
            return dataclasses.replace(answer, rows=tuple(rows.values()), result="interrupted", message=message)
        effect = dataclasses.replace(row.effects[name], low=ends[0], high=ends[1], exact=True)
        rows[row.path] = dataclasses.replace(row, effects={name: effect})
    return dataclasses.replace(answer, rows=tuple(rows.values()))


def _quantiles(distribution: Distribution | None, value: float) -> tuple[float, float] | None:
    if distribution is None or distribution.is_joint:
        return None
    low, high = map(float, distribution.quantiles(value, SHARES))
    return low, high


def _elasticity(slope: float, number: float, output: float) -> float | None:
    return slope * number / output if number and output else None


def _to_first_order(output: float, slope: float, elasticity: float | None, value: float, end: float) -> float:
    """First order in logarithms where both are positive, else in the numbers themselves."""
    if elasticity is None or end / value <= 0.0:
        return output + slope * (end - value)
    return output * (end / value) ** elasticity


def _action(path: str, origin: Provenance, distribution: Distribution | None, varied: Sequence[str]) -> str:
    if distribution is not None:
        return MEASURE
    if path.startswith("plan.") or path in varied:
        return CHANGE
    return MEASURE if origin.is_prior else GIVEN
