"""Kind `batch`: effective tokens and critical batches from tokens (or steps) to a target at some batches.

Each group (a benchmark, a task) has its own effective tokens and critical batch; a group that was measured at one batch
has the usual multiple of it. Or groups are sizes of one model family on the same data, whose critical batches follow
one power law of the tokens, so that a size that was never measured at large batches is predicted.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from energymodel.calibration import batch_curves
from energymodel.calibration.calibration_case import (
    BASE,
    NORMAL_90,
    CalibrationCase,
    Candidates,
    Grouping,
    PredictedAmount,
    WrittenNumber,
)
from energymodel.calibration.constant_priors import ConstantPrior
from energymodel.calibration.intervals import LEVEL
from energymodel.calibration.least_squares import FitOptions, FitProblem, FitResult, fit
from energymodel.errors import InputError
from energymodel.learning.critical_batch import PowerCriticalBatch, rest_critical_batch
from energymodel.readers.table import Measurements, check_repeats
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.units import counted

TOKENS_PER_PARAMETER = 20.0
"""Usual tokens of a size, of which the fit finds a multiple [Hoffmann et al. 2022, table 3]."""
PATH = "system.learning.critical_batch"
SMALL_BATCHES = "small_batches"  # over k of the prior, which the scenario has anew: it is no prior itself
REACH = 4.0  # times the largest batch, up to which batches are proposed to be measured next
STEPS = 8
FAMILY_NOISE = 0.04
FAMILY_OPTIONS = FitOptions(starts=4, tolerance=1e-7, steps=100)
FARTHEST, BEYOND = 16.0, 2.0  # amounts are predicted up to so many times the smallest and the largest measured batch
LISTED_LINES = 8
SAME = 1e-9  # relative: amounts of a carry-over
SETTING = ("group", "parameters", "batch_tokens", "batch_sequences", "run")
AMOUNTS = ("tokens", "sequences", "steps")


class _Runs(NamedTuple):
    """Rows that count, as a table of the fit."""

    rows: Measurements
    groups: np.ndarray
    table: batch_curves.BatchRuns
    unit: str
    asked: list[tuple[int, float]]  # batches without an amount, each with a measured row of its group

    @property
    def batch(self) -> np.ndarray:
        return np.asarray(self.table.batch)

    @property
    def members(self) -> dict[str, np.ndarray]:
        """Numbers of the rows of each group."""
        return {name: np.flatnonzero(self.groups == name) for name in self.groups.tolist()}

    def at(self, settings: Sequence[tuple[int, float]]) -> batch_curves.BatchRuns:
        """The groups of some rows at other batches, with an amount of 1."""
        rows, batch = (np.array(column) for column in zip(*settings, strict=True))
        table = batch_curves.BatchRuns(*(np.asarray(column)[rows] for column in self.table))
        nodes = batch_curves.deviation_weights(self.table, table.group, batch)[0]
        return table._replace(batch=batch, tokens=np.ones(len(rows)), nodes=nodes)


def batch_case(table: Measurements, prior: Scenario | None) -> CalibrationCase:
    """Effective tokens of each group and its critical batch, or one power law for the sizes of a family.

    **Raises:** `InputError` for rows that cannot be counted in one unit, and a prior without such a law.
    """
    runs = _counted_runs(table, prior)
    law = getattr((prior or load_scenario(BASE)).system.learning, "critical_batch", None)
    if not isinstance(law, PowerCriticalBatch):
        raise InputError(
            f"{prior.name if prior else BASE}: {PATH} is {type(law).__name__}; measured batches give a "
            f"PowerCriticalBatch. Name a prior that has one, such as {BASE}."
        )
    is_family = runs.unit == "token" and len(runs.members) > 1 and {"parameters", "usual_tokens"} & {*table.columns}
    runs = _with_usual_tokens(runs) if is_family else runs
    if runs.unit == "token":
        share = float(law.small_batch_share) * (
            1.0 if is_family else batch_curves.share_of_rest(runs.table, float(law.exponent))
        )
        runs = runs._replace(table=runs.table._replace(small_batch_share=np.full(len(runs.rows), share)))
    case = _family(runs, law) if is_family else _groups(runs, law)
    return CalibrationCase(
        along=(f"batch [{runs.unit}]", runs.batch),
        candidates=_candidates(runs),
        predictions=partial(_predictions, runs),
        **{**case, "notes": (*runs.rows.notes, *case["notes"])},
    )


def _counted_runs(table: Measurements, prior: Scenario | None) -> _Runs:
    """Rows that count, in one unit; those without an amount ask for a prediction."""
    table = _counted_once(table)
    present = [name for name in AMOUNTS if name in table.columns]
    without = np.full(len(table), bool(present))
    for name in present:
        without &= np.isnan(table.columns[name])
    if np.all(without):
        words = "empty, as in all rows. Write it in those that were measured; the others are predicted."
        raise table.error(0, words, present[0])
    table = table.having({name: np.where(without, 1.0, table.columns[name]) for name in present}, table.notes)
    batch, amount, unit = _in_one_unit(table)
    check_repeats(table.select(~without), (*SETTING, "round"))
    sizes = table.columns.get("parameters")
    default = np.array(["all"] * len(table) if sizes is None else [f"{size:g} parameters" for size in sizes])
    groups, notes = table.columns.get("group", default), table.notes
    if unit == "sequence" and prior is not None and len(np.unique(groups)) == 1:
        length = float(prior.system.workload.sequence)
        notes = (*notes, f"Sequences have {length:g} tokens, as those of {prior.name}.")
        batch, amount, unit = batch * length, amount * length, "token"
    measured, asked = np.flatnonzero(~without), []
    for row in np.flatnonzero(without):
        own = np.flatnonzero(groups[measured] == groups[row])
        if not len(own):
            raise table.error(
                int(row),
                f'nothing was measured of "{groups[row]}". Write the amount to the target in one of its rows; those '
                "without are predicted.",
            )
        asked.append((int(own[0]), float(batch[row])))
    rows, groups = table.select(measured).having({}, notes), groups[measured]
    seen = np.nan_to_num(rows.columns.get("tokens_seen", np.zeros(len(rows))))
    runs = _Runs(
        rows, groups, batch_curves.batch_runs(groups, batch[measured], amount[measured], tokens_seen=seen), unit, asked
    )
    for name, (first, *others) in runs.members.items():
        for other in others:
            if seen[other] != seen[first]:
                raise rows.error(
                    other,
                    f"{seen[other]:g} token where line {rows.lines[first]} has {seen[first]:g}. The runs of "
                    f'"{name}" start from one checkpoint: write the same in all of its rows, or give runs from another '
                    "checkpoint a group of their own.",
                    "tokens_seen",
                )
    if unit == "sequence" and np.any(seen > 0.0):
        raise InputError(
            f'{table.path}: "tokens_seen" needs batches in tokens. Add a column "sequence_length", the tokens of a '
            "sequence, or write batch_tokens."
        )
    return runs


def _counted_once(table: Measurements) -> Measurements:
    """The rows that count, with notes on the others: suspect ones, and those that carry over the value of another row.

    A carry-over has the setting and the amount of another row, and another `round`, or it says so itself.
    """
    suspect, rounds = table.text("suspect", "") != "", table.text("round", "")
    flagged = np.isin(np.char.lower(table.text("repeat_of_earlier_round", "")), ("1", "yes", "true"))
    present = [table.columns[name] for name in SETTING if name in table.columns]
    amount = next((table.columns[name] for name in AMOUNTS if name in table.columns), np.zeros(len(table)))
    carried, first = np.zeros(len(table), bool), dict[tuple[str, ...], list[int]]()
    for row in [*np.flatnonzero(~flagged & ~suspect), *np.flatnonzero(flagged & ~suspect)]:
        twins = first.setdefault(tuple(str(column[row]) for column in present), [])
        carried[row] = any(
            np.isclose(amount[row], amount[twin], rtol=SAME, atol=0.0) and (flagged[row] or rounds[row] != rounds[twin])
            for twin in twins
        )
        twins += [] if carried[row] else [int(row)]
    notes = []
    for rows, words in (
        (suspect, "left out, because the column `suspect` says why"),
        (carried, "carried over from an earlier round, counted once"),
    ):
        lines = table.lines[rows].tolist()
        more = f" and {len(lines) - LISTED_LINES} more" if len(lines) > LISTED_LINES else ""
        listed = f"line{'s' * (len(lines) != 1)} {', '.join(map(str, lines[:LISTED_LINES]))}{more}"
        notes += [f"{counted(len(lines), 'row')} {words}: {listed}."] if lines else []
    if np.all(suspect | carried):
        raise InputError(f"{table.path}: every row is marked in the column `suspect`. Clear it in rows to be fitted.")
    return table.select(~suspect & ~carried).having({}, notes)


def _in_one_unit(table: Measurements) -> tuple[np.ndarray, np.ndarray, str]:
    """Batch and amount to the target, both in tokens or both in sequences."""
    numbers = {name: values for name, values in table.columns.items() if values.dtype.kind == "f"}
    full = {name: values for name, values in numbers.items() if not np.any(np.isnan(values))}
    for batch, amount in (("batch_tokens", "tokens"), ("batch_sequences", "sequences")):
        if batch not in full or not {amount, "steps"} & {*full}:
            continue
        to_target = full[amount] if amount in full else full[batch] * full["steps"]
        if batch == "batch_sequences" and "sequence_length" in full:
            return full[batch] * full["sequence_length"], to_target * full["sequence_length"], "token"
        return full[batch], to_target, amount[:-1]
    for name, values in numbers.items():
        if name in ("batch_tokens", "batch_sequences", *AMOUNTS, "sequence_length") and name not in full:
            words = "empty. Write it in every row, leave it out, or choose rows that have it with --where COLUMN=WORD."
            raise table.error(int(np.argmax(np.isnan(values))), words, name)
    batch = "batch_tokens" if "batch_tokens" in full else "batch_sequences"
    missing, meaning = (
        ("batch_tokens", "batch in tokens (or batch_sequences, in sequences)")
        if batch not in full
        else ("steps", f"steps to the target (or {batch.removeprefix('batch_')}, the amount to it)")
    )
    raise InputError(f'{table.path}, line 1: column "{missing}" is missing: {meaning}.')


def _groups(runs: _Runs, prior_law: PowerCriticalBatch) -> dict[str, Any]:
    """A curve for each group, see `batch_curves.group_problem`."""
    population, labels, members = batch_curves.reference_population(), runs.groups.tolist(), runs.members

    def problem(sharp: Sequence[str], small_batches: ConstantPrior | None) -> FitProblem:
        return batch_curves.group_problem(runs.table, labels, runs.unit, sharp, small_batches=small_batches)

    excluded, small_batches = _determined(partial(problem, [*members]))
    sharp = [name for name in members if f"sharpness[{name}]" in excluded]
    notes = [
        *batch_curves.sharpness_notes(excluded),
        *batch_curves.small_batch_notes(small_batches, prior_law, runs.unit),
    ]
    once = [name for name, rows in members.items() if len({*runs.batch[rows].tolist()}) == 1]
    for name in once:
        low, high = (population.multiple * np.exp(sign * NORMAL_90 * population.spread) for sign in (-1.0, 1.0))
        notes.append(
            f'"{name}" was measured at one batch: its critical batch is taken as {population.multiple:g} times that, '
            f"as in the benchmarks of MLPerf (90 %: {low:.2g} to {high:.2g} times). A second batch says more."
        )
    scenario = {}
    if runs.unit == "token" and len(members) == 1:
        scenario = _one_group(runs, prior_law, is_sharp=bool(sharp), is_share_fitted=small_batches is not None)
    else:
        notes.append(
            "No scenario follows from these rows: it takes one group, or sizes of one family with `parameters`, and "
            "batches in tokens (or a `sequence_length`, or --prior SCENARIO with the same sequences)."
        )
    case = problem(sharp, small_batches)
    deviations = [name for name in case.constants if name.startswith(batch_curves.DEVIATION)]
    own = [f"{word}[{name}]" for name in once for word in ("effective_tokens", "critical_batch")]
    batches = np.array([f"{name}, batch {size:g}" for name, size in zip(labels, runs.batch, strict=True)])
    return {
        "fit": case,
        "groups": Grouping(batches, "batch"),
        "outputs": {"amount to target": (1.0,)},
        "notes": notes,
        "law_needs": (),
        "trained_on": np.isin(runs.groups, once) if once else None,
        "not_kept": [*own, SMALL_BATCHES, *deviations],
        "nuisance": (batch_curves.DEVIATION,),
        **scenario,
    }


def _one_group(
    runs: _Runs, prior_law: PowerCriticalBatch, *, is_sharp: bool, is_share_fitted: bool
) -> dict[str, object]:
    """Numbers of a scenario by the curve of one group in tokens, whose runs may start from a checkpoint."""
    group, seen, exponent = runs.groups[0], float(runs.table.tokens_seen[0]), float(prior_law.exponent)
    share = float(prior_law.small_batch_share)

    def factor(values: Mapping[str, float]) -> float:
        """Critical batch of a whole run that ends where these runs end, over that of these runs."""
        rest = values[f"effective_tokens[{group}]"]
        return 1.0 / float(rest_critical_batch(*map(np.asarray, (1.0, seen, rest, exponent))))

    def law(values: Mapping[str, float]) -> dict[str, WrittenNumber]:
        """Tokens at the end of the runs, where the law agrees with them and begins to extrapolate."""
        end = seen + values[f"effective_tokens[{group}]"]
        return {f"{PATH}.{name}": WrittenNumber("token", end) for name in ("pivot", "tested_tokens")}

    fitted = WrittenNumber("1", constant=f"sharpness[{group}]")
    numbers = {
        f"{PATH}.sharpness": fitted if is_sharp else WrittenNumber("1", 1.0, assumed="the usual one, not fitted"),
        f"{PATH}.exponent": WrittenNumber("1", exponent, assumed="that of the prior, not fitted"),
        f"{PATH}.small_batch_share": WrittenNumber("1", 0.0, SMALL_BATCHES, lambda _: share)
        if is_share_fitted
        else WrittenNumber("1", share, assumed="that of the prior, not fitted"),
        f"{PATH}.tested_batch": WrittenNumber("token", float(np.max(runs.batch))),
        f"{PATH}.at_pivot": WrittenNumber("token", 0.0, f"critical_batch[{group}]", factor),
    }
    if seen > 0.0:
        numbers["system.tokens_seen"] = WrittenNumber("token", seen)
    return {"numbers": numbers, "law": law}


def _with_usual_tokens(runs: _Runs) -> _Runs:
    """The sizes of a family with the tokens that each usually takes."""
    columns = runs.rows.columns
    column, usual = "usual_tokens", columns.get("usual_tokens", np.full(len(runs.rows), np.nan))
    if np.any(np.isnan(usual)) and "parameters" in columns:
        column, usual = "parameters", TOKENS_PER_PARAMETER * columns["parameters"]
    if np.any(np.isnan(usual)):
        raise runs.rows.error(int(np.argmax(np.isnan(usual))), "empty. Write it in every row or in none.", column)
    if np.any(runs.table.tokens_seen > 0.0) and "usual_tokens" not in columns:
        return runs  # of the rest of a run parameters say nothing
    return runs._replace(table=runs.table._replace(usual_tokens=usual))


def _family(runs: _Runs, prior_law: PowerCriticalBatch) -> dict[str, Any]:
    """One law for the sizes of a family, see `batch_curves.family_errors`."""
    names = runs.groups.tolist()
    medians = {
        "critical_batch_at_pivot": float(prior_law.run_level(batch_curves.PIVOT, np.asarray(3.0))),
        "exponent": min(max(float(prior_law.exponent), 0.02), 0.98),
    }

    def problem(sharpness: ConstantPrior | None, small_batches: ConstantPrior | None) -> FitProblem:
        constants = batch_curves.family_constants(names, sharpness, small_batches)
        moved = {name: prior._replace(median=medians.get(name, prior.median)) for name, prior in constants.items()}
        return FitProblem(batch_curves.family_errors, moved, runs.table, noise=FAMILY_NOISE, options=FAMILY_OPTIONS)

    def law(values: Mapping[str, float]) -> dict[str, WrittenNumber]:
        share = float(prior_law.small_batch_share) * values.get(SMALL_BATCHES, 1.0)
        fitted = batch_curves.family_law(values, share)
        units = {"at_pivot": "token", "exponent": "1", "pivot": "token", "sharpness": "1"}
        numbers = {name: WrittenNumber(unit, float(getattr(fitted, name))) for name, unit in units.items()}
        words = "" if small_batches else "that of the prior, not fitted"
        numbers["small_batch_share"] = WrittenNumber("1", share, assumed=words)
        return {f"{PATH}.{name}": number for name, number in numbers.items()}

    excluded, small_batches = _determined(partial(problem, batch_curves.SHARPNESS))
    middle = np.zeros(len(names), bool)
    for rows in runs.members.values():
        middle[rows[np.argsort(runs.batch[rows], kind="stable")[(len(rows) - 1) // 2]]] = True
    return {
        "fit": problem(batch_curves.SHARPNESS if excluded else None, small_batches),
        "groups": Grouping(runs.groups, "size"),
        "outputs": {"tokens to target": (1.0,)},
        "notes": (
            *batch_curves.sharpness_notes(excluded),
            *batch_curves.small_batch_notes(small_batches, prior_law, runs.unit),
            f"critical_batch_at_pivot is that of a run of {batch_curves.PIVOT:g} effective tokens.",
            "A held-out size is predicted from the law and one of its runs, at its middle batch.",
        ),
        "law": law,
        "law_needs": ("critical_batch_at_pivot", "exponent"),
        "not_kept": [SMALL_BATCHES],
        "trained_on": middle,
    }


def _determined(
    problem: Callable[[ConstantPrior | None], FitProblem],
) -> tuple[dict[str, tuple[float, float]], ConstantPrior | None]:
    """Sharpnesses that are determined, and the prior of k over its own where runs have batches below the best one.

    **Arguments:**

    - `problem`: with all sharpnesses, by the prior of k over its own.
    """
    bent, small_batches = fit(problem(None)), None
    if batch_curves.has_small_batches(bent):
        small_batches = batch_curves.SMALL_BATCHES
        bent = fit(problem(small_batches))
    return batch_curves.excluded_hyperbolas(bent), small_batches


def _candidates(runs: _Runs) -> Candidates:
    """Batches of every group from its smallest to some times its largest."""
    settings: list[tuple[int, float]] = []
    for rows in runs.members.values():
        batches = np.geomspace(np.min(runs.batch[rows]), REACH * np.max(runs.batch[rows]), STEPS)
        settings += [(int(rows[0]), float(batch)) for batch in batches]
    settings = Candidates.thinned(settings)
    words = [f"{runs.groups[row]}, batch {batch:.3g} {runs.unit}s" for row, batch in settings]
    return Candidates(runs.at(settings), words)


def _predictions(runs: _Runs, fitted: FitResult) -> tuple[PredictedAmount, ...]:
    """Amounts at the batches of rows without one, or else of every group at its smallest batch and its doublings.

    Intervals hold what is uncertain in the constants and the scatter of one measurement. The ends are the model's at
    the constants that move a setting most for their likelihood, `z +- t C J / sqrt(J C J)` [Hasofer & Lind 1974], so
    that they keep the shape of the curve; the scatter adds in squares.
    """
    settings = list(runs.asked)
    for rows in () if settings else runs.members.values():
        lowest, highest = float(np.min(runs.batch[rows])), float(np.max(runs.batch[rows]))
        doublings = int(np.ceil(np.log2(max(FARTHEST, BEYOND * highest / lowest)) - 1e-9))
        settings += [(int(rows[0]), lowest * 2.0**power) for power in range(doublings + 1)]
    table = runs.at(settings)
    has_deviations = any(name.startswith(batch_curves.DEVIATION) for name in fitted.names)
    left = batch_curves.deviation_weights(runs.table, table.group, table.batch)[1] if has_deviations else 0.0
    at_fit = fitted.at(table)
    middle, slopes = at_fit.errors[0, :, 0], at_fit.slopes[0, :, 0]
    quantile = stats.t.ppf(0.5 + 0.5 * LEVEL, fitted.freedom)
    spread = np.sqrt(np.einsum("ri,ij,rj->r", slopes, fitted.covariance, slopes))
    shift = quantile * slopes @ fitted.covariance / spread[:, None]
    errors = fitted.at(table, np.concatenate([fitted.coordinates - shift, fitted.coordinates + shift])).errors[..., 0]
    ends = np.diagonal(errors.reshape(2, len(settings), -1), axis1=1, axis2=2) - middle
    reach = np.hypot(ends, quantile * np.sqrt(fitted.noise[0] ** 2 + left))
    amounts = np.exp([middle, middle - reach[0], middle + reach[1]]).T.tolist()
    return tuple(
        PredictedAmount(str(runs.groups[row]), float(batch), amount, low, high, runs.unit)
        for (row, batch), (amount, low, high) in zip(settings, amounts, strict=True)
    )
