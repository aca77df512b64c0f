"""How do tokens to a target grow with the batch: `calibrate` kind `batch`, from batch and tokens (or steps)?

Each group (a benchmark, a task) has its own effective tokens and critical batch; a group that was measured at one batch
has the usual multiple of it. Or groups are sizes of one model family on the same data, whose critical batches follow
one power law of the tokens, so that a size that was never measured at large batches is predicted.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from energymodel.calibration.batch_curves import (
    DEVIATION,
    PIVOT,
    SHARPNESS,
    BatchRuns,
    batch_runs,
    deviation_weights,
    excluded_hyperbolas,
    family_constants,
    family_errors,
    family_law,
    group_problem,
    reference_population,
)
from energymodel.calibration.calibrated_scenario import NORMAL_90
from energymodel.calibration.calibration_case import (
    BASE,
    CalibrationCase,
    Candidates,
    FittedNumber,
    Grouping,
    KnownNumber,
)
from energymodel.calibration.constant_priors import ConstantPriors
from energymodel.calibration.kinds.batch_table import SETTING, counted_once, in_one_unit, tokens_seen, without_amount
from energymodel.calibration.least_squares import FitOptions, FitProblem, FitResult
from energymodel.calibration.measurements import Measurements, check_repeats
from energymodel.calibration.predicted_amount import PredictedAmount, predicted_amounts
from energymodel.errors import InputError
from energymodel.learning.critical_batch import PowerCriticalBatch, rest_critical_batch
from energymodel.scenarios.scenario import Scenario, load_scenario

TOKENS_PER_PARAMETER = 20.0
"""Usual tokens of a size, of which the fit finds a multiple [Hoffmann et al. 2022, table 3]."""
PATH = "system.learning.critical_batch"
REACH = 4.0  # times the largest batch, up to which batches are proposed to be measured next
STEPS = 8
FAMILY_NOISE = 0.04
FAMILY_OPTIONS = FitOptions(starts=4, tolerance=1e-7, steps=100)
FARTHEST, BEYOND = 16.0, 2.0
"""Amounts are predicted up to so many times the smallest and the largest measured batch."""


class _Runs(NamedTuple):
    """Rows that count: their groups by name, what was measured, in which unit, and what a reader must know.

    `asked` are batches of rows without an amount, each with a measured row of its group.
    """

    table: Measurements
    groups: np.ndarray
    batch: np.ndarray
    amount: np.ndarray
    seen: np.ndarray
    unit: str
    asked: list[tuple[int, float]]
    notes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(self.groups.tolist()))

    def measured_once(self) -> np.ndarray:
        """Rows of groups that were measured at one batch only."""
        once = {name for name in self.names if len(np.unique(self.batch[self.groups == name])) == 1}
        return np.array([name in once for name in self.groups.tolist()])


def batch_case(table: Measurements, prior: Scenario | None) -> CalibrationCase:
    """Effective tokens of each group and its critical batch, or one power law for the sizes of a family."""
    runs = _counted_runs(table, prior)
    law = _prior_law(prior)
    if runs.unit == "token" and len(runs.names) > 1 and {"parameters", "usual_tokens"} & {*table.columns}:
        return _family_case(runs, law)
    return _groups_case(runs, law)


def _counted_runs(table: Measurements, prior: Scenario | None) -> _Runs:
    table, notes = counted_once(table)
    table, without = without_amount(table)
    batch, amount, unit = in_one_unit(table)
    check_repeats(table.select(~without), (*SETTING, "round"))
    sizes = table.columns.get("parameters")
    default = np.array(["all"] * len(table) if sizes is None else [f"{size:g} parameters" for size in sizes])
    groups = table.columns.get("group", default)
    if unit == "sequence" and prior is not None and len(np.unique(groups)) == 1:
        length = float(prior.system.workload.sequence)
        notes = (*notes, f"Sequences have {length:g} tokens, as those of {prior.name}.")
        batch, amount, unit = batch * length, amount * length, "token"
    measured = np.flatnonzero(~without)
    asked = []
    for row in np.flatnonzero(without):
        own = np.flatnonzero(groups[measured] == groups[row])
        if not len(own):
            raise InputError(
                f'{table.path}, line {table.lines[row]}: nothing was measured of "{groups[row]}". Write the amount to '
                "the target in one of its rows; those without are predicted."
            )
        asked.append((int(own[0]), float(batch[row])))
    table, groups = table.select(measured), groups[measured]
    seen = tokens_seen(table, groups)
    if unit == "sequence" and np.any(seen > 0.0):
        raise InputError(
            f'{table.path}: "tokens_seen" needs batches in tokens. Add a column "sequence_length", the tokens of a '
            "sequence, or write batch_tokens."
        )
    return _Runs(table, groups, batch[measured], amount[measured], seen, unit, asked, notes)


def _groups_case(runs: _Runs, prior_law: PowerCriticalBatch) -> CalibrationCase:
    """A curve for each group, see `batch_curves.group_constants`."""
    known, names = reference_population(), runs.groups.tolist()
    table = batch_runs(runs.groups, runs.batch, runs.amount, tokens_seen=runs.seen)
    excluded = excluded_hyperbolas(group_problem(table, names, runs.unit, runs.names))
    sharp = [name for name in runs.names if f"sharpness[{name}]" in excluded]
    notes = [*runs.notes, *_sharpness_notes(excluded)]
    once = runs.measured_once()
    for name in dict.fromkeys(runs.groups[once].tolist()):
        low, high = (known.multiple * np.exp(sign * NORMAL_90 * known.spread) for sign in (-1.0, 1.0))
        notes.append(
            f'"{name}" was measured at one batch: its critical batch is taken as {known.multiple:g} times that, as in '
            f"the benchmarks of MLPerf (90 %: {low:.2g} to {high:.2g} times). A second batch says more."
        )
    numbers: dict[str, FittedNumber] = {}
    rest: dict[str, KnownNumber] = {}
    law = None
    if runs.unit == "token" and len(runs.names) == 1:
        group, seen = runs.names[0], float(runs.seen[0])
        factor = partial(_whole_over_rest, group, seen, float(prior_law.exponent))
        numbers[f"{PATH}.at_pivot"] = FittedNumber(f"critical_batch[{group}]", factor, "token")
        if sharp:
            numbers[f"{PATH}.sharpness"] = FittedNumber(f"sharpness[{group}]", 1.0, "1")
        else:
            rest[f"{PATH}.sharpness"] = KnownNumber(1.0, "1", "the usual one, not fitted")
        rest[f"{PATH}.exponent"] = KnownNumber(float(prior_law.exponent), "1", "that of the prior, not fitted")
        rest[f"{PATH}.tested_batch"] = KnownNumber(float(np.max(runs.batch)), "token")
        if seen > 0.0:
            rest["system.tokens_seen"] = KnownNumber(seen, "token")
        law = partial(_where_measured, group, seen)
    else:
        notes.append(
            "No scenario follows from these rows: it takes one group, or sizes of one family with `parameters`, and "
            "batches in tokens (or a `sequence_length`, or --prior SCENARIO with the same sequences)."
        )
    problem = group_problem(table, names, runs.unit, sharp)
    labels = np.array([f"{group}, batch {one:g}" for group, one in zip(runs.groups, runs.batch, strict=True)])
    return CalibrationCase(
        fit=problem,
        groups=Grouping(labels, "batch"),
        outputs={"amount to target": (1.0,)},
        along=(f"batch [{runs.unit}]", runs.batch),
        candidates=_candidates(table, runs.groups, runs.unit),
        fitted_numbers=numbers,
        known_numbers=rest,
        notes=notes,
        law=law,
        law_needs=(),
        trained_on=once if np.any(once) else None,
        not_kept=[
            *(f"{word}[{name}]" for name in runs.groups[once] for word in ("effective_tokens", "critical_batch")),
            *(name for name in problem.constants if name.startswith(DEVIATION)),
        ],
        nuisance=(DEVIATION,),
        predictions=partial(_predictions, table, runs),
    )


def _whole_over_rest(group: str, seen: float, exponent: float, values: Mapping[str, float]) -> float:
    """Critical batch of a whole run that ends where these runs end, over that of these runs."""
    rest = values[f"effective_tokens[{group}]"]
    return 1.0 / float(rest_critical_batch(np.asarray(1.0), np.asarray(seen), np.asarray(rest), np.asarray(exponent)))


def _where_measured(group: str, seen: float, values: Mapping[str, float]) -> dict[str, KnownNumber]:
    """Tokens at the end of the runs, where the law agrees with them and begins to extrapolate."""
    end = seen + values[f"effective_tokens[{group}]"]
    return {f"{PATH}.{name}": KnownNumber(end, "token") for name in ("pivot", "tested_tokens")}


def _family_case(runs: _Runs, prior_law: PowerCriticalBatch) -> CalibrationCase:
    """One law for the sizes of a family, see `batch_curves.family_errors`."""
    columns, names = runs.table.columns, runs.groups.tolist()
    usual = columns.get("usual_tokens")
    if (usual is None or np.any(np.isnan(usual))) and "parameters" in columns:
        usual = TOKENS_PER_PARAMETER * columns["parameters"]
    if usual is None or np.any(np.isnan(usual)):
        column = "parameters" if "parameters" in columns else "usual_tokens"
        line = runs.table.lines[int(np.flatnonzero(np.isnan(columns[column]))[0])]
        raise InputError(f'{runs.table.path}, line {line}, column "{column}": empty. Write it in every row or in none.')
    if np.any(runs.seen > 0.0) and "usual_tokens" not in columns:
        usual = None  # of the rest of a run the parameters say nothing
    table = batch_runs(runs.groups, runs.batch, runs.amount, usual, runs.seen)
    medians = {
        "critical_batch_at_pivot": float(prior_law.run_level(PIVOT, np.asarray(3.0))),
        "exponent": min(max(float(prior_law.exponent), 0.02), 0.98),
    }

    def problem(constants: ConstantPriors) -> FitProblem:
        known = {name: one._replace(median=medians.get(name, one.median)) for name, one in constants.items()}
        return FitProblem(family_errors, known, table, noise=FAMILY_NOISE, options=FAMILY_OPTIONS)

    excluded = excluded_hyperbolas(problem(family_constants(names, SHARPNESS)))
    middle = np.zeros(len(names), bool)
    for name in runs.names:
        rows = np.flatnonzero(runs.groups == name)
        middle[rows[np.argsort(runs.batch[rows], kind="stable")[(len(rows) - 1) // 2]]] = True
    return CalibrationCase(
        fit=problem(family_constants(names, SHARPNESS if excluded else None)),
        groups=Grouping(runs.groups, "size"),
        outputs={"tokens to target": (1.0,)},
        along=("batch [token]", runs.batch),
        candidates=_candidates(table, runs.groups, "token"),
        notes=(
            *runs.notes,
            *_sharpness_notes(excluded),
            f"critical_batch_at_pivot is that of a run of {PIVOT:g} effective tokens.",
            "A held-out size is predicted from the law and one of its runs, at its middle batch.",
        ),
        law=lambda values: _law_numbers(family_law(values)),
        law_needs=("critical_batch_at_pivot", "exponent"),
        trained_on=middle,
        predictions=partial(_predictions, table, runs),
    )


def _sharpness_notes(excluded: Mapping[str, tuple[float, float]]) -> list[str]:
    return [
        f"{name} is fitted, since the measurements exclude 1 (99 %: {low:.3g} to {high:.3g})."
        for name, (low, high) in excluded.items()
    ] or ["The sharpness is 1, McCandlish's hyperbola, which the measurements do not exclude."]


def _prior_law(prior: Scenario | None) -> PowerCriticalBatch:
    law = getattr((prior or load_scenario(BASE)).system.learning, "critical_batch", None)
    if not isinstance(law, PowerCriticalBatch):
        raise InputError(
            f"{prior.name if prior else BASE}: {PATH} is {type(law).__name__}; measured batches give a "
            f"PowerCriticalBatch. Name a prior that has one, such as {BASE}."
        )
    return law


def _law_numbers(law: PowerCriticalBatch) -> dict[str, KnownNumber]:
    return {
        f"{PATH}.at_pivot": KnownNumber(float(law.at_pivot), "token"),
        f"{PATH}.exponent": KnownNumber(float(law.exponent), "1"),
        f"{PATH}.pivot": KnownNumber(float(law.pivot), "token"),
        f"{PATH}.sharpness": KnownNumber(float(law.sharpness), "1"),
    }


def _settings(runs: BatchRuns, settings: Sequence[tuple[int, float]]) -> BatchRuns:
    """The groups of some rows at other batches, with an amount of 1."""
    rows = np.array([row for row, _ in settings])
    table = BatchRuns(*(np.asarray(column)[rows] for column in runs))
    batch = np.array([one for _, one in settings])
    nodes = deviation_weights(runs, table.group, batch)[0]
    return table._replace(batch=batch, tokens=np.ones(len(rows)), nodes=nodes)


def _candidates(runs: BatchRuns, groups: np.ndarray, unit: str) -> Candidates:
    """Batches of every group from its smallest to some times its largest."""
    settings: list[tuple[int, float]] = []
    for name in dict.fromkeys(groups.tolist()):
        rows = np.flatnonzero(groups == name)
        lowest, highest = np.min(runs.batch[rows]), np.max(runs.batch[rows])
        settings += [(int(rows[0]), float(one)) for one in np.geomspace(lowest, REACH * highest, STEPS)]
    settings = Candidates.thinned(settings)
    words = [f"{groups[row]}, batch {one:.3g} {unit}s" for row, one in settings]
    return Candidates(_settings(runs, settings), words)


def _predictions(table: BatchRuns, runs: _Runs, fitted: FitResult) -> tuple[PredictedAmount, ...]:
    """Amounts at the batches of rows without one, or else of every group at its smallest batch and its doublings."""
    settings = list(runs.asked)
    for name in () if settings else runs.names:
        rows = np.flatnonzero(runs.groups == name)
        lowest, highest = float(np.min(runs.batch[rows])), float(np.max(runs.batch[rows]))
        doublings = int(np.ceil(np.log2(max(FARTHEST, BEYOND * highest / lowest)) - 1e-9))
        settings += [(int(rows[0]), lowest * 2.0**power) for power in range(doublings + 1)]
    names = [str(runs.groups[row]) for row, _ in settings]
    asked = _settings(table, settings)
    left = deviation_weights(table, asked.group, asked.batch)[1] if DEVIATION in " ".join(fitted.names) else 0.0
    return predicted_amounts(fitted, asked, names, [one for _, one in settings], runs.unit, left)
