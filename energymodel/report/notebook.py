"""How is a result shown in a notebook, as a figure of matplotlib, or as a table of pandas or xarray?

`energymodel.shown` calls the four functions `html`, `plot`, `to_dataframe` and `to_xarray`. What they show of a result
is its `View`.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from energymodel.calibration.calibrate import Calibration
from energymodel.errors import InputError
from energymodel.report.answer import SHORT
from energymodel.report.answers.evaluate import outcome_answer
from energymodel.report.answers.optimize import optimize_answer
from energymodel.report.answers.pareto import pareto_answer
from energymodel.report.answers.sensitivity import sensitivity_answer
from energymodel.report.calibration_report import constants_table
from energymodel.report.charts import AbstractChart, chart_css, figure_html
from energymodel.report.charts.svg import element, escape
from energymodel.report.drawing import drawn
from energymodel.report.fields import outcome_fields, plan_fields, total
from energymodel.report.figure import pyplot_figure
from energymodel.report.html_page import table_html
from energymodel.report.number import sentence
from energymodel.report.page.calibration_page import calibration_chart
from energymodel.report.page.markup import terminal_table
from energymodel.report.plot import draw
from energymodel.search.front import Front
from energymodel.search.result import Optimum
from energymodel.search.sensitivity import Sensitivity
from energymodel.system.outcome import TrainingOutcome

WIDTH = 640.0
CLASS = "em-shown"
"""Of the element around a result: its colors are its own, since the theme of a notebook is not that of the system."""
ROWS = 12
"""Rows of a table in a notebook."""
HOUR = 3600.0


class Values(NamedTuple):
    """A result as columns: what the rows are and their labels, then by name the SI unit and a value for each row."""

    rows: str
    labels: list[Any]
    columns: dict[str, tuple[str, list[Any]]]


class View(NamedTuple):
    """How a result is shown: the title, the table as markup, the figure, and the values."""

    title: str
    table: Callable[[], str]
    chart: Callable[[], AbstractChart]
    values: Callable[[], Values]


@functools.singledispatch
def view(result: Any) -> View:
    """How a result of this class is shown."""
    raise TypeError(f"{type(result).__name__} has no view.")


def html(result: Any) -> str:
    """A title, a figure and a table. Colors follow the theme of the system, on a background of their own."""
    if isinstance(result, TrainingOutcome) and any(np.ndim(field) for field in _leaves(result)):
        return element("pre", escape(repr(result)))  # of many runs at once
    shown = view(result)
    head = element("h4", escape(shown.title))
    style = element("style", chart_css(f".{CLASS}"))
    return element(
        "div", style, head, figure_html(shown.chart(), WIDTH, narrow=False, table=False), shown.table(), class_=CLASS
    )


def plot(result: Any, axes: Any = None) -> Any:
    """The figure of a result on axes of matplotlib, without them on a new figure of pyplot, which a notebook shows."""
    return draw(view(result).chart(), axes, pyplot_figure)


def to_dataframe(result: Any) -> Any:
    """The values of a result as a `pandas.DataFrame`; its `attrs` hold the units."""
    pandas = _library("pandas", "to_dataframe")
    values = view(result).values()
    index = pandas.Index(values.labels, name=values.rows)
    frame = pandas.DataFrame({name: column for name, (_, column) in values.columns.items()}, index=index)
    frame.attrs["units"] = {name: unit for name, (unit, _) in values.columns.items()}
    return frame


def to_xarray(result: Any) -> Any:
    """The values of a result as an `xarray.Dataset`; a value for one row alone has no dimension."""
    xarray = _library("xarray", "to_xarray")
    values = view(result).values()
    alone = len(values.labels) == 1
    variables = {
        name: ((), column[0], {"units": unit}) if alone else (values.rows, np.asarray(column), {"units": unit})
        for name, (unit, column) in values.columns.items()
    }
    return xarray.Dataset(variables, coords={} if alone else {values.rows: values.labels})


def _library(name: str, method: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise InputError(f'{method} needs {name}. Install it: pip install "energymodel[notebook]".') from None


def _leaves(outcome: TrainingOutcome) -> list[Any]:
    return [getattr(outcome, name) for name in ("loss", "time", "money")]


def _outcome_values(outcome: TrainingOutcome) -> dict[str, tuple[str, float]]:
    """All outputs by dotted name with their SI units; times of chips in seconds."""
    found: dict[str, tuple[str, float]] = {}
    for field in outcome_fields(outcome):
        found[field.name] = field.unit, field.value * HOUR if field.key.endswith("hours") else field.value
    for group in ("energy", "step_time", "slack"):
        parts = getattr(outcome, group)
        if group != "slack":
            found[group] = ("J" if group == "energy" else "s"), total(parts)
        found |= {f"{group}.{field.name}": (field.unit, field.value) for field in outcome_fields(parts)}
    return found


def _one_row(values: dict[str, tuple[str, float]], label: str) -> Values:
    return Values("run", [label], {name: (unit, [value]) for name, (unit, value) in values.items()})


@view.register
def _outcome(result: TrainingOutcome) -> View:
    answer = outcome_answer(result)
    return View(
        "Outcome of a training run",
        lambda: table_html(answer.table("outcome"), SHORT),
        lambda: drawn(answer, answer.charts[0]),
        lambda: _one_row(_outcome_values(result), "run"),
    )


@view.register
def _optimum(result: Optimum) -> View:
    def values() -> Values:
        own, found = _outcome_values(result.baseline), _outcome_values(result.outcome)
        columns = {name: (unit, [value, found[name][1]]) for name, (unit, value) in own.items()}
        return Values("plan", ["own", "found"], columns)

    answer = optimize_answer(result)
    return View(
        sentence(answer.sentences[0]),
        lambda: table_html(answer.table("outcome"), SHORT),
        lambda: drawn(answer, answer.charts[0]),
        values,
    )


@view.register
def _front(result: Front) -> View:
    def values() -> Values:
        points = result.points
        columns: dict[str, tuple[str, list[Any]]] = {
            name: (result.units[name], [point.values[name] for point in points]) for name in result.minimize
        }
        for name in result.minimize[1:]:
            rates = [point.exchange.get(name, np.nan) for point in points]
            columns[f"exchange.{name}"] = "1", rates
        plans = [{field.name: field for field in plan_fields(point.plan)} for point in points]
        for name, field in plans[0].items():
            numbers = [plan[name].value if name in plan else np.nan for plan in plans]
            columns[name] = field.unit, numbers
        return Values("point", list(range(len(points))), columns)

    answer = pareto_answer(result)
    return View(
        sentence(answer.headline),
        lambda: table_html(answer.table("plans"), SHORT),
        lambda: drawn(answer, answer.charts[0]),
        values,
    )


@view.register
def _sensitivity(result: Sensitivity) -> View:
    def values() -> Values:
        rows = result.rows
        columns: dict[str, tuple[str, list[Any]]] = {
            "value": ("", [row.value for row in rows]),
            "unit": ("", [row.unit for row in rows]),
            "kind": ("", [row.provenance.kind for row in rows]),
            "action": ("", [row.action for row in rows]),
            "low": ("", [np.nan if row.low is None else row.low for row in rows]),
            "high": ("", [np.nan if row.high is None else row.high for row in rows]),
        }
        for name in result.values:
            shares = result.shares(name)
            effects = [row.effects[name] for row in rows]
            elasticities = [np.nan if one.elasticity is None else one.elasticity for one in effects]
            columns[f"{name}.elasticity"] = "1", elasticities
            columns[f"{name}.share"] = "1", [shares.get(row.path, np.nan) for row in rows]
        return Values("number", [row.path for row in rows], columns)

    answer = sensitivity_answer(result)
    return View(
        sentence(answer.sentences[0]),
        lambda: table_html(answer.table("measure"), SHORT) if result.rows else "",
        lambda: drawn(answer, answer.charts[0]),
        values,
    )


@view.register
def _calibration(result: Calibration) -> View:
    def values() -> Values:
        constants = result.constants
        ends = [one.laplace or (np.nan, np.nan) for one in constants]
        columns: dict[str, tuple[str, list[Any]]] = {
            "value": ("", [one.value for one in constants]),
            "unit": ("", [one.unit for one in constants]),
            "prior": ("", [one.prior for one in constants]),
            "low": ("", [low for low, _ in ends]),
            "high": ("", [high for _, high in ends]),
            "determined": ("", [one.determined for one in constants]),
        }
        return Values("constant", [one.name for one in constants], columns)

    return View(
        f"{result.kind}: {result.rows} rows of {result.source}, priors of {result.base}",
        lambda: terminal_table(constants_table(result), title=False),
        lambda: calibration_chart(result),
        values,
    )
