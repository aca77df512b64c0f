"""How is the best plan for the rest of a run shown?"""

import dataclasses
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report import toml_text
from energymodel.report.json_tree import optimum_json
from energymodel.report.plan_report import optimum_report
from energymodel.search.replan import Replan
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.units import format_quantity

MOST_UPDATES = 8
UNIT_OF = {"time": "s", "energy": "J", "equipment_energy": "J", "money": "USD", "carbon": "kg", "loss": "nat/token"}
TITLES = {"equipment_energy": "energy of nodes and switches"}


def replan_report(answer: Replan, file: str, risk: SavingAtRisk | None = None) -> RenderableType:
    """What is used up, what the measurements moved, the forecast of going on, and the best plan for the rest."""
    named = dataclasses.replace(answer.optimum.scenario, name=file, changes=())
    optimum = dataclasses.replace(answer.optimum, scenario=named)
    warning = [Text(caution), ""] if (caution := answer.rest.caution) else []
    return Group(_totals(answer), "", _updates(answer), "", *warning, optimum_report(optimum, risk))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _totals(answer: Replan) -> Table:
    """What is used, and the whole run if its plan is kept."""
    table = _table("The whole run, if its plan is kept", "so far", "at the end", "90 %")
    for name, unit in UNIT_OF.items():
        if name not in answer.rest.used and name not in answer.forecast:
            continue
        cells = [format_quantity(answer.rest.used[name], unit) if name in answer.rest.used else ""]
        if (found := answer.forecast.get(name)) is not None:
            low, high = (format_quantity(one, unit) for one in (found.lower, found.upper))
            cells += [format_quantity(found.value, unit), f"{low} to {high}"]
        table.add_row(TITLES.get(name, name), *cells)
    return table


def _updates(answer: Replan) -> RenderableType:
    """Numbers that the measurements moved."""
    if not answer.rest.updates:
        return Text("The measurements moved no number: the run goes as the scenario says.")
    table = _table("What the measurements moved, farthest first", "before", "after", "90 %")
    for one in answer.rest.updates[:MOST_UPDATES]:
        before, after, low, high = (format_quantity(x, one.unit) for x in (one.before, one.after, one.lower, one.upper))
        table.add_row(one.path, before, after, f"{low} to {high}")
    return table


def replan_json(answer: Replan, risk: SavingAtRisk | None = None) -> dict[str, Any]:
    """The optimum of the rest, with what is used, moved and forecast."""
    return {
        **optimum_json(answer.optimum, risk),
        "used": dict(answer.rest.used),
        "updates": [one._asdict() for one in answer.rest.updates],
        "forecast": {name: one._asdict() for name, one in answer.forecast.items()},
        "saving": answer.saving,
        "caution": answer.rest.caution,
    }


def rest_toml(answer: Replan) -> str:
    """The rest of the run as a scenario, with the numbers updated."""
    return f"# The rest of a run, made by `energymodel replan`.\n\n{toml_text.dumps(answer.rest.scenario.tables)}"
