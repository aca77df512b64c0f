"""Does each term of time, power, energy and money of a whole run have the value that its definition gives it?

`bookkeeping` computes them a second time. All systems differ in numbers only, so that one program serves them.
"""

import jax
import numpy as np
import pytest

from energymodel.system.outputs import output
from system.bookkeeping import bookkeeping

SMALL, EXPERTS = "test-1b-h100", "deepseek-v3-h800"
CHIP, SOFTWARE, LAYOUT = "system.accelerator", "system.software", "plan.layout"
FAILURES = {
    "system.reliability.chip_mtbf": "3e6 s",
    "system.reliability.write_time": "50 s",
    "system.reliability.replacement_time": "600 s",
    "system.reliability.repair_time": "1000 s",
}
ONE_RANK = {f"{LAYOUT}.pipeline": 1, f"{LAYOUT}.virtual_stages": 1, f"{LAYOUT}.schedule": "1f1b"}
SYSTEMS = {
    "as it is": {},
    "gated": {f"{CHIP}.gate.fraction": 0.6, f"{CHIP}.gate.wake_time": "20 us", f"{CHIP}.gate.blend_time": "1 ms"},
    "recomputed": {f"{LAYOUT}.recompute_full": 1, "system.workload.flash": 0, f"{SOFTWARE}.unmasked": 1},
    "attention recomputed": {
        f"{LAYOUT}.recompute_attention": 1,
        "plan.trained_share": 0.1,
        "system.workload.flash": 0.5,
    },
    "narrow": {f"{LAYOUT}.fp8": 0.5, f"{LAYOUT}.fp4": 0.3, f"{CHIP}.peak_flops_fp4": "4e15 FLOP/s"},
    "wide": {f"{LAYOUT}.tf32": 0.6, f"{LAYOUT}.fp32": 0.3},
    "failing": {**FAILURES, "plan.spares": 1, "system.other_stages": 0.2},
    "capped": {"plan.power_cap": "400 W", "plan.power_floor": 0.7, "system.production_slowdown": 1.3},
    "slow waits": {f"{CHIP}.overhead_time": "0.2 s", "plan.waiting_clock": 0.6, f"{SOFTWARE}.microbatch_time": "3 ms"},
    "on the host": {f"{LAYOUT}.offload_optimizer": 1, f"{LAYOUT}.shard_optimizer": 0},
    "in air": {
        "system.node.fan_power": "700 W",
        "system.node.fan_fraction": 0.1,
        "system.facility.cooling.loop.air_share": 1,
        "plan.coolant_temperature": "20 °C",
        "system.market.price.delay_cost": "5 USD/s",
    },
    "experts": ONE_RANK,
    "experts recomputed": {**ONE_RANK, f"{LAYOUT}.recompute_full": 0.5, "system.workload.expert_imbalance": 1.2},
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_term_is_what_its_definition_says(name, scenario, run):
    changes = [f"{path}={value}" for path, value in SYSTEMS[name].items()]
    given = scenario(EXPERTS if "experts" in name else SMALL, *changes)
    outcome = jax.device_get(run(given.system, given.plan))
    expected = bookkeeping(given.system, given.plan, outcome)
    assert len(expected) > 35
    # The chip runs at the clock of the plan, unless it draws the power cap there.
    found, wanted = (outcome.power_busy, 400.0) if name == "capped" else (outcome.clock, 1.0)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    for path, value in expected.items():
        np.testing.assert_allclose(float(output(outcome, path)), value, rtol=1e-9, atol=1e-12, err_msg=path)
