"""Numbers of plans and outcomes as people and programs read them."""

import jax.numpy as jnp
import pytest

import energymodel as em
from energymodel.report.answers.run_tables import plan_table
from energymodel.report.fields import outcome_fields, plan_fields, plan_key
from energymodel.system.outcome import EnergyBreakdown, TrainingOutcome


@pytest.mark.parametrize(
    ("name", "unit", "key"),
    [
        ("chips", "1", "chips"),
        ("batch", "token", "batch_tokens"),
        ("tokens", "token", "tokens"),
        ("loss", "nat/token", "loss_nat_per_token"),
        ("power_cap", "W", "power_cap_w"),
        ("coolant_temperature", "K", "coolant_temperature_k"),
    ],
)
def test_plan_keys(name, unit, key):
    assert plan_key(name, unit) == key


def test_every_output_has_a_unit_in_its_key():
    suffixes = {
        "J": "",
        "W": "_w",
        "W/s": "_w_per_s",
        "Hz": "_hz",
        "K/s": "_k_per_s",
        "s": "_s",
        "K": "_k",
        "B": "_b",
        "USD": "_usd",
        "kg": "_kg",
        "m^3": "_m3",
        "bit": "_bit",
        "bit/s": "_bit_per_s",
        "J/bit": "_j_per_bit",
        "J s": "_j_s",
        "token/J": "_token_per_j",
        "token/s": "_per_s",
        "nat/token": "_nat_per_token",
        "token": "tokens",
        "1": "",
    }
    for field in TrainingOutcome.__dataclass_fields__.values():
        key = field.metadata["key"]
        hours = {"chip_hours", "serving_chip_hours"}
        assert key == "energy_j" or key in hours or key.endswith(suffixes[field.metadata["unit"]])


def test_energy_fields_in_order():
    parts = EnergyBreakdown(*jnp.arange(9.0))
    assert [field.key for field in outcome_fields(parts)] == [
        "dynamic",
        "static",
        "memory",
        "network",
        "host",
        "idle_wait",
        "delivery_loss",
        "cooling",
        "other",
    ]
    assert [field.value for field in outcome_fields(parts)] == list(range(9))


def test_a_batch_schedule_is_a_list_of_knots():
    scenario = em.load_scenario("test-1b-h100", ["plan.batch=[262144 token, 1048576 token]"])
    plan = scenario.plan
    table = plan_table(scenario, {"run": plan})
    assert [table.number(f"batch[{knot}]")[1].value for knot in range(2)] == [262144, 1048576]
    assert [field.name for field in plan_fields(plan) if "batch[" in field.name] == ["plan.batch[0]", "plan.batch[1]"]
