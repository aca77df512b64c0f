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


def with_stage_power(section: Any, plan: TrainingPlan) -> tuple[Any, TrainingPlan]:
    """A question with `plan.power.*` spelled out, and a plan that has the numbers that it asks to vary."""
    ranges = _ranges(section.get("vary")) if isinstance(section, Mapping) else {}
    if not any(path.startswith(f"{PATH}.") for path in ranges):
        return section, plan
    whole, cap = f"{PATH}.*", float(plan.power_cap)
    if whole in ranges:
        bounds = ranges.pop(whole) or [LOWEST_SHARE * cap, cap]
        ranges = {**{f"{PATH}.{name}": bounds for name in STAGES}, **ranges}
    if isinstance(plan.power, EvenPower):
        plan = eqx.tree_at(lambda one: one.power, plan, StagePower(cap, cap, cap))
    return {**section, "vary": ranges}, plan


def _ranges(vary: Any, prefix: str = "") -> dict[str, Any]:
    """Ranges as given by dotted path, from a table, nested or not, or from texts "PATH=LOW:HIGH"."""
    if isinstance(vary, Mapping):
        found: dict[str, Any] = {}
        for name, bounds in vary.items():
            found |= _ranges(bounds, f"{prefix}{name}.") if isinstance(bounds, Mapping) else {f"{prefix}{name}": bounds}
        return found
    parts = (str(text).partition("=") for text in ((vary,) if isinstance(vary, str) else vary or ()))
    return {path.strip(): bounds.strip() for path, _, bounds in parts}
