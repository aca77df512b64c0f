"""What is the best plan from where the controls stand, in their layout, and what changes?"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from energymodel.errors import InputError
from energymodel.explorer.knobs import CHIPS, CLOCK, LAYOUT
from energymodel.explorer.readings import Room, rooms
from energymodel.explorer.state import Asked, PlanSpace, Settled, Shown
from energymodel.report.intervals import percent
from energymodel.scenarios.question import TOKENS
from energymodel.search.layouts import FIELDS
from energymodel.search.optimize import optimize
from energymodel.search.result import Optimum
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value, output

SAME = 1e-6
SHARES, CLOCKS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.12, 0.06), (1.0, 0.85, 0.7)
"""Chips and clocks, over those of the plan, at which a plan within the limits is looked for."""
CONFLICTS = "looking for the limits"
"""How the search begins to say that no plan obeys the limits, and that it looks which of them exclude each other."""


class Found(NamedTuple):
    """The result of a search: where the controls go (nowhere if there is no plan), what it says, how long it took.

    `layout` is that of the plan that was found, by field of the page: the controls may have moved meanwhile.
    """

    values: dict[str, float] | None
    message: str
    changes: list[str]
    seconds: float
    layout: Mapping[str, str] | None = None


class _NoPlanError(Exception):
    """There is no plan within the limits."""


def optimize_here(
    space: PlanSpace, show: Callable[[Asked], Shown], asked: Asked, minimize: str, tell: Callable[[str], None]
) -> Found:
    """The best plan at the loss of the one that is shown, in no more time and with no more chips, in its layout.

    Where the plan breaks limits, the search starts at one with fewer chips or a lower clock that obeys them, and has
    the time that this one takes.

    **Arguments:**

    - `show`: evaluates a plan.

    **Raises:** `InputError` as `optimize`.
    """
    started = time.perf_counter()
    here = show(asked)
    exceeded = [room for room in rooms(here.view) if room.is_exceeded]
    start, limits = here, {}
    if exceeded:
        tell("looking for a plan within the limits")
        start = _within_limits(space, show, asked, here)
        if start is None:
            return Found(None, _no_plan(exceeded), [], time.perf_counter() - started)
        limits = {"loss": float(here.view.outcome.loss), "chips": here.settled.chips}
    scenario = space.searched(start.settled)
    limits = {name: value for name, value in limits.items() if name not in scenario.optimize.limits}
    fix = [*scenario.optimize.fix, *(LAYOUT + name for name in FIELDS)]

    def told(sentence: str) -> None:
        if sentence.startswith(CONFLICTS):  # which takes longer than a person waits
            raise _NoPlanError
        tell(sentence)

    try:
        optimum = optimize(scenario, minimize, limits, fix=fix, progress=told, tolerance=0.0)
    except _NoPlanError:
        return Found(None, _no_plan(exceeded), [], time.perf_counter() - started)
    seconds = time.perf_counter() - started
    if not optimum.success:
        return Found(None, optimum.message, [], seconds)
    change = _change(optimum.outcome, here.view.outcome, minimize)
    if not exceeded and change > -SAME:
        return Found(None, f"No plan in this layout takes less {_words(minimize)} at this loss.", [], seconds)
    values = _values(space, here.settled, optimum)
    sentence = _sentence(optimum, here.view.outcome, minimize, change, "Obeys every limit: " if exceeded else "")
    layout = space.layouts.names(start.settled.layout)
    return Found(values, f"{sentence} ({seconds:.1f} s)", _changes(space, here.settled, values), seconds, layout)


def _within_limits(space: PlanSpace, show: Callable[[Asked], Shown], asked: Asked, here: Shown) -> Shown | None:
    """A plan with fewer chips or a lower clock that obeys every limit, if one of these does."""
    clock = asked.values.get(CLOCK, space.knobs[CLOCK].own)
    lowest = space.knobs[CLOCK].low
    for share, slower in itertools.product(SHARES, CLOCKS):
        values = {**asked.values, CHIPS: share * here.settled.chips, CLOCK: max(slower * clock, lowest)}
        try:
            found = show(Asked({**values, CHIPS: max(values[CHIPS], space.knobs[CHIPS].low)}, asked.layout))
        except InputError:  # too few chips for the layout
            continue
        if not any(room.is_exceeded for room in rooms(found.view)):
            return found
    return None


def _values(space: PlanSpace, settled: Settled, optimum: Optimum) -> dict[str, float]:
    values = dict(settled.values)
    values |= {path: value for path, value in optimum.found.items() if path in space.knobs}
    if TOKENS in space.knobs:  # the search holds the loss, which takes other tokens at another batch
        values[TOKENS] = float(optimum.outcome.tokens)
    return {path: min(max(value, space.knobs[path].low), space.knobs[path].high) for path, value in values.items()}


def _change(after: TrainingOutcome, before: TrainingOutcome, minimize: str) -> float:
    """Relative change of what is minimized; none where there was nothing of it [1]."""
    old, new = (float(objective_value(one, minimize)) for one in (before, after))
    return new / old - 1.0 if old else 0.0


def _words(minimize: str) -> str:
    return {"etp": "energy-time product"}.get(minimize, minimize)


def _sentence(optimum: Optimum, before: TrainingOutcome, minimize: str, change: float, first: str) -> str:
    """What the best plan saves, and what it takes more of."""
    other = "time" if minimize == "energy" else "energy"
    more = float(output(optimum.outcome, other)) / float(output(before, other)) - 1.0
    binding = ", ".join(name.replace("_", " ") for name in optimum.active)
    held = f" Binding: {binding}." if binding else ""
    saved = f"{_words(minimize)} {percent(change, sign='+')}, {other} {percent(more, sign='+')}"
    return f"{first}{saved if first else saved[0].upper() + saved[1:]}, at the same loss.{held}"


def _no_plan(exceeded: Sequence[Room]) -> str:
    """Why there is no plan, and what to do."""
    named = "; ".join(f"{room.title} {room.words}" for room in exceeded)
    because = f" Here, {named}." if named else ""
    return (
        f"No plan in this layout obeys every limit.{because} Choose another layout, allow more chips or a higher loss, "
        "or run `energymodel optimize` with the saved TOML: it says which limits exclude each other."
    )


def _changes(space: PlanSpace, settled: Settled, values: dict[str, float]) -> list[str]:
    """What moved, number by number."""
    found = []
    for path, value in values.items():
        knob = space.knobs[path]
        before = settled.values.get(path, knob.own)
        shown = [knob.words(one) for one in (before, value)]
        if shown[0] != shown[1]:
            found.append(f"{knob.label}: {shown[0]} to {shown[1]}")
    return found
