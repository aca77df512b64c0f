"""The answer of `calendar`: a run by the hours of a grid, beside the best constant power."""

import numpy as np

from energymodel.report.answer import CHANGE, DATA, Answer, Chart, Column, Sentence, Table, number, share
from energymodel.search.calendar import OBJECTIVES, Calendar

_RUNS = (
    Column("start", "starts in hour", kind="count"),
    Column("time", "calendar time", "s"),
    Column("clock", "mean clock"),
    Column("tokens", "tokens", "token"),
    Column("energy", "energy", "J"),
    Column("peak", "highest hour", "W"),
    Column("money", "money", "USD"),
    Column("held", "  equipment over time", "USD"),
    Column("bought", "  energy by the hour", "USD"),
    Column("contract", "  contract", "USD"),
    Column("demand", "  demand charge", "USD"),
    Column("carbon_operational", "operational carbon", "kg"),
    Column("carbon_embodied", "embodied carbon", "kg"),
    Column("price", "price paid in the mean", "USD/J"),
    Column("intensity", "carbon of energy in the mean", "kg/J"),
)
_HOURS = (
    Column("hour", kind="count"),
    Column("billing_month", kind="count"),
    Column("price", "price", "USD/J"),
    Column("carbon", "carbon intensity", "kg/J"),
    Column("occupied", "occupied", kind="share"),
    Column("clock", "clock"),
    Column("token_rate", "tokens per second", "token/s"),
    Column("power", "calendar", "W"),
    Column("constant_power", "best constant power", "W"),
)
_UNCHANGED = ("start", "tokens")


def calendar_answer(calendar: Calendar) -> Answer:
    """The calendar beside the best constant power, the saving, and what an hour's pause would need."""
    terms, hours = calendar.terms, calendar.hours
    minimize = terms.minimize.replace("_operational", "")
    objective = f"{'operational ' * (minimize != terms.minimize)}{minimize}"
    objective += " with priced carbon" if terms.carbon_price else ""
    saved = calendar.constant.schedule.value - calendar.hourly.schedule.value
    numbers = {
        "saved": number(saved, OBJECTIVES[terms.minimize]),
        "share": share(calendar.saving),
        "deadline": number(calendar.deadline, "s"),
    }
    sentences = [
        Sentence(
            f"The calendar saves {{saved}} of {objective} or {{share}}; the deadline is {{deadline}} after the start.",
            numbers,
        )
    ]
    if calendar.pause_above is not None and hours.price is not None:
        prices = {"above": calendar.pause_above, "highest": float(np.max(hours.price))}
        sentences.append(
            Sentence(
                "An hour's pause would pay above {above}; the highest price of the run is {highest}.",
                {name: number(price, "USD/J") for name, price in prices.items()},
            )
        )
    question = [
        *(Column("deadline", "deadline", "s"), Column("saving", "saving", kind="share")),
        *(Column("pause_above", "a pause pays above", "USD/J"), Column("carbon_price", "price of carbon", "USD/kg")),
        *(Column(name, name, kind="words") for name in ("grid", "minimize")),
    ]
    asked = [calendar.deadline, calendar.saving, calendar.pause_above, terms.carbon_price, hours.name, terms.minimize]
    drawn = {"power": ["power", "constant_power"], "price": ["price"], "carbon intensity": ["carbon"]}
    table = hours_table(calendar)
    return Answer(
        "calendar",
        calendar.scenario.title,
        Sentence(f"Lowest {objective} over the hours of {hours.name}"),
        [*sentences, *map(Sentence, calendar.notes)],
        [runs_table(calendar), table, Table("question", "The question", question, [asked], tall=True, level=DATA)],
        [
            Chart(
                "plane", Sentence(title), "hours", "hour", names, lines=True, axis=title.partition(" over")[0].lower()
            )
            for title, names in drawn.items()
            if any(cell is not None for cell in table.column(names[0])[1])
        ],
        inputs=calendar.scenario.named_tables,
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
    labels = ("constant power", "calendar", "change")
    title = "The run, with and without a calendar"
    return Table("runs", title, columns, [*rows, changes], tall=True, labels=labels, kinds=("", "", CHANGE))


def hours_table(calendar: Calendar) -> Table:
    """A row for each hour of the calendar, with the power of the constant run in it."""
    schedule, hours, levels = calendar.hourly.schedule, calendar.hours, calendar.levels
    own, speeds = calendar.constant.schedule.power, np.asarray(schedule.speeds)
    index = np.arange(len(schedule.power)) + calendar.hourly.start - calendar.constant.start
    inside = (index >= 0) & (index < len(own))
    unknown = [None] * len(speeds)
    rows = zip(
        *(hours.first + np.arange(len(speeds)), hours.month[: len(speeds)] + 1),
        *(unknown if series is None else series[: len(speeds)] for series in (hours.price, hours.carbon)),
        *(schedule.occupied, levels.clock[speeds], levels.rate[speeds] * schedule.occupied, schedule.power),
        np.where(inside, own[np.clip(index, 0, len(own) - 1)], 0.0),
        strict=True,
    )
    return Table("hours", "Hours of the calendar", _HOURS, [list(row) for row in rows], level=DATA)
