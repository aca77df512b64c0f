"""The loop of every kind of calibration: fit, hold out whole groups, resample, find intervals, and write a scenario."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.calibration.best_setting import Recommendation
from energymodel.calibration.calibration_case import NORMAL_90, CalibrationCase, PredictedAmount
from energymodel.calibration.cluster_source import is_known, plain_word
from energymodel.calibration.constant_priors import JointPrior, flat_values, joint_prior, updated_prior
from energymodel.calibration.fitted_scenario import FAR, FittedConstant, PriorScenario, prior_scenario, scenario_tables
from energymodel.calibration.intervals import (
    bootstrap,
    common_factor,
    laplace_intervals,
    next_measurement,
    outer_intervals,
    quantiles,
    undetermined,
)
from energymodel.calibration.kinds import KINDS
from energymodel.calibration.least_squares import FitOptions, FitProblem, FitResult, fit, held_out_errors, unfitted
from energymodel.errors import InputError, suggest
from energymodel.readers.columns import AS_WRITTEN, TableChoices
from energymodel.readers.table import Measurements, Records
from energymodel.rendered import Rendered
from energymodel.scenarios.clusters import UNFITTED
from energymodel.scenarios.files import names
from energymodel.units import plural

DRAWS = 96
RESAMPLING: dict[str, Any] = {"tolerance": 1e-5, "steps": 40}
"""Of a resample, which starts at the fit: it ends within a tenth of a standard error."""
FEWEST_GROUPS = 3  # for a bootstrap over groups
MOST_FOLDS = 16  # that are held out; more groups share a fold, one search each
LEAST_ERROR = 0.02  # logarithm, that predictions are taken to have where no group can be held out
WEIGHED_NOISE = 0.01  # first guess
AT_END = 0.01  # of a range: nearer to an end a constant is said to reach it
NARROWER = 0.1  # than the prior's, of the interval of a constant that is updated


class GroupError(NamedTuple):
    """Mean absolute error by output, in percent, of a group that was held out, and its count of rows."""

    group: str
    rows: int
    errors: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Calibration(Rendered):
    """Result of `calibrate`."""

    kind: str
    source: str
    base: str
    rows: int
    group_word: str
    constants: tuple[FittedConstant, ...]
    undetermined: tuple[str, ...]  # names of constants that the measurements do not determine
    common: tuple[tuple[float, float, float], ...]  # of `common_factor` after and before, where a kind has it
    held_out: tuple[GroupError, ...]  # each group predicted by the others; none with a single group
    held_out_mean: Mapping[str, float]  # over rows, as is `in_fit` of the fit to all of them
    in_fit: Mapping[str, float]
    next_setting: str  # what to measure next
    next_gain: float  # share by which that reduces the variance of predictions [1]
    predictions: tuple[PredictedAmount, ...]  # at batches that were not measured, of kind `batch`
    best: Recommendation  # the setting of lowest energy of each workload, of kind `power`
    tables: Mapping[str, Any]  # a scenario with the new numbers; `evaluate`, `optimize` and `sweep` accept its file
    residuals: Mapping[str, np.ndarray]  # errors of the outputs by row
    along: tuple[str, np.ndarray]  # what they are drawn against
    groups: np.ndarray
    notes: tuple[str, ...]
    converged: bool
    message: str
    fit: FitResult
    case: CalibrationCase


def calibrate(
    kind: str,
    path: Path | str | Records,
    *,
    prior: str | Path | None = None,
    where: Mapping[str, str] | None = None,
    form: str | None = None,
    choices: TableChoices = AS_WRITTEN,
    max_slowdown: float | None = None,
    source: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Fit the constants of a kind to the measurements in a CSV file or in rows, in float64.

    **Arguments:**

    - `kind`: one of `kinds.KINDS`, such as "power".
    - `path`: of the file, or rows as mappings by column; its columns are those of the kind.
    - `prior`: scenario, scenario file (also one that was written before), accelerator or cluster whose numbers are
      the medians of the priors and which the new numbers are laid over. Without it, tables of training steps may name
      it: the cluster of their rows, or their accelerator and framework.
    - `where`: words that a row must have in some columns.
    - `choices`: how a table of training steps is read: renamed, constant and ignored columns, bad rows.
    - `form`: of the model, one of `MeasurementKind.forms`; by default what was measured decides.
    - `max_slowdown`: of kind `power`: share of time that the best setting may cost, such as 0.1 [1].
    - `source`: name of the measurements in what is written; by default the file.
    - `progress`: called with what is being done.

    **Raises:** `InputError`, one line that names file, line and column.
    """
    if max_slowdown is not None and kind != "power":
        raise InputError(f"max-slowdown: only kind power has settings to choose from, not {kind}. Leave it out.")
    if max_slowdown is not None and not 0.0 <= max_slowdown < np.inf:
        share = f"{100 * max_slowdown:g} %"
        raise InputError(f"max-slowdown: {share} cannot be; write the time that may be lost, such as 10 %.")
    path = Path(path) if isinstance(path, str) else path
    source = source or (str(path) if isinstance(path, Path) else choices.name)
    case, base = _case_of(kind, path, prior, choices._replace(where={**choices.where, **(where or {})}), form)
    problem, notes = _with_earlier(kind, case, base)
    labels, parts = case.groups.labels, case.resampled or case.groups
    used = np.ones(len(labels), bool) if problem.weights is None else np.asarray(problem.weights) > 0
    rows = int(np.sum(used))
    progress(f"fitting {sum(constant.size for constant in problem.constants.values())} constants to {rows} rows ...")
    fitted = fit(problem) if rows else unfitted(problem)
    held_out, mean = _held_out(case, fitted, used, progress) if rows else ((), {})
    draws = None
    if len({*parts.labels[used].tolist()}) >= FEWEST_GROUPS:
        progress(f"refitting {DRAWS} resamples of the {plural(parts.word)} ...")
        draws = bootstrap(fitted, parts.labels, DRAWS, **RESAMPLING)
    progress("looking for the most helpful measurement ...")
    row, gain = next_measurement(fitted, case.candidates.table, case.candidates.targets)
    progress("computing intervals ...")
    constants = _constants(case, fitted, draws)
    notes += _far_constants(fitted)
    unknown = tuple(constant.name for constant in constants if not constant.determined)
    missing = [name for name in unknown if case.law_needs is None or name in case.law_needs]
    if case.law is not None and missing:
        case = case._replace(law=None)
        notes.append(f"No law is written to a scenario, because {', '.join(missing)} is not determined.")
    if rows and not held_out:
        notes.append(f"One {case.groups.word} only: no error can be held out. Measure another.")
    in_fit = case.percent_errors(fitted.errors, used) if rows else {}
    usual = {name: float(np.log1p(0.01 * error)) for name, error in (mean or in_fit).items()} or case.usual_errors
    if not mean:  # errors of the fit itself say little of its predictions
        usual = {name: max(error, LEAST_ERROR) for name, error in usual.items()}
    slowdown = np.inf if max_slowdown is None else 1.0 + max_slowdown
    return Calibration(
        kind=kind,
        source=source,
        base=base.name,
        rows=rows,
        group_word=case.groups.word,
        constants=constants,
        undetermined=unknown,
        common=common_factor(fitted) if rows and case.common else (),
        held_out=held_out,
        held_out_mean=mean,
        in_fit=in_fit,
        next_setting=case.candidates.words[row],
        next_gain=gain,
        predictions=case.predictions(fitted) if case.predictions is not None else (),
        best=case.best(fitted, usual, slowdown) if case.best is not None else Recommendation(),
        tables=scenario_tables(kind, source, base, case, fitted, constants),
        residuals={name: fitted.errors[used] @ np.array(weights) for name, weights in case.outputs.items()},
        along=(case.along[0], np.asarray(case.along[1])[used]),
        groups=labels[used],
        notes=(*case.notes, *notes),
        converged=fitted.converged,
        message="converged" if fitted.converged else "The search did not converge: check the rows of largest residual.",
        fit=fitted,
        case=case,
    )


def _case_of(
    kind: str, path: Path | Records, prior: str | Path | None, choices: TableChoices, form: str | None
) -> tuple[CalibrationCase, PriorScenario]:
    """The case of a file, and the scenario whose numbers are the priors."""
    if kind not in KINDS:
        raise InputError(f'Unknown kind "{kind}". {suggest(kind, KINDS)}')
    forms = KINDS[kind].forms
    if form is not None and form not in forms:
        advice = suggest(form, forms) if forms else f"Leave it out: {kind} has one form only."
        raise InputError(f'--form: unknown form "{form}". {advice}')
    table = KINDS[kind].table(path, choices)
    notes = table.notes
    if prior is None and (prior := named_prior(table)) is not None:
        notes = (*notes, f"The prior is {prior}, which the table names: --prior names another.")
    base = prior_scenario(prior)
    case = KINDS[kind].read(table, base.scenario if prior is not None else None, form)
    return case._replace(notes=(*notes, *case.notes)), base


def named_prior(table: Measurements) -> str | None:
    """The known cluster, or else the preset of the accelerator, that all rows name."""
    clusters = {*table.text("cluster", "").tolist()}
    if len(clusters) == 1 and is_known(min(clusters)):
        return min(clusters)
    chips = {plain_word(name) for name in table.text("gpu", "").tolist()}
    presets = {plain_word(name): name for name in names("hardware")}
    return presets.get(min(chips)) if len(chips) == 1 else None


def _with_earlier(kind: str, case: CalibrationCase, base: PriorScenario) -> tuple[FitProblem, list[str]]:
    """The problem with what an earlier calibration of the scenario knows as prior, and notes that say so."""
    problem = case.fit
    if base.name in names("clusters") or UNFITTED in base.name:
        return problem, [f"Priors are those of clusters with the framework and chip of {base.title}."]
    earlier = base.scenario.tables.get("calibration", {}).get(kind)
    if earlier is None:
        return problem, []
    try:
        mean, covariance = (np.asarray(earlier[name], np.float64) for name in ("coordinates", "covariance"))
        prior = updated_prior(problem.prior or joint_prior(problem.constants), earlier["names"], mean, covariance)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        words = f"{base.scenario.name}: [calibration.{kind}] cannot be read: {error}. Calibrate anew."
        raise InputError(words) from None
    notes = [f"Priors with their intervals are those of {earlier.get('source', base.scenario.name)}."]
    if case.unlike is not None and (unlike := case.unlike(earlier)) is not None:
        wider = np.linalg.inv(prior.information) + np.diag(unlike[0])
        prior = JointPrior.of(prior.names, prior.mean, wider)
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
    labels, trained_on = case.groups.labels, case.trained_on
    counted = used if trained_on is None else used & ~trained_on
    groups = list(dict.fromkeys(labels[used].tolist()))
    if len(groups) == 1 or not np.any(counted):
        return (), {}
    progress(f"predicting each of {len(groups)} {plural(case.groups.word)} from others ...")
    fold = {name: number % MOST_FOLDS for number, name in enumerate(dict.fromkeys(labels.tolist()))}
    errors = held_out_errors(fitted, np.array([fold[name] for name in labels.tolist()]), trained_on)
    rows = {name: own for name in groups if np.any(own := counted & (labels == name))}
    by_group = (GroupError(name, int(np.sum(own)), case.percent_errors(errors, own)) for name, own in rows.items())
    return tuple(by_group), case.percent_errors(errors, counted)


def _far_constants(fitted: FitResult) -> list[str]:
    """Notes on constants at an end of their range, and on those far from a population of others, the prior."""
    notes, each = [], [constant for constant in fitted.problem.constants.values() for _ in range(constant.size)]
    away = np.abs(fitted.coordinates - fitted.prior.mean) / fitted.prior.spread
    values = flat_values(fitted.problem.constants, fitted.coordinates).tolist()
    for name, constant, value, far in zip(fitted.names, each, values, away, strict=True):
        near = AT_END * (constant.upper - constant.lower)
        if np.isfinite(near) and not constant.lower + near < value < constant.upper - near:
            notes.append(f"{name} is at an end of its range, {constant.lower:g} to {constant.upper:g} {constant.unit}.")
        elif far > FAR and fitted.problem.prior is not None:
            notes.append(f"{name} is {far:.1f} standard deviations from its prior: does the model lack something?")
    return notes


def _constants(case: CalibrationCase, fitted: FitResult, draws: np.ndarray | None) -> tuple[FittedConstant, ...]:
    measured = np.isfinite(fitted.freedom)
    ends = outer_intervals(fitted) if measured else laplace_intervals(fitted)
    unknown = undetermined(fitted, ends) if measured else fitted.names
    half = NORMAL_90 * fitted.prior.spread
    points = np.stack([fitted.coordinates, *(fitted.prior.mean + step * half for step in (0.0, -1.0, 1.0))])
    values, medians, low, high = flat_values(fitted.problem.constants, points).tolist()
    each = [constant for constant in fitted.problem.constants.values() for _ in range(constant.size)]
    resampled = None if draws is None else list(zip(*np.stack(quantiles(draws)).tolist(), strict=True))
    # Where a group is drawn or not as a whole, its own constants are either fitted or those of the prior.
    drawn = {*case.groups.labels.tolist()} if case.resampled is None else set()
    rows = []
    for row, name in enumerate(fitted.names):
        determined, of_group = name not in unknown, name.partition("[")[2].removesuffix("]") in drawn
        bootstrapped = None if resampled is None or not determined or of_group else resampled[row]
        interval = float(ends.lower[row]), float(ends.upper[row])
        laplace = interval if determined else None
        width = each[row].coordinate(interval[1]) - each[row].coordinate(interval[0])
        number = name, values[row], each[row].unit, medians[row]
        updated = width <= 2.0 * half[row] * (1.0 - NARROWER)
        told = laplace, bootstrapped, determined, interval, (low[row], high[row]), updated
        rows.append(FittedConstant(*number, *told))
    return tuple(row for row in rows if not row.name.startswith(case.nuisance))
