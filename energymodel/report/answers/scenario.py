"""The answer of `scenario`: the plan of a scenario made of pieces, and what was assumed."""

from pathlib import Path

from energymodel.report import toml_text
from energymodel.report.answer import Answer, Sentence
from energymodel.report.answers.run_tables import plan_table
from energymodel.scenarios.pieces import Pieces

HEADER = "# Made by `energymodel scenario`. Every number has its origin beside it; change what you know better."


def scenario_answer(pieces: Pieces, file: Path | None) -> Answer:
    """The plan, what was assumed, and what to do next with the scenario in `file`."""
    scenario = pieces.scenario
    name, hint = (str(file), "") if file else ("FILE.toml", " (write it with -o FILE.toml)")
    return Answer(
        "scenario",
        scenario.title,
        Sentence("What is given and what is assumed"),
        [Sentence(assumed) for assumed in pieces.assumed],
        [plan_table(scenario, {"plan": scenario.plan})],
        also=[("Next", f"energymodel evaluate {name}"), ("Or", f"energymodel optimize {name}{hint}")],
        inputs=scenario.named_tables,
    )


def scenario_toml(pieces: Pieces) -> str:
    """The scenario as TOML, with what was assumed at its head."""
    assumed = "\n".join(f"# {' '.join(sentence.split())}" for sentence in pieces.assumed)
    return f"{HEADER}\n{assumed}\n\n{toml_text.dumps(pieces.scenario.tables)}"
