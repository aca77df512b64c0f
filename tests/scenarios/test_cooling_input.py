"""What a person may write about cooling, and what is refused by name."""

import pytest

import energymodel as em
from energymodel.physics.heat_rejection import DryCooler

SMALL = "test-1b-h100"
COOLING = "system.facility.cooling"


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
def test_what_cannot_be_is_refused_by_name(changes, message):
    with pytest.raises(em.InputError, match=message):
        em.load_scenario(SMALL, changes)


def test_another_kind_of_heat_rejection_is_a_table():
    dry = {"component": "DryCooler", "approach": "6 K", "work_fraction": 0.015}
    found = em.load_scenario({"base": SMALL, "system": {"facility": {"cooling": {"rejection": dry}}}})
    rejection = found.system.facility.cooling.rejection
    assert isinstance(rejection, DryCooler)
    assert float(rejection.approach) == 6.0


@pytest.mark.parametrize("place", ["texas-weather", "singapore-weather", "great-britain-weather"])
def test_a_place_is_one_word(place):
    found = em.load_scenario(SMALL, [f"{COOLING}.weather={place}"])
    assert found.provenance[f"{COOLING}.weather.dry_bulb"].kind == "derived"
