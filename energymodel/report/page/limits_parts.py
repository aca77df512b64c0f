"""How near is a plan to each limit, and what is each limit worth?"""

import math

from energymodel.report.charts import Bar, GroupedBars, Part, Swing, Tornado
from energymodel.report.fields import outcome_fields
from energymodel.report.plan_report import price_line
from energymodel.search.result import Optimum
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.system.outcome import TrainingOutcome

AIM = "loss"
"""What the run is for: a price of it beside those of resources would make these look like nothing."""
NEAR = 0.005
"""Room within which a limit is reached [1]."""
_BOUNDLESS = 14.0  # of a slack: a limit a million times beyond the value is none
_HIGHEST = 1.5  # of a limit: where the axis ends
ONE_PERCENT = math.log(1.01)


def rooms(outcome: TrainingOutcome, but: str = "") -> list[tuple[str, float]]:
    """Each limit of the system that somebody sets, `but` one, with the share of it that the plan uses, from the top."""
    fields = [field for field in outcome_fields(outcome.slack) if field.name != but]
    found = [(field.title, math.exp(-field.value)) for field in fields if field.value < _BOUNDLESS]
    return sorted(found, key=lambda pair: -pair[1])


def rooms_chart(outcome: TrainingOutcome, but: str = "") -> GroupedBars | None:
    """Share of each limit that a plan uses, `but` of one."""
    used = rooms(outcome, but)
    if not used:
        return None
    broken = [name for name, share in used if share > 1.0 + 1e-6]
    reached = [name for name, share in used if 1.0 - NEAR <= share <= 1.0 + 1e-6]
    name, share = used[0]
    title = f"The tightest limit is {name}: {100.0 * share:.0f} % of it is used"
    if reached:
        title = f"The plan reaches {_listed(reached)}"
    if broken:
        title = f"The plan exceeds {_listed(broken)}"
    groups = tuple(Bar(name, (Part("", share),)) for name, share in used)
    ends = min(max(max(share for _, share in used), 1.0) * 1.05, _HIGHEST)
    subtitle = "Value as a share of its limit; temperatures as absolute temperatures"
    return GroupedBars(title, "%", groups, subtitle, "share of the limit", (1.0, "limit"), high=ends, digits=2)


def _listed(names: list[str]) -> str:
    words = f"the limit{'s' * (len(names) > 1)} of "
    return words + (", ".join(names[:-1]) + " and " if len(names) > 1 else "") + names[-1]


def prices_chart(optimum: Optimum) -> Tornado | None:
    """What 1 % more of each binding limit changes."""
    known = {name: optimum.prices[name].elasticity for name in optimum.active if name in optimum.prices}
    changes = {name: math.expm1(-value * ONE_PERCENT) for name, value in known.items() if math.isfinite(value)}
    changes = {name: change for name, change in changes.items() if change}
    if not changes:
        return None
    of_loss = changes.pop(AIM) if AIM in changes and len(changes) > 1 else None
    order = sorted(changes, key=lambda name: -abs(changes[name]))
    first = order[0]
    subtitle = "Shadow prices of the binding limits"
    if of_loss is not None:
        subtitle += f"; the loss is left out, of which 1 % more {_verb(of_loss)} {abs(100.0 * of_loss):.2g} %"
    title = f"1 % more {_word(first)} {_verb(changes[first])} {abs(100.0 * changes[first]):.2g} % {optimum.minimize}"
    swings = tuple(Swing(_word(name), 0.0, changes[name]) for name in order)
    return Tornado(title, swings, subtitle, f"change of {optimum.minimize}", names=("", "at 1 % more"))


def _verb(change: float) -> str:
    return "saves" if change < 0.0 else "costs"


def binding_sentence(optimum: Optimum, risk: SavingAtRisk | None = None) -> str:
    """Which limits bind, and what the dearest is worth."""
    if not optimum.active:
        return "No constraint is binding."
    names = [_word(name) for name in optimum.active]
    listed = f"{', '.join(names[:-1])} and {names[-1]} bind" if len(names) > 1 else f"{names[0]} binds"
    if not optimum.prices:
        return f"{listed[:1].upper()}{listed[1:]}; there are no shadow prices at this plan."
    worth = sorted(
        (name for name in optimum.active if name in optimum.prices and math.isfinite(optimum.prices[name].elasticity)),
        key=lambda name: (name == AIM, -abs(optimum.prices[name].elasticity)),
    )
    if not worth:
        return f"{listed[:1].upper()}{listed[1:]}."
    name, _, price = price_line(optimum, worth[0], risk).partition(": ")
    most = f"; {name} is worth most" if len(worth) > 1 else ""
    return f"{listed[:1].upper()}{listed[1:]}{most}: {price}."


def _word(name: str) -> str:
    return name.replace("_", " ")
