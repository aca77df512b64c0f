"""Values that a number cannot have: refused by name, wherever they are given."""

import dataclasses
import math
import re

import pytest

import energymodel as em
from energymodel.physics.heat_rejection import DryCooler
from energymodel.ranges import ABOVE_ZERO, EXTENTS, SHARE, Range, ends_of
from energymodel.scenarios.components import CATEGORY_OF, component_fields, field_class, final_classes, preset_in_si
from energymodel.scenarios.near_limit import NEAR_LIMIT_RANGES
from energymodel.sweeps.scenario_axes import scenario_axis
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem

SMALL = "test-1b-h100"
CRITICAL = "system.learning.critical_batch"
COOLING = "system.facility.cooling"


def classes_below(kind, classes):
    """Collect all final classes of components that a scenario can hold, by name."""
    for name, final in final_classes(kind).items():
        if name not in classes:
            classes[name] = final
            for field in component_fields(final):
                classes_below(field_class(final, field), classes)


@pytest.fixture(scope="module")
def scenario():
    return em.load_scenario(SMALL)


def test_every_number_has_a_range_that_ends_and_holds_its_default():
    owners = {}
    for kind in (TrainingSystem, TrainingPlan, ParallelLayout, *CATEGORY_OF):
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
        if field.default is not dataclasses.MISSING:
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


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("plan.power_cap", "2000 W", "2 kW is above 700 W, the rated power"),
        ("plan.power_cap", "0 W", "0 W is impossible; give a value between 1 µW and 1 PW."),
        ("plan.clock", "1.5", "1.5 is impossible; give a share between 1e-09 and 1."),
        ("plan.coolant_temperature", "25 K", "-248.2 °C is impossible"),
        ("system.accelerator.gemm_efficiency", "1.5", "1.5 is impossible; give a share between 1e-09 and 1."),
        ("system.accelerator.memory_efficiency", "1.01", "1.01 is impossible"),
        ("system.accelerator.roofline_exponent", "0.5", "0.5 is impossible; give a value between 1 and"),
        ("system.software.tensor_overlap", "1.2", "1.2 is impossible; give a share between 0 and 1."),
        ("system.facility.transformer_loss", "1.1", "1.1 is impossible"),
        ("system.production_slowdown", "0", "0 is impossible; give a value between"),
        ("system.node.chips", "0", "0 is impossible; give a value between 1 and"),
        ("system.facility.cooling.loop.flow", "0", "0 is impossible; give a value between"),
        ("system.reliability.chip_mtbf", "0 s", "0 s is impossible; give a value between"),
        ("system.workload.feed_forward", "0", "0 is impossible; give a value between"),
        ("system.accelerator.cache_size", "0 B", "0 B is impossible; give a value between"),
        ("system.accelerator.voltage.knee", "1", "1 is impossible; give a value between 0 and 0.99"),
        ("system.facility.cooling.loop.coolant_rise", "150 K", "150 K is impossible"),
        ("system.facility.cooling.chiller.load", "0", "0 is impossible; give a share between"),
        ("system.facility.cooling.chiller.quadratic_work", "1.1", "1.1 is impossible; give a share between"),
        ("system.learning.loss_law.data_coefficient", "0", "0 is impossible; give a value between"),
        ("system.learning.loss_law.data_exponent", "1", "1 is impossible"),
    ],
)
def test_an_impossible_value_is_refused_by_name_everywhere(scenario, path, value, message):
    with pytest.raises(em.InputError, match=re.escape(f"{path}: {message}")):
        em.load_scenario(SMALL, {path: value})
    with pytest.raises(em.InputError, match=re.escape(f"vary {path}: {message}")):
        scenario.with_question(vary={path: (value, value)})
    with pytest.raises(em.InputError, match=re.escape(f"axis {path}: {message}")):
        scenario_axis(scenario, path, value)


def test_a_clock_below_the_lowest_of_the_chip(scenario):
    with pytest.raises(em.InputError, match=re.escape("vary plan.clock: 0.1 is below 0.1885, the lowest clock")):
        scenario.with_question(vary={"plan.clock": (0.1, 1.0)})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("system.accelerator.leakage.power", "700 W", "leakage.power 700 W, fixed_power 70 W, memory traffic 41.81 W"),
        ("system.accelerator.fixed_power", "760 W", "for switching. Lower one of them, or raise busy_power."),
        ("system.accelerator.peak_flops", "1e30 FLOP/s", "is below Landauer's bound"),
        ("system.accelerator.idle_power", "2 kW", "2 kW is more than busy_power, 800 W"),
        ("system.workload.kv_heads", "1000", "1000 is more than heads"),
        ("system.workload.active_experts", "9", "9 is more than experts, 1"),
        ("system.workload.dense_layers", "1000", "1000 is more than layers"),
        ("system.workload.kv_rank", "512", "value_head_size: missing beside kv_rank = 512"),
        ("system.workload.query_rank", "1536", "query_rank: 1536 belongs to latent attention, but kv_rank is 0"),
        ("system.workload.local_layers", "0.5", "window: 0 token, but local_layers = 0.5"),
        ("system.workload.local_layers", "1.5", "1.5 is impossible"),
        ("system.workload.ssm_state_size", "128", "ssm_state_size describes state-space layers"),
    ],
)
def test_numbers_that_exclude_each_other(path, value, message):
    with pytest.raises(em.InputError, match=re.escape(message)):
        em.load_scenario(SMALL, {path: value})


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([f"{COOLING}.rejection.evaporated_share=1.2"], r"evaporated_share: 1.2 is impossible; give a share"),
        ([f"{COOLING}.loop.air_share=2"], r"loop\.air_share: 2 is impossible; give a share"),
        ([f"{COOLING}.chiller.load=1.5"], r"chiller\.load: 1.5 is impossible; give a share"),
        ([f"{COOLING}.rejection.makeup=0.5"], r"makeup: 0.5 is impossible; give a value between 1 and 1000"),
        ([f"{COOLING}.loop.coolant_rise=0 K"], r"coolant_rise: 0 K is impossible; give a value between 0.001 K"),
        ([f"{COOLING}.weather.wet_bulb=40 °C"], r"weather\.wet_bulb: 40 °C is above dry_bulb"),
        ([f"{COOLING}.inlet.recommended_highest=40 °C"], r"recommended_highest: 40 °C is above highest, 35 °C"),
        ([f"{COOLING}.weather=texas"], 'Unknown preset "texas" among weather. Did you mean "texas-weather"'),
        ([f"{COOLING}.inlet=a2"], 'Unknown preset "a2" among inlets'),
        ([f"{COOLING}.rejection.approach=-3 K"], "negative"),
        ([f"{COOLING}.rejection.effectiveness=0.5"], "effectiveness is a quantity of EvaporativeAir"),
    ],
)
def test_cooling_that_cannot_be_is_refused_by_name(changes, message):
    with pytest.raises(em.InputError, match=message):
        em.load_scenario(SMALL, changes)


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
