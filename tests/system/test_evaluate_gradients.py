"""Derivatives of whole runs by every number: inside, at kinks, at bounds, with and without an active limit."""

import equinox as eqx
import jax
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.runtime.operations import list_operations, without_repeats
from energymodel.scenarios.files import names
from energymodel.system.evaluate import evaluate
from system.conftest import PARTS

QUICK = ("llama-3.1-405b-h100",)
SCENARIOS = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
    for name in names("scenarios")
    if not name.startswith("_")
]
LLAMA = "llama-3.1-405b-h100"


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_leaf_of_a_scenario_has_the_slope_of_differences(name, scenario, respond):
    case = scenario(name)
    assert respond([(case.system, case.plan)], [range(PARTS)])[0].faults() == []


SUPPLIES = [f"system.facility.{name}.rated_power=4 kW" for name in ("power_supply", "uninterruptible")]
UNLIMITED = ["plan.power_cap=2000 W", "system.accelerator.rated_power=2000 W", *SUPPLIES]
ONE_STAGE = ["plan.layout.pipeline=1", "plan.layout.virtual_stages=1"]
SMALL = ["plan.layout.tensor=1", *ONE_STAGE, "system.workload=test-1b", "plan.batch=1 M tokens"]
DEEPSEEK = [
    "system.workload=deepseek-v3",
    "system.software.empty_slots=3",
    "plan.batch=16 Mi tokens",
    "plan.chips=2048",
]
FAST_HOPS = "system.network.topology.hop_latency=0.2 us"
"""A difference steps by a share of a number, or by 1e-4 s where it is 0: far beyond a latency."""
BOUNDS = {
    "lowest clock": ["plan.clock=0.2"],
    "voltage knee": ["plan.clock=0.6", *UNLIMITED],
    "inactive cap": UNLIMITED,
    "cap that no chip reaches": ["plan.power_cap=2999 W", "system.accelerator.rated_power=2999 W", *SUPPLIES],
    "active cap": ["plan.power_cap=300 W"],
    "cap at the floor of the voltage": ["plan.power_cap=420 W"],
    "cap below the power at the lowest clock": ["plan.power_cap=120 W"],
    "coolest chiller": ["plan.coolant_temperature=283.15 K"],
    "warmest chiller": ["plan.coolant_temperature=303.15 K"],
    "full recomputation": ["plan.layout.recomputation=full"],
    "selective recomputation": ["plan.layout.recomputation=selective"],
    "fully sharded": ["plan.layout.zero=3", "system.software.zero_with_pipeline=3"],
    "no sharding": ["plan.layout.zero=0"],
    "8 bit": ["plan.layout.fp8=1"],
    "offload": ["plan.layout.offload_optimizer=1", "plan.layout.offload_activations=1"],
    "gated chip": ["system.accelerator.gate.fraction=1"],
    "only tensor": [*ONE_STAGE, "plan.layout.tensor=2", "plan.batch=128 Mi tokens"],
    "two stages": [*ONE_STAGE[1:], "plan.layout.pipeline=2", "plan.layout.tensor=1", "plan.batch=128 Mi tokens"],
    "tensor over nodes": ["plan.layout.tensor=16", FAST_HOPS],
    "context": ["plan.layout.context=4", "plan.layout.tensor=2"],
    "experts": [*DEEPSEEK, "plan.layout.expert=64", "plan.layout.tensor=1", "plan.layout.virtual_stages=4", FAST_HOPS],
    "two experts": ["system.workload.experts=2", "plan.layout.expert=2"],
    # The start of a collective that a single rank does not have is a kink. A group of one rank at the boundary of a
    # node has a slope for each direction: little of it is exposed.
    "one node": [
        *ONE_STAGE,
        "plan.chips=8",
        "plan.layout.tensor=8",
        "system.software.collective_latency=5 us",
        "system.software.data_overlap=0.9",
    ],
    "one chip": ["plan.chips=1", *SMALL],
    "eight chips of the straggler law": ["plan.chips=8", *SMALL],
}


@pytest.fixture(scope="module")
def responses(scenario, respond):
    """Of each run in a part of its leaves, another one in each."""
    cases = [scenario(LLAMA, *changes) for changes in BOUNDS.values()]
    with jax.enable_x64(True):
        parts = [[number % PARTS] for number in range(len(cases))]
        return dict(zip(BOUNDS, respond([(case.system, case.plan) for case in cases], parts), strict=True))


@pytest.mark.parametrize("name", BOUNDS)
def test_slopes_at_bounds_kinks_and_limits(name, responses):
    assert responses[name].faults() == []


def test_gradients_stay_finite_at_the_extremes(scenario, extreme_plans, gradients):
    case = scenario(LLAMA)
    runs = {name: (case.system, plan) for name, plan in extreme_plans(case.plan).items()}
    # A square root: the slope at zero is infinite, and zero stands for it.
    reliability = lambda s: (s.reliability.checkpoint_time, s.reliability.restart_time)  # noqa: E731
    runs["no failures"] = eqx.tree_at(reliability, case.system, [np.asarray(0.0)] * 2), case.plan
    leaves, gradient = gradients(list(runs.values()))
    for name, slopes in zip(runs, gradient, strict=True):
        assert list(leaves[np.any(~np.isfinite(slopes), axis=1)]) == [], name


def test_the_graph_of_a_run_stays_small(scenario):
    """Parts that are switched off are not in it, nor are many repetitions: derivatives take seconds to compile."""
    case = scenario(LLAMA)
    switches = lambda leaf: not np.all((leaf == 0.0) | (leaf == 1.0))  # noqa: E731
    numbers, fixed = eqx.partition((case.system, case.plan), switches)
    traced = list_operations(jax.make_jaxpr(lambda numbers: evaluate(*eqx.combine(numbers, fixed)))(numbers))
    assert len(traced.operations) <= 2900
    assert len(without_repeats(traced).operations) <= 2160


def test_known_numbers_stay_known_in_a_traced_run(scenario):
    """A format that the chip lacks is refused by its known switch, whatever else is traced."""
    case = scenario("test-1b-h100", "system.accelerator=v100-sxm2-32gb")
    plan = eqx.tree_at(lambda tree: tree.layout.fp8, case.plan, np.asarray(1.0))
    with pytest.raises(InputError, match="fp8"):
        jax.jit(lambda clock: evaluate(case.system, eqx.tree_at(lambda tree: tree.clock, plan, clock)).time)(0.9)
