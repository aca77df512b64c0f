"""How do tokens to a target grow with the batch: `calibrate` kind `batch`, from batch and tokens (or steps)?

Each group (a benchmark, a task) has its own effective tokens and critical batch; or groups are sizes of one model
family on the same data, whose critical batches follow one power law of the tokens, so that a size that was never
measured at large batches is predicted.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from energymodel.calibration.calibration_case import BASE, CalibrationCase, Candidates, Grouping, KnownNumber
from energymodel.calibration.constant_priors import ConstantPrior, ConstantPriors, Rows, Values
from energymodel.calibration.least_squares import FitOptions, FitProblem
from energymodel.calibration.measurements import Measurements, check_repeats, optional
from energymodel.errors import InputError
from energymodel.learning.critical_batch import (
    PowerCriticalBatch,
    batch_penalty,
    power_critical_batch,
    sharp_batch_penalty,
)
from energymodel.presets.scenario import Scenario, load_scenario

PIVOT = 5e9
"""Tokens [token] at which the coefficient of the shared law is fitted, so that it hardly depends on the exponent."""
TOKENS_PER_PARAMETER = 20.0
"""Usual tokens of a size, of which the fit finds a multiple [Hoffmann et al. 2022, table 3]."""
PATH = "system.learning.critical_batch"
REACH = 4.0  # times the largest batch, up to which batches are proposed to be measured next
STEPS = 8
OPTIONS = FitOptions(starts=4, tolerance=1e-7, steps=100)

BATCH_COLUMNS = (
    optional("group", "text", "what has one target: a size, a benchmark", "model", "benchmark"),
    optional("batch_tokens", "token", "batch in tokens", "batch_size_tokens"),
    optional(
        "batch_sequences",
        "sequence",
        "batch in sequences or samples",
        "batch_size_sequences",
        "global_batch_size",
        "batch_size",
        "batch",
    ),
    optional("steps", "1", "steps to the target", "steps_to_target", "steps_mean"),
    optional("tokens", "token", "tokens to the target", "tokens_to_target"),
    optional(
        "sequences",
        "sequence",
        "sequences or samples to the target",
        "converge_mean_sequences",
        "train_sequences_mean",
        "samples",
    ),
    optional("parameters", "1", "parameters of the model, where groups are sizes of one family", "params_n", "params"),
    optional("usual_tokens", "token", "tokens of the group's order of magnitude", "chinchilla_tokens"),
    optional("run", "text", "number of a repeated measurement", "round", "seed"),
)


class BatchRuns(NamedTuple):
    """Runs to a target, one row each; batch and tokens in one unit (token or sequence).

    - `group`: number of the group, from 0.
    - `batch`: B.
    - `tokens`: to the target, D.
    - `usual_batch`: a batch of the group's order of magnitude: the prior's median of its critical batch.
    - `usual_tokens`: tokens of the group's order of magnitude: the prior's median of its effective tokens. For sizes of
      a family they say how the sizes differ, such as 20 tokens per parameter.
    """

    group: Int[Array | np.ndarray, " rows"]
    batch: Rows
    tokens: Rows
    usual_batch: Rows
    usual_tokens: Rows


def batch_runs(groups: Sequence[Any] | np.ndarray, batch: Any, tokens: Any, usual_tokens: Any = None) -> BatchRuns:
    """The table of some runs; what is usual is the geometric mean of a group, unless it is given."""
    batch, tokens = np.asarray(batch, np.float64), np.asarray(tokens, np.float64)
    labels = np.asarray(groups).tolist()
    names = list(dict.fromkeys(labels))
    group = np.array([names.index(name) for name in labels])

    def usual(values: np.ndarray) -> np.ndarray:
        means = [np.exp(np.mean(np.log(values[group == number]))) for number in range(len(names))]
        return np.array(means)[group]

    given = usual(tokens) if usual_tokens is None else np.asarray(usual_tokens, np.float64)
    return BatchRuns(group, batch, tokens, usual(batch), given)


def family_constants(groups: Sequence[str] = (), sharpness: ConstantPrior | None = None) -> ConstantPriors:
    """Priors of the law of a family; the tokens of each group are its own, or one multiple of the usual ones.

    **Arguments:**

    - `groups`: of which the effective tokens are fitted one by one; none: one share for all.
    - `sharpness`: of the penalty, if it is fitted.
    """
    return {
        "critical_batch_at_pivot": ConstantPrior(2e6, 1.0, unit="token"),
        "exponent": ConstantPrior(0.5, 0.25, 0.0, 1.0),
        **({} if sharpness is None else {"sharpness": sharpness}),
        "effective_share": ConstantPrior(0.9, 0.5, unit="usual tokens", labels=tuple(dict.fromkeys(groups))),
    }


def family_errors(values: Values, runs: BatchRuns) -> Float[Array, "rows 1"]:
    """Logarithmic errors of one law for all groups, with a `sharpness` of one where there is none (a hyperbola)."""
    share = jnp.atleast_1d(values["effective_share"])
    effective = share[jnp.minimum(runs.group, share.shape[0] - 1)] * runs.usual_tokens
    critical = power_critical_batch(effective / PIVOT, values["critical_batch_at_pivot"], values["exponent"])
    penalty = sharp_batch_penalty(runs.batch, critical, values.get("sharpness", jnp.ones(())))
    return jnp.log(effective * penalty / runs.tokens)[:, None]


def group_constants(runs: BatchRuns, groups: Sequence[str], unit: str) -> ConstantPriors:
    """Effective tokens and critical batch of each group by name, in the unit of its batches, within a factor of some
    seven of what is usual in it.
    """
    first = {name: place for place, name in reversed([*enumerate(groups)])}
    return {
        f"{word}[{name}]": ConstantPrior(float(usual[first[name]]), 2.0, unit=unit)
        for word, usual in (("effective_tokens", runs.usual_tokens), ("critical_batch", runs.usual_batch))
        for name in dict.fromkeys(groups)
    }


def group_errors(values: Values, runs: BatchRuns) -> Float[Array, "rows 1"]:
    """Logarithmic errors of one hyperbola for each group [McCandlish et al. 2018, sec. 2.3], see `group_constants`."""
    constants = jnp.stack([jnp.asarray(value) for value in values.values()])
    effective, critical = constants.reshape(2, -1)[:, runs.group]
    return jnp.log(effective * batch_penalty(runs.batch, critical) / runs.tokens)[:, None]


def family_law(values: Mapping[str, Any]) -> PowerCriticalBatch:
    """The fitted power law of the critical batch, as a component of a system."""
    at_pivot, exponent, pivot = map(np.asarray, (values["critical_batch_at_pivot"], values["exponent"], PIVOT))
    return PowerCriticalBatch(at_pivot, exponent, pivot, np.asarray(values.get("sharpness", 1.0)))


def batch_case(table: Measurements, prior: Scenario | None) -> CalibrationCase:
    """Effective tokens of each group and its critical batch, or one power law for the sizes of a family."""
    batch, measured, unit = _in_one_unit(table)
    columns = table.columns
    check_repeats(table, ("group", "parameters", "batch_tokens", "batch_sequences", "run"))
    sizes = columns.get("parameters")
    default = np.array(["all"] * len(table) if sizes is None else [f"{size:g} parameters" for size in sizes])
    groups = columns.get("group", default)
    names = list(dict.fromkeys(groups.tolist()))
    for name in names:
        if len(np.unique(batch[groups == name])) < 2:
            line = table.lines[int(np.flatnonzero(groups == name)[0])]
            raise InputError(
                f'{table.path}, line {line}: "{name}" was measured at one batch only; a critical batch needs several. '
                "Measure another batch to the same target, or leave the group out."
            )
    if unit == "token" and len(names) > 1 and {"parameters", "usual_tokens"} & {*columns}:
        return _family_case(table, groups, batch, measured, _prior_law(prior))
    runs = batch_runs(groups, batch, measured)
    notes, law = (), None
    if unit == "token" and len(names) == 1:
        law = partial(_single_group_law, names[0], float(_prior_law(prior).exponent))
    else:
        notes = (
            "No scenario follows from these rows: it takes one group, or sizes of one family with `parameters`, and "
            "batches in tokens.",
        )
    labels = np.array([f"{group}, batch {one:g}" for group, one in zip(groups, batch, strict=True)])
    constants = group_constants(runs, groups.tolist(), unit)
    return CalibrationCase(
        fit=FitProblem(group_errors, constants, runs, noise=0.04, options=OPTIONS),
        groups=Grouping(labels, "batch"),
        outputs={"amount to target": (1.0,)},
        along=(f"batch [{unit}]", batch),
        candidates=_candidates(runs, groups, unit),
        notes=notes,
        law=law,
    )


def _family_case(
    table: Measurements, groups: np.ndarray, batch: np.ndarray, tokens: np.ndarray, prior_law: PowerCriticalBatch
) -> CalibrationCase:
    columns = table.columns
    usual = columns.get("usual_tokens")
    usual = TOKENS_PER_PARAMETER * columns["parameters"] if usual is None or np.any(np.isnan(usual)) else usual
    if np.any(np.isnan(usual)):
        line = table.lines[int(np.flatnonzero(np.isnan(usual))[0])]
        raise InputError(f'{table.path}, line {line}, column "parameters": empty. Write it in every row or in none.')
    runs = batch_runs(groups, batch, tokens, usual)
    names = groups.tolist()
    medians = {
        "critical_batch_at_pivot": float(prior_law.run_level(PIVOT, np.asarray(3.0))),
        "exponent": min(max(float(prior_law.exponent), 0.02), 0.98),
    }
    constants = {
        name: one._replace(median=medians.get(name, one.median)) for name, one in family_constants(names).items()
    }
    middle = np.zeros(len(table), bool)
    for name in dict.fromkeys(names):
        rows = np.flatnonzero(groups == name)
        middle[rows[np.argsort(batch[rows], kind="stable")[(len(rows) - 1) // 2]]] = True
    return CalibrationCase(
        fit=FitProblem(family_errors, constants, runs, noise=0.04, options=OPTIONS),
        groups=Grouping(groups, "size"),
        outputs={"tokens to target": (1.0,)},
        along=("batch [token]", batch),
        candidates=_candidates(runs, groups, "token"),
        notes=(
            f"critical_batch_at_pivot is that of a run of {PIVOT:g} effective tokens.",
            "A held-out size is predicted from the law and one of its runs, at its middle batch.",
        ),
        law=lambda values: _law_numbers(family_law(values)),
        law_needs=("critical_batch_at_pivot", "exponent"),
        trained_on=middle,
    )


def _in_one_unit(table: Measurements) -> tuple[np.ndarray, np.ndarray, str]:
    """Batch and amount to the target, both in tokens or both in sequences."""
    numbers = {name: values for name, values in table.columns.items() if values.dtype.kind == "f"}
    full = {name: values for name, values in numbers.items() if not np.any(np.isnan(values))}
    for batch, amount in (("batch_tokens", "tokens"), ("batch_sequences", "sequences")):
        if batch in full and amount in full:
            return full[batch], full[amount], amount[:-1]
        if batch in full and "steps" in full:
            return full[batch], full[batch] * full["steps"], amount[:-1]
    for name, values in numbers.items():
        if name not in full:
            line = table.lines[int(np.flatnonzero(np.isnan(values))[0])]
            raise InputError(
                f'{table.path}, line {line}, column "{name}": empty. Write it in every row, leave it out, or choose '
                "rows that have it with --where COLUMN=WORD."
            )
    batch = "batch_tokens" if "batch_tokens" in full else "batch_sequences"
    missing, meaning = (
        ("batch_tokens", "batch in tokens (or batch_sequences, in sequences)")
        if batch not in full
        else ("steps", f"steps to the target (or {batch.removeprefix('batch_')}, the amount to it)")
    )
    raise InputError(f'{table.path}, line 1: column "{missing}" is missing: {meaning}.')


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


def _single_group_law(group: str, exponent: float, values: Mapping[str, float]) -> dict[str, KnownNumber]:
    """The law that agrees with one group, with the exponent of the prior."""
    at_pivot, pivot = (np.asarray(values[f"{word}[{group}]"]) for word in ("critical_batch", "effective_tokens"))
    return _law_numbers(PowerCriticalBatch(at_pivot, np.asarray(exponent), pivot))


def _candidates(runs: BatchRuns, groups: np.ndarray, unit: str) -> Candidates:
    """Batches of every group from its smallest to some times its largest."""
    settings: list[tuple[int, float]] = []
    for name in dict.fromkeys(groups.tolist()):
        rows = np.flatnonzero(groups == name)
        lowest, highest = np.min(runs.batch[rows]), np.max(runs.batch[rows])
        settings += [(int(rows[0]), float(one)) for one in np.geomspace(lowest, REACH * highest, STEPS)]
    settings = Candidates.thinned(settings)
    rows = np.array([row for row, _ in settings])
    table = BatchRuns(*(np.asarray(column)[rows] for column in runs))
    words = [f"{groups[row]}, batch {one:.3g} {unit}s" for row, one in settings]
    return Candidates(table._replace(batch=np.array([one for _, one in settings])), words)
