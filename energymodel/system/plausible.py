"""Outcomes of runs that physics and bookkeeping rule out. Checked where a run is evaluated from the host.

Every number can lie in its range and their combination still be none that exists: then a product overflows, or an
outcome breaks a bound that no run breaks. The message names the outcome, its value and the input to look at.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.ranges import EXTENTS, Range, check_numbers, declared_numbers
from energymodel.runtime.compilation import Compiled
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.plan_rules import check_formats, check_pipeline, is_traced
from energymodel.system.training_system import TrainingSystem
from energymodel.units import format_quantity

ROUNDING = 64.0
"""Of a sum of a dozen terms, in units of the last digit."""
WIDE = 1e4
"""A range whose ends are further apart is searched by orders of magnitude."""
USUAL = 0.8
"""How near to an end of its range no number of a preset lies [see `_extremity`]."""
MOST_NAMED = 3
SIGNED = "slack."
"""Group of the outputs that may be negative."""
AT_MOST_ONE = {"mfu": "peak rate", "hfu": "peak rate", "euf": "energy", "availability": "time"}
"""Shares, and of what."""
SUSPECTS: dict[str, tuple[str, ...]] = {
    "mfu": ("production_slowdown", "software.product_efficiency", "software.fp8_efficiency", "software.fp4_efficiency"),
    "euf": ("production_slowdown", "software.product_efficiency"),
    "power_peak": ("accelerator.spin_activity", "accelerator.idle_power", "other_stages"),
    "landauer_multiple": ("accelerator.bits_per_flop", "accelerator.peak_flops"),
}
"""Numbers of a system that usually lie behind an outcome that cannot be, the first one first."""


class Number(NamedTuple):
    """A number of a system or a plan with its declaration."""

    path: str
    value: float
    field: "dataclasses.Field[Any]"

    def describe(self) -> str:
        """Path and value."""
        about = self.field.metadata
        printed = format_quantity(self.value, about["unit"], difference=about.get("difference", False))
        return f"{self.path} = {printed}"


class CheckedOutcome(Compiled):
    """A compiled function of a system and a plan, whose outcome is checked when it is back on the host."""

    def __call__(self, *args: Any) -> Any:
        """Call the function; the outcome holds JAX arrays, as that of `Compiled`.

        **Raises:** `InputError` as `check_outcome`.
        """
        system, plan = args
        outcome = super().__call__(system, plan)
        check_outcome(system, plan, outcome)
        return outcome


def check_inputs(system: TrainingSystem, plan: TrainingPlan) -> None:
    """Check a system and a plan as far as their numbers are known: ranges, pipeline and number formats.

    **Raises:** `InputError` that names the first number outside its range, the rule of pipelines, or the format.
    """
    if not is_traced(system, plan):
        check_numbers(system, "system")
        check_numbers(plan, "plan")
    if not is_traced(system.workload, system.software, plan):
        check_pipeline(system, plan)
    check_formats(system.accelerator, vars(plan.layout), "plan.layout")


def check_outcome(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome) -> None:
    """Check that an outcome is finite, adds up of parts that are not negative, and breaks no bound of physics.

    Power usage effectiveness is at least 1, utilizations are at most 1, the energy is above Landauer's bound, and the
    peak of the power is at least its mean.

    **Raises:** `InputError` that names the outcome, its value and the number to look at.
    """
    outcome = jax.device_get(outcome)
    precision = np.finfo(np.result_type(*jax.tree.leaves(outcome)))
    outputs = {name: (float(value), unit) for name, value, unit in _outputs(outcome)}
    rounding = ROUNDING * float(precision.eps)
    for name, (value, unit) in outputs.items():
        if not math.isfinite(value):
            wider = " Evaluate in float64 (jax.enable_x64), or look" if precision.bits < 64 else " Look"
            raise InputError(
                f"The outcome {name} is {value:g} {unit}: some number is too large or too small beside the others."
                f"{wider} at {_named(_extremes(system, plan))}."
            )
    for name, (value, unit) in outputs.items():
        if value >= 0.0 or name.startswith(SIGNED):
            continue
        group = name.rpartition(".")[0]  # it may be a difference of the largest like it
        total = max(abs(other) for part, (other, of) in outputs.items() if of == unit and part.startswith(group))
        if value < -rounding * total:
            raise InputError(
                f"The outcome {name} is {format_quantity(value, unit)}, which is negative. {_look(system, plan, name)}"
            )
    for name, what in AT_MOST_ONE.items():
        if outputs[name][0] > 1.0 + rounding:
            raise InputError(
                f"The outcome {name} is {outputs[name][0]:.4g}, more than the whole {what}. {_look(system, plan, name)}"
            )
    for name, words in ("pue", "less than the equipment alone"), ("landauer_multiple", "less than Landauer's bound"):
        if outputs[name][0] < 1.0 - rounding:
            raise InputError(
                f"The outcome {name} is {outputs[name][0]:.4g}, below 1: {words}. {_look(system, plan, name)}"
            )
    peak, mean = outputs["power_peak"][0], outputs["power_average"][0]
    if peak < mean * (1.0 - rounding):
        raise InputError(
            f"The outcome power_peak, {format_quantity(peak, 'W')}, is below power_average, "
            f"{format_quantity(mean, 'W')}. {_look(system, plan, 'power_peak')}"
        )


def _outputs(component: Any, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Name, value and unit of every output."""
    for field in dataclasses.fields(component):
        value = getattr(component, field.name)
        if dataclasses.is_dataclass(value):
            yield from _outputs(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", value, field.metadata["unit"]


def _look(system: TrainingSystem, plan: TrainingPlan, name: str) -> str:
    """Which number to look at."""
    numbers = {number.path.removeprefix("system."): number for number in _numbers(system, "system")}
    suspects = [numbers[path].describe() for path in SUSPECTS.get(name, ()) if path in numbers]
    return f"Look at {_named([*suspects[:2], *_extremes(system, plan)])}."


def _extremes(system: TrainingSystem, plan: TrainingPlan) -> list[str]:
    """The numbers that lie nearest to an end of their ranges, by orders of magnitude, with their values.

    Nearer than any number of a preset does: those that lie elsewhere are no more likely to be wrong than others.
    """
    numbers = sorted([*_numbers(system, "system"), *_numbers(plan, "plan")], key=_extremity, reverse=True)
    return [number.describe() for number in numbers[:MOST_NAMED] if _extremity(number) > USUAL]


def _named(descriptions: list[str]) -> str:
    return " and ".join(dict.fromkeys(descriptions)) or "the numbers that differ from those of a preset"


def _extremity(number: Number) -> float:
    """How near a number lies to an end of its range, from 0 in the middle to 1 at an end; defaults count as 0."""
    allowed: Range = number.field.metadata["range"]
    smallest, largest = EXTENTS[number.field.metadata["unit"]]
    low, high = max(allowed.low, smallest), min(allowed.high, largest)
    if number.value in (0.0, number.field.default) or high / low < WIDE:
        return 0.0
    position = 2.0 * math.log(abs(number.value) / low) / math.log(high / low) - 1.0
    # Near an end that the field states itself, such as a share of 1, many numbers lie.
    return max(position if high == largest else 0.0, -position if low == smallest else 0.0)


def _numbers(component: Any, path: str) -> Iterator[Number]:
    """All numbers of a component and its parts."""
    for where, field, values in declared_numbers(component, path):
        yield from (Number(where, float(value), field) for value in values)
