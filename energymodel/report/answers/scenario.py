"""The answers of `scenario` and `replan`, which make scenarios: of pieces, and of the rest of a run."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from energymodel.report import toml_text
from energymodel.report.answer import Answer, Sentence, Table
from energymodel.report.answers.optimize import optimize_answer
from energymodel.report.answers.run_tables import plan_table
from energymodel.report.cells import Column, Quantity, declared, words
from energymodel.scenarios.pieces import Pieces
from energymodel.search.replan import Forecast, Replan
from energymodel.sweeps.first_order import SavingAtRisk

HEADER = "# Made by `energymodel scenario`. Every number has its origin beside it; change what you know better."


def scenario_answer(pieces: Pieces, file: Path | None) -> Answer:
    """The plan, what was assumed, and what to do next with the scenario in `file`."""
    scenario = pieces.scenario
    name, hint = (str(file), "") if file else ("FILE.toml", " (write it with -o FILE.toml)")
    return Answer.of(
        scenario,
        "scenario",
        Sentence("What is given and what is assumed"),
        [Sentence(assumed) for assumed in pieces.assumed],
        [plan_table(scenario, {"plan": scenario.plan})],
        also=[("Next", f"energymodel evaluate {name}"), ("Or", f"energymodel optimize {name}{hint}")],
    )


def scenario_toml(pieces: Pieces) -> str:
    """The scenario as TOML, with what was assumed at its head."""
    assumed = "\n".join(f"# {' '.join(sentence.split())}" for sentence in pieces.assumed)
    return f"{HEADER}\n{assumed}\n\n{toml_text.dumps(pieces.scenario.tables)}"


_MOST_UPDATES = 8
_TOTALS = declared("whole_run")


def replan_answer(replan: Replan, file: str, risk: SavingAtRisk | None = None) -> Answer:
    """The whole run if its plan is kept, the numbers that moved, and the optimum of the rest, a scenario in `file`."""
    rest = replan.rest
    named = dataclasses.replace(replan.optimum.scenario, name=file, changes=())
    answer = optimize_answer(dataclasses.replace(replan.optimum, scenario=named), risk)
    still = [] if rest.updates else [Sentence("The measurements moved no number: the run goes as the scenario says.")]
    rest_saving = {Column("saving", "saving over the rest", kind="share"): replan.saving}
    saving = Table.facts("rest", "The rest of the run", rest_saving, "data")
    updates = {
        words("path", ""): [of.path for of in rest.updates],
        Column("before", unit=""): [Quantity(of.before, unit=of.unit) for of in rest.updates],
        Column("after", unit=""): [Quantity(of.after, of.lower, of.upper, unit=of.unit) for of in rest.updates],
    }
    moved = Table.of("updates", "What the measurements moved, farthest first", updates, _MOST_UPDATES)
    return dataclasses.replace(
        answer,
        command="replan",
        sentences=[*still, *answer.sentences],
        tables=[
            whole_run_table(rest.used, replan.forecast),
            *([moved] if rest.updates else []),
            *answer.tables,
            saving,
        ],
        warnings=[*answer.warnings, *([Sentence(rest.caution)] if rest.caution else [])],
        screen=(),
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


def rest_toml(replan: Replan) -> str:
    """The rest of the run as a scenario, with the numbers updated."""
    return f"# The rest of a run, made by `energymodel replan`.\n\n{toml_text.dumps(replan.rest.scenario.tables)}"
