"""Values that a number cannot have: refused by name, wherever they are given."""

import dataclasses
import math
import re

import pytest

import energymodel as em
from energymodel.physics.heat_rejection import DryCooler
from energymodel.ranges import ABOVE_ZERO, EXTENTS, SHARE, Range, ends_of
from energymodel.scenarios.components import classes_below, preset_in_si
from energymodel.scenarios.near_limit import NEAR_LIMIT_RANGES
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem

SMALL = "test-1b-h100"
CRITICAL = "system.learning.critical_batch"
COOLING = "system.facility.cooling"


@pytest.fixture(scope="module")
def scenario():
    return em.load_scenario(SMALL)


def test_every_number_has_a_range_that_ends_and_holds_its_default():
    owners = {}
    for kind in (TrainingSystem, TrainingPlan, ParallelLayout):
        classes_below(kind, owners)
    numbers = [
        (f"{name}.{field.name}", field)
        for name, owner in owners.items()
        for field in owner.__dataclass_fields__.values()
        if "unit" in field.metadata
    ]
    assert len(numbers) > 400
    for name, field in numbers:
        allowed = field.metadata["range"]
        assert math.isfinite(allowed.high - allowed.low), name
        assert allowed.low < allowed.high, name
        if field.default not in (dataclasses.MISSING, None):
            assert allowed.holds(field.default), name


def test_every_number_that_a_near_limit_chip_follows_from_has_a_range():
    assert set(NEAR_LIMIT_RANGES) == set(preset_in_si("hardware", "near-limit"))


def test_ends_of_a_range():
    assert SHARE.holds(0.0)
    assert SHARE.holds(1.0)
    assert not SHARE.holds(1.0 + 1e-12)
    assert not ABOVE_ZERO.holds(0.0)
    assert Range(1.0).describe("1") == "a value of at least 1"
    assert ABOVE_ZERO.describe("W") == "a value above 0 W"
    assert SHARE.describe("1") == "a share between 0 and 1"
    # An end that is not stated is that of the unit, others stay.
    assert ABOVE_ZERO.within("W") == (*EXTENTS["W"], False)
    assert Range(1.0).within("token") == (1.0, EXTENTS["token"][1], False)
    assert Range(0.1, 0.9).within("1") == (0.1, 0.9, False)
    assert Range(-math.inf).within("1").holds(-1.0)


def test_a_clock_below_the_lowest_of_the_chip(scenario):
    with pytest.raises(em.InputError, match=re.escape("vary plan.clock: 0.1 is below 0.1885, the lowest clock")):
        scenario.with_question(vary={"plan.clock": (0.1, 1.0)})


@pytest.mark.parametrize(
    ("name", "value"), [("landauer_multiple", "0.5"), ("slope_factor", "0.9"), ("die_area", "0 m^2")]
)
def test_a_near_limit_chip_stays_within_physics(name, value):
    with pytest.raises(em.InputError, match=re.escape(f"system.accelerator.{name}: {value} is impossible")):
        em.load_scenario("near-limit-hardware", {f"system.accelerator.{name}": value})


@pytest.mark.parametrize("trend", [-0.03, "-0.03", {"value": -0.03, "unit": "1", "kind": "measured", "source": "here"}])
def test_a_trend_may_fall(trend):
    system = em.load_scenario(SMALL, {f"{CRITICAL}.token_trend": trend}).system
    assert float(system.learning.critical_batch.token_trend) == -0.03  # pyright: ignore[reportAttributeAccessIssue]


def test_other_numbers_may_not_be_negative(scenario):
    with pytest.raises(em.InputError, match="is negative"):
        em.load_scenario(SMALL, {f"{CRITICAL}.sharpness": -1.0})
    system = scenario.system
    assert ends_of(system, "learning.critical_batch.token_trend") == (-10.0, 10.0)
    assert ends_of(system, "learning.critical_batch.sharpness") == (1e-9, 10.0)
    assert ends_of(system, "accelerator.gemm_efficiency") == (1e-9, 1.0)  # zero itself is excluded


def test_another_kind_of_heat_rejection_is_a_table():
    dry = {"component": "DryCooler", "approach": "6 K", "work_fraction": 0.015}
    scenario = em.load_scenario({"base": SMALL, "system": {"facility": {"cooling": {"rejection": dry}}}})
    rejection = scenario.system.facility.cooling.rejection
    assert isinstance(rejection, DryCooler)
    assert float(rejection.approach) == 6.0


@pytest.mark.parametrize("weather", ["texas-weather", "singapore-weather", "great-britain-weather"])
def test_a_place_is_one_word(weather):
    scenario = em.load_scenario(SMALL, [f"{COOLING}.weather={weather}"])
    assert scenario.provenance[f"{COOLING}.weather.dry_bulb"].kind == "derived"
