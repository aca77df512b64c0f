"""Results in a notebook, as figures of matplotlib, and as tables of pandas or xarray.

`energymodel.rendered` calls the four functions `html`, `plot`, `to_dataframe` and `to_xarray`. What they show of a
result is its `View`.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from energymodel.calibration.calibrate import Calibration
from energymodel.report import data
from energymodel.report.answer import SHORT, Answer, Sentence, Table
from energymodel.report.answers.calibrate import calibrate_answer
from energymodel.report.answers.evaluate import outcome_answer
from energymodel.report.answers.optimize import optimize_answer
from energymodel.report.answers.pareto import pareto_answer
from energymodel.report.answers.sensitivity import sensitivity_answer
from energymodel.report.charts.figure import chart_css
from energymodel.report.charts.svg import element, escape
from energymodel.report.drawing import svg
from energymodel.report.number import sentence
from energymodel.report.page import figure, table_html
from energymodel.report.painter import paint
from energymodel.search.result import Front, Optimum
from energymodel.search.sensitivity import Sensitivity
from energymodel.system.outcome import TrainingOutcome

WIDTH = 640.0
CLASS = "em-shown"
"""Of the element around a result: its colors are its own, since the theme of a notebook is not that of the system."""


class View(NamedTuple):
    """How a result is shown: its answer with the figure, the title, the table as markup, and the values."""

    answer: Answer
    title: str
    markup: str
    values: Table


@functools.singledispatch
def view(result: Any) -> View:
    """How a result of this class is shown."""
    raise TypeError(f"{type(result).__name__} has no view.")


def html(result: Any) -> str:
    """A title, a figure and a table. Colors follow the theme of the system, on a background of their own."""
    if isinstance(result, TrainingOutcome) and any(np.ndim(getattr(result, name)) for name in ("loss", "time")):
        return element("pre", escape(repr(result)))  # of many runs at once
    answer, title, markup, _ = view(result)
    style, head = element("style", chart_css(f".{CLASS}")), element("h4", escape(title))
    return element("div", style, head, figure(answer, answer.charts[0], WIDTH, narrow=False), markup, class_=CLASS)


def plot(result: Any, axes: Any = None) -> Any:
    """The figure of a result on axes of matplotlib, without them on a new figure of pyplot, which a notebook shows."""
    answer = view(result).answer
    return paint(svg(answer, answer.charts[0], heading=True), axes, in_pyplot=True)


def to_dataframe(result: Any) -> Any:
    """The values of a result as a `pandas.DataFrame`; its `attrs` hold the units."""
    return data.to_dataframe(view(result).values)


def to_xarray(result: Any) -> Any:
    """The values of a result as an `xarray.Dataset`; a value for one row alone has no dimension."""
    return data.to_xarray(view(result).values)


def _view(answer: Answer, title: Sentence, table: str, values: str) -> View:
    """A result by its answer: the first chart, a table in its short form, and the values of another."""
    markup = "".join(table_html(own, SHORT) for own in answer.tables if own.name == table)
    return View(answer, sentence(title), markup, answer.table(values))


@view.register
def _outcome(result: TrainingOutcome) -> View:
    return _view(outcome_answer(result), Sentence("Outcome of a training run"), "outcome", "outcome")


@view.register
def _optimum(result: Optimum) -> View:
    answer = optimize_answer(result)
    return _view(answer, answer.sentences[0], "outcome", "outcome")


@view.register
def _front(result: Front) -> View:
    answer = pareto_answer(result)
    return _view(answer, answer.headline, "plans", "plans")


@view.register
def _sensitivity(result: Sensitivity) -> View:
    answer = sensitivity_answer(result)
    return _view(answer, answer.sentences[0], "measure", "numbers")


@view.register
def _calibration(result: Calibration) -> View:
    title = Sentence(f"{result.kind}: {result.rows} rows of {result.source}, priors of {result.base}")
    return _view(calibrate_answer(result), title, "constants", "constants")
