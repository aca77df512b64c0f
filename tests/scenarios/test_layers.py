"""A file over its base, and changes over the file: the last one wins, also where words stand for switches."""

from pathlib import Path

import pytest
import yaml

from energymodel.errors import InputError
from energymodel.scenarios.components import preset_in_si
from energymodel.scenarios.files import companions, inlet_class, merge, names, read_preset
from energymodel.scenarios.layers import lay
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.plan import TokenBudget

BIG = "llama-3.1-405b-h100"
SMALL = "test-1b-h100"
CASES = yaml.safe_load(Path(__file__).with_name("layers.yaml").read_text(encoding="utf-8"))


def layout(*changes, **words):
    """Layout of the small scenario with words of a file, then changes."""
    return load_scenario({"base": SMALL, "plan": {"layout": words}}, changes).plan.layout


@pytest.mark.parametrize(("words", "changes", "switches"), CASES["sharding"])
def test_the_later_word_on_sharding_wins(words, changes, switches):
    scenario = layout(*changes, **words)
    assert (scenario.shard_optimizer, scenario.shard_gradients, scenario.shard_parameters) == tuple(switches)


@pytest.mark.parametrize(("words", "changes", "switches"), CASES["recomputation"])
def test_the_later_word_on_recomputation_wins(words, changes, switches):
    scenario = layout(*changes, **words)
    assert (scenario.recompute_attention, scenario.recompute_full) == tuple(switches)


def test_a_goal_replaces_the_goal_below():
    scenario = load_scenario(SMALL, ["plan.goal.loss=2.9 nat/token", "plan.goal.tokens=24 G tokens"])
    assert isinstance(scenario.plan.goal, TokenBudget)
    assert float(scenario.plan.goal.tokens) == 24e9


@pytest.mark.parametrize(("changes", "title"), CASES["titles"])
def test_a_title_follows_model_chips_and_accelerator(changes, title):
    assert load_scenario(BIG, changes).title == title
    # The same from the tables of an earlier run, in which every number is written out.
    assert load_scenario(load_scenario(BIG).tables, changes).title == title


def test_a_title_of_ones_own_stays_until_something_it_names_changes():
    own = {"title": "My run", "base": BIG, "plan": {"chips": 8192}}
    assert load_scenario(own).title == "My run"
    assert load_scenario(own, ["plan.power_cap=600 W"]).title == "My run"
    assert load_scenario(own, ["plan.chips=4096"]).title == "Llama 3.1 405B on 4,096 NVIDIA H100 SXM5"
    assert load_scenario({"base": BIG, "plan": {"chips": 8192}}).title == "Llama 3.1 405B on 8,192 NVIDIA H100 SXM5"


def same(scenario, category, name, path):
    """Whether the numbers of a component come from a preset."""
    preset = preset_in_si(category, name)
    return all(
        scenario.provenance[f"{path}.{key}"].source == number["source"]
        for key, number in preset.items()
        if "source" in number
    )


def test_an_accelerator_brings_its_node_network_and_supplies():
    scenario = load_scenario("gpt3-175b-h100", ["system.accelerator=b200-sxm"])
    assert same(scenario, "nodes", "dgx-b200", "system.node")
    assert same(scenario, "networks", "infiniband-400g", "system.network")
    # As in the scenario llama-3.1-70b-b200.
    assert float(scenario.system.facility.power_supply.rated_power) == 2800.0
    assert float(scenario.system.facility.uninterruptible.rated_power) == 3000.0
    # The rest of the facility, and a limit that the scenario sets, stay.
    assert float(scenario.system.facility.power_limit) == 1.2e6


@pytest.mark.parametrize(
    "changes",
    [
        ["system.accelerator=b200-sxm", "system.node=dgx-h100"],
        ["system.node=dgx-h100", "system.accelerator=b200-sxm"],
        {"system": {"accelerator": "b200-sxm", "node": "dgx-h100"}},
    ],
)
def test_a_node_of_ones_own_wins(changes):
    scenario = load_scenario({"base": SMALL, **changes}) if isinstance(changes, dict) else load_scenario(SMALL, changes)
    assert same(scenario, "nodes", "dgx-h100", "system.node")
    assert float(scenario.system.facility.power_supply.rated_power) == 2800.0


@pytest.mark.parametrize(
    ("changes", "cap"),
    [
        (["system.accelerator=b200-sxm"], 1000.0),
        (["system.accelerator=a100-sxm4-80gb"], 400.0),
        (["system.accelerator=h100-sxm"], 650.0),
        (["plan.power_cap=800 W", "system.accelerator=b200-sxm"], 800.0),
    ],
)
def test_a_power_cap_is_that_of_its_accelerator(changes, cap):
    below = load_scenario(SMALL, ["plan.power_cap=650 W"]).named_tables
    assert float(load_scenario(below, changes).plan.power_cap) == cap


def test_the_same_accelerator_brings_nothing():
    scenario = load_scenario(BIG, ["system.accelerator=h100-sxm"])
    assert same(scenario, "networks", "roce-400g", "system.network")


@pytest.mark.parametrize("name", names("hardware"))
def test_companions_exist_and_suit_the_accelerator(name):
    scenario = load_scenario(
        "gpt3-175b-h100", {"system.accelerator": name, "plan.layout.fp8": 0.0}
    )  # a misfit would warn
    brought = companions(name)
    assert brought["node"] in names("nodes")
    assert brought["network"] in names("networks")
    need = float(
        scenario.system.accelerator.rated_power + scenario.system.node.overhead_power / scenario.system.node.chips
    )
    assert 1.2 * need < float(scenario.system.facility.power_supply.rated_power) < 3.0 * need


def test_supplies_that_are_too_small_are_named():
    with pytest.warns(UserWarning, match=r"power_supply\.rated_power: 900 W is less than the 1.054 kW of a chip"):
        load_scenario(SMALL, ["system.facility.power_supply.rated_power=900 W"])


def test_presets_with_a_base():
    h100, h800 = read_preset("hardware", "h100-sxm"), read_preset("hardware", "h800-sxm")
    assert h800["title"] == "NVIDIA H800 SXM5, 80 GB"
    assert h800["voltage"] == h100["voltage"]
    assert h800["roofline_exponent"] == read_preset("hardware", "tpu-v4")["roofline_exponent"]
    assert h800["memory_efficiency"] == h100["memory_efficiency"]
    assert "base" not in h800
    assert "companions" not in h800
    assert not any(name.startswith("_") for name in names("hardware"))


def test_what_is_laid_over_leaves_what_lies_below():
    below = {"title": "x", "plan": {"layout": {"tensor": 1.0}}}
    lay(below, {"plan": {"chips": 8, "layout": {"zero": 1}}})
    assert below == {"title": "x", "plan": {"layout": {"tensor": 1.0}}}


def test_a_preset_name_replaces_a_component_but_not_its_missing_name():
    assert merge({"preset": "a", "x": 1.0}, {"preset": "b"}) == {"preset": "b"}
    assert merge({"component": "A", "x": 1.0}, {"preset": "b"}) == {"preset": "b"}
    assert merge({"x": 1.0}, {"preset": "b", "y": 2.0}) == {"x": 1.0, "preset": "b", "y": 2.0}


def test_an_unknown_accelerator_is_refused():
    with pytest.raises(InputError, match=r'Unknown preset "h200-sx".*Did you mean "h200-sxm"\?'):
        load_scenario(SMALL, ["system.accelerator=h200-sx"])


@pytest.mark.parametrize(
    ("celsius", "ends", "name"),
    [
        (45.0, (2.0, 40.0), "ashrae-w45"),  # water of class W40, as in direct-liquid
        (50.0, (2.0, 40.0), "ashrae-w45"),
        (42.0, (10.0, 35.0), "ashrae-a4"),  # air of class A2
        (38.0, (10.0, 35.0), "ashrae-a3"),
    ],
)
def test_another_class_of_coolant_is_of_the_same_medium(celsius, ends, name):
    assert inlet_class(celsius + 273.15, *(end + 273.15 for end in ends)) == name
