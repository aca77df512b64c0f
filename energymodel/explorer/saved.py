"""Plans of the page as scenario files that every command reads, and as reports."""

from energymodel import __version__
from energymodel.explorer.explorer import Explorer
from energymodel.explorer.state import Asked
from energymodel.report import toml_text
from energymodel.report.answers.evaluate import evaluate_answer
from energymodel.report.html_page import page_html


def scenario_toml(explorer: Explorer, asked: Asked) -> str:
    """The scenario with the numbers of a plan as TOML; it evaluates to the numbers that the page shows.

    **Raises:** `InputError` for what cannot be run, or read back.
    """
    scenario = explorer.space.tables_at(explorer.shown(asked).settled)
    head = f"# Saved by energymodel explore, version {__version__}. Use: energymodel evaluate FILE\n"
    return head + toml_text.dumps(scenario.named_tables)


def report_html(explorer: Explorer, asked: Asked) -> str:
    """The report of a plan, as `energymodel evaluate FILE -o report.html` writes it for the scenario that is saved.

    **Raises:** `InputError` as `scenario_toml`.
    """
    shown = explorer.shown(asked)
    scenario = explorer.space.tables_at(shown.settled)
    command = f"energymodel evaluate {file_name(explorer, 'toml')} -o {file_name(explorer, 'html')}"
    answer = evaluate_answer(scenario, shown.view.outcome, explorer.spread(shown), details=True)
    return page_html(answer, command)


def file_name(explorer: Explorer, extension: str) -> str:
    """A name for a saved file: letters, digits and dashes of the scenario's name."""
    stem = "".join(one if one.isalnum() and one.isascii() else "-" for one in explorer.space.own.name).strip("-")
    return f"{stem[:60] or 'scenario'}-explored.{extension}"
