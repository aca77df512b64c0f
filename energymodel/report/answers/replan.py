"""The answer of `replan`: what is used up, what the measurements moved, and the best plan for the rest of a run."""

import dataclasses

from energymodel.report import toml_text
from energymodel.report.answer import DATA, Answer, Cell, Column, Quantity, Sentence, Table
from energymodel.report.answers.optimize import optimize_answer
from energymodel.search.replan import Replan
from energymodel.sweeps.first_order import SavingAtRisk

_MOST_UPDATES = 8
_TOTALS = (
    Column("time", "time", "s"),
    Column("energy", "energy", "J"),
    Column("equipment_energy", "energy of nodes and switches", "J"),
    Column("money", "money", "USD"),
    Column("carbon", "carbon", "kg"),
    Column("loss", "loss", "nat/token"),
)
_UPDATES = (Column("path", "", kind="words"), Column("before", "before", ""), Column("after", "after", ""))
_SAVING = Column("saving", "saving over the rest", kind="share")


def replan_answer(replan: Replan, file: str, risk: SavingAtRisk | None = None) -> Answer:
    """The whole run if its plan is kept, the numbers that moved, and the optimum of the rest, a scenario in `file`."""
    rest = replan.rest
    named = dataclasses.replace(replan.optimum.scenario, name=file, changes=())
    answer = optimize_answer(dataclasses.replace(replan.optimum, scenario=named), risk)
    still = [] if rest.updates else [Sentence("The measurements moved no number: the run goes as the scenario says.")]
    saving = Table("rest", "The rest of the run", [_SAVING], [[Quantity(replan.saving)]], tall=True, level=DATA)
    updates = [updates_table(replan)] if rest.updates else []
    return dataclasses.replace(
        answer,
        command="replan",
        sentences=[*still, *answer.sentences],
        tables=[whole_run_table(replan), *updates, *answer.tables, saving],
        warnings=[*answer.warnings, *([Sentence(rest.caution)] if rest.caution else [])],
    )


def whole_run_table(replan: Replan) -> Table:
    """What is used so far, and the whole run if its plan is kept."""
    used, forecast = replan.rest.used, replan.forecast
    columns = [column for column in _TOTALS if column.name in used or column.name in forecast]
    so_far: list[Cell] = [Quantity(used[column.name]) if column.name in used else None for column in columns]
    at_end: list[Cell] = [Quantity(*forecast[column.name]) if column.name in forecast else None for column in columns]
    labels = ("so far", "at the end")
    return Table("whole_run", "The whole run, if its plan is kept", columns, [so_far, at_end], tall=True, labels=labels)


def updates_table(replan: Replan) -> Table:
    """Numbers that the measurements moved, farthest first."""
    rows = [
        [
            update.path,
            Quantity(update.before, unit=update.unit),
            Quantity(update.after, update.lower, update.upper, unit=update.unit),
        ]
        for update in replan.rest.updates
    ]
    short = range(min(_MOST_UPDATES, len(rows)))
    return Table("updates", "What the measurements moved, farthest first", _UPDATES, rows, short=short)


def rest_toml(replan: Replan) -> str:
    """The rest of the run as a scenario, with the numbers updated."""
    return f"# The rest of a run, made by `energymodel replan`.\n\n{toml_text.dumps(replan.rest.scenario.tables)}"
