"""Short words of a plan: a batch that rises at the beginning of a run, power caps by pipeline stage."""

import dataclasses
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import equinox as eqx

from energymodel.errors import InputError
from energymodel.system.outputs import parse_number
from energymodel.system.plan import EvenPower, StagePower, TrainingPlan

BATCH = "plan.batch"
MOST_PARTS = 64  # of the progress, into which knots divide it
CLOSE = 0.01  # of the share of progress: by how much knots may miss where the rise ends
POWER = "plan.power"
STAGES = tuple(field.name for field in dataclasses.fields(StagePower))
LOWEST_SHARE = 0.3  # of the plan's power cap: the lowest cap of a stage that a search tries unless a range is given
_RISE = re.compile(r"\s*(?P<first>.+?)\s+to\s+(?P<last>.+?)\s+over\s+(?P<share>.+?)\s*(of progress)?\s*$")


def batch_knots(batch: Any) -> Any:
    """Knots of a batch such as "2 Mi token to 16 Mi token over 5 %"; everything else as it is.

    The logarithm of the batch rises in proportion to progress, the share of the run's effective tokens, then it stays.

    **Raises:** `InputError` for a share that is none, or too small for 65 knots.
    """
    rise = _RISE.match(batch) if isinstance(batch, str) else None
    if not rise:
        return batch
    share = parse_number(rise["share"], "1", BATCH)
    if not 0.0 < share < 1.0:
        raise InputError(f"{BATCH}: {rise['share']} is not a share of the progress. Give for example 5 %.")
    nearest = Fraction(share).limit_denominator(MOST_PARTS)
    if abs(float(nearest) - share) > CLOSE * share:
        raise InputError(
            f"{BATCH}: a rise over {rise['share']} of the progress is shorter than knots can say. Give at least "
            f"{100 / MOST_PARTS:.3g} %."
        )
    first, last = (parse_number(rise[end], "token", BATCH) for end in ("first", "last"))
    if min(first, last) <= 0.0:
        raise InputError(f"{BATCH}: {batch!r} has a batch that is not positive. Give tokens above zero.")
    shares = [min(1.0, knot / nearest.numerator) for knot in range(nearest.denominator + 1)]
    return [f"{first * (last / first) ** share!r} token" for share in shares]


def stage_power_table(power: Any, power_cap: Any) -> dict[str, Any]:
    """The table of `plan.power` with a component, and the plan's cap for stages that are not named.

    **Raises:** `InputError` for what is no table.
    """
    if not isinstance(power, dict):
        raise InputError(
            f"{POWER}: a table with {', '.join(STAGES)} is needed, not {power!r}. "
            "The cap of all chips is plan.power_cap."
        )
    if not power.keys() - {"component"} and power.get("component") in (None, EvenPower.__name__):
        return {"component": EvenPower.__name__}
    return {"component": StagePower.__name__, **dict.fromkeys(STAGES, power_cap), **power}


def with_stage_power(question: Mapping[str, Any], plan: TrainingPlan) -> tuple[Mapping[str, Any], TrainingPlan]:
    """A question, as `asked` gives it, with `plan.power.*` spelled out, and a plan with the numbers that it varies."""
    ranges = dict(question.get("vary", {}))
    if not any(path.startswith(f"{POWER}.") for path in ranges):
        return question, plan
    every, cap = f"{POWER}.*", float(plan.power_cap)
    if every in ranges:
        bounds = ranges.pop(every) or [LOWEST_SHARE * cap, cap]
        ranges = {**{f"{POWER}.{name}": bounds for name in STAGES}, **ranges}
    if isinstance(plan.power, EvenPower):
        plan = eqx.tree_at(lambda tree: tree.power, plan, StagePower(cap, cap, cap))
    return {**question, "vary": ranges}, plan
