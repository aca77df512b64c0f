"""What does a kind of measurement need to become a fit, and where in a scenario do its constants belong?"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from energymodel.calibration.best_setting import BestSetting
from energymodel.calibration.constants import Constants, Values
from energymodel.calibration.least_squares import Errors, Options
from energymodel.calibration.measurements import Column, Measurements
from energymodel.presets.scenario import Scenario

BASE = "llama-3.1-405b-h100"
"""Scenario that new numbers are laid over if no other is named."""
MOST_CANDIDATES = 256
"""Settings among which the next measurement is looked for."""


class Change(NamedTuple):
    """A number of a system that a fit gives: `offset + factor x constant`, in a unit."""

    constant: str
    factor: float
    unit: str
    offset: float = 0.0


class Given(NamedTuple):
    """A number of a system that a file of measurements states, or that follows from them without a fit."""

    value: float
    unit: str


class Form(NamedTuple):
    """Which form of a model is fitted, and why that one."""

    name: str
    reason: str


class Problem(NamedTuple):
    """Measurements ready to be fitted.

    - `errors`, `constants`, `table`, `weights`, `noise`, `options`: see `least_squares.fit`.
    - `groups`: of the rows, held out and resampled together; `group_word`: what they are.
    - `outputs`: names of errors, each a sum of the errors of the model with these weights.
    - `along`: label and values by row of what residuals are drawn against.
    - `candidates`: settings that may be measured next, a table; `candidate_words`: what each of them is.
    - `changes`, `given`: by dotted path in a scenario.
    - `law`: numbers by dotted path that follow from several constants together, `law_needs` (`None`: all), and are
      written together or not at all.
    - `notes`: what a reader must know.
    - `resampled`: what is drawn with replacement, if not the groups; `resampled_word`: what that is.
    - `known`: rows of a held-out group that are fitted nevertheless, and are not counted in its error.
    - `range`: what else a scenario keeps of the measurements, by name: limits below which nothing is known.
    - `form`: of the model, where there are several.
    - `components`: by dotted path in a scenario, the component that changes below it belong to, if not the prior's.
    - `best`: which settings are best, from fitted values and the usual logarithmic error of `outputs` held out.
    """

    errors: Errors
    constants: Constants
    table: Any
    weights: Float[np.ndarray, " rows"]
    groups: np.ndarray
    group_word: str
    outputs: Mapping[str, tuple[float, ...]]
    along: tuple[str, np.ndarray]
    candidates: Any
    candidate_words: Sequence[str]
    changes: Mapping[str, Change]
    given: Mapping[str, Given]
    notes: Sequence[str]
    noise: float = 0.04
    options: Options = Options(starts=4, tolerance=1e-7, steps=100)
    law: Callable[[Mapping[str, float]], Mapping[str, Given]] | None = None
    law_needs: Sequence[str] | None = None
    resampled: np.ndarray | None = None
    resampled_word: str = ""
    known: np.ndarray | None = None
    range: Mapping[str, float] = {}
    form: Form | None = None
    components: Mapping[str, str] = {}
    best: Callable[[Values, Mapping[str, float]], tuple[BestSetting, ...]] | None = None


class Kind(NamedTuple):
    """A kind of measurement: its columns and how a table of them becomes a problem, in one of some `forms` if any."""

    title: str
    columns: tuple[Column, ...]
    problem: Callable[..., Problem]
    forms: tuple[str, ...] = ()

    def pose(self, table: Measurements, prior: Scenario | None, form: str | None = None) -> Problem:
        """The problem of a table; a form that is not given is chosen by what was measured."""
        return self.problem(table, prior, form) if self.forms else self.problem(table, prior)
