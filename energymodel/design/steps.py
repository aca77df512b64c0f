"""Which other value of a decision is the next one that a person could choose?"""

import math

from energymodel.design.numbers import Numbers
from energymodel.errors import InputError
from energymodel.presets.scenario import Scenario
from energymodel.presets.validate import COUNTS, check_plan

STEP = 0.1  # of a decision that may take any value
TEMPERATURE_STEP = 5.0  # K


def steps(scenario: Scenario, numbers: Numbers, path: str) -> tuple[float | None, float | None]:
    """The next lower and the next higher value of a decision with which the plan can still be run.

    Degrees of parallelism halve and double, switches turn, chips and batch change by a tenth in whole replicas and
    whole micro-batches, temperatures by 5 K, all else by a tenth; the clock stays within what the chip allows.

    **Arguments:**

    - `path`: of a number of the plan, or of the system.

    **Returns:** both values in SI, `None` where there is none.
    """
    value = numbers.values[path]
    lower, higher = (_checked(numbers, path, value, one) for one in _candidates(scenario, path, value))
    return lower, higher


def _candidates(scenario: Scenario, path: str, value: float) -> tuple[float, float]:
    name = path.rpartition(".")[2]
    plan, system = scenario.plan, scenario.system
    layout = plan.layout
    group = float(layout.tensor * layout.pipeline * layout.context)
    if path.startswith("plan.layout."):
        return (value / 2.0, value * 2.0) if name in COUNTS else (0.0, 1.0)
    lower, higher = value * (1.0 - STEP), value * (1.0 + STEP)
    if path == "plan.chips":
        return _whole(lower, value, group), _whole(higher, value, group)
    if path == "plan.batch":
        unit = float(plan.chips) / group * float(layout.microbatch) * float(system.workload.sequence)
        return _whole(lower, value, unit), _whole(higher, value, unit)
    if path == "plan.clock":
        return max(lower, float(system.accelerator.minimum_clock)), min(higher, 1.0)
    if scenario.provenance[path].unit == "K":
        return value - TEMPERATURE_STEP, value + TEMPERATURE_STEP
    return lower, higher


def _whole(wanted: float, value: float, unit: float) -> float:
    """The multiple of a unit nearest to what is wanted, at least one unit away from the value."""
    count = math.floor(wanted / unit) if wanted < value else math.ceil(wanted / unit)
    return unit * count


def _checked(numbers: Numbers, path: str, value: float, other: float) -> float | None:
    if other <= 0.0 and not path.startswith("plan.layout."):
        return None
    if math.isclose(other, value, rel_tol=1e-9) or other == value:
        return None
    system, plan = numbers.at(numbers.changed(path, other))
    try:
        check_plan(system, plan)
    except InputError:
        return None
    stages, turns = float(plan.layout.pipeline), float(plan.layout.virtual_stages)
    most = math.ceil(float(system.workload.layers) / stages) if stages > 1.0 else 1
    return None if turns > most and path.startswith("plan.layout.") else other
