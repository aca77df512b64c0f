"""The answer of `calendar`: a run by the hours of a grid, beside the best constant power."""

from typing import Any

import numpy as np

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.cells import CHANGE, DATA, Column, number, share, words
from energymodel.search.calendar import OBJECTIVES, Calendar

_RUNS = (
    Column("start", "starts in hour", kind="count"),
    Column("time", "calendar time", "s"),
    Column("clock", "mean clock"),
    Column("tokens", unit="token"),
    Column("energy", unit="J"),
    Column("peak", "highest hour", "W"),
    Column("money", unit="USD"),
    Column("held", "  equipment over time", "USD"),
    Column("bought", "  energy by the hour", "USD"),
    Column("contract", "  contract", "USD"),
    Column("demand", "  demand charge", "USD"),
    Column("carbon_operational", "operational carbon", "kg"),
    Column("carbon_embodied", "embodied carbon", "kg"),
    Column("price", "price paid in the mean", "USD/J"),
    Column("intensity", "carbon of energy in the mean", "kg/J"),
)
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
    asked: dict[Column, Any] = {
        Column("deadline", unit="s"): calendar.deadline,
        Column("saving", kind="share"): calendar.saving,
        Column("pause_above", "a pause pays above", "USD/J"): calendar.pause_above,
        Column("carbon_price", "price of carbon", "USD/kg"): terms.carbon_price,
        words("grid"): hours.name,
        words("minimize"): terms.minimize,
    }
    return Answer.of(
        calendar.scenario,
        "calendar",
        Sentence(f"Lowest {objective} over the hours of {hours.name}"),
        [*(Sentence(text, numbers) for text in texts), *map(Sentence, calendar.notes)],
        [runs_table(calendar), table, Table.facts("question", "The question", asked, DATA)],
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
    look = {"tall": True, "labels": ("constant power", "calendar", "change"), "kinds": ("", "", CHANGE)}
    return Table("runs", "The run, with and without a calendar", columns, [*rows, changes], **look)


def hours_table(calendar: Calendar) -> Table:
    """A row for each hour of the calendar, with the power of the constant run in it."""
    run, hours, levels = calendar.hourly, calendar.hours, calendar.levels
    own, count = calendar.constant.power, len(run.speeds)
    index = np.arange(count) + run.start - calendar.constant.start
    price, carbon = ([None] * count if series is None else series[:count] for series in (hours.price, hours.carbon))
    constant = np.where((index >= 0) & (index < len(own)), own[np.clip(index, 0, len(own) - 1)], 0.0)
    cells = {
        Column("hour", kind="count"): hours.first + np.arange(count),
        Column("billing_month", kind="count"): hours.month[:count] + 1,
        Column("price", unit="USD/J"): price,
        Column("carbon", "carbon intensity", "kg/J"): carbon,
        Column("occupied", kind="share"): run.occupied,
        Column("clock"): levels.clock[run.speeds],
        Column("token_rate", "tokens per second", "token/s"): levels.rate[run.speeds] * run.occupied,
        Column("power", "calendar", "W"): run.power,
        Column("constant_power", "best constant power", "W"): constant,
    }
    return Table.of("hours", "Hours of the calendar", cells, level=DATA)
