"""An explorer of a small scenario, built once for all tests of the process; messages as the page sends them."""

import json
from functools import cache
from typing import Any

from energymodel.explorer.explorer import Explorer
from energymodel.explorer.messages import Message, read_message
from energymodel.explorer.state import PlanSpace
from energymodel.scenarios.scenario import load_scenario

SMALL = "test-1b-h100"


@cache
def small_space() -> PlanSpace:
    return PlanSpace(load_scenario(SMALL, {"plan.chips": 16, "system.facility.power_limit": "60 kW"}))


@cache
def small_explorer() -> Explorer:
    return Explorer(small_space().own)


def message(**content: Any) -> Message:
    return read_message(json.dumps({"kind": "state", **content}), small_space().knobs)
