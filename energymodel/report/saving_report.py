"""How does a person read what a plan saves: which change saves how much, and how sure is it?"""

from rich.markup import escape
from rich.table import Table

from energymodel.design.result import Optimum
from energymodel.report.intervals import supported_digits, with_interval
from energymodel.uncertainty.first_order import SavingAtRisk
from energymodel.uncertainty.outcome_spread import DEVIATIONS, LEVEL
from energymodel.units import format_quantity

MOST = 3  # numbers that are named
SMALLEST = 0.01  # share of the variance of one that is


def saving_table(optimum: Optimum, risk: SavingAtRisk | None = None) -> Table | None:
    """What each cause saves of the objective, with its share; nothing where the saving cannot be split.

    Where the uncertainty of the saving is known, all numbers have as many decimals as it supports.
    """
    whole = sum(optimum.saving.values())
    if not whole:
        return None
    title = f"Saving of {optimum.minimize} by cause"
    table = Table(box=None, title=title, title_justify="left", title_style="bold", show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for cause, saved in optimum.saving.items():
        share = f"{100.0 * saved / abs(whole):.{0 if risk else 1}f} %"
        table.add_row(escape(cause), _shown(saved, optimum, risk), share)
    table.add_row("total", _shown(whole, optimum, risk), "100 %" if whole > 0.0 else "-100 %", style="bold")
    return table


def _shown(saved: float, optimum: Optimum, risk: SavingAtRisk | None) -> str:
    unit = optimum.value_unit
    digits = supported_digits(saved, DEVIATIONS * risk.saving_deviation, unit) if risk else 4
    return format_quantity(saved, unit, digits=digits)


def risk_lines(optimum: Optimum, risk: SavingAtRisk) -> list[str]:
    """How sure the saving is, and how much of it rests on numbers that nobody measured."""
    saving = with_interval(risk.saving, *risk.saving_interval, optimum.value_unit, LEVEL)
    lines = [
        f"Saving: {saving}, to first order in the uncertain numbers.",
        f"Of the saving, {100.0 * risk.resting_on_priors:.0f} % rests on numbers that nobody measured: so much their "
        f"{100.0 * LEVEL:g} % interval can take away. They make {100.0 * risk.prior_variance:.0f} % of its variance.",
    ]
    named = [(name, share) for name, share in risk.shares.items() if share >= SMALLEST][:MOST]
    if named:
        lines.append("  Most of it: " + ", ".join(f"{name} ({100.0 * share:.0f} %)" for name, share in named) + ".")
    if risk.without:
        lines.append(f"  {risk.without} more priors state no spread and count as exact.")
    return lines
