"""How does a person read what to measure or change next: tables, JSON, CSV?"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from energymodel.report.figure import save
from energymodel.report.intervals import percent, with_interval
from energymodel.report.json_tree import csv_text, strict
from energymodel.report.tornado import tornado
from energymodel.scenarios.priors import SYSTEM
from energymodel.search.sensitivity import CHANGE, FREE, MEASURE, SHARES, NumberEffects, Sensitivity
from energymodel.search.training_run import is_gain
from energymodel.units import format_quantity

TOP = 12
_KINDS = {"specification": "specified"}
_SMALLEST = 5e-5  # relative change that a table shows


def sensitivity_report(found: Sensitivity, top: int = TOP) -> RenderableType:
    """What is asked, what to measure next, what to change next, and the largest elasticities."""
    parts: list[RenderableType] = [Text(found.scenario.title, style="bold"), Text(headline(found)), ""]
    if found.rows:
        lines = f"{together_line(found)}\n{prior_line(found)}"
        parts += [measure_table(found, top), Text(lines, style="dim"), ""]
        parts += [limits_table(found) if found.optimum else change_table(found, top), ""]
        parts += [elasticity_table(found, top), "", Text("\n".join(notes(found)), style="dim")]
    return Group(*parts)


def headline(found: Sensitivity) -> str:
    """The outputs whose sensitivity is shown, with their 90 % intervals."""
    best = found.optimum
    if best is None:
        outputs = ", ".join(
            f"{_word(name)} {_with_interval(found, name, value)}" for name, value in found.values.items()
        )
        return f"The scenario's own plan: {outputs}."
    if not found.rows:
        return f"The search for the lowest {best.minimize} ended {found.result}, so the optimum has no sensitivities."
    lowest = _with_interval(found, best.minimize, found.values[best.minimize])
    change = percent(found.values[best.minimize] / best.baseline_value - 1.0, sign="+")
    return f"Lowest {best.minimize} within the limits: {lowest}, {change} against the scenario's own plan."


def _with_interval(found: Sensitivity, name: str, value: float) -> str:
    """An output with its interval, log-normal, from all uncertain numbers together."""
    half = found.together(name)
    return with_interval(
        value, value * math.exp(-half), value * math.exp(half), found.units[name], SHARES[1] - SHARES[0]
    )


def measure_table(found: Sensitivity, top: int = TOP) -> Table:
    """Uncertain numbers, the one that moves the first output most first."""
    first, *others = found.values
    low, high = (f"{100 * share:g} %" for share in SHARES)
    table = _table(f"Measure next: {_word(first)} with each uncertain number at its {low} and {high} quantile")
    table.add_column("number", overflow="fold")
    table.add_column("known as", no_wrap=True)
    for heading in (low, high, _word(first), "", "of variance", *(f"{_word(one)} ±" for one in others)):
        table.add_column(heading, justify="right", no_wrap=True)
    shares = found.shares()
    for row in _moving(found)[:top]:
        low, high = row.changes(first, found.values[first])
        exact = "" if row.effects[first].exact else "≈"
        cells = [f"{exact}{_percent(one)}" for one in (low, high)]
        share = f"{100 * shares[row.path]:.0f} %" if row.path in shares else ""
        widths = [_width(row.size(name, found.values[name])) for name in others]
        table.add_row(
            escape(row.path), _kind(row), _number(row, row.low), _number(row, row.high), *cells, share, *widths
        )
    return table


def _moving(found: Sensitivity) -> list[NumberEffects]:
    """Uncertain numbers that move any output."""
    values = found.values
    return [row for row in found.by_uncertainty() if any(row.size(name, values[name]) >= _SMALLEST for name in values)]


def together_line(found: Sensitivity) -> str:
    """What all uncertain numbers do together, to first order."""
    parts = ", ".join(f"{_word(name)} ± {100 * found.together(name):.2g} %" for name in found.values)
    count = sum(row.is_uncertain for row in found.rows)
    return f"All {count} together, if independent (root of the sum of squares): {parts}."


def prior_line(found: Sensitivity) -> str:
    """What rests on numbers that nobody measured: how many matter, and their share of the variance of each output."""
    priors = [row for row in found.rows if row.provenance.is_prior and row.path.startswith(SYSTEM)]
    moving = sum(any(effect.derivative for effect in row.effects.values()) for row in priors)
    parts = ", ".join(f"{_word(name)} {100 * found.prior_share(name):.0f} %" for name in found.values)
    return f"Share of the variance that comes from priors ({moving} of the {len(priors)} have any effect): {parts}."


class Choice(NamedTuple):
    """The better of the next values of a decision: the row, the value, the changes of the outputs, what breaks."""

    row: NumberEffects
    value: float
    changes: dict[str, float]
    breaks: tuple[str, ...]


def choices(found: Sensitivity) -> list[Choice]:
    """The next value of each decision that improves the first output more; those that break a limit last."""
    first = next(iter(found.values))
    sign = -1.0 if is_gain(first) else 1.0
    best = []
    for row in found.by_step():
        both = [
            Choice(row, end, {name: row.changes(name, value)[i] for name, value in found.values.items()}, row.breaks[i])
            for i, end in enumerate((row.low, row.high))
            if end is not None
        ]
        both = [one for one in both if any(abs(change) >= _SMALLEST for change in one.changes.values())]
        if both:
            best.append(min(both, key=lambda one: (bool(one.breaks), sign * one.changes[first])))
    return sorted(best, key=lambda one: (bool(one.breaks), sign * one.changes[first]))


def change_table(found: Sensitivity, top: int = TOP) -> Table:
    """Decisions, the one whose next value improves the first output most first."""
    table = _table(
        f"Change next: the next value of each decision, by what it does to {_word(next(iter(found.values)))}"
    )
    table.add_column("number", overflow="fold")
    for heading in ("from", "to", *map(_word, found.values)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for one in choices(found)[:top]:
        numbers = [_number(one.row, number) for number in (one.row.value, one.value)]
        table.add_row(escape(one.row.path), *numbers, *map(_percent, one.changes.values()), _exceeded(one.breaks))
    return table


def _exceeded(limits: tuple[str, ...]) -> str:
    return f"exceeds the limit of {' and '.join(limits).replace('_', ' ')}" if limits else ""


def limits_table(found: Sensitivity) -> Table:
    """Limits of the search and what 1 % more of each does."""
    name = _word(next(iter(found.values)))
    table = _table(f"Change next: limits, by what 1 % more does to the lowest {name}")
    table.add_column("limit", no_wrap=True)
    for heading in ("value", f"{name} (% per %)"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for limit in sorted(found.limits, key=lambda limit: -abs(limit.elasticity)):
        origin = "taken from the scenario; moves with it" if limit.follows else ""
        value = format_quantity(limit.value, limit.unit)
        table.add_row(_word(limit.name), value, _elasticity(limit.elasticity), origin)
    return table


def elasticity_table(found: Sensitivity, top: int = TOP) -> Table:
    """Numbers with the largest elasticity of the first output first; not of the layout, whose values are few."""
    table = _table(
        f"Largest elasticities of {_word(next(iter(found.values)))}: percent of the output per percent of the number"
    )
    table.add_column("number", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("known as", overflow="fold")
    table.add_column("next step", no_wrap=True)
    for name in found.values:
        table.add_column(_word(name), justify="right", no_wrap=True)
    rows = [row for row in found.by_elasticity() if row.action != FREE and not row.path.startswith("plan.layout.")]
    for row in rows[:top]:
        cells = [_elasticity(row.effects[name].elasticity) for name in found.values]
        step = row.action if row.action in (CHANGE, MEASURE) else ""
        table.add_row(escape(row.path), _number(row, row.value), _kind(row), step, *cells)
    return table


def notes(found: Sensitivity) -> list[str]:
    """What the tables leave out."""
    lines = []
    first = next(iter(found.values))
    if any(row.unit == "K" and row.effects[first].elasticity for row in found.rows):
        lines.append("Elasticities by temperatures are per 1 % of the absolute temperature, about 3 K.")
    for row in found.by_uncertainty():
        ends = [(end, broken) for end, broken in zip((row.low, row.high), row.breaks, strict=True) if broken]
        lines += [f"At {_number(row, end)}, {row.path} {_exceeded(broken)}." for end, broken in ends]
    if any(row.is_uncertain and not row.effects[first].exact for row in found.rows):
        lines.append("≈ from the elasticity; the others are from new searches in the same layout.")
    if found.optimum and any(limit.follows for limit in found.limits):
        lines.append(
            "Limits taken from the scenario move with its numbers; hold one with --limit, "
            f'such as --limit "time={format_quantity(_held(found), "s")}".'
        )
    joint: dict[str, list[str]] = {}
    for row in found.rows:
        if row.distribution is not None and not row.distribution.has_quantiles:
            joint.setdefault(row.distribution.name, []).append(row.path)
    lines += [
        f"Not varied alone, because their distribution is joint ({name}): {', '.join(_families(paths))}."
        for name, paths in joint.items()
    ]
    uncertain_priors = [row for row in found.by_elasticity() if row.action == MEASURE and row.distribution is None]
    without = [row for row in uncertain_priors if row.effects[first].elasticity]
    if without:
        shown = ", ".join(f"{row.path} ({_elasticity(row.effects[first].elasticity)})" for row in without[:3])
        lines.append(
            f"Priors that matter to {_word(first)} without a stated uncertainty: {len(without)}, such as {shown}; "
            "give them one in [uncertainty]."
        )
    zero = sum(row.value == 0.0 for row in found.rows)
    if zero:
        lines.append(f"Numbers that are zero have no elasticity (--json gives their derivatives): {zero}.")
    return lines


def _held(found: Sensitivity) -> float:
    best = found.optimum
    return best.limits.get("time", float(best.baseline.time)) if best else math.nan


def _families(paths: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(f"{path.rpartition('.')[0]}.*" for path in paths))


def _word(name: str) -> str:
    return name.replace("_", " ")


def _table(title: str) -> Table:
    layout = {"title_justify": "left", "title_style": "bold", "header_style": "", "padding": (0, 1)}
    return Table(box=None, title=title, pad_edge=False, collapse_padding=True, **layout)


def _kind(row: NumberEffects) -> str:
    return _KINDS.get(row.provenance.kind, row.provenance.kind)


def _number(row: NumberEffects, value: float | None) -> str:
    return "" if value is None else format_quantity(value, row.unit, digits=3, difference=row.is_difference)


def _percent(change: float) -> str:
    if not math.isfinite(change):
        return "no plan"
    if abs(change) < _SMALLEST:
        return "0"
    return f"{100.0 * change:+.1f} %" if abs(change) >= 0.01 else f"{100.0 * change:+.2f} %"


def _width(size: float) -> str:
    return _percent(size).removeprefix("+")


def _elasticity(value: float | None) -> str:
    if value is None:
        return ""
    return "0" if abs(value) < 5e-4 else f"{value:+.3f}" if abs(value) < 10.0 else f"{value:+.1f}"


def sensitivity_json(found: Sensitivity) -> dict[str, Any]:
    """All numbers and their effects, in SI.

    Where a number or an output is zero, `elasticity` is null and `form` says so: the derivative stands alone.
    """
    shares = {name: found.shares(name) for name in found.values}
    return {
        "scenario": found.scenario.named_tables,
        "optimum": found.optimum is not None,
        "result": found.result,
        "message": found.message,
        "quantiles": list(SHARES),
        "outputs": {
            name: {
                "value": value,
                "unit": found.units[name],
                "together": found.together(name),
                "prior_share": found.prior_share(name),
            }
            for name, value in found.values.items()
        },
        "limits": {
            limit.name: {
                "value": limit.value,
                "unit": limit.unit,
                "elasticity": limit.elasticity,
                "derivative": limit.derivative,
                "follows_scenario": limit.follows,
            }
            for limit in found.limits
        },
        "numbers": [_row_json(row, found, shares) for row in _ordered(found)],
        "by_uncertainty": {name: [row.path for row in found.by_uncertainty(name)] for name in found.values},
        "by_elasticity": {name: [row.path for row in found.by_elasticity(name)] for name in found.values},
    }


def _ordered(found: Sensitivity) -> list[NumberEffects]:
    """Uncertain numbers by the size of their effect, then the others by elasticity."""
    uncertain = found.by_uncertainty()
    paths = {row.path for row in uncertain}
    return [*uncertain, *(row for row in found.by_elasticity() if row.path not in paths)]


def _row_json(row: NumberEffects, found: Sensitivity, shares: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    return {
        "path": row.path,
        "value": row.value,
        "unit": row.unit,
        "kind": row.provenance.kind,
        "source": row.provenance.source,
        "distribution": found.scenario.uncertainty.get(row.path, ""),
        "action": row.action,
        "low": row.low,
        "high": row.high,
        "range": "quantiles" if row.is_uncertain else "next values" if (row.low, row.high) != (None, None) else "",
        "breaks_at_low": list(row.breaks[0]),
        "breaks_at_high": list(row.breaks[1]),
        "effects": {
            name: {
                "elasticity": effect.elasticity,
                "derivative": effect.derivative,
                "form": _form(row, found.values[name]),
                "at_low": effect.low,
                "at_high": effect.high,
                "exact": effect.exact,
                "share": shares[name].get(row.path),
            }
            for name, effect in row.effects.items()
        },
    }


def _form(row: NumberEffects, output: float) -> str:
    if row.value == 0.0:
        return "derivative: the number is zero"
    return "elasticity" if output else "derivative: the output is zero"


def sensitivity_csv(found: Sensitivity) -> str:
    """One line for each number, in the order of the JSON; SI, units in columns of their own."""
    own = ("path", "value", "unit", "kind", "distribution", "action", "low", "high", "range")
    each = ("elasticity", "derivative", "at_low", "at_high", "exact", "share")
    lines = [[*own, *(f"{name}.{column}" for name in found.values for column in each), "breaks"]]
    for row in strict(sensitivity_json(found)["numbers"])[0]:
        cells = [row[key] for key in own] + [row["effects"][name][column] for name in found.values for column in each]
        breaks = [f"{name} at {end}" for end in ("low", "high") for name in row[f"breaks_at_{end}"]]
        lines.append([*cells, "; ".join(breaks)])
    return csv_text(lines)


def sensitivity_file(found: Sensitivity, suffix: str) -> bytes:
    """The answer as a file of one of the kinds `.csv`, `.svg`, `.png`, `.pdf`.

    **Raises:** `InputError` that names the extra if a figure is asked for and matplotlib is not installed.
    """
    if suffix == ".csv":
        return sensitivity_csv(found).encode()
    return save(tornado(found), suffix.removeprefix("."))
