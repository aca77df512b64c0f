"""Do the times of a layer's attention follow its passes, its context and its kernel?"""

import equinox as eqx
import numpy as np
import pytest

import energymodel as em
from energymodel.system.division import divide
from energymodel.system.work import attention_passes

SCENARIO = em.load_scenario("llama-3.1-405b-h100")
DIVISION = divide(SCENARIO.system, SCENARIO.plan, 2.0**24)
SCORED = 8192.0 * 6.0 * 16384.0 * 8192.0 / 8.0


def passes(again=0.0, plan=SCENARIO.plan, **workload):
    at = lambda s: [getattr(s.workload, name) for name in workload]  # noqa: E731
    system = eqx.tree_at(at, SCENARIO.system, list(workload.values())) if workload else SCENARIO.system
    return attention_passes(system, plan, DIVISION, SCORED, again)


@pytest.mark.parametrize(("flash", "backward"), [(1.0, 2.9), (0.0, 2.0)])
def test_recomputation_repeats_the_forward_pass(flash, backward):
    plain, again = passes(flash=flash), passes(1.0, flash=flash)
    np.testing.assert_allclose(plain.backward, backward * plain.forward, rtol=1e-12)
    np.testing.assert_allclose(again.total - plain.total, plain.forward, rtol=1e-12)


def test_each_step_of_a_ring_sees_its_part_of_the_keys():
    # 4096 keys on average, and n_0 = 596 once in each of 4 kernels
    ring = eqx.tree_at(lambda p: p.layout.context, SCENARIO.plan, 4.0)
    ratio = passes(plan=ring).forward / passes().forward
    np.testing.assert_allclose(ratio, (4096.0 + 4.0 * 596.0) / (4096.0 + 596.0), rtol=1e-12)


def test_unfused_products_are_slower_where_heads_are_not_aligned():
    even, near, odd = (passes(flash=0.0, head_size=size).forward for size in (128.0, 104.0, 108.0))
    chip = SCENARIO.system.accelerator
    exponent = float(chip.alignment_exponent)
    np.testing.assert_allclose(near / even, 8.0**exponent, rtol=1e-9)  # 64 over the 8 that divides 104
    # 64 over the 4 that divides 108, which is less than 16 bytes
    np.testing.assert_allclose(odd / even, float(chip.unaligned_slowdown) * 16.0**exponent, rtol=1e-9)


def test_fused_heads_are_padded():
    even, odd = (passes(head_size=size).forward for size in (112.0, 108.0))
    np.testing.assert_allclose(odd / even, 112.0 / 108.0, rtol=1e-9)  # for the same operations
