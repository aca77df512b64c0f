"""How is a scenario shown that was made of pieces: its plan, what was assumed, and the file that one can edit?"""

from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from energymodel.report import toml_text
from energymodel.report.tables import plan_table
from energymodel.scenarios.pieces import Pieces

HEADER = "# Made by `energymodel scenario`. Every number has its origin beside it; change what you know better."


def scenario_report(made: Pieces, file: Path | None) -> RenderableType:
    """The plan, what was assumed, and what to do next."""
    scenario = made.scenario
    name, hint = (str(file), "") if file else ("FILE.toml", " (write it with -o FILE.toml)")
    return Group(
        Text(scenario.title, style="bold"),
        "",
        plan_table(scenario, scenario.plan),
        "",
        *(Text(sentence) for sentence in made.assumed),
        "",
        Text(f"Next: energymodel evaluate {name}, energymodel optimize {name}{hint}"),
    )


def scenario_toml(made: Pieces) -> str:
    """The scenario as TOML, with what was assumed at its head."""
    said = "\n".join(f"# {' '.join(sentence.split())}" for sentence in made.assumed)
    return f"{HEADER}\n{said}\n\n{toml_text.dumps(made.scenario.tables)}"
