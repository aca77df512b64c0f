"""Numbers of a scenario that can be moved, the ends between which they are, and the unit in which they are read.

Every number is a knob; the usual ones have a slider from the start. Ends follow from what the project says of a number:
the bounds of the design search, the choices of a designer, what a number may be at all, or a decade up and down.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from energymodel.physics.limits import landauer_energy
from energymodel.ranges import EXTENTS, Range, declaration
from energymodel.readers.expressions import data_file
from energymodel.report.cells import Column, Quantity
from energymodel.report.number import Scale, scale_of, text
from energymodel.scenarios.checks import UNLIMITED_TOKENS
from energymodel.scenarios.scenario import Scenario
from energymodel.search.compare import CHIP_CHOICES, FARTHEST
from energymodel.search.compare import CHOICES as FRONTIER_CHOICES
from energymodel.search.problem import BATCH_RANGE, COOLANT, TOKEN_RANGE
from energymodel.search.training_run import TrainingRun
from energymodel.system.training_system import learning_of, parameters_in_loss

LAYOUT, DESIGN = "plan.layout.", "system.chip_design."
BATCH, CHIPS, CLOCK, POWER_CAP = "plan.batch", "plan.chips", "plan.clock", "plan.power_cap"
GENERATIONS, BUSY_POWER = f"{DESIGN}generations", "system.accelerator.busy_power"
_NEAR_BOUND, _MORE_ENERGY = 1.001, 3.0  # of Landauer's bound, and of today's energy of an operation
_DECADE = 10.0
_LOSS_SPAN, _NEAR_FLOOR = 1.25, 0.95  # of the scenario's own loss, and of the way from there to its floor
_MARGIN = 1e-9

GROUPS: Mapping[str, Mapping[str, str]] = data_file(__file__, "knobs.toml")
"""The knobs that the page starts with and their labels, by group; those that a scenario lacks are left out."""


class Knob(NamedTuple):
    """A number that can be moved.

    - `low`, `high`, `own`: ends and the scenario's own value, in SI.
    - `origin`, `per`: what a person reads is `(value - origin) / per`, a number of `column`; for most the value itself.
    - `scale`: unit in which the page shows what is read.
    - `log`: whether the slider is logarithmic in what is read; `step`: of whole numbers 1, else 0.
    - `is_prior`: whether nobody measured the scenario's own value.
    """

    path: str
    group: str
    unit: str
    low: float
    high: float
    own: float
    origin: float
    per: float
    column: Column
    scale: Scale
    log: bool
    step: float
    is_prior: bool

    @property
    def label(self) -> str:
        """Its name on the page."""
        return self.column.title

    def holds(self, value: float) -> bool:
        """Whether a finite value lies between the ends."""
        margin = _MARGIN * max(abs(self.low), abs(self.high))
        return math.isfinite(value) and self.low - margin <= value <= self.high + margin

    def clipped(self, value: float) -> float:
        """The nearest value between the ends."""
        return min(max(value, self.low), self.high)

    def quantity(self, value: float) -> Quantity:
        """What a person reads of a value, in SI."""
        return Quantity((value - self.origin) / self.per)

    def words(self, value: float) -> str:
        """A value in SI as a person reads it."""
        return text(self.quantity(value), self.column)


def knobs_of(scenario: Scenario) -> dict[str, Knob]:
    """Every knob of a scenario by path, the usual ones first. Layout and shape of the model are no knobs."""
    run = TrainingRun(scenario.system, scenario.plan)
    usual = {path: (label, group) for group, paths in GROUPS.items() for path, label in paths.items()}
    knobs = {}
    for path in dict.fromkeys((*usual, *run.values)):
        if path in run.values and not path.startswith((LAYOUT, "system.workload.")):
            knobs[path] = _knob(scenario, run, path, *usual.get(path, (path, "")))
    return {path: knob for path, knob in knobs.items() if knob is not None}


def _knob(scenario: Scenario, run: TrainingRun, path: str, label: str, group: str) -> Knob | None:
    """The knob of a number; None of one that is switched off, which has no scale."""
    own, declared, source = run.values[path], declaration(run, path).metadata, scenario.provenance.get(path)
    unit = declared["unit"]
    ends = _ends(scenario, path, unit, own, declared["range"])
    if ends is None:
        return None
    origin, per, reading = _operation(scenario) if path == BUSY_POWER else (0.0, 1.0, unit)
    low, high, middle = ((value - origin) / per for value in (*ends, own))
    column = Column(path, label, reading, "difference" if declared.get("difference") else "")
    return Knob(
        *(path, group, unit, *ends, own, origin, per, column),
        scale=scale_of(middle or high, column),
        log=low > 0.0 and high / low >= 4.0 and unit != "K",
        step=1.0 if path == CHIPS else 0.0,
        is_prior=source is not None and source.is_prior and source.source != "default",
    )


def _ends(scenario: Scenario, path: str, unit: str, own: float, allowed: Range) -> tuple[float, float] | None:
    """Ends of a slider in SI; None for a number that is switched off, which has no scale."""
    smallest, largest = EXTENTS[unit]
    choices = [*filter(None, (FRONTIER_CHOICES.get(path), CHIP_CHOICES.get(path.removeprefix(DESIGN))))]
    if path in scenario.optimize.vary:
        low, *_, high = scenario.optimize.vary[path]
    elif usual := _usual_ends(scenario, path, own):
        low, high = usual
    elif choices:
        low, high = min(low for low, _ in choices), max(high for _, high in choices)
    elif allowed.high < largest:  # stated
        low, high = allowed.low, allowed.high
    elif own <= 0.0:
        return None
    else:
        low, high = (own - 30.0, own + 30.0) if unit == "K" else (own / _DECADE, own * _DECADE)
    low, high = max(low, allowed.low), min(high, allowed.high)
    if (allowed.above or 0.0 < allowed.low <= smallest) and low <= allowed.low:
        low = allowed.low + 1e-3 * (min(high, own or high) - allowed.low)
    low, high = min(low, own), max(high, own)
    return (low, high) if high > low else None


def _usual_ends(scenario: Scenario, path: str, own: float) -> tuple[float, float] | None:
    """Ends of the numbers of which more is known than their unit."""
    chip, inlet = scenario.system.accelerator, scenario.system.facility.cooling.inlet
    if path == "plan.goal.loss":
        with jax.enable_x64(True):
            learning = learning_of(scenario.system, scenario.plan)
            floor = float(learning.loss(parameters_in_loss(scenario.system), UNLIMITED_TOKENS))
        return own - _NEAR_FLOOR * (own - floor), _LOSS_SPAN * own
    if path == BUSY_POWER:
        origin, per, _ = _operation(scenario)
        with jax.enable_x64(True):
            bound = float(landauer_energy(chip.bits_per_flop, chip.leakage.reference_temperature))
        return origin + _NEAR_BOUND * bound * per, origin + _MORE_ENERGY * (own - origin)
    usual = {
        BATCH: (own / BATCH_RANGE, own * BATCH_RANGE),
        "plan.goal.tokens": (own / TOKEN_RANGE, own * TOKEN_RANGE),
        CLOCK: (float(chip.minimum_clock), 1.0),
        POWER_CAP: (0.25 * float(chip.rated_power), float(chip.rated_power)),
        COOLANT: (float(inlet.lowest), float(inlet.highest)),
        CHIPS: (1.0, _DECADE * own),
        GENERATIONS: (0.0, FARTHEST),
    }
    return usual.get(path)


def _operation(scenario: Scenario) -> tuple[float, float, str]:
    """Busy power without switching [W], and operations per time [FLOP/s]: what is left is the energy of one of them."""
    chip = scenario.system.accelerator
    with jax.enable_x64(True):
        rest = float(chip.busy_power) - float(np.asarray(chip.dynamic_power))
        return rest, float(np.asarray(chip.gemm_efficiency * chip.peak_flops)), "J/FLOP"
