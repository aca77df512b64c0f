"""Results in a notebook, as figures of matplotlib, and as tables of pandas.

`energymodel.rendered` calls the functions `html`, `plot` and `to_dataframe`. What they show of a result is its `View`.
"""

import dataclasses
import io
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jax.core import Tracer
from rich.console import Console

from energymodel.calibration.benchmark import Benchmark
from energymodel.calibration.calibrate import Calibration
from energymodel.report import data, terminal
from energymodel.report.answer import Answer, Sentence
from energymodel.report.answers.benchmark import benchmark_answer
from energymodel.report.answers.calibrate import calibrate_answer
from energymodel.report.answers.evaluate import outcome_answer
from energymodel.report.answers.optimize import optimize_answer
from energymodel.report.answers.pareto import pareto_answer
from energymodel.report.answers.sensitivity import sensitivity_answer
from energymodel.report.charts.svg import element, escape
from energymodel.report.drawing import chart_css, svg
from energymodel.report.number import sentence
from energymodel.report.page import figure, table_html
from energymodel.report.painter import paint
from energymodel.search.result import Front, Optimum
from energymodel.search.sensitivity import Sensitivity
from energymodel.system.outcome import TrainingOutcome

WIDTH = 640.0
TEXT_WIDTH = 112
CLASS = "em-shown"
"""Of the element around a result: its colors are its own, since the theme of a notebook is not that of the system."""


class View(NamedTuple):
    """How results of a class are shown: their answer, names of the table and the values, and the sentence above."""

    answer: Callable[[Any], Answer]
    table: str
    values: str
    title: Callable[[Any, Answer], Sentence] = lambda _, answer: answer.sentences[0]


def _of_calibration(fitted: Calibration, _: Answer) -> Sentence:
    return Sentence(f"{fitted.kind}: {fitted.rows} rows of {fitted.source}, priors of {fitted.base}")


VIEWS: Mapping[type, View] = {
    TrainingOutcome: View(outcome_answer, "outcome", "outcome", lambda _, answer: Sentence(answer.title)),
    Optimum: View(optimize_answer, "outcome", "outcome"),
    Front: View(pareto_answer, "plans", "plans", lambda _, answer: answer.headline),
    Sensitivity: View(sensitivity_answer, "measure", "numbers"),
    Benchmark: View(benchmark_answer, "rates", "rates", lambda _, answer: answer.headline),
    Calibration: View(calibrate_answer, "constants", "constants", _of_calibration),
}
"""Views by the class of a result."""


def _view(result: Any) -> tuple[View, Answer]:
    view = next((view for kind, view in VIEWS.items() if isinstance(result, kind)), None)
    if view is None:
        raise TypeError(f"{type(result).__name__} has no view.")
    return view, view.answer(result)


def _is_one(result: Any) -> bool:
    """Whether a result is of one run, and its numbers are known."""
    numbers = [result.loss, result.time] if isinstance(result, TrainingOutcome) else []
    return not any(isinstance(value, Tracer) or np.ndim(value) for value in numbers)


def text(result: Any) -> str:
    """A title and the table as on a terminal, for `print`."""
    if not _is_one(result):
        return repr(result)
    view, answer = _view(result)
    shown = dataclasses.replace(answer, tables=[answer.table(view.table)], screen=(), also=())
    console = Console(file=io.StringIO(), width=TEXT_WIDTH)
    console.print(terminal.terminal(shown), crop=False)
    return console.file.getvalue().strip()  # type: ignore[attr-defined]


def html(result: Any) -> str:
    """A title, a figure and a table. Colors follow the theme of the system, on a background of their own."""
    if not _is_one(result):
        return element("pre", escape(repr(result)))  # of many runs at once
    view, answer = _view(result)
    style, head = element("style", chart_css(f".{CLASS}")), element("h4", escape(sentence(view.title(result, answer))))
    markup = "".join(table_html(table, "short") for table in answer.tables if table.name == view.table)
    return element("div", style, head, figure(answer, answer.charts[0], WIDTH, narrow=False), markup, class_=CLASS)


def plot(result: Any, axes: Any = None) -> Any:
    """The figure of a result on axes of matplotlib, without them on a new figure of pyplot, which a notebook shows."""
    _, answer = _view(result)
    return paint(svg(answer, answer.charts[0], heading=True), axes, in_pyplot=True)


def to_dataframe(result: Any) -> Any:
    """The values of a result as a `pandas.DataFrame`; its `attrs` hold the units."""
    view, answer = _view(result)
    return data.to_dataframe(answer.table(view.values))
