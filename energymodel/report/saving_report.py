"""How does a person read what a plan saves: which change saves how much?"""

from rich.markup import escape
from rich.table import Table

from energymodel.design.result import Optimum
from energymodel.units import format_quantity


def saving_table(optimum: Optimum) -> Table | None:
    """What each cause saves of the objective, with its share; nothing where the saving cannot be split."""
    whole = sum(optimum.saving.values())
    if not whole:
        return None
    title = f"{optimum.minimize.capitalize()} saved by each change, mean over all orders of the changes"
    table = Table(box=None, title=title, title_justify="left", title_style="bold", show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for cause, saved in optimum.saving.items():
        table.add_row(escape(cause), format_quantity(saved, optimum.value_unit), f"{100.0 * saved / abs(whole):.1f} %")
    share = "100 %" if whole > 0.0 else "-100 %"
    table.add_row("total", format_quantity(whole, optimum.value_unit), share, style="bold")
    return table
