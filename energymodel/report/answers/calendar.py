"""The answer of `calendar`: a run by the hours of a grid, beside the best constant power."""

import numpy as np

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.cells import declared, number, share
from energymodel.search.calendar import OBJECTIVES, Calendar

_RUNS = declared("calendar_runs")
_DRAWN = {"power": ["power", "constant_power"], "price": ["price"], "carbon intensity": ["carbon"]}
_UNCHANGED = ("start", "tokens")


def calendar_answer(calendar: Calendar) -> Answer:
    """The calendar beside the best constant power, the saving, and what an hour's pause would need."""
    terms, hours, table = calendar.terms, calendar.hours, hours_table(calendar)
    minimize = terms.minimize.replace("_operational", "")
    objective = f"{'operational ' * (minimize != terms.minimize)}{minimize}"
    objective += " with priced carbon" if terms.carbon_price else ""
    saved = calendar.constant.value - calendar.hourly.value
    numbers = {"saved": number(saved, OBJECTIVES[terms.minimize]), "share": share(calendar.saving)}
    numbers["deadline"] = number(calendar.deadline, "s")
    texts = [f"The calendar saves {{saved}} of {objective} or {{share}}; the deadline is {{deadline}} after the start."]
    if calendar.pause_above is not None and hours.price is not None:
        texts.append("An hour's pause would pay above {above}; the highest price of the run is {highest}.")
        numbers["above"] = number(calendar.pause_above, "USD/J")
        numbers["highest"] = number(np.max(hours.price), "USD/J")
    asked = [calendar.deadline, calendar.saving, calendar.pause_above, terms.carbon_price, hours.name, terms.minimize]
    question = Table("question", "The question", declared("calendar_question"), [asked], tall=True, level="data")
    return Answer.of(
        calendar.scenario,
        "calendar",
        Sentence(f"Lowest {objective} over the hours of {hours.name}"),
        [*(Sentence(text, numbers) for text in texts), *map(Sentence, calendar.notes)],
        [runs_table(calendar), table, question],
        charts=[
            Chart("plane", Sentence(title), "hours", "hour", names, lines=True, axis=title)
            for title, names in _DRAWN.items()
            if any(cell is not None for cell in table.column(names[0])[1])
        ],
        rows="hours",
    )


def runs_table(calendar: Calendar) -> Table:
    """The best constant power, the calendar, and the change; a contract only where there is one."""
    runs = (calendar.constant, calendar.hourly)
    columns = [column for column in _RUNS if column.name != "contract" or any(run.contract for run in runs)]
    rows = [[getattr(run, column.name) for column in columns] for run in runs]
    changes = [
        after / before - 1.0 if before and column.name not in _UNCHANGED else None
        for column, before, after in zip(columns, *rows, strict=True)
    ]
    look = {"tall": True, "labels": ("constant power", "calendar", "change"), "kinds": ("", "", "change")}
    return Table("runs", "The run, with and without a calendar", columns, [*rows, changes], **look)


def hours_table(calendar: Calendar) -> Table:
    """A row for each hour of the calendar, with the power of the constant run in it."""
    run, hours, levels = calendar.hourly, calendar.hours, calendar.levels
    own, count = calendar.constant.power, len(run.speeds)
    index = np.arange(count) + run.start - calendar.constant.start
    price, carbon = ([None] * count if series is None else series[:count] for series in (hours.price, hours.carbon))
    constant = np.where((index >= 0) & (index < len(own)), own[np.clip(index, 0, len(own) - 1)], 0.0)
    clock, rate = levels.clock[run.speeds], levels.rate[run.speeds] * run.occupied
    hour, month = hours.first + np.arange(count), hours.month[:count] + 1
    rows = [*zip(hour, month, price, carbon, run.occupied, clock, rate, run.power, constant, strict=True)]
    return Table("hours", "Hours of the calendar", declared("calendar_hours"), rows, level="data")
