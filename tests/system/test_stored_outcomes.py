"""Stored outputs of whole runs, to notice a change. Proof that an output is right is in the other files.

Every number of a system and a plan is moved at random, so that no branch is switched off. `python
tests/system/test_stored_outcomes.py` stores the outcomes anew; do so in a commit of its own that says why.
"""

import json
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest

from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.scenario import leaf_paths, load_scenario
from energymodel.system.evaluate import evaluate_once

STORED = Path(__file__).with_name("stored_outcomes.json")
SCENARIOS = ("llama-3.1-405b-h100", "deepseek-v3-h800")
RUNS = 12
DEGREES = {
    "plan.layout.tensor": (1.0, 2.0, 8.0, 16.0),
    "plan.layout.pipeline": (1.0, 2.0, 4.0, 16.0),
    "plan.layout.virtual_stages": (1.0, 2.0, 4.0),
    "plan.layout.context": (1.0, 2.0, 4.0),
    "plan.layout.expert": (1.0, 2.0, 8.0),
    "plan.layout.microbatch": (1.0, 2.0),
    "plan.layout.gpipe": (0.0,),  # a pipeline has one schedule
    "plan.layout.zero_bubble_h2": (0.0,),
    "plan.layout.zero_bubble_v": (0.0,),
    "plan.layout.dual_pipe": (0.0,),
    "plan.chips": (2048.0, 4096.0, 16384.0),
    "system.workload.experts": (8.0, 64.0),
    "system.workload.active_experts": (2.0, 4.0),
    "system.workload.shared_experts": (0.0, 1.0),
    "system.workload.dense_layers": (0.0, 3.0),
    "system.accelerator.gemm_edge": (0.0, 128.0),
    "system.accelerator.peak_flops_fp4": (2e15, 4e15),  # of chips that lack it 0, which leaves no other time to see
    "system.software.bucket_size": (1e8, 1e9),
    "system.software.unsharded_bucket_size": (1e8, 1e9),
    "system.software.microbatch_time": (0.0, 1e-3),
    "system.network.topology.hop_latency": (0.0,),  # tests/system/test_network.py
    "system.network.topology.uplink_lane_price": (0.0,),
    "system.network.topology.switch_lanes": (256.0,),
}


def moved(path, value):
    """Numbers near the one given; shares somewhere between 0 and 1; degrees of parallelism from their list."""
    draw = np.random.default_rng(zlib.crc32(path.encode()))  # fields may change their order
    if path in DEGREES:
        return draw.choice(DEGREES[path], RUNS)
    return draw.uniform(0.0, 1.0, RUNS) if value in (0.0, 1.0) else value * np.exp(draw.uniform(-0.05, 0.0, RUNS))


def outcomes(name):
    """Each output of all runs, to nine digits."""
    scenario = load_scenario(name)
    paths = leaf_paths(scenario.system, "system") + leaf_paths(scenario.plan, "plan")
    leaves, structure = jax.tree.flatten((scenario.system, scenario.plan))
    near = [moved(path, np.ravel(leaf)[0]) for path, leaf in zip(paths, leaves, strict=True)]
    result = {}
    for run in range(RUNS):
        numbers = [np.full(np.shape(leaf), values[run]) for leaf, values in zip(leaves, near, strict=True)]
        # Not all of these can be, but all have an outcome: it is not checked.
        outcome = Compiled.__call__(evaluate_once, *jax.tree.unflatten(structure, numbers))
        for path, value in jax.tree_util.tree_leaves_with_path(outcome):
            result.setdefault(jax.tree_util.keystr(path)[1:], []).append(float(f"{float(value):.9g}"))
    return result


@pytest.mark.parametrize("name", SCENARIOS)
def test_outcomes_are_the_stored_ones(name):
    result, stored = outcomes(name), json.loads(STORED.read_text(encoding="utf-8"))[name]
    assert list(result) == list(stored)
    for path, values in result.items():
        np.testing.assert_allclose(values, stored[path], rtol=1e-7, atol=1e-9, err_msg=path)


if __name__ == "__main__":
    with jax.enable_x64(True):
        stored = {name: outcomes(name) for name in SCENARIOS}
    text = json.dumps(stored).replace("], ", "],\n").replace("{", "{\n").replace("}", "\n}")
    STORED.write_text(text + "\n", encoding="utf-8")
