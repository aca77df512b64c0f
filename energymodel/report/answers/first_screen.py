"""Sentences of the first screen of a search: what to change, what is sure, what to try, what may go wrong."""

from collections.abc import Collection

from energymodel.report.answer import Sentence, Table
from energymodel.report.answers.run_tables import Run
from energymodel.report.cells import FULL, Quantity, share
from energymodel.search.layouts import layout_label
from energymodel.search.result import Optimum
from energymodel.system.layouts import SCHEDULING
from energymodel.system.plan import PRECISIONS

TRIED = 3  # layouts to try on the machine
_NOTICED, MOST_EFFECTS = 0.1, 2  # change of an output that is no side matter, and how many are listed
_CAUSES = {name: name for name in ("batch", "clock", "chips")} | {"coolant_temperature": "coolant"}
_WORTH_A_LINE, NAMED = 0.02, 2  # saving of a switch that is named, and how many are
_UNSEEN = 5e-4  # change of a number of a plan that is none
_FOLLOWS = {"goal.tokens", "layout.data", "clock_frequency", "zero_stage", "recomputation"}
"""Numbers of a plan that follow from others, or say them again."""


def decision_sentence(plan: Table, optimum: Optimum) -> Sentence:
    """What to change, with the share of the saving that it brings."""
    total = sum(optimum.saving.values())
    parts, numbers = [], {}
    for column, *cells in zip(plan.columns, *plan.rows, strict=True):
        before, after, change = (cell.value if isinstance(cell, Quantity) else None for cell in cells)
        turned = None not in (before, after) and (before == 0.0) != (after == 0.0)  # which has no relative change
        if column.name in _FOLLOWS or not (turned or abs(change or 0.0) >= _UNSEEN):
            continue
        cause = _CAUSES.get(column.name, "layout" if column.name.startswith("layout.") else "")
        numbers[column.name] = column, cells[1]
        parts.append(f"{column.title} to {{{column.name}}}")
        if total and cause in optimum.saving and f"{cause} share" not in numbers:
            numbers[f"{cause} share"] = share(optimum.saving[cause] / total)
            parts[-1] += f" ({{{cause} share}})"
    what = "Change, with shares of the saving" if total else "Change"
    return Sentence(f"{what}: {', '.join(parts)}." if parts else "Keep the plan as it is.", numbers)


def choice_sentences(optimum: Optimum) -> list[Sentence]:
    """Whether the best layout of the model is surely better than the own one, and what to try on the machine."""
    ranked, claim = optimum.choice
    if claim is None:
        return []
    numbers = {"gain": share(abs(claim.gain)), "sure": share(claim.probability)}
    text = f"saves {{gain}} {optimum.minimize} on average, anything with {{sure}}"
    if claim.taken:
        return [Sentence(f"Another layout {text}.", numbers)]
    if claim.gain <= 0.0:
        text = f"takes {{gain}} more {optimum.minimize} on average, though less with {{sure}}"
    on = [
        name for name in SCHEDULING if getattr(optimum.plan.layout, name) > getattr(optimum.scenario.plan.layout, name)
    ]
    stays = f"The own layout stays, with {' and '.join(on)} on" if on else "The own layout stays"
    nearest = sorted(ranked, key=lambda layout: layout.excess)[:TRIED]
    listed = ", ".join(layout_label(layout.layout) for layout in nearest)
    return [
        Sentence(
            f"{stays}: the best of the model {text} (90 % is asked). Run {listed} for 200 steps each, then "
            "`energymodel calibrate step-time`.",
            numbers,
        )
    ]


def switches_sentence(optimum: Optimum) -> list[Sentence]:
    """The switches that were not searched and would save most beside the plan found."""
    useful = [worth for worth in optimum.switches if worth.keeps_limits and worth.saving > _WORTH_A_LINE][:NAMED]
    if not useful:
        return []
    words = (f"{of.switch} {{{of.switch}}}" + " (other numerics)" * (of.switch in PRECISIONS) for of in useful)
    text = f"Not searched, saves more: {', '.join(words)}; --vary plan.layout.{useful[0].switch}=0:1 searches it."
    return [Sentence(text, {worth.switch: share(worth.saving) for worth in useful})]


def danger_sentence(best: Run, limits: Table) -> Sentence:
    """The probability to run out of memory, and the other limit that is most likely to be exceeded."""
    numbers = {"risk": share(best.outcome.out_of_memory)}
    text = "Risk to run out of memory {risk}"
    others = [column for column in limits.columns if column.name not in ("memory", "information")]
    if len(limits.rows) > 1 and others:
        text += f", to exceed another limit at most {{chance}} ({others[0].title})"
        numbers["chance"] = limits.number(others[0].name, 1)
    return Sentence(f"{text}.", numbers)


def side_effects(outcome: Table, but: Collection[str]) -> list[Sentence]:
    """Other outputs that change by more than a tenth, the most first."""
    changes = [
        (column, outcome.rows[2][index])
        for index, column in enumerate(outcome.columns)
        if column.level <= FULL and column.name not in but and column.changed.kind == "change"
    ]
    large = [(column, cell) for column, cell in changes if isinstance(cell, Quantity) and abs(cell.value) > _NOTICED]
    large.sort(key=lambda pair: -abs(pair[1].value))
    large, more = large[:MOST_EFFECTS], len(large[MOST_EFFECTS:])
    numbers = {column.name: (column.changed, Quantity(cell.value)) for column, cell in large}
    listed = ", ".join(f"{column.title} {{{column.name}}}" for column, _ in large)
    rest = f", {more} more" if more else ""
    return [Sentence(f"Side effects: {listed}{rest}.", numbers)] if large else []
