"""Power by pipeline stage in files and questions: `[plan.power]`, and `--vary plan.power.*`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx

from energymodel.errors import InputError
from energymodel.system.plan import EvenPower, StagePower, TrainingPlan

PATH = "plan.power"
STAGES = tuple(field.name for field in dataclasses.fields(StagePower))
LOWEST_SHARE = 0.3  # of the plan's power cap, the least cap of a stage that a search tries unless told otherwise


def stage_power_table(given: Any, power_cap: Any) -> dict[str, Any]:
    """The table of `plan.power` with a component, and the plan's cap for stages that are not named.

    **Raises:** `InputError` for what is no table.
    """
    if not isinstance(given, dict):
        raise InputError(
            f"{PATH}: a table with {', '.join(STAGES)} is needed, not {given!r}. "
            "The cap of all chips is plan.power_cap."
        )
    keys = set(given) - {"component"}
    if not keys and given.get("component") in (None, EvenPower.__name__):
        return {"component": EvenPower.__name__}
    return {"component": StagePower.__name__, **dict.fromkeys(STAGES, power_cap), **given}


def with_stage_power(question: Mapping[str, Any], plan: TrainingPlan) -> tuple[Mapping[str, Any], TrainingPlan]:
    """A question, as `asked` gives it, with `plan.power.*` spelled out, and a plan with the numbers that it varies."""
    ranges = dict(question.get("vary", {}))
    if not any(path.startswith(f"{PATH}.") for path in ranges):
        return question, plan
    whole, cap = f"{PATH}.*", float(plan.power_cap)
    if whole in ranges:
        bounds = ranges.pop(whole) or [LOWEST_SHARE * cap, cap]
        ranges = {**{f"{PATH}.{name}": bounds for name in STAGES}, **ranges}
    if isinstance(plan.power, EvenPower):
        plan = eqx.tree_at(lambda one: one.power, plan, StagePower(cap, cap, cap))
    return {**question, "vary": ranges}, plan
