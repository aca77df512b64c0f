"""Runs to a target: which rows count, and the unit of their batches."""

import numpy as np

from energymodel.calibration.measurements import COLUMNS, Measurements
from energymodel.errors import InputError
from energymodel.units import counted

SHOWN_LINES = 8
SAME = 1e-9  # relative: amounts of a carry-over

BATCH_COLUMNS = COLUMNS["batch"]
SETTING = ("group", "parameters", "batch_tokens", "batch_sequences", "run")
AMOUNTS = ("tokens", "sequences", "steps")


def counted_once(table: Measurements) -> tuple[Measurements, tuple[str, ...]]:
    """The rows that count: none that is suspect, and none that carries over the value of another row.

    A carry-over has the setting and the amount of another row, and another `round`, or it says so itself.

    **Returns:** the rows, and notes that count those left out.

    **Raises:** `InputError` if none is left.
    """
    suspect = table.text("suspect", "") != ""
    carried = np.zeros(len(table), bool)
    flagged = np.isin(np.char.lower(table.text("repeat_of_earlier_round", "")), ("1", "yes", "true"))
    rounds, present = table.text("round", ""), [name for name in SETTING if name in table.columns]
    amount = next((table.columns[name] for name in AMOUNTS if name in table.columns), np.zeros(len(table)))
    first: dict[tuple[str, ...], list[int]] = {}
    for row in [*np.flatnonzero(~flagged & ~suspect), *np.flatnonzero(flagged & ~suspect)]:
        twins = first.setdefault(tuple(str(table.columns[name][row]) for name in present), [])
        carried[row] = any(
            np.isclose(amount[row], amount[twin], rtol=SAME, atol=0.0) and (flagged[row] or rounds[row] != rounds[twin])
            for twin in twins
        )
        if not carried[row]:
            twins.append(int(row))
    notes = []
    for left_out, words in (
        (suspect, "left out, because the column `suspect` says why"),
        (carried, "carried over from an earlier round, counted once"),
    ):
        if np.any(left_out):
            notes.append(f"{counted(int(np.sum(left_out)), 'row')} {words}: {_lines(table.lines[left_out])}.")
    counting = table.select(~suspect & ~carried)
    if not len(counting):
        raise InputError(f"{table.path}: every row is marked in the column `suspect`. Clear it in rows to be fitted.")
    return counting, tuple(notes)


def without_amount(table: Measurements) -> tuple[Measurements, np.ndarray]:
    """Which rows have no amount to the target, and so ask for a prediction; the table has 1 in its place.

    **Raises:** `InputError` if no row has one.
    """
    present = [name for name in AMOUNTS if name in table.columns]
    if not present:
        return table, np.zeros(len(table), bool)
    without = np.all([np.isnan(table.columns[name]) for name in present], axis=0)
    if np.all(without):
        raise InputError(
            f'{table.path}, line {table.lines[0]}, column "{present[0]}": empty, as in all rows. Write it in '
            "those that were measured; the others are predicted."
        )
    filled = {name: np.where(without, 1.0, table.columns[name]) for name in present}
    return Measurements(table.path, {**table.columns, **filled}, table.lines, table.notes), without


def _lines(lines: np.ndarray) -> str:
    numbers = ", ".join(str(line) for line in lines[:SHOWN_LINES])
    more = f" and {len(lines) - SHOWN_LINES} more" if len(lines) > SHOWN_LINES else ""
    return f"line{'s' * (len(lines) != 1)} {numbers}{more}"


def in_one_unit(table: Measurements) -> tuple[np.ndarray, np.ndarray, str]:
    """Batch and amount to the target, both in tokens or both in sequences.

    **Raises:** `InputError` for a column that is missing, or empty in some row.
    """
    numbers = {name: values for name, values in table.columns.items() if values.dtype.kind == "f"}
    full = {name: values for name, values in numbers.items() if not np.any(np.isnan(values))}
    for batch, amount in (("batch_tokens", "tokens"), ("batch_sequences", "sequences")):
        to_target = (
            full[amount] if amount in full else full[batch] * full["steps"] if {batch, "steps"} <= {*full} else None
        )
        if batch not in full or to_target is None:
            continue
        if batch == "batch_sequences" and "sequence_length" in full:
            return full[batch] * full["sequence_length"], to_target * full["sequence_length"], "token"
        return full[batch], to_target, amount[:-1]
    needed = ("batch_tokens", "batch_sequences", *AMOUNTS, "sequence_length")
    for name, values in numbers.items():
        if name in needed and name not in full:
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


def tokens_seen(table: Measurements, groups: np.ndarray) -> np.ndarray:
    """Tokens before the runs of each row's group [token]; 0 from scratch.

    **Raises:** `InputError` for a group with more than one value.
    """
    seen = np.nan_to_num(table.columns.get("tokens_seen", np.zeros(len(table))))
    for name in dict.fromkeys(groups.tolist()):
        rows = np.flatnonzero(groups == name)
        other = rows[seen[rows] != seen[rows[0]]]
        if len(other):
            raise InputError(
                f'{table.path}, line {table.lines[other[0]]}, column "tokens_seen": {seen[other[0]]:g} token where '
                f'line {table.lines[rows[0]]} has {seen[rows[0]]:g}. The runs of "{name}" start from one checkpoint: '
                "write the same in all of its rows, or give runs from another checkpoint a group of their own."
            )
    return seen
