"""Which metered runs of nodes does a CSV file hold?

Meters have gaps: a lowest reading at or below zero is kept, and is no reading of the idle power.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from energymodel.calibration.csv_table import CsvTable, Problem, read_csv, refuse_problems
from energymodel.calibration.measurements import FEWEST_ROWS, Column, Measurements, check_unit, number, optional
from energymodel.calibration.table_columns import TableChoices
from energymodel.errors import InputError, suggest
from energymodel.units import counted


def _reading(name: str, meaning: str) -> Column:
    """A column in which a gap of the meter may stand."""
    return optional(name, "W", meaning)._replace(may_be_zero=True, lowest=-math.inf)


NODE_COLUMNS = (
    optional("submitter", "text", "whose nodes, or which meter"),
    optional("system", "text", "kind and count of nodes", "cluster_name"),
    optional("benchmark", "text", "what was run", "workload", "job"),
    optional("run", "text", "name or number of the run"),
    optional("node", "text", "which node of the run"),
    optional("accelerator", "text", "kind of chip; it must be that of the prior", "gpu"),
    optional("cooling", "text", "air, liquid or immersion; by default that of the prior"),
    Column("node_power_w", "W", "mean power of a node over the run", others=("mean_power_w", "mean_power_per_node_w")),
    _reading("min_power_w", "lowest reading of the node in the run"),
    _reading("pre_run_min_power_w", "lowest reading of the node before the run"),
    optional("idle_power_w", "W", "power of the idle node"),
    optional("chip_power_w", "W", "mean power of a chip over the run", "gpu_power_w", "mean_power_per_gpu_w"),
    optional("chips", "1", "chips in a node", "accelerators_per_node", "gpus_per_node"),
    optional("nodes", "1", "nodes of the run; 1 where empty", "n_nodes_with_power", "n_nodes"),
    optional("rated_power_w", "W", "rated power of a chip", "tdp_w"),
    optional("busy_share", "1", "share of the time in which kernels compute")._replace(highest=1.0),
    optional("samples_per_second", "1/s", "samples per second of the whole run"),
    optional(
        "time_s", "s", "time of the run; of the same work on all systems, unless samples say otherwise", "run_time_s"
    ),
    optional("samples", "1", "samples of the run", "samples_count_at_stop"),
    optional("inlet_temperature_k", "K", "temperature of the air or liquid that the nodes get"),
    optional(
        "supply_efficiency", "1", "efficiency of the power supplies behind the meter; 1 for a meter behind them"
    )._replace(highest=1.0),
)


def read_node_table(path: Path, choices: TableChoices) -> Measurements:
    """Read a CSV file of metered runs; columns that are not of `NODE_COLUMNS` are left alone.

    **Raises:** `InputError` that names file, line and column of every row that cannot be read.
    """
    table = read_csv(path)
    places = _places(table, choices)
    chosen = [row for row in range(len(table.rows)) if _is_chosen(table, row, choices.where)]
    if choices.where and not chosen:
        shown = ", ".join(f"{name}={word}" for name, word in choices.where.items())
        raise InputError(f"{path}: no row has {shown}. Check the words in these columns.")
    problems = list(table.problems)
    columns: dict[str, list[str] | list[float]] = {}
    for column in NODE_COLUMNS:
        if column.name in choices.constants:
            words = [choices.constants[column.name]] * len(chosen)
        elif column.name in places:
            words = [table.rows[row][places[column.name]] for row in chosen]
        else:
            continue
        if column.unit == "text":
            columns[column.name] = words
            continue
        shown = column.name if column.name in choices.constants else table.header[places[column.name]]
        values = []
        for row, word in zip(chosen, words, strict=True):
            value, reason = number(word, column)
            if reason:
                problems.append(Problem(table.lines[row], f'column "{shown}": {reason}'))
            values.append(value)
        columns[column.name] = values
    bad = {one.line for one in problems}
    if bad and not choices.skip_bad_rows:
        _refuse(table, problems, len(chosen))
    kept = [place for place, row in enumerate(chosen) if table.lines[row] not in bad]
    if len(kept) < FEWEST_ROWS:
        raise InputError(
            f"{path}: {counted(len(kept), 'row')} of measurements; at least {FEWEST_ROWS} are needed to "
            "fit constants. Meter more runs."
        )
    notes = table.notes + ((f"Left out: {len(bad):,} rows that cannot be read.",) if bad else ())
    lines = np.array([table.lines[chosen[place]] for place in kept])
    arrays = {name: np.array([values[place] for place in kept]) for name, values in columns.items()}
    return Measurements(str(path), arrays, lines, notes)


def _refuse(table: CsvTable, problems: Sequence[Problem], rows: int) -> None:
    if len(problems) == 1:
        comma = ", " if problems[0].reason.startswith("column") else ": "
        raise InputError(f"{table.path}, line {problems[0].line}{comma}{problems[0].reason}")
    refuse_problems(table.path, problems, rows)


def _is_chosen(table: CsvTable, row: int, where: Mapping[str, str]) -> bool:
    return all(table.rows[row][table.header.index(name)] == word for name, word in where.items())


def _places(table: CsvTable, choices: TableChoices) -> dict[str, int]:
    """Where each known column stands.

    **Raises:** `InputError` for names in options that do not exist, a needed column that is missing, one with another
    unit, and two of one meaning.
    """
    known = {name: one for one in NODE_COLUMNS for name in (one.name, *one.others)}
    for option, names in (
        ("--rename", choices.rename),
        ("--where", choices.where),
        ("--ignore-columns", choices.ignore),
    ):
        for name in names:
            if name not in table.header and (option, name) != ("--ignore-columns", "all"):
                near = suggest(name, table.header)
                raise InputError(f'{table.path}, line 1: {option}: there is no column "{name}". {near}')
    for option, names in (("--rename", choices.rename.values()), ("--column", choices.constants)):
        for name in names:
            if name not in known:
                raise InputError(f'{option}: unknown column "{name}". {suggest(name, known)}')
    places: dict[str, int] = {}
    unknown: list[str] = []
    for place, name in enumerate(table.header):
        one = known.get(choices.rename.get(name, name))
        if name in choices.ignore:
            continue
        if one is None:
            unknown.append(name)
        elif one.name in places:
            first = table.header[places[one.name]]
            raise InputError(
                f'{table.path}, line 1: columns "{first}" and "{name}" both mean {one.name}. Leave one out: '
                f'--ignore-columns "{name}".'
            )
        else:
            places[one.name] = place
    for one in NODE_COLUMNS:
        if one.name not in places:
            check_unit(table.path, unknown, one)
    needed = next(one for one in NODE_COLUMNS if one.needed)
    if needed.name not in places and needed.name not in choices.constants:
        raise InputError(
            f'{table.path}, line 1: column "{needed.name}" is missing: {needed.meaning} [{needed.unit}]. The file has '
            f"{', '.join(table.header[:12])}; say which it is with --rename THEIRS={needed.name}."
        )
    return places
