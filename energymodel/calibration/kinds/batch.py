"""How does a file of batches and steps (or tokens) to a target become a fit: `calibrate` kind `batch`?"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from energymodel.calibration import critical_batch
from energymodel.calibration.critical_batch import PIVOT, BatchRuns, batch_runs
from energymodel.calibration.measurements import Column, Measurements, check_repeats
from energymodel.calibration.problem import BASE, MOST_CANDIDATES, Given, Problem
from energymodel.errors import InputError
from energymodel.learning.critical_batch import PowerCriticalBatch
from energymodel.presets.scenario import Scenario, load_scenario

TOKENS_PER_PARAMETER = 20.0
"""Usual tokens of a size, of which the fit finds a multiple [Hoffmann et al. 2022, table 3]."""
PATH = "system.learning.critical_batch"
REACH = 4.0
STEPS = 8

BATCH_COLUMNS = (
    Column("group", "text", "what has one target: a size, a benchmark", needed=False, others=("model", "benchmark")),
    Column("batch_tokens", "token", "batch in tokens", needed=False, others=("batch_size_tokens",)),
    Column(
        "batch_sequences", "sequence", "batch in sequences or samples", needed=False,
        others=("batch_size_sequences", "global_batch_size", "batch_size", "batch"),
    ),
    Column("steps", "1", "steps to the target", needed=False, others=("steps_to_target", "steps_mean")),
    Column("tokens", "token", "tokens to the target", needed=False, others=("tokens_to_target",)),
    Column(
        "sequences", "sequence", "sequences or samples to the target", needed=False,
        others=("converge_mean_sequences", "train_sequences_mean", "samples"),
    ),
    Column(
        "parameters", "1", "parameters of the model, where groups are sizes of one family", needed=False,
        others=("params_n", "params"),
    ),
    Column("usual_tokens", "token", "tokens of the group's order of magnitude", needed=False,
           others=("chinchilla_tokens",)),
    Column("run", "text", "number of a repeated measurement", needed=False, others=("round", "seed")),
)  # fmt: skip


def batch_problem(table: Measurements, prior: Scenario | None) -> Problem:
    """Effective tokens of each group and its critical batch, or one power law for the sizes of a family."""
    batch, measured, unit = _in_one_unit(table)
    columns = table.columns
    check_repeats(table, ("group", "parameters", "batch_tokens", "batch_sequences", "run"))
    sizes = columns.get("parameters")
    default = np.array(["all"] * len(table) if sizes is None else [f"{size:g} parameters" for size in sizes])
    groups = columns.get("group", default)
    for name in dict.fromkeys(groups.tolist()):
        if len(np.unique(batch[groups == name])) < 2:
            line = table.lines[int(np.flatnonzero(groups == name)[0])]
            raise InputError(
                f'{table.path}, line {line}: "{name}" was measured at one batch only; a critical batch needs several. '
                "Measure another batch to the same target, or leave the group out."
            )
    if unit == "token" and len({*groups.tolist()}) > 1 and {"parameters", "usual_tokens"} & {*columns}:
        return _family(table, groups, batch, measured, prior)
    runs = batch_runs(groups, batch, measured)
    candidates, words = _candidates(runs, groups, unit)
    notes, law = [], None
    if unit == "token" and len({*groups.tolist()}) == 1:
        law = _single(str(groups[0]), _prior_law(prior).exponent)
    else:
        notes.append(
            "No scenario follows from these rows: it takes one group, or sizes of one family with `parameters`, and "
            "batches in tokens."
        )
    return Problem(
        errors=critical_batch.group_errors, constants=critical_batch.group_constants(runs, groups.tolist(), unit),
        table=runs, weights=np.ones(len(table)),
        groups=np.array([f"{group}, batch {one:g}" for group, one in zip(groups, batch, strict=True)]),
        group_word="batch", outputs={"amount to target": (1.0,)}, along=(f"batch [{unit}]", batch),
        candidates=candidates, candidate_words=words, changes={}, given={}, notes=notes, law=law,
    )  # fmt: skip


def _family(
    table: Measurements, groups: np.ndarray, batch: np.ndarray, tokens: np.ndarray, prior: Scenario | None
) -> Problem:
    columns = table.columns
    usual = columns.get("usual_tokens")
    usual = TOKENS_PER_PARAMETER * columns["parameters"] if usual is None or np.any(np.isnan(usual)) else usual
    if np.any(np.isnan(usual)):
        line = table.lines[int(np.flatnonzero(np.isnan(usual))[0])]
        raise InputError(f'{table.path}, line {line}, column "parameters": empty. Write it in every row or in none.')
    runs = batch_runs(groups, batch, tokens, usual)
    names = groups.tolist()
    constants = {name: one for name, one in critical_batch.shared_constants(names).items() if name != "sharpness"}
    law = _prior_law(prior)
    at_pivot = float(law.run_level(PIVOT, np.asarray(3.0)))
    constants["critical_batch_at_pivot"] = constants["critical_batch_at_pivot"]._replace(median=at_pivot)
    constants["exponent"] = constants["exponent"]._replace(median=min(max(float(law.exponent), 0.02), 0.98))
    candidates, words = _candidates(runs, groups, "token")
    known = np.zeros(len(table), bool)
    for name in dict.fromkeys(names):
        rows = np.flatnonzero(groups == name)
        known[rows[np.argsort(batch[rows], kind="stable")[(len(rows) - 1) // 2]]] = True

    def numbers(values: Mapping[str, float]) -> dict[str, Given]:
        return _at_one_token(values["critical_batch_at_pivot"] * PIVOT ** -values["exponent"], values["exponent"])

    return Problem(
        errors=critical_batch.family_errors, constants=constants, table=runs, weights=np.ones(len(table)),
        groups=groups, group_word="size", outputs={"tokens to target": (1.0,)}, along=("batch [token]", batch),
        candidates=candidates, candidate_words=words, changes={}, given={},
        notes=[
            f"critical_batch_at_pivot is that of a run of {PIVOT:g} effective tokens.",
            "A held-out size is predicted from the law and one of its runs, at its middle batch.",
        ],
        law=numbers, law_needs=("critical_batch_at_pivot", "exponent"), known=known,
    )  # fmt: skip


def _in_one_unit(table: Measurements) -> tuple[np.ndarray, np.ndarray, str]:
    """Batch and amount to the target, both in tokens or both in sequences."""
    columns = table.columns
    full = {
        name: values for name, values in columns.items() if values.dtype.kind == "f" and not np.any(np.isnan(values))
    }
    partly = [name for name in columns if columns[name].dtype.kind == "f" and name not in full]
    for batch, amount in (("batch_tokens", "tokens"), ("batch_sequences", "sequences")):
        if batch in full and amount in full:
            return full[batch], full[amount], amount[:-1]
        if batch in full and "steps" in full:
            return full[batch], full[batch] * full["steps"], amount[:-1]
    for name in partly:
        line = table.lines[int(np.flatnonzero(np.isnan(columns[name]))[0])]
        raise InputError(
            f'{table.path}, line {line}, column "{name}": empty. Write it in every row, leave it out, or choose rows '
            "that have it with --where COLUMN=WORD."
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


def _at_one_token(coefficient: float, exponent: float) -> dict[str, Given]:
    return {f"{PATH}.coefficient": Given(coefficient, "token"), f"{PATH}.exponent": Given(exponent, "1")}


def _single(group: str, exponent: Any) -> Callable[[Mapping[str, float]], Mapping[str, Given]]:
    """The law that agrees with one group, with the exponent of the prior."""

    def numbers(values: Mapping[str, float]) -> dict[str, Given]:
        coefficient = values[f"critical_batch[{group}]"] * values[f"effective_tokens[{group}]"] ** -float(exponent)
        return _at_one_token(coefficient, float(exponent))

    return numbers


def _candidates(runs: BatchRuns, groups: np.ndarray, unit: str) -> tuple[BatchRuns, list[str]]:
    """Batches of every group from its smallest to some times its largest."""
    names = list(dict.fromkeys(groups.tolist()))
    chosen: list[int] = []
    batch: list[float] = []
    for name in names:
        rows = np.flatnonzero(groups == name)
        lowest, highest = np.min(runs.batch[rows]), np.max(runs.batch[rows])
        for one in np.geomspace(lowest, REACH * highest, STEPS):
            chosen.append(int(rows[0]))
            batch.append(float(one))
    every = slice(None, None, max(1, -(-len(chosen) // MOST_CANDIDATES)))
    rows, at = np.array(chosen)[every], np.array(batch)[every]
    table = BatchRuns(*(np.asarray(column)[rows] for column in runs))._replace(batch=at)
    return table, [f"{groups[row]}, batch {one:.3g} {unit}s" for row, one in zip(rows, at, strict=True)]
