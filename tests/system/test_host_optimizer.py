"""What does an optimizer on the host cost in time and free in memory?"""

import equinox as eqx
import jax
import numpy as np
import pytest

from energymodel.calibration.cluster_source import cluster_system
from energymodel.calibration.layout_table import INPUTS, layouts
from energymodel.calibration.step_prediction import predict_row
from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from experiment import Experiment

ROW = {"cluster": "megatron-bridge-h100", "model": "llama-3.1-8b", "chips": 16, "batch_sequences": 64, "zero": 1}


@pytest.fixture(scope="module")
def system():
    return eqx.tree_at(lambda s: s.production_slowdown, cluster_system(ROW["cluster"]), 1.0)


def run(system, **changes):
    table = layouts([{**ROW, **changes}])
    with jax.enable_x64(True):
        return jax.jit(predict_row)(system, {column.name: table.columns[column.name][0] for column in INPUTS})


def test_update_on_the_host_by_hand(system):
    # Each of 16 chips has a sixteenth of 8.03 billion parameters; 30 bytes of each pass at 20 GB/s: 753 ms.
    at = lambda s: (s.node.host_update_bandwidth, s.node.host_bandwidth, s.reliability.straggler_variation)  # noqa: E731
    own = eqx.tree_at(at, system, (20e9, 1e18, 0.0))
    kept, away = run(own), run(own, offload_optimizer=1)
    parameters = 32 * (2 * 4096 * (32 + 8) * 128 + 3 * 4096 * 14336) + 2 * 128256 * 4096
    on_host = 30 * parameters / 16 / 20e9
    np.testing.assert_allclose(away.step_time.host - kept.step_time.host, on_host, rtol=1e-6)
    # The chip no longer updates, and half of the optimizer takes half as long.
    assert away.step_time.optimizer < 1e-3 * kept.step_time.optimizer
    half = run(own, offload_optimizer=0.5)
    np.testing.assert_allclose(half.step_time.host - kept.step_time.host, 0.5 * on_host, rtol=1e-6)


def test_what_stays_on_the_chip(system):
    """Megatron-LM keeps 4 of 12 bytes a parameter there."""
    at = lambda s: (s.software.offload_kept_bytes, s.software.memory_overhead)  # noqa: E731
    freed = [
        run(own).memory - run(own, offload_optimizer=1).memory
        for own in (eqx.tree_at(at, system, (bytes_kept, 1.0)) for bytes_kept in (4.0, 0.0, 99.0))
    ]
    np.testing.assert_allclose(freed[0] / freed[1], 8 / 12, rtol=1e-9)
    # More than there is cannot stay.
    np.testing.assert_allclose(freed[2], 0.0, atol=1.0)


@pytest.mark.parametrize("share", ["25 %", "50 %", "75 %", "100 %"])
def test_measured_changes(share):
    """Qwen3 30B in Megatron-Bridge: more than 0.8 s and less than 3.8 GB for each quarter of the optimizer."""
    ablations = Experiment("17_kernels").module("ablations")
    rows = ablations.read(ablations.DATA / "megatron_bridge_ablations.csv")
    change = next(one for one in ablations.CHANGES if one.variants == ("0 %", share))
    found = ablations.compare(change, rows)
    np.testing.assert_allclose(found["predicted, s"], found["time, s"], rtol=0.13)
    np.testing.assert_allclose(found["predicted, GB"], found["memory, GB"], rtol=0.02)


def test_a_host_that_does_not_update_is_refused():
    with pytest.raises(InputError, match="host_update_bandwidth"):
        load_scenario("llama-3.1-70b-b200", {"system.node.host_update_bandwidth": "0 B/s"})
