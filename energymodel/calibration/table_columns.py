"""Under which names may a table of training steps have its columns, and in which units?

`predict` and `calibrate step-time` read the same columns. A name is compared without regard to case, and `-` and blanks
count as `_`. What a step depends on stands in `layout_table.INPUTS`; the names here are those of public files for the
same things, for what was measured, and for notes that no step depends on (`column_names`).
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from energymodel.calibration.column_names import MEANINGS, MEASUREMENTS, NOTES, OTHER_NAMES, RATES, UNMODELLED
from energymodel.calibration.layout_table import INPUTS, MEASURED
from energymodel.errors import InputError

PREDICTED = "predicted_"
"""Begins the name of a column that `predict` appends."""


class ColumnTarget(NamedTuple):
    """What a column of a file becomes: a name in `OTHER_NAMES` or of the schema ("" for notes), and its unit."""

    name: str
    factor: float = 1.0


class TableChoices(NamedTuple):
    """How a person wants a table to be read.

    - `rename`: their name of a column, and ours (with another unit where it has one, as in `step_time_ms`).
    - `constants`: columns that the table lacks, with one word for all rows.
    - `ignore`: columns to be left out; "all" stands for all that are not known.
    - `where`: words that a row must have in some columns to be taken.
    - `skip_bad_rows`: leave out rows that cannot be read instead of refusing the table.
    - `cluster`: preset or file of the cluster of all rows.
    - `clusters`: names of clusters beside the presets.
    """

    rename: Mapping[str, str] = {}
    constants: Mapping[str, str] = {}
    ignore: Sequence[str] = ()
    where: Mapping[str, str] = {}
    skip_bad_rows: bool = False
    cluster: str = ""
    clusters: Sequence[str] = ()


AS_WRITTEN = TableChoices()
"""Nothing renamed, ignored or left out."""


def plain_name(name: str) -> str:
    """A name of a column as names are compared."""
    return re.sub(r"[\s\-]+", "_", name.strip().lower())


def _targets() -> dict[str, ColumnTarget]:
    found = {name: ColumnTarget("") for name in (*NOTES, *UNMODELLED)}
    read = {*(one.name for one in (*INPUTS, *MEASURED)), *MEANINGS}
    for name, others in OTHER_NAMES.items():
        if name not in read:
            continue
        found |= {other: ColumnTarget(name) for other in (name, *others)}
    for name, (stems, units) in MEASUREMENTS.items():
        found |= {f"{stem}_{unit}": ColumnTarget(name, factor) for stem in stems for unit, factor in units.items()}
    found |= {name: ColumnTarget("model_flops_per_chip", 1e12) for name in RATES}
    # The schema's own names win, so that a column that the model learns to use is read from then on.
    return found | {one.name: ColumnTarget(one.name) for one in (*INPUTS, *MEASURED)}


TARGETS = _targets()


def column_target(name: str) -> ColumnTarget | None:
    """What a column of this name becomes, if it is known."""
    plain = plain_name(name)
    if plain.startswith(PREDICTED):
        return ColumnTarget("")
    return TARGETS.get(plain)


def nearest(name: str) -> str:
    """A sentence that names the nearest known column, or the unit that is missing."""
    plain = plain_name(name)
    for stems, units in MEASUREMENTS.values():
        if plain in stems:
            return f'Its unit is missing: call it "{plain}_{next(iter(units))}".'
    near = difflib.get_close_matches(plain, TARGETS, n=1, cutoff=0.5)
    if not near:
        near = [one for one in TARGETS if len(plain) > 2 and (plain in one or (len(one) > 3 and one in plain))][:1]
    if not near:
        return "No known column is near."
    known = TARGETS[near[0]]
    means = f", which means {known.name}" if known.name and known.name != near[0] else ""
    return f'Did you mean "{near[0]}"{means}?'


def matched_columns(
    path: str, header: Sequence[str], choices: TableChoices
) -> tuple[dict[int, ColumnTarget], tuple[str, ...]]:
    """What each column of a file becomes, by its place, and the names of the columns that are not used.

    **Raises:** `InputError` that names every unknown column with its nearest known one, and two columns of one meaning.
    """
    _check_choices(path, header, choices)
    ignored = {plain_name(name) for name in choices.ignore}
    fixed = {target.name for name in choices.constants if (target := column_target(name))}
    places: dict[int, ColumnTarget] = {}
    unused: list[str] = []
    unknown: list[str] = []
    for place, name in enumerate(header):
        if not name or plain_name(name) in ignored:
            unused += [name] if name else []
            continue
        target = column_target(choices.rename.get(name, name))
        if target is None:
            unknown.append(name)
        elif target.name and target.name not in fixed:
            places[place] = target
        else:
            unused.append(name)
    if unknown and "all" not in ignored:
        listed = [f'"{name}": {nearest(name)}' for name in unknown]
        advice = (
            "Correct the name, say what it means with --rename THEIRS=OURS, or leave it out with --ignore-columns NAME "
            "(all: every unknown one)."
        )
        if len(unknown) == 1:
            raise InputError(f"{path}, line 1: unknown column {listed[0]} {advice}")
        raise InputError(f"{path}, line 1: {len(unknown)} unknown columns. {advice}", *listed)
    _check_doubles(path, header, places)
    return places, (*unused, *unknown)


def _check_choices(path: str, header: Sequence[str], choices: TableChoices) -> None:
    known = {plain_name(name) for name in header}
    for theirs, ours in choices.rename.items():
        if theirs not in header:
            raise InputError(f'{path}, line 1: --rename: there is no column "{theirs}". {_near_header(theirs, header)}')
        if column_target(ours) is None:
            raise InputError(f'--rename {theirs}={ours}: unknown column "{ours}". {nearest(ours)}')
    for name in choices.constants:
        target = column_target(name)
        if target is None or not target.name:
            raise InputError(f'--column {name}: unknown column "{name}". {nearest(name)}')
    for name in choices.ignore:
        if name != "all" and plain_name(name) not in known:
            raise InputError(
                f'{path}, line 1: --ignore-columns: there is no column "{name}". {_near_header(name, header)}'
            )
    for name in choices.where:
        if name not in header:
            raise InputError(
                f'{path}, line 1: there is no column "{name}" to choose rows by. {_near_header(name, header)}'
            )


def _near_header(name: str, header: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, header, n=1, cutoff=0.4)
    return f'Did you mean "{near[0]}"?' if near else f"The file has {', '.join(header[:12])}."


def _check_doubles(path: str, header: Sequence[str], places: Mapping[int, ColumnTarget]) -> None:
    by_name: dict[str, str] = {}
    for place, target in places.items():
        first = by_name.setdefault(target.name, header[place])
        if first != header[place]:
            raise InputError(
                f'{path}, line 1: columns "{first}" and "{header[place]}" both mean {target.name}. Leave one out: '
                f'--ignore-columns "{header[place]}".'
            )


def column_lines() -> list[str]:
    """A line for each column that is read: name, unit, default, meaning, and the other names for it."""
    lines = []
    for one in (*INPUTS, *MEASURED):
        default = "" if one.default != one.default else f", default {one.default:g}"
        others = list(OTHER_NAMES.get(one.name, ()))
        if one.name in MEASUREMENTS:
            stems, units = MEASUREMENTS[one.name]
            others = [f"{', '.join(stems)} with the unit {', '.join(units)} at the end"]
        lines.append(f"{one.name} [{one.unit}{default}]: {one.meaning}" + _also(others))
    others = {**OTHER_NAMES, "model_flops_per_chip": RATES[:4]}
    lines += [f"{name} [text]: {meaning}" + _also(others.get(name, ())) for name, meaning in MEANINGS.items()]
    return lines


def _also(others: Sequence[str]) -> str:
    return f"; also called {', '.join(others)}" if others else ""
