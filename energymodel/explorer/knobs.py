"""Which numbers of a scenario can be moved, between which ends, and in which unit are they read?

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
from energymodel.report.fields import Field
from energymodel.report.intervals import scale_of
from energymodel.scenarios.scenario import Scenario
from energymodel.scenarios.validate import UNLIMITED_TOKENS
from energymodel.search.compare import CHIP_CHOICES, FARTHEST
from energymodel.search.compare import CHOICES as FRONTIER_CHOICES
from energymodel.search.problem import BATCH_RANGE, COOLANT, TOKEN_RANGE
from energymodel.search.training_run import TrainingRun
from energymodel.system.evaluate import learning_of, parameters_in_loss
from energymodel.units import format_quantity

LAYOUT = "plan.layout."
WORKLOAD = "system.workload."
DESIGN = "system.chip_design."
BATCH, CHIPS, CLOCK, POWER_CAP = "plan.batch", "plan.chips", "plan.clock", "plan.power_cap"
GENERATIONS, BUSY_POWER = f"{DESIGN}generations", "system.accelerator.busy_power"
NEAR_BOUND, MORE_ENERGY = 1.001, 3.0  # of Landauer's bound, and of today's energy of an operation
DECADE = 10.0
LOSS_SPAN, NEAR_FLOOR = 1.25, 0.95  # of the scenario's own loss, and of the way from there to its floor
MARGIN = 1e-9

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Plan": {
        BATCH: "Batch",
        CLOCK: "Clock",
        POWER_CAP: "Power cap per chip",
        COOLANT: "Coolant temperature",
        CHIPS: "Chips",
        "plan.goal.tokens": "Training tokens",
        "plan.goal.loss": "Target loss",
    },
    "Prices and carbon": {
        "system.market.price.electricity": "Electricity price",
        "system.market.price.chip_time": "Rent per chip",
        "system.accelerator.price": "Price of a chip",
        "system.market.price.delay_cost": "Value of time",
        "system.market.carbon.intensity": "Carbon intensity of the grid",
    },
    "Hardware, toward the limits": {
        GENERATIONS: "Process generations from today",
        BUSY_POWER: "Energy of an operation, by busy power",
        f"{DESIGN}voltage": "Supply voltage, relative",
        f"{DESIGN}number_bits": "Bits of a number",
        f"{DESIGN}error_margin": "Margin against thermal noise",
        f"{DESIGN}memory_stacks": "Memory stacks, relative",
        f"{DESIGN}link_lanes": "Link lanes within a node, relative",
        "system.accelerator.memory_bandwidth": "Memory bandwidth",
        "system.node.scale_up.lane_bandwidth": "Bandwidth of a lane within a node",
        "system.network.link.lane_bandwidth": "Bandwidth of a lane between nodes",
        "system.accelerator.leakage.power": "Leakage power",
        "system.accelerator.thermal_resistance": "Thermal resistance of the package",
        "system.facility.power_limit": "Power limit of the site",
    },
}
"""The knobs that the page starts with, by group; those that a scenario lacks are left out."""


class Knob(NamedTuple):
    """A number that can be moved.

    - `low`, `high`, `own`: ends and the scenario's own value, in SI.
    - `origin`, `per`: what a person reads is `(value - origin) / per`, in `reading_unit`; for most the value itself.
    - `size`, `zero`, `word`: the page shows `(reading - zero) / size` before the word.
    - `log`: whether the slider is logarithmic in the reading; `step`: of whole numbers 1, else 0.
    - `is_prior`: whether nobody measured the scenario's own value; `is_difference`: of temperatures.
    """

    path: str
    label: str
    group: str
    unit: str
    low: float
    high: float
    own: float
    origin: float
    per: float
    reading_unit: str
    size: float
    zero: float
    word: str
    log: bool
    step: float
    is_prior: bool
    is_difference: bool

    def holds(self, value: float) -> bool:
        """Whether a finite value lies between the ends."""
        room = MARGIN * max(abs(self.low), abs(self.high))
        return math.isfinite(value) and self.low - room <= value <= self.high + room

    def reading(self, value: float) -> float:
        """What a person reads of a value, in SI."""
        return (value - self.origin) / self.per

    def shown(self, value: float) -> float:
        """A value in the unit of the page."""
        return (self.reading(value) - self.zero) / self.size

    def words(self, value: float) -> str:
        """A value in SI as a person reads it."""
        return format_quantity(self.reading(value), self.reading_unit, digits=4, difference=self.is_difference)


def knobs_of(scenario: Scenario) -> dict[str, Knob]:
    """Every knob of a scenario by path, the usual ones first. Layout and shape of the model are no knobs."""
    run = TrainingRun(scenario.system, scenario.plan)
    values = run.values
    usual = {path: (label, group) for group, paths in GROUPS.items() for path, label in paths.items()}
    found: dict[str, Knob] = {}
    for path in (*usual, *values):
        if path in found or path not in values or path.startswith((LAYOUT, WORKLOAD)):
            continue
        label, group = usual.get(path, (path, ""))
        knob = _knob(scenario, run, path, label, group)
        if knob is not None:
            found[path] = knob
    return found


def _knob(scenario: Scenario, run: TrainingRun, path: str, label: str, group: str) -> Knob | None:
    field = declaration(run, path)
    unit, own, allowed = field.metadata["unit"], run.values[path], field.metadata["range"]
    ends = _ends(scenario, path, unit, own, allowed)
    if ends is None:
        return None
    low, high = ends
    origin, per, reading_unit = _operation(scenario) if path == BUSY_POWER else (0.0, 1.0, unit)
    least, most = (low - origin) / per, (high - origin) / per
    log = least > 0.0 and most / least >= 4.0 and unit != "K"
    scale = scale_of(Field(path, "", "", reading_unit, (own - origin) / per or most))
    difference = bool(field.metadata.get("difference"))
    source = scenario.provenance.get(path)
    return Knob(
        path=path,
        label=label,
        group=group,
        unit=unit,
        low=low,
        high=high,
        own=own,
        origin=origin,
        per=per,
        reading_unit=reading_unit,
        size=scale.size,
        zero=0.0 if difference else scale.zero,
        word=unit if difference else scale.word,
        log=log,
        step=1.0 if path == CHIPS else 0.0,
        is_prior=source is not None and source.is_prior and source.source != "default",
        is_difference=difference,
    )


def _ends(scenario: Scenario, path: str, unit: str, own: float, allowed: Range) -> tuple[float, float] | None:
    """Ends of a slider in SI; None for a number that is switched off, which has no scale."""
    system = scenario.system
    chip, inlet = system.accelerator, system.facility.cooling.inlet
    smallest, largest = EXTENTS[unit]
    designer = path.removeprefix(DESIGN) if path.startswith(DESIGN) else ""
    choices = [one for one in (FRONTIER_CHOICES.get(path), CHIP_CHOICES.get(designer)) if one is not None]
    if path in scenario.optimize.vary:
        low, high = scenario.optimize.vary[path]
    elif path == BATCH:
        low, high = own / BATCH_RANGE, own * BATCH_RANGE
    elif path == "plan.goal.tokens":
        low, high = own / TOKEN_RANGE, own * TOKEN_RANGE
    elif path == "plan.goal.loss":
        low, high = own - NEAR_FLOOR * (own - _loss_floor(scenario)), LOSS_SPAN * own
    elif path == CLOCK:
        low, high = float(chip.minimum_clock), 1.0
    elif path == POWER_CAP:
        low, high = 0.25 * float(chip.rated_power), float(chip.rated_power)
    elif path == COOLANT:
        low, high = float(inlet.lowest), float(inlet.highest)
    elif path == CHIPS:
        low, high = 1.0, DECADE * own
    elif path == BUSY_POWER:
        origin, per, _ = _operation(scenario)
        low, high = origin + NEAR_BOUND * _bound(scenario) * per, origin + MORE_ENERGY * (own - origin)
    elif path == GENERATIONS:
        low, high = 0.0, FARTHEST
    elif choices:
        low, high = min(low for low, _ in choices), max(high for _, high in choices)
    elif allowed.high < largest:  # stated
        low, high = allowed.low, allowed.high
    elif own <= 0.0:
        return None
    elif unit == "K":
        low, high = own - 30.0, own + 30.0
    else:
        low, high = own / DECADE, own * DECADE
    low, high = max(low, allowed.low), min(high, allowed.high)
    if (allowed.above or 0.0 < allowed.low <= smallest) and low <= allowed.low:
        low = allowed.low + 1e-3 * (min(high, own or high) - allowed.low)
    low, high = min(low, own), max(high, own)
    return (low, high) if high > low else None


def _operation(scenario: Scenario) -> tuple[float, float, str]:
    """Busy power without switching [W], and operations per time [FLOP/s]: what is left is the energy of one of them."""
    chip = scenario.system.accelerator
    with jax.enable_x64(True):
        rest = float(chip.busy_power) - float(np.asarray(chip.dynamic_power))
        return rest, float(np.asarray(chip.gemm_efficiency * chip.peak_flops)), "J/FLOP"


def _bound(scenario: Scenario) -> float:
    """Landauer's bound of an operation at the temperature of the chip's leakage [J/FLOP]."""
    chip = scenario.system.accelerator
    with jax.enable_x64(True):
        return float(landauer_energy(chip.bits_per_flop, chip.leakage.reference_temperature))


def _loss_floor(scenario: Scenario) -> float:
    """The loss that unlimited data would leave [nat/token]."""
    with jax.enable_x64(True):
        learning = learning_of(scenario.system, scenario.plan)
        return float(learning.loss(parameters_in_loss(scenario.system), UNLIMITED_TOKENS))
