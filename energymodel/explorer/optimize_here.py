"""What is the best plan from where the controls stand, in their layout, and what changes?"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from energymodel.design.layouts import FIELDS
from energymodel.design.optimize import optimize
from energymodel.design.result import Optimum
from energymodel.explorer.knobs import LAYOUT
from energymodel.explorer.readings import Room, rooms
from energymodel.explorer.state import PlanSpace, Settled
from energymodel.explorer.view import View
from energymodel.presets.question import TOKENS
from energymodel.report.intervals import percent
from energymodel.system.outputs import output

SAME = 1e-6
FAR = 1e6  # of the time of the plan: no plan is late
CONFLICTS = "looking for the limits"
"""How the search begins to say that no plan obeys the limits, and that it looks which of them exclude each other."""


class Found(NamedTuple):
    """The result of a search: where the controls go (nowhere if there is no plan), what it says, how long it took."""

    values: dict[str, float] | None
    message: str
    changes: list[str]
    seconds: float


class _NoPlanError(Exception):
    """There is no plan within the limits."""


def optimize_here(space: PlanSpace, settled: Settled, view: View, minimize: str, tell: Callable[[str], None]) -> Found:
    """The best plan at the loss of the one that is shown, in no more time and with no more chips, in its layout.

    A plan that breaks limits gets all the time that it takes to obey them.

    **Raises:** `InputError` as `optimize`.
    """
    started = time.perf_counter()
    scenario, outcome = space.searched(settled), view.outcome
    exceeded = [room for room in rooms(view) if room.is_exceeded]
    limits = {"time": FAR * float(outcome.time)} if exceeded and "time" not in scenario.optimize.limits else None
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
    values = _values(space, settled, optimum)
    return Found(values, _sentence(optimum, minimize, seconds, bool(limits)), _changes(space, settled, values), seconds)


def _values(space: PlanSpace, settled: Settled, optimum: Optimum) -> dict[str, float]:
    values = dict(settled.values)
    values |= {path: value for path, value in optimum.found.items() if path in space.knobs}
    if TOKENS in space.knobs:  # the search holds the loss, which takes other tokens at another batch
        values[TOKENS] = float(optimum.outcome.tokens)
    return {path: min(max(value, space.knobs[path].low), space.knobs[path].high) for path, value in values.items()}


def _sentence(optimum: Optimum, minimize: str, seconds: float, any_time: bool) -> str:
    saved = 1.0 - optimum.value / optimum.baseline_value
    words = {"etp": "energy-time product"}.get(minimize, minimize)
    took = f"({seconds:.1f} s)"
    if any_time:
        time_words = f"{percent(float(optimum.outcome.time) / float(optimum.baseline.time) - 1.0, sign='+')} time"
        return f"Obeys every limit: {words} {percent(-saved, sign='+')} and {time_words} at the same loss. {took}"
    if saved < SAME:
        return f"No plan in this layout takes less {words} at this loss. {took}"
    other = "time" if minimize == "energy" else "energy"
    more = float(output(optimum.outcome, other)) / float(output(optimum.baseline, other)) - 1.0
    binding = ", ".join(optimum.active)
    held = f" Binding: {binding}." if binding else ""
    return f"Saves {percent(saved)} of the {words} at the same loss; {other} {percent(more, sign='+')}.{held} {took}"


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
