"""The answer of `replan`: what is used up, what the measurements moved, and the best plan for the rest of a run."""

import dataclasses
from collections.abc import Mapping

from energymodel.report import toml_text
from energymodel.report.answer import DATA, Answer, Column, Quantity, Sentence, Table
from energymodel.report.answers.optimize import optimize_answer
from energymodel.search.replan import Forecast, Replan
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
        tables=[whole_run_table(rest.used, replan.forecast), *updates, *answer.tables, saving],
        warnings=[*answer.warnings, *([Sentence(rest.caution)] if rest.caution else [])],
    )


def whole_run_table(
    used: Mapping[str, float], forecast: Mapping[str, Forecast], planned: Mapping[str, float] | None = None
) -> Table:
    """What is used so far, the whole run if its plan is kept, and what was planned."""
    columns = [column for column in _TOTALS if column.name in used or column.name in forecast]
    parts: dict[str, Mapping[str, object]] = {"so far": used, "at the end": forecast}
    parts |= {"plan": planned} if planned else {}
    rows = [[numbers.get(column.name) for column in columns] for numbers in parts.values()]
    return Table("whole_run", "The whole run, if its plan is kept", columns, rows, tall=True, labels=tuple(parts))


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
