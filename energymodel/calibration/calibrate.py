"""What do the measurements in a file say of the constants of a system, and how well does it predict?"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.calibration.best_setting import BestSetting
from energymodel.calibration.constants import Prior, prior_of, updated_prior
from energymodel.calibration.kinds import KINDS
from energymodel.calibration.least_squares import Fit, Options, fit, flat, held_out_errors
from energymodel.calibration.measurements import read_measurements
from energymodel.calibration.posterior import outer_intervals
from energymodel.calibration.problem import BASE, Problem
from energymodel.calibration.uncertainty import Interval, bootstrap, next_measurement, quantiles, undetermined
from energymodel.errors import InputError, suggest
from energymodel.presets.files import names, read_preset
from energymodel.presets.renamed import current_name
from energymodel.presets.scenario import Scenario, load_scenario

FORM = "test-1b-h100"
"""Scenario with a model and a plan that run on most accelerators and clusters."""
DRAWS = 96
RESAMPLING: dict[str, Any] = {"tolerance": 1e-5, "steps": 40}
"""Of a resample, which starts at the fit: it ends within a tenth of a standard error."""
LEAST_GROUPS = 3  # for a bootstrap over groups
WEIGHED_NOISE = 0.01  # first guess


class FittedConstant(NamedTuple):
    """A constant: value, 90 % intervals by Laplace's method (`outer_intervals`) and by the bootstrap of groups,
    prior's median.

    The bootstrap is `None` with fewer than three groups; an undetermined constant has no interval but its prior's.
    """

    name: str
    value: float
    unit: str
    prior: float
    laplace: tuple[float, float] | None
    bootstrap: tuple[float, float] | None
    determined: bool


class GroupError(NamedTuple):
    """Mean absolute error by output, in percent, of a group that was held out, and its count of rows."""

    group: str
    rows: int
    errors: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What `calibrate` found.

    - `constants`, `undetermined`: values with intervals, and names of those that the measurements do not determine.
    - `held_out`, `held_out_mean`: errors of each group predicted by the others, and their mean over rows; none with a
      single group.
    - `in_fit`: the same of the fit to all rows.
    - `next_setting`, `next_gain`: what to measure next, and by which share that narrows predictions.
    - `best`: the setting of least energy of each workload, of kind `power`.
    - `tables`: a scenario with the new numbers, which `evaluate`, `optimize` and `sweep` accept once written to a file.
    - `residuals`: by row: errors of the outputs; `along` what they are drawn against.
    """

    kind: str
    source: str
    base: str
    rows: int
    group_word: str
    constants: tuple[FittedConstant, ...]
    undetermined: tuple[str, ...]
    held_out: tuple[GroupError, ...]
    held_out_mean: Mapping[str, float]
    in_fit: Mapping[str, float]
    next_setting: str
    next_gain: float
    best: tuple[BestSetting, ...]
    tables: Mapping[str, Any]
    residuals: Mapping[str, np.ndarray]
    along: tuple[str, np.ndarray]
    groups: np.ndarray
    notes: tuple[str, ...]
    converged: bool
    message: str
    fit: Fit
    problem: Problem


def calibrate(
    kind: str,
    path: Path | str,
    *,
    prior: str | Path | None = None,
    where: Mapping[str, str] | None = None,
    form: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Fit the constants of a kind to the measurements in a CSV file, in float64.

    **Arguments:**

    - `kind`: one of `kinds.KINDS`, such as "power".
    - `path`: of the file; its columns are those of the kind.
    - `prior`: scenario, scenario file (also one that was written before), accelerator or cluster whose numbers are
      the medians of the priors and which the new numbers are laid over.
    - `where`: words that a row must have in some columns.
    - `form`: of the model, one of `Kind.forms`; by default what was measured decides.
    - `progress`: called with what is being done.

    **Returns:** `Calibration`.

    **Raises:** `InputError`, one line that names file, line and column.
    """
    if kind not in KINDS:
        raise InputError(f'Unknown kind "{kind}". {suggest(kind, KINDS)}')
    if form is not None and form not in KINDS[kind].forms:
        known = suggest(form, KINDS[kind].forms) if KINDS[kind].forms else f"Leave it out: {kind} has one form only."
        raise InputError(f'--form: unknown form "{form}". {known}')
    table = read_measurements(Path(path), KINDS[kind].columns, where=where)
    base, scenario = prior_scenario(prior)
    problem = KINDS[kind].pose(table, scenario if prior is not None else None, form)
    used = problem.weights > 0
    known, earlier = _prior(kind, problem, scenario)
    options, noise = problem.options, problem.noise
    if earlier and not options.estimate_noise:
        # What was known before and what is new must be weighed by the noise that there is.
        options, noise = Options(), WEIGHED_NOISE
    progress(f"fitting {len(known.names)} constants to {int(np.sum(used))} rows ...")
    fitted = fit(
        problem.errors, problem.constants, problem.table, weights=problem.weights, noise=noise, options=options,
        prior=known,
    )  # fmt: skip
    words = list(dict.fromkeys(problem.groups[used].tolist()))
    held: tuple[GroupError, ...] = ()
    mean: Mapping[str, float] = {}
    if len(words) > 1:
        progress(f"predicting each of {len(words)} {problem.group_word}s from the others ...")
        blind = held_out_errors(
            problem.errors, problem.constants, problem.table, problem.groups, fitted, weights=problem.weights,
            trained_on=problem.known, options=options,
        )  # fmt: skip
        counted = used if problem.known is None else used & ~problem.known
        held = tuple(
            GroupError(
                word,
                int(np.sum(counted & (problem.groups == word))),
                _percent(problem, blind, counted & (problem.groups == word)),
            )
            for word in words
            if np.any(counted & (problem.groups == word))
        )
        mean = _percent(problem, blind, counted)
    draws = None
    parts, part = (problem.groups, problem.group_word)
    if problem.resampled is not None:
        parts, part = problem.resampled, problem.resampled_word
    if len({*parts[used].tolist()}) >= LEAST_GROUPS:
        progress(f"refitting {DRAWS} resamples of the {part}s ...")
        draws = bootstrap(
            problem.errors, problem.constants, problem.table, parts, fitted, count=DRAWS,
            weights=problem.weights, options=options._replace(**RESAMPLING),
        )  # fmt: skip
    progress("looking for the most helpful measurement ...")
    better = next_measurement(problem.errors, problem.constants, fitted, problem.candidates, size=len(used))
    progress("walking along each constant ...")
    ends = outer_intervals(
        problem.errors, problem.constants, problem.table, fitted, weights=problem.weights, options=options
    )
    unknown = undetermined(problem.constants, fitted, ends=ends)
    constants = _constants(problem, fitted, ends, draws, unknown)
    notes = list(problem.notes)
    if earlier:
        notes.append(f"Priors with their intervals are those of {earlier}.")
    missing = _missing(problem, unknown)
    if missing:
        notes.append(f"No law is written to a scenario, because {', '.join(missing)} is not determined.")
    if not held:
        notes.append(f"One {problem.group_word} only: no error can be held out. Measure another.")
    in_fit = _percent(problem, fitted.errors, used)
    usual = {name: float(np.log1p(0.01 * error)) for name, error in (mean or in_fit).items()}
    return Calibration(
        kind=kind, source=str(path), base=base, rows=int(np.sum(used)), group_word=problem.group_word,
        constants=constants, undetermined=unknown, held_out=held, held_out_mean=mean, in_fit=in_fit,
        next_setting=problem.candidate_words[better.row], next_gain=better.gain,
        best=problem.best(fitted.values, usual) if problem.best is not None else (),
        tables=_tables(kind, str(path), prior, scenario, problem, fitted, constants),
        residuals={name: fitted.errors[used] @ np.array(weights) for name, weights in problem.outputs.items()},
        along=(problem.along[0], problem.along[1][used]), groups=problem.groups[used], notes=tuple(notes),
        converged=fitted.converged,
        message="converged" if fitted.converged else "The search did not converge: check the rows of largest residual.",
        fit=fitted, problem=problem,
    )  # fmt: skip


def prior_scenario(prior: str | Path | None) -> tuple[str, Scenario]:
    """The scenario that a prior names: a scenario, a file, or a default run on an accelerator or a cluster.

    **Returns:** its name and the scenario.
    """
    if prior is None:
        return BASE, load_scenario(BASE)
    text = current_name(str(prior))
    if text in names("hardware"):
        return FORM, load_scenario(FORM, {"system.accelerator": text})
    if text in names("clusters"):
        return FORM, load_scenario({**_cluster_tables(text), "name": text})
    if text not in names("scenarios") and not text.endswith(".toml"):
        known = [*names("scenarios"), *names("hardware"), *names("clusters")]
        raise InputError(f'Unknown prior "{text}". {suggest(text, known)}')
    return text, load_scenario(text)


def _cluster_tables(name: str) -> dict[str, Any]:
    """A scenario on a cluster preset, with a model and a plan that only fill the form."""
    return {"base": FORM, "system": read_preset("clusters", name)["system"]}


def _prior(kind: str, problem: Problem, scenario: Scenario) -> tuple[Prior, str]:
    """What is known before the measurements, and the file of the earlier measurements that it comes from."""
    prior, earlier = prior_of(problem.constants), scenario.tables.get("calibration", {}).get(kind)
    if earlier is None:
        return prior, ""
    try:
        mean, covariance = (np.asarray(earlier[name], np.float64) for name in ("coordinates", "covariance"))
        prior = updated_prior(prior, earlier["names"], mean, covariance)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise InputError(f"{scenario.name}: [calibration.{kind}] cannot be read: {error}. Calibrate anew.") from None
    return prior, str(earlier.get("source", scenario.name))


def _missing(problem: Problem, unknown: tuple[str, ...]) -> list[str]:
    """Constants that the law of a problem needs and that are not determined."""
    if problem.law is None:
        return []
    return [name for name in unknown if problem.law_needs is None or name in problem.law_needs]


def _percent(problem: Problem, errors: np.ndarray, rows: np.ndarray) -> dict[str, float]:
    return {
        name: float(100.0 * np.mean(np.abs(np.expm1(errors[rows] @ np.array(weights)))))
        for name, weights in problem.outputs.items()
    }


def _constants(
    problem: Problem, fitted: Fit, ends: Interval, draws: np.ndarray | None, unknown: tuple[str, ...]
) -> tuple[FittedConstant, ...]:
    prior = fitted.prior
    medians = flat(problem.constants, prior.mean[None])[0]
    values = np.concatenate([np.atleast_1d(value) for value in fitted.values.values()])
    units = [one.unit for one in problem.constants.values() for _ in range(one.size)]
    low, high = ends
    spread = quantiles(draws) if draws is not None else None
    rows = []
    drawn = {*problem.groups.tolist()} if problem.resampled is None else set()
    for place, name in enumerate(prior.names):
        known = name not in unknown
        # Where a group is drawn or not as a whole, its own constants are either fitted or those of the prior.
        resampled = known and name.partition("[")[2].removesuffix("]") not in drawn
        rows.append(
            FittedConstant(
                name,
                float(values[place]),
                units[place],
                float(medians[place]),
                (float(low[place]), float(high[place])) if known else None,
                (float(spread.lower[place]), float(spread.upper[place])) if spread is not None and resampled else None,
                known,
            )
        )
    return tuple(rows)


def _tables(
    kind: str, source: str, prior: str | Path | None, scenario: Scenario, problem: Problem, fitted: Fit,
    constants: tuple[FittedConstant, ...],
) -> dict[str, Any]:  # fmt: skip
    """A scenario: the base, and over it every number that the measurements determine, with its interval."""
    by_name = {one.name: one for one in constants}
    tables: dict[str, Any] = {"title": f"{scenario.title}, calibrated ({kind})", "base": BASE, "system": {}}
    if prior is not None and str(prior) in names("hardware"):
        tables |= {"base": FORM, "system": {"accelerator": {"preset": str(prior)}}}
    elif prior is not None and str(prior) in names("clusters"):
        tables |= _cluster_tables(str(prior))
    elif prior is not None:
        tables["base"] = str(prior)
    what = f"calibrate {kind} {Path(source).name}"
    given = dict(problem.given)
    if problem.law is not None and not _missing(problem, tuple(one.name for one in constants if not one.determined)):
        given |= problem.law({one.name: one.value for one in constants})
    for path, number in given.items():
        _lay(tables, path, {"value": number.value, "unit": number.unit, "kind": "measured", "source": what})
    for path, change in problem.changes.items():
        one = by_name[change.constant]
        if not one.determined or one.laplace is None:
            continue
        low, high = (max(change.offset + end * change.factor, 1e-300) for end in one.laplace)
        spread = np.log(high / low) / (2.0 * 1.645)
        parent = path.rpartition(".")[0]
        if parent in problem.components:
            _lay(tables, f"{parent}.component", problem.components[parent])
        _lay(
            tables, path,
            {
                "value": change.offset + one.value * change.factor, "unit": change.unit, "kind": "measured",
                "source": f"{what}: 90 % interval {low:.4g} to {high:.4g} {change.unit}",
                "distribution": f"lognormal {spread:.3g}",
            },
        )  # fmt: skip
    tables["calibration"] = {
        kind: {
            "source": what,
            **problem.range,
            "names": list(fitted.names),
            "coordinates": fitted.coordinates.tolist(),
            "covariance": fitted.covariance.tolist(),
        }
    }
    return tables


def _lay(tables: dict[str, Any], path: str, quantity: dict[str, Any] | str) -> None:
    *parts, last = path.split(".")
    place = tables
    for part in parts:
        place = place.setdefault(part, {})
    place[last] = quantity
