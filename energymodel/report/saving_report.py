"""How does a person read what a plan saves: which change saves how much, and how sure is it?"""

from rich.markup import escape
from rich.table import Table

from energymodel.report.intervals import quantity, rounded, with_interval
from energymodel.search.result import Optimum
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.sweeps.outcome_spread import DEVIATIONS, LEVEL

MOST = 3  # numbers that are named
SMALLEST = 0.01  # share of the variance of one that is


def saving_table(optimum: Optimum, risk: SavingAtRisk | None = None) -> Table | None:
    """What each cause saves of the objective, with its share; nothing where the saving cannot be split.

    Where the uncertainty of the saving is known, all numbers have as many decimals as it supports.
    """
    whole = sum(optimum.saving.values())
    if not whole:
        return None
    title = "Saving by cause"
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
    half = DEVIATIONS * risk.saving_deviation if risk else 0.0
    return rounded(quantity(saved, optimum.value_unit), saved - half, saved + half)


def risk_lines(optimum: Optimum, risk: SavingAtRisk) -> list[str]:
    """How sure the saving is, and how much of it rests on numbers that nobody measured."""
    saving = with_interval(risk.saving, *risk.saving_interval, optimum.value_unit, LEVEL)
    lost, level = f"{100.0 * risk.resting_on_priors:.0f} %", f"{100.0 * LEVEL:g} %"
    lines = [
        f"Saving: {saving}.",
        f"Of the saving, {lost} rests on numbers that nobody measured: with a probability of {level}, what is wrong "
        f"with these numbers takes away or adds no more than {lost} of it. They cause "
        f"{100.0 * risk.prior_variance:.0f} % of the variance of the saving.",
    ]
    named = [(name, share) for name, share in risk.shares.items() if share >= SMALLEST][:MOST]
    if named:
        shown = ", ".join(f"{name} ({100.0 * share:.0f} %)" for name, share in named)
        lines.append(f"  Measure these first (share of the variance): {shown}.")
    if risk.without:
        lines.append(f"  {risk.without} more such numbers have no stated spread; they are taken as exact.")
    return lines
