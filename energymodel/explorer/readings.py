"""Which numbers of an outcome does the page read out, and how do they differ from another plan's?"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from energymodel.constants import ZERO_CELSIUS
from energymodel.explorer.view import View
from energymodel.report.fields import Field, show, total
from energymodel.report.intervals import ends, interval_of, percent, rounded
from energymodel.sweeps.outcome_spread import OutcomeSpread
from energymodel.system.outcome import TrainingOutcome

DIGITS = 3
MILLION = 1e6
SAME = 5e-5
_READ = ("loss", "tokens", "step_time", "mfu", "power_average", "power_peak", "temperature", "memory_per_chip")
_READ += ("pue", "water", "carbon_embodied", "landauer_multiple")


class Reading(NamedTuple):
    """A number as the page shows it: value, 90 % interval where it is known, and change against the own plan."""

    name: str
    title: str
    value: str
    interval: str
    change: str


def fields_of(outcome: TrainingOutcome) -> list[Field]:
    """The numbers that are read out: first energy, time, money and carbon, then the others."""
    of_outcome = {one.name: one.metadata for one in outcome.__dataclass_fields__.values()}
    first = [
        Field("energy", "energy_j", "energy", "J", total(outcome.energy)),
        Field("time", "time_s", "calendar time", "s", float(outcome.time)),
        Field("money", "money_usd", "money", "USD", float(outcome.money)),
        Field("carbon", "carbon_kg", "carbon", "kg", float(np.asarray(outcome.carbon))),
    ]
    for name in _READ:
        if name == "step_time":
            first.append(Field(name, "step_time_s", "step time", "s", total(outcome.step_time)))
            continue
        about = of_outcome[name]
        first.append(Field(name, about["key"], about["title"], about["unit"], float(getattr(outcome, name))))
    return first


def readings(outcome: TrainingOutcome, own: TrainingOutcome, spread: OutcomeSpread | None = None) -> list[Reading]:
    """What is read out of a plan beside the scenario's own plan."""
    found = []
    for field, before in zip(fields_of(outcome), fields_of(own), strict=True):
        interval = interval_of(field, spread)
        value = rounded(field, *interval) if spread else read(field)
        found.append(Reading(field.name, field.title, printed(value), ends(field, *interval), change(field, before)))
    return found


def read(field: Field) -> str:
    """A number of which no interval is known, in three digits."""
    if field.unit == "K":
        return f"{field.value - ZERO_CELSIUS:.1f} °C"
    if field.unit == "1" and abs(field.value) >= MILLION:
        return f"{field.value / MILLION:.{DIGITS}g} million"
    return printed(show(field, digits=DIGITS))


def printed(words: str) -> str:
    """Words with exponents raised."""
    return words.replace("m^3", "m³")


def change(field: Field, before: Field) -> str:
    """By how much a number differs from another: in kelvins or percent; empty where it does not."""
    if field.unit == "K":
        difference = field.value - before.value
        return f"{difference:+.1f} K" if abs(difference) >= 0.05 else ""
    if not (math.isfinite(field.value) and before.value):
        return ""
    share = field.value / before.value - 1.0
    if abs(share) < SAME:
        return ""
    if abs(share) >= 2.0:
        return f"× {field.value / before.value:.3g}"
    return percent(share, sign="+") if abs(share) >= 5e-4 else f"{100.0 * share:+.2f} %"


def summary(shown: Sequence[Reading], limits: str) -> str:
    """One sentence on a plan, for those who hear it."""
    told = "; ".join(f"{one.title} {one.value}{f', {one.change}' if one.change else ''}" for one in shown[:4])
    return f"{told}. {limits}"


class Room(NamedTuple):
    """A limit of the system: how much of it is used [1], and in words what is left or by how much it is exceeded.

    What the parameters can store is no limit that a plan must obey: beyond it, the loss law is used beyond its range.
    """

    title: str
    used: float
    words: str
    is_exceeded: bool
    binds: bool
    is_warning: bool = False


BOUNDLESS = 14.0  # of a slack: a limit a million times beyond the value is none
ROUNDING = 1e-6  # of a limit, which rounding may exceed
TIGHT = 0.02  # room below which a limit is said to bind


def rooms(view: View) -> list[Room]:
    """The limits of a plan, those that are exceeded first, then by the room that is left."""
    slack = view.outcome.slack
    found = []
    for one in slack.__dataclass_fields__.values():
        value = float(getattr(slack, one.name))
        if not math.isfinite(value) or value > BOUNDLESS:
            continue
        used = math.exp(-value)
        room = math.expm1(value)
        if value < -ROUNDING:
            words = f"exceeded by {percent(used - 1.0)}" if used < 3.0 else f"exceeded {used:.3g} times"
        elif room < TIGHT:
            words = f"binds: {percent(room)}"
        else:
            words = f"{100.0 * room:.2g} %" if room < 1.0 else f"× {room + 1.0:.3g}"
        if one.name == "temperature":  # a share of an absolute temperature says nothing
            words = f"{'exceeded by ' if room < 0.0 else ''}{abs(room) * float(view.outcome.temperature):.1f} K"
        is_warning, beyond = one.name == "information", value < -ROUNDING
        words = f"warning: {words}" if is_warning and beyond else words
        ends = beyond and not is_warning, value < math.log1p(TIGHT) and not is_warning
        found.append((value, Room(one.metadata["title"], used, words, *ends, is_warning and beyond)))
    return [room for _, room in sorted(found, key=lambda pair: (not pair[1].is_exceeded, pair[0]))]


def limits_sentence(shown: Sequence[Room]) -> str:
    """Which limits are exceeded or bind, in a sentence."""
    exceeded = [room for room in shown if room.is_exceeded]
    binding = [room for room in shown if room.binds and not room.is_exceeded]
    if exceeded:
        listed = "; ".join(f"{room.title} {room.words}" for room in exceeded)
        return f"{'A limit is' if len(exceeded) == 1 else f'{len(exceeded)} limits are'} broken: {listed}."
    if binding:
        names = " and ".join(room.title for room in binding)
        return f"Every limit holds; {names} {'binds' if len(binding) == 1 else 'bind'}."
    return "Every limit holds, with room to spare."
