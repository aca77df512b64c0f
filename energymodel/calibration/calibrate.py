"""What do the measurements in a file say of the constants of a system, and how well does it predict?"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.calibration.best_setting import Recommendation
from energymodel.calibration.calibrated_scenario import (
    FittedConstant,
    PriorScenario,
    earlier_calibration,
    prior_scenario,
    scenario_tables,
    undetermined_for_law,
)
from energymodel.calibration.calibration_case import CalibrationCase, PredictedAmount
from energymodel.calibration.cluster_source import is_known
from energymodel.calibration.constant_priors import flat_values, joint_prior, widened
from energymodel.calibration.intervals import bootstrap, laplace_intervals, outer_intervals, quantiles, undetermined
from energymodel.calibration.kinds import KINDS
from energymodel.calibration.least_squares import FitOptions, FitProblem, FitResult, fit, held_out_errors, unfitted
from energymodel.calibration.measurements import Measurements
from energymodel.calibration.model_words import plain_word
from energymodel.calibration.next_measurement import next_measurement
from energymodel.calibration.table_columns import AS_WRITTEN, TableChoices
from energymodel.errors import InputError, suggest
from energymodel.scenarios.files import names
from energymodel.scenarios.unseen_cluster import UNFITTED
from energymodel.shown import Shown
from energymodel.units import plural

DRAWS = 96
RESAMPLING: dict[str, Any] = {"tolerance": 1e-5, "steps": 40}
"""Of a resample, which starts at the fit: it ends within a tenth of a standard error."""
FEWEST_GROUPS = 3  # for a bootstrap over groups
MOST_FOLDS = 16  # that are held out; more groups share a fold, one search each
LEAST_ERROR = 0.02  # logarithm, that predictions are taken to have where no group can be held out
WEIGHED_NOISE = 0.01  # first guess


class GroupError(NamedTuple):
    """Mean absolute error by output, in percent, of a group that was held out, and its count of rows."""

    group: str
    rows: int
    errors: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Calibration(Shown):
    """What `calibrate` found.

    - `constants`, `undetermined`: values with intervals, and names of those that the measurements do not determine.
    - `held_out`, `held_out_mean`: errors of each group predicted by the others, and their mean over rows; none with a
      single group.
    - `in_fit`: the same of the fit to all rows.
    - `next_setting`, `next_gain`: what to measure next, and by which share that reduces the variance of predictions.
    - `predictions`: amounts at batches that were not measured, of kind `batch`.
    - `best`: the setting of lowest energy of each workload, and the energy about it, of kind `power`.
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
    predictions: tuple[PredictedAmount, ...]
    best: Recommendation
    tables: Mapping[str, Any]
    residuals: Mapping[str, np.ndarray]
    along: tuple[str, np.ndarray]
    groups: np.ndarray
    notes: tuple[str, ...]
    converged: bool
    message: str
    fit: FitResult
    case: CalibrationCase


def calibrate(
    kind: str,
    path: Path | str,
    *,
    prior: str | Path | None = None,
    where: Mapping[str, str] | None = None,
    form: str | None = None,
    choices: TableChoices = AS_WRITTEN,
    max_slowdown: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Fit the constants of a kind to the measurements in a CSV file, in float64.

    **Arguments:**

    - `kind`: one of `kinds.KINDS`, such as "power".
    - `path`: of the file; its columns are those of the kind.
    - `prior`: scenario, scenario file (also one that was written before), accelerator or cluster whose numbers are
      the medians of the priors and which the new numbers are laid over. Without it, tables of training steps may name
      it: the cluster of their rows, or their accelerator and framework.
    - `where`: words that a row must have in some columns.
    - `choices`: how a table of training steps is read: renamed, constant and ignored columns, bad rows.
    - `form`: of the model, one of `MeasurementKind.forms`; by default what was measured decides.
    - `max_slowdown`: of kind `power`: share of time that the best setting may cost, such as 0.1 [1].
    - `progress`: called with what is being done.

    **Raises:** `InputError`, one line that names file, line and column.
    """
    most_slowdown = _most_slowdown(kind, max_slowdown)
    case, base = _measured(kind, Path(path), prior, choices._replace(where={**choices.where, **(where or {})}), form)
    problem, earlier = _with_earlier(kind, case, base)
    notes = [*case.notes, *earlier]
    used = np.ones(len(case.groups.labels), bool) if problem.weights is None else np.asarray(problem.weights) > 0
    count = sum(one.size for one in problem.constants.values())
    progress(f"fitting {count} constants to {int(np.sum(used))} rows ...")
    fitted = fit(problem) if np.any(used) else unfitted(problem)
    held, mean = _held_out(case, fitted, used, progress) if np.any(used) else ((), {})
    parts = case.resampled or case.groups
    draws = None
    if len({*parts.labels[used].tolist()}) >= FEWEST_GROUPS:
        progress(f"refitting {DRAWS} resamples of the {plural(parts.word)} ...")
        draws = bootstrap(fitted, parts.labels, DRAWS, **RESAMPLING)
    progress("looking for the most helpful measurement ...")
    better = next_measurement(fitted, case.candidates.table)
    progress("computing intervals ...")
    constants = _constants(case, fitted, draws)
    missing = undetermined_for_law(case, constants)
    if missing:
        notes.append(f"No law is written to a scenario, because {', '.join(missing)} is not determined.")
    if not held and np.any(used):
        notes.append(f"One {case.groups.word} only: no error can be held out. Measure another.")
    in_fit = case.percent_errors(fitted.errors, used) if np.any(used) else {}
    usual = {name: float(np.log1p(0.01 * error)) for name, error in (mean or in_fit).items()} or case.usual_errors
    if not mean:  # errors of the fit itself say little of its predictions
        usual = {name: max(error, LEAST_ERROR) for name, error in usual.items()}
    return Calibration(
        kind=kind,
        source=str(path),
        base=base.name,
        rows=int(np.sum(used)),
        group_word=case.groups.word,
        constants=constants,
        undetermined=tuple(one.name for one in constants if not one.determined),
        held_out=held,
        held_out_mean=mean,
        in_fit=in_fit,
        next_setting=case.candidates.words[better.row],
        next_gain=better.gain,
        predictions=case.predictions(fitted) if case.predictions is not None else (),
        best=case.best(fitted, usual, most_slowdown) if case.best is not None else Recommendation(),
        tables=scenario_tables(kind, str(path), base, case, fitted, constants),
        residuals={name: fitted.errors[used] @ np.array(weights) for name, weights in case.outputs.items()},
        along=(case.along[0], np.asarray(case.along[1])[used]),
        groups=case.groups.labels[used],
        notes=tuple(notes),
        converged=fitted.converged,
        message="converged" if fitted.converged else "The search did not converge: check the rows of largest residual.",
        fit=fitted,
        case=case,
    )


def _most_slowdown(kind: str, share: float | None) -> float:
    """Time over that at the highest limit that a best setting may take."""
    if share is None:
        return np.inf
    if kind != "power":
        raise InputError(f"max-slowdown: only kind power has settings to choose from, not {kind}. Leave it out.")
    if not 0.0 <= share < np.inf:
        raise InputError(f"max-slowdown: {100 * share:g} % cannot be; write the time that may be lost, such as 10 %.")
    return 1.0 + share


def _measured(
    kind: str, path: Path, prior: str | Path | None, choices: TableChoices, form: str | None
) -> tuple[CalibrationCase, PriorScenario]:
    """What a file asks of a kind, and the scenario whose numbers are the priors."""
    if kind not in KINDS:
        raise InputError(f'Unknown kind "{kind}". {suggest(kind, KINDS)}')
    if form is not None and form not in KINDS[kind].forms:
        known = suggest(form, KINDS[kind].forms) if KINDS[kind].forms else f"Leave it out: {kind} has one form only."
        raise InputError(f'--form: unknown form "{form}". {known}')
    table = KINDS[kind].table(path, choices)
    notes = table.notes
    if prior is None and (prior := named_cluster(table) or named_accelerator(table)) is not None:
        notes = (*notes, f"The prior is {prior}, which the table names: --prior names another.")
    base = prior_scenario(prior)
    case = KINDS[kind].read(table, base.scenario if prior is not None else None, form)
    return case._replace(notes=(*notes, *case.notes)), base


def named_cluster(table: Measurements) -> str | None:
    """The cluster that all rows name, if it is known."""
    named = {*table.text("cluster", "").tolist()}
    return next(iter(named)) if len(named) == 1 and is_known(min(named)) else None


def named_accelerator(table: Measurements) -> str | None:
    """The preset of the accelerator that all rows name, if there is one of just that name."""
    named = {plain_word(one) for one in table.text("gpu", "").tolist()}
    presets = {plain_word(name): name for name in names("hardware")}
    return presets.get(min(named)) if len(named) == 1 else None


def _with_earlier(kind: str, case: CalibrationCase, base: PriorScenario) -> tuple[FitProblem, list[str]]:
    """The problem with what an earlier calibration of the scenario knows as prior, and notes that say so."""
    problem = case.fit
    if base.name in names("clusters") or UNFITTED in base.name:
        return problem, [f"Priors are those of clusters with the framework and chip of {base.title}."]
    own = case.fit.prior or joint_prior(problem.constants)
    earlier = earlier_calibration(kind, own, base.scenario)
    if earlier is None:
        return problem, []
    prior, source = earlier
    notes = [f"Priors with their intervals are those of {source}."]
    unlike = case.unlike(base.scenario.tables["calibration"][kind]) if case.unlike is not None else None
    if unlike is not None:
        prior = widened(prior, unlike[0])
        notes.append(unlike[1])
    problem = problem._replace(prior=prior)
    if not problem.options.estimate_noise:
        # What was known before and what is new must be weighed by the noise that there is.
        problem = problem._replace(options=FitOptions(), noise=WEIGHED_NOISE)
    return problem, notes


def _held_out(
    case: CalibrationCase, fitted: FitResult, used: np.ndarray, progress: Callable[[str], None]
) -> tuple[tuple[GroupError, ...], dict[str, float]]:
    """Errors of each group predicted by the others, and their mean over rows; none with a single group."""
    groups = case.groups.labels
    names = list(dict.fromkeys(groups[used].tolist()))
    if len(names) == 1 or (case.trained_on is not None and np.all(case.trained_on[used])):
        return (), {}
    progress(f"predicting each of {len(names)} {plural(case.groups.word)} from others ...")
    fold = {name: place % MOST_FOLDS for place, name in enumerate(dict.fromkeys(groups.tolist()))}
    errors = held_out_errors(fitted, np.array([fold[name] for name in groups.tolist()]), case.trained_on)
    counted = used if case.trained_on is None else used & ~case.trained_on
    by_group = []
    for name in names:
        rows = counted & (groups == name)
        if np.any(rows):
            by_group.append(GroupError(name, int(np.sum(rows)), case.percent_errors(errors, rows)))
    return tuple(by_group), case.percent_errors(errors, counted)


def _constants(case: CalibrationCase, fitted: FitResult, draws: np.ndarray | None) -> tuple[FittedConstant, ...]:
    constants = fitted.problem.constants
    measured = np.isfinite(fitted.freedom)
    ends = outer_intervals(fitted) if measured else laplace_intervals(fitted)
    unknown = undetermined(fitted, ends) if measured else fitted.names
    medians, values = flat_values(constants, np.stack([fitted.prior.mean, fitted.coordinates]))
    units = [one.unit for one in constants.values() for _ in range(one.size)]
    spread = quantiles(draws) if draws is not None else None
    # Where a group is drawn or not as a whole, its own constants are either fitted or those of the prior.
    drawn = {*case.groups.labels.tolist()} if case.resampled is None else set()
    rows = []
    for place, name in enumerate(fitted.names):
        if name.startswith(case.nuisance):
            continue
        known = name not in unknown
        bootstrapped = None
        if spread is not None and known and name.partition("[")[2].removesuffix("]") not in drawn:
            bootstrapped = float(spread.lower[place]), float(spread.upper[place])
        rows.append(
            FittedConstant(
                name,
                float(values[place]),
                units[place],
                float(medians[place]),
                (float(ends.lower[place]), float(ends.upper[place])) if known else None,
                bootstrapped,
                known,
                (float(ends.lower[place]), float(ends.upper[place])),
            )
        )
    return tuple(rows)
