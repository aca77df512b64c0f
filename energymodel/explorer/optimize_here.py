"""The best plan from where the controls stand, in their layout, and what changes."""

import itertools
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from energymodel.errors import InputError
from energymodel.explorer.answer import Shown, is_broken
from energymodel.explorer.knobs import CHIPS, CLOCK, LAYOUT
from energymodel.explorer.state import Asked, PlanSpace, Settled
from energymodel.report.answer import Sentence
from energymodel.report.answers.run_tables import limits_sentence, limits_table
from energymodel.report.cells import Column, Quantity
from energymodel.report.number import plain, sentence
from energymodel.scenarios.question import TOKENS
from energymodel.search.layouts import FIELDS
from energymodel.search.optimize import optimize
from energymodel.search.result import Optimum
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value, output

_SAME = 1e-6
_SHARES, _CLOCKS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.12, 0.06), (1.0, 0.85, 0.7)
"""Chips and clocks, over those of the plan, at which a plan within the limits is looked for."""
_CONFLICTS = "looking for the limits"
"""How the search begins to say that no plan obeys the limits, and that it looks which of them exclude each other."""


class Improved(NamedTuple):
    """The result of a search: what it says, and where the controls go and what moves, which is nothing without a plan.

    `layout` is that of the plan, by field of the page: the controls may have moved meanwhile.
    """

    message: str
    values: dict[str, float] | None = None
    changes: tuple[str, ...] = ()
    layout: Mapping[str, str] | None = None


class _NoPlanError(Exception):
    """There is no plan within the limits."""


def optimize_here(
    space: PlanSpace, show: Callable[[Asked], Shown], asked: Asked, minimize: str, tell: Callable[[str], None]
) -> Improved:
    """The best plan at the loss of the one that is shown, in no more time and with no more chips, in its layout.

    Where the plan breaks limits, the search starts at one with fewer chips or a lower clock that obeys them, and has
    the time that this one takes.

    **Arguments:**

    - `show`: evaluates a plan.

    **Raises:** `InputError` as `optimize`.
    """

    def progress(words: str) -> None:
        if words.startswith(_CONFLICTS):  # which takes longer than a person waits
            raise _NoPlanError
        tell(words)

    started, here = time.perf_counter(), show(asked)
    before, start, limits = here.view.outcome, here, {}
    is_outside = is_broken(before)
    if is_outside:
        tell("looking for a plan within the limits")
        start = _within_limits(space, show, asked, here)
        limits = {"loss": float(before.loss), "chips": here.settled.chips}
    if start is None:
        return Improved(_no_plan(here))
    scenario = space.searched(start.settled)
    limits = {name: value for name, value in limits.items() if name not in scenario.optimize.limits}
    fix = [*scenario.optimize.fix, *(LAYOUT + name for name in FIELDS)]
    try:
        optimum = optimize(scenario, minimize, limits, fix=fix, progress=progress, tolerance=0.0)
    except _NoPlanError:
        return Improved(_no_plan(here))
    if not optimum.success:
        return Improved(optimum.message)
    old, new = (float(objective_value(outcome, minimize)) for outcome in (before, optimum.outcome))
    change = new / old - 1.0 if old else 0.0
    words = "energy-time product" if minimize == "etp" else minimize
    if not is_outside and change > -_SAME:
        return Improved(f"No plan in this layout takes less {words} at this loss.")
    values = _values(space, here.settled, optimum)
    message = f"{'Obeys every limit: ' if is_outside else ''}{_saving(optimum, before, words, change)}"
    message = f"{message[:1].upper()}{message[1:]} ({plain(round(time.perf_counter() - started, 1), 's')})"
    return Improved(message, values, _changes(space, here.settled, values), space.layouts.names(start.settled.layout))


def _within_limits(space: PlanSpace, show: Callable[[Asked], Shown], asked: Asked, here: Shown) -> Shown | None:
    """A plan with fewer chips or a lower clock that obeys every limit, if one of these does."""
    own = {CHIPS: here.settled.chips, CLOCK: asked.values.get(CLOCK, space.knobs[CLOCK].own)}
    for factors in itertools.product(_SHARES, _CLOCKS):
        counts = {
            path: max(factor * own[path], space.knobs[path].low) for path, factor in zip(own, factors, strict=True)
        }
        try:
            plan = show(Asked({**asked.values, **counts}, asked.layout))
        except InputError:  # too few chips for the layout
            continue
        if not is_broken(plan.view.outcome):
            return plan
    return None


def _values(space: PlanSpace, settled: Settled, optimum: Optimum) -> dict[str, float]:
    """Where the controls go."""
    values = settled.values | {path: value for path, value in optimum.found.items() if path in space.knobs}
    if TOKENS in space.knobs:  # the search holds the loss, which takes other tokens at another batch
        values[TOKENS] = float(optimum.outcome.tokens)
    return {path: min(max(value, space.knobs[path].low), space.knobs[path].high) for path, value in values.items()}


def _saving(optimum: Optimum, before: TrainingOutcome, minimized: str, change: float) -> str:
    """What the best plan saves, and what it takes more of."""
    other, column = "time" if minimized == "energy" else "energy", Column("", "", kind="change")
    more = float(output(optimum.outcome, other)) / float(output(before, other)) - 1.0
    binding = ", ".join(name.replace("_", " ") for name in optimum.active)
    numbers = {"change": (column, Quantity(change)), "more": (column, Quantity(more))}
    words = f"{minimized} {{change}}, {other} {{more}}, at the same loss.{f' Binding: {binding}.' if binding else ''}"
    return sentence(Sentence(words, numbers))


def _no_plan(here: Shown) -> str:
    """Why there is no plan, and what to do."""
    because = sentence(limits_sentence(limits_table(here.run))) if is_broken(here.view.outcome) else ""
    return (
        f"No plan in this layout obeys every limit. {because} Choose another layout, allow more chips or a higher "
        "loss, or run `energymodel optimize` with the saved TOML: it says which limits exclude each other."
    )


def _changes(space: PlanSpace, settled: Settled, values: Mapping[str, float]) -> tuple[str, ...]:
    """What moved, number by number."""
    knobs = [space.knobs[path] for path in values]
    moves = [
        (knob.label, *map(knob.words, (settled.values.get(knob.path, knob.own), values[knob.path]))) for knob in knobs
    ]
    return tuple(f"{label}: {before} to {after}" for label, before, after in moves if before != after)
