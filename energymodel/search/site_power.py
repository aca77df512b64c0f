"""How is the power of a site best divided at several limits?"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.scenario import Scenario
from energymodel.search.site import SiteLoad, SiteSplit, least_power, most_throughput, site_load
from energymodel.solver import RESULTS, result_is
from energymodel.system.evaluate import evaluate_once
from energymodel.system.facility import NO_LIMIT
from energymodel.units import format_quantity, parse_quantity

SHARES = (0.6, 0.7, 0.8, 0.9, 1.0)
"""Of the limit of the facility, or of what the plan draws at most: the limits where none are given."""
STANDSTILL = 1e-3  # of the throughput at the plan's power: what the least power of a site is asked for


class DividedPower(NamedTuple):
    """A limit of the site [W], and the division of highest throughput under it."""

    limit: float
    split: SiteSplit


def divide_site_power(scenario: Scenario, limits: Sequence[float | str] = ()) -> list[DividedPower]:
    """The best static division of a site's power over compute, memory, links, host and cooling, at each limit.

    Every part may draw its share at any moment; clock, powered width of memory and links, and temperature of the
    coolant decide them (`most_throughput`).

    **Arguments:**

    - `limits`: of the whole site, in watts or as text with a unit; without them, shares of the facility's limit, or of
      the highest power of the scenario's own plan where there is none.

    **Raises:** `InputError` for a limit that is not positive, or below what the site needs to run at all.
    """
    asked = [_power(limit) for limit in limits]
    with jax.enable_x64(True):
        load = jax.tree.map(np.asarray, site_load(scenario.system, scenario.plan))
        if not asked:
            own = float(scenario.system.facility.power_limit)
            if not own < NO_LIMIT:
                own = float(evaluate_once(scenario.system, scenario.plan).power_peak)
            asked = [share * own for share in SHARES]
        return [_divided(load, limit) for limit in asked]


def _power(given: float | str) -> float:
    """A limit in watts."""
    watts = parse_quantity(given, "W", "site power") if isinstance(given, str) else float(given)
    if not (math.isfinite(watts) and watts > 0.0):
        raise InputError(f"site power: {given} is not a positive power. Give for example 25 MW.")
    return watts


def _divided(load: SiteLoad, limit: float) -> DividedPower:
    split = jax.tree.map(np.asarray, _most_throughput(load, np.asarray(limit)))
    if not result_is(split.result, RESULTS.successful):
        least = _least_power(load, np.asarray(STANDSTILL * float(split.throughput)))
        raise InputError(
            f"site power: {format_quantity(limit, 'W')} is not enough: at the lowest clock and width, the site needs "
            f"{format_quantity(float(least.power.total), 'W')}. Give more, or take fewer chips (--set plan.chips=...)."
        )
    return DividedPower(limit, split)


_most_throughput = Compiled(most_throughput, once=True)
_least_power = Compiled(least_power, once=True)
