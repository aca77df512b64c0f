"""Uncertainty of every output of a run, to first order in the uncertain numbers of its system.

Uncertain numbers x move an output y by its slopes `g = dy/dx`, so that its variance is `g^T C g`; C is the covariance
of the numbers: independent, but for those of a joint distribution [Taylor 1997, sec. 3.7]. With `C = S S^T`, the
variance is the sum of squares of the slopes along the columns of S, each one standard deviation long. The slopes are
differences of two evaluations with the program that evaluates the run itself: a hundred take less time than compiling
a derivative.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from energymodel.scenarios.clusters import as_fitted
from energymodel.scenarios.scenario import Scenario, distributions
from energymodel.search.training_run import SLOWDOWN, OutcomeChanges, TrainingRun, changes_along, in_float64
from energymodel.sweeps.draws import UncertainNumber, in_groups, joint_draws
from energymodel.system.outputs import AT_LEAST, OUTPUTS, output
from energymodel.system.plan import TrainingPlan
from energymodel.system.plausible import check_outcome

LEVEL = 0.9
"""Probability of the intervals that are printed."""
DEVIATIONS = float(ndtri(0.5 + 0.5 * LEVEL))  # half of such an interval of a normal distribution
DECADE = math.log(10.0)
_ONE_DEVIATION = ndtr(np.array([-1.0, 1.0]))
_SHARES = frozenset(name for name in AT_LEAST if OUTPUTS.get(name) == "1") - {"eei"}  # never above one


class Directions(NamedTuple):
    """Independent directions in which the uncertain numbers of a system move, each one standard deviation long.

    - `names`: the path of the number, "joint NAME", or "calibration KIND", that moves along each.
    - `steps`: the directions, as changes of the vector of a `TrainingRun`.
    - `is_prior`: by name, whether it was never measured.
    - `without`: priors whose scenario states no spread: they count as exact.
    """

    names: tuple[str, ...]
    steps: Float[np.ndarray, "directions n"]
    is_prior: Mapping[str, bool]
    without: int


class OutcomeSpread(OutcomeChanges):
    """An outcome, and how its outputs move along each of some `Directions`."""

    def deviation(self, objective: str) -> float:
        """Standard deviation of the logarithm of an output, or of a product of powers of outputs [1]."""
        return deviation(self.relative(objective))

    def interval(self, name: str) -> tuple[float, float]:
        """90 % interval of an output, log-normal; a share is at most one.

        Where it reaches over more than a decade in either direction, it is normal, above zero: the slope of what is
        almost zero, such as a wait that is nearly hidden, says nothing of its logarithm.
        """
        value, half = float(output(self.outcome, name)), DEVIATIONS * self.deviation(name)
        low, high = max(0.0, value * (1.0 - half)), value * (1.0 + half)
        if half < DECADE:
            low, high = value * math.exp(-half), value * math.exp(half)
        return low, min(high, max(1.0, value)) if name in _SHARES else high


def deviation(changes: Float[np.ndarray, " directions"]) -> float:
    """Standard deviation of what moves so along independent directions."""
    return float(np.sqrt(np.sum(np.square(changes))))


def outcome_spread(scenario: Scenario, plan: TrainingPlan | None = None) -> OutcomeSpread:
    """Uncertainty of the outputs of a plan, its own if none is given, by what the scenario says of its system."""
    with jax.enable_x64(True):
        run = in_float64(TrainingRun(scenario.system, scenario.plan if plan is None else plan))
        return spread_along(run, directions_of(scenario, run).steps)


def spreads_together(runs: Mapping[str, tuple[Scenario, TrainingPlan]]) -> dict[str, OutcomeSpread]:
    """Uncertainty of the outputs of several runs along the same directions, by name.

    What has one name and moves equally far in two of them is one number, such as a price; all else moves alone.
    """
    with jax.enable_x64(True):
        each = {name: in_float64(TrainingRun(scenario.system, plan)) for name, (scenario, plan) in runs.items()}
        moves: dict[str, dict[Any, np.ndarray]] = {}
        for name, (scenario, _) in runs.items():
            own = directions_of(scenario, each[name])
            moves[name] = {(of, *step[step != 0.0]): step for of, step in zip(own.names, own.steps, strict=True)}
        keys, spreads = dict.fromkeys(key for own in moves.values() for key in own), {}
        for name, run in each.items():
            still = np.zeros(run.vector.size)
            spreads[name] = spread_along(run, np.array([moves[name].get(key, still) for key in keys]))
    return spreads


def spread_along(run: TrainingRun, steps: Float[np.ndarray, "directions n"]) -> OutcomeSpread:
    """How the outputs of a run move along some directions, in the caller's precision."""
    spread = OutcomeSpread(*changes_along(run, steps))
    check_outcome(run.system, run.plan, spread.outcome)
    return spread


def directions_of(scenario: Scenario, run: TrainingRun) -> Directions:
    """The directions of the uncertain numbers of a system."""
    values, origins, columns = run.values, scenario.provenance, run.places
    system = {path for path in values if path.startswith("system.")}
    uncertain = {path: text for path, text in scenario.uncertainty.items() if path in system}
    numbers = {
        path: UncertainNumber(path, values[path], origins[path].unit, distribution)
        for path, distribution in distributions(dataclasses.replace(scenario, uncertainty=uncertain), values).items()
    }
    rows: list[tuple[str, Mapping[str, float], bool]] = []
    calibrated: set[str] = set()
    for kind, (paths, root) in _calibrated(scenario, values).items():
        calibrated.update(paths)
        scatter = {SLOWDOWN: values[SLOWDOWN] * scenario.tables["calibration"][kind]["scatter"]}
        moves = [*(dict(zip(paths, column, strict=True)) for column in root.T), scatter]
        rows += [(f"calibration {kind}", move, False) for move in moves]
    alone, groups = in_groups(number for path, number in numbers.items() if path not in calibrated)
    for number in alone:
        ends = number.distribution.quantiles(number.value, _ONE_DEVIATION)
        rows.append((number.path, {number.path: float(np.ptp(ends)) / 2.0}, origins[number.path].is_prior))
    for name, members in groups.items():
        paths = [member.path for member in members]
        prior = all(origins[path].is_prior for path in paths)
        variances, axes = np.linalg.eigh(joint_draws(name, members).covariance())
        moves = np.sqrt(np.maximum(0.0, variances))[:, None] * axes.T
        rows += [(f"joint {name}", dict(zip(paths, move, strict=True)), prior) for move in moves]
    steps = np.zeros((len(rows), run.vector.size))
    for step, (_, changes, _) in zip(steps, rows, strict=True):
        for path, change in changes.items():
            step[columns[path]] = change
    without = sum(origins[path].is_prior and path not in numbers for path in system)
    return Directions(tuple(name for name, *_ in rows), steps, {name: prior for name, _, prior in rows}, without)


def _calibrated(
    scenario: Scenario, values: Mapping[str, float]
) -> dict[str, tuple[list[str], Float[np.ndarray, "numbers numbers"]]]:
    """By kind of calibration that keeps values and slopes: the numbers, and a root of their covariance."""
    roots = {}
    for kind, table in scenario.tables.get("calibration", {}).items():
        if "slopes" in table:
            paths = [f"system.{name}" for name in table["names"]]
            root = np.linalg.cholesky(np.asarray(table["covariance"], np.float64))
            roots[kind] = (paths, (as_fitted(table, values) * np.asarray(table["slopes"]))[:, None] * root)
    return roots
