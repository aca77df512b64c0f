"""The contract of a kind of calibration: columns, constants with priors, predicted quantity, noise, written numbers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.calibration.best_setting import Recommendation
from energymodel.calibration.least_squares import FitProblem, FitResult
from energymodel.readers.columns import AS_WRITTEN, Column, TableChoices, declared_columns
from energymodel.readers.table import FEWEST_ROWS, Measurements, Records, read_table
from energymodel.scenarios.scenario import Scenario

COLUMNS = declared_columns(Path(__file__).parent / "columns" / "measurements.toml")
"""Columns of tables of measurements, by kind."""
BASE = "llama-3.1-405b-h100"  # scenario that new numbers are laid over if no other is named
CHIP = "system.accelerator"  # path of the numbers of a device in a scenario
NORMAL_90 = 1.645  # standard deviations to each end of a 90 % interval
MOST_CANDIDATES = 256  # settings among which the next measurement is looked for


class WrittenNumber(NamedTuple):
    """A number of a scenario: measured, `assumed` to be what it says, or `value + factor x constant` of the fit.

    The factor may depend on the values of all constants in the fit.
    """

    unit: str
    value: float = 0.0
    constant: str = ""
    factor: float | Callable[[Mapping[str, float]], float] = 1.0
    assumed: str = ""


class ChosenForm(NamedTuple):
    """Which form of a model is fitted, and why that one."""

    name: str
    reason: str


class PredictedAmount(NamedTuple):
    """Tokens or samples to the target of a group at a batch, with a 90 % interval, all in one unit."""

    group: str
    batch: float
    amount: float
    low: float
    high: float
    unit: str


class Grouping(NamedTuple):
    """Which rows are held out and resampled together, and what each group is."""

    labels: np.ndarray
    word: str


class Candidates(NamedTuple):
    """Settings that may be measured next: a table, and what each of them is in words.

    - `targets`: table of settings whose prediction that is to sharpen, all candidates by default, and what it is `of`.
    """

    table: Any
    words: Sequence[str]
    targets: Any = None
    of: str = "predictions"

    @staticmethod
    def thinned(settings: list[Any], most: int = MOST_CANDIDATES) -> list[Any]:
        """Evenly chosen ones of many settings."""
        return settings[:: max(1, -(-len(settings) // most))]


class CalibrationCase(NamedTuple):
    """Measurements ready to be fitted, and what becomes of the fit.

    Numbers of the scenario that is written are by dotted path in it.
    """

    fit: FitProblem
    groups: Grouping  # held out together, and resampled together unless `resampled` says otherwise
    outputs: Mapping[str, tuple[float, ...]]  # names of errors, each a sum of the model's errors with these weights
    along: tuple[str, np.ndarray]  # label and values by row of what residuals are drawn against
    candidates: Candidates
    numbers: Mapping[str, WrittenNumber] = {}
    words: Mapping[str, Any] = {}  # components, presets, titles, and quantities as they are
    notes: Sequence[str] = ()  # what a reader must know
    # Numbers that follow from several constants, and which these are (`None`: all): written together or not at all.
    law: Callable[[Mapping[str, float]], Mapping[str, WrittenNumber]] | None = None
    law_needs: Sequence[str] | None = None
    resampled: Grouping | None = None
    trained_on: np.ndarray | None = None  # rows of a held-out group that are fitted, and not counted in its error
    range: Mapping[str, float | str] = {}  # what else a scenario keeps: limits below which nothing is known, the card
    devices: Sequence[str] = ()  # that were measured, where there are several: no scenario holds them
    common: str = ""  # what the first output of all rows is called together, if its common factor is told
    # Variances to be added to an earlier calibration, whose table it gets, and why.
    unlike: Callable[[Mapping[str, Any]], tuple[np.ndarray, str] | None] | None = None
    usual_errors: Mapping[str, float] = {}  # mean logarithms by output where nothing is fitted
    form: ChosenForm | None = None  # of the model, where there are several
    not_kept: Sequence[str] = ()  # constants that are not nearly normal, so that no scenario keeps them as a prior
    nuisance: tuple[str, ...] = ()  # beginnings of the names of constants that say nothing beyond these measurements
    predictions: Callable[[FitResult], tuple[PredictedAmount, ...]] | None = None  # of settings that were not measured
    # Best settings, from the fit, the usual logarithmic error of `outputs` held out, and the most slowdown [1].
    best: Callable[[FitResult, Mapping[str, float], float], Recommendation] | None = None

    def percent_errors(self, errors: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        """Mean absolute error of some rows, by output."""
        return {
            name: float(100.0 * np.mean(np.abs(np.expm1(errors[rows] @ np.array(weights)))))
            for name, weights in self.outputs.items()
        }


class MeasurementKind(NamedTuple):
    """A kind of measurement: its columns, and how a table of them becomes a case, in one of some `forms` if any."""

    title: str
    columns: tuple[Column, ...]
    case: Callable[..., CalibrationCase]
    forms: tuple[str, ...] = ()
    reader: Callable[[Path | Records, TableChoices], Measurements] | None = None  # where `columns` are not all
    fewest_rows: int = FEWEST_ROWS

    def table(self, source: Path | Records, choices: TableChoices = AS_WRITTEN) -> Measurements:
        """Read a file of this kind, or rows.

        **Raises:** `InputError` that names file, line and column.
        """
        if self.reader is not None:
            return self.reader(source, choices)
        return read_table(source, self.columns, choices, fewest=self.fewest_rows)

    def read(self, table: Measurements, prior: Scenario | None, form: str | None = None) -> CalibrationCase:
        """The case of a table; a form that is not given is chosen by what was measured."""
        return self.case(table, prior, form) if self.forms else self.case(table, prior)
