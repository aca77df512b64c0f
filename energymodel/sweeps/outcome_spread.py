"""How uncertain is every output of a run, to first order in the uncertain numbers of its system?

Uncertain numbers x move an output y by its slopes `g = dy/dx`, so that its variance is `g^T C g`; C is the covariance
of the numbers: independent, but for those of a joint distribution [Taylor 1997, sec. 3.7]. With `C = S S^T`, the
variance is the sum of squares of the slopes along the columns of S, each one standard deviation long. The slopes are
differences of two evaluations with the program that evaluates the run itself: a hundred take less time than compiling
a derivative.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from energymodel.scenarios.distributions import NumberDistribution
from energymodel.scenarios.scenario import Scenario
from energymodel.scenarios.uncertain_numbers import distributions
from energymodel.search.training_run import OutcomeChanges, TrainingRun, changes_along
from energymodel.sweeps.draws import UncertainNumber, joint_draws
from energymodel.system.outputs import AT_LEAST, OUTPUTS, output
from energymodel.system.plan import TrainingPlan
from energymodel.system.plausible import check_outcome

LEVEL = 0.9
"""Probability of the intervals that are printed."""
DEVIATIONS = float(ndtri(0.5 + 0.5 * LEVEL))  # half of such an interval of a normal distribution
DECADE = math.log(10.0)
SLOWDOWN = "system.production_slowdown"
SAME = 1e-4  # relative difference of a number that nobody changed
_ONE_DEVIATION = ndtr(np.array([-1.0, 1.0]))
_SHARES = frozenset(name for name in AT_LEAST if OUTPUTS.get(name) == "1") - {"eei"}  # never above one


class Directions(NamedTuple):
    """Independent directions in which the uncertain numbers of a system move, each one standard deviation long.

    - `names`: the path of the number, "joint NAME", or "calibration KIND", that moves along each.
    - `steps`: the directions, as changes of the vector of a `TrainingRun`.
    - `is_prior`: by name, whether nobody measured it.
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
    """Uncertainty of the outputs of a plan, its own if none is given, by what the scenario says of its system.

    **Raises:** `InputError` for a distribution that cannot be read.
    """
    with jax.enable_x64(True):
        run = in_float64(TrainingRun(scenario.system, scenario.plan if plan is None else plan))
        return spread_along(run, directions_of(scenario, run).steps)


def in_float64(run: TrainingRun) -> TrainingRun:
    """The run with NumPy numbers."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), run)


def spread_along(run: TrainingRun, steps: Float[np.ndarray, "directions n"]) -> OutcomeSpread:
    """How the outputs of a run move along some directions, in the caller's precision.

    **Raises:** `InputError` for an outcome that cannot be.
    """
    found = OutcomeSpread(*changes_along(run, steps))
    check_outcome(run.system, run.plan, found.outcome)
    return found


def directions_of(scenario: Scenario, run: TrainingRun) -> Directions:
    """The directions of the uncertain numbers of a system.

    **Raises:** `InputError` for a distribution that cannot be read.
    """
    values, origins, places = run.values, scenario.provenance, run.places
    system = {path for path in values if path.startswith("system.")}
    uncertain = {path: text for path, text in scenario.uncertainty.items() if path in system}
    known = distributions(dataclasses.replace(scenario, uncertainty=uncertain), values)
    names: list[str] = []
    steps: list[np.ndarray] = []
    joint: dict[str, list[str]] = {}
    size = run.vector.size

    def add(name: str, changes: Mapping[str, float]) -> None:
        step = np.zeros(size)
        for path, change in changes.items():
            step[places[path]] = change
        names.append(name)
        steps.append(step)

    together = _calibrated(scenario, values)
    for kind, (paths, root) in together.items():
        for column in root.T:
            add(f"calibration {kind}", dict(zip(paths, column, strict=True)))
        scatter = scenario.tables["calibration"][kind]["scatter"]
        add(f"calibration {kind}", {SLOWDOWN: values[SLOWDOWN] * scatter})
    calibrated = {path for paths, _ in together.values() for path in paths}
    for path, one in known.items():
        if path in calibrated:
            continue
        if one.is_joint:
            joint.setdefault(one.name, []).append(path)
            continue
        add(path, {path: float(np.ptp(one.quantiles(values[path], _ONE_DEVIATION))) / 2.0})
    for name, paths in joint.items():
        units = {path: origins[path].unit for path in paths}
        variances, axes = np.linalg.eigh(_covariance(name, paths, known, values, units))
        for variance, axis in zip(variances, axes.T, strict=True):
            add(f"joint {name}", dict(zip(paths, axis * math.sqrt(max(0.0, variance)), strict=True)))
    is_prior = {path: origins[path].is_prior for path, one in known.items() if not one.is_joint}
    is_prior |= {f"joint {name}": all(origins[path].is_prior for path in paths) for name, paths in joint.items()}
    is_prior |= {f"calibration {kind}": False for kind in together}
    without = sum(origins[path].is_prior and path not in known for path in system)
    return Directions(tuple(names), np.reshape(steps, (-1, size)), is_prior, without)


def _calibrated(
    scenario: Scenario, values: Mapping[str, float]
) -> dict[str, tuple[list[str], Float[np.ndarray, "numbers numbers"]]]:
    """By kind of calibration that keeps values and slopes: the numbers, and a root of their covariance.

    Numbers that were changed since, by `--set` or in Python, are known exactly.
    """
    found = {}
    for kind, one in scenario.tables.get("calibration", {}).items():
        if "slopes" not in one:
            continue
        paths = [f"system.{name}" for name in one["names"]]
        unchanged = np.isclose([values[path] for path in paths], one["values"], rtol=SAME)
        root = np.linalg.cholesky(np.asarray(one["covariance"], np.float64))
        found[kind] = (paths, (unchanged * np.asarray(one["slopes"]))[:, None] * root)
    return found


def _covariance(
    name: str,
    paths: list[str],
    known: Mapping[str, NumberDistribution],
    values: Mapping[str, float],
    units: Mapping[str, str],
) -> Float[np.ndarray, "numbers numbers"]:
    """Covariance of the numbers of a joint distribution, to first order where the draws are logarithms."""
    joint = joint_draws(name, [UncertainNumber(path, values[path], units[path], known[path]) for path in paths])
    scale = np.array([values[path] if log else 1.0 for path, log in zip(paths, joint.logarithmic, strict=True)])
    draws = np.asarray(joint.deviations) * scale
    return np.atleast_2d(np.cov(draws, rowvar=False))
