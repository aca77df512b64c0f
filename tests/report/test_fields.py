"""Numbers of plans and outcomes as people and programs read them."""

import jax.numpy as jnp

import energymodel as em
from energymodel.report.answers.plan_fields import part_fields, plan_fields
from energymodel.report.answers.run_tables import plan_table
from energymodel.system.outcome import EnergyBreakdown


def test_energy_fields_in_order():
    parts = EnergyBreakdown(*jnp.arange(9.0))
    names = ["dynamic", "static", "memory", "network", "host", "idle_wait", "delivery_loss", "cooling", "other"]
    assert [field.name for field in part_fields(parts)] == names
    assert [field.value for field in part_fields(parts)] == list(range(9))


def test_a_batch_schedule_is_a_list_of_knots():
    scenario = em.load_scenario("test-1b-h100", ["plan.batch=[262144 token, 1048576 token]"])
    plan = scenario.plan
    table = plan_table(scenario, {"run": plan})
    assert [table.number(f"batch[{knot}]")[1].value for knot in range(2)] == [262144, 1048576]
    assert [field.name for field in plan_fields(plan) if "batch[" in field.name] == ["plan.batch[0]", "plan.batch[1]"]
