"""The five sentences that say why a plan is what it is, recomputed by hand."""

import dataclasses
import math

import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.report.answers.argument import five_sentences, is_near_limit
from energymodel.report.answers.details import critical_batch_law
from energymodel.report.number import sentence
from energymodel.system.evaluate import evaluate_once

SLOWER = (  # half the rates and twice the energies of both machines
    ("accelerator.memory_bandwidth", "B/s", 801.7042384800517e12, 1.675e12),
    ("node.scale_up.lane_bandwidth", "B/s", 7.1875e12, 12.5e9),
    ("network.link.lane_bandwidth", "B/s", 3.59375e12, 6.25e9),
    ("accelerator.memory_energy", "J/bit", 1.055393069608003e-15, 7.8e-12),
    ("node.scale_up.energy", "J/bit", 1.127e-15, 1e-11),
    ("network.link.energy", "J/bit", 3.381e-15, 3e-11),
    ("network.hop_energy", "J/bit", 2.7048e-15, 2.4e-11),
)
KT_LN2 = 1.380649e-23 * 338.15 * math.log(2.0)  # at the 65 °C of both chips: 3.2361e-21 J


@pytest.mark.parametrize(
    ("name", "multiple", "parameters", "ranks", "words"),
    [
        ("near-limit-hardware", 1000.0, 405.85e9, 128 / 8, "by assumption 480 times as fast as that of NVIDIA H100"),
        # 0.7653 pJ / (32 x 3.2361e-21 J)
        ("llama-3.1-405b-h100", 7.390e6, 405.85e9, 16384 / 8, "of memory; with half the rates of both"),
    ],
)
def test_five_sentences_by_hand(name, multiple, parameters, ranks, words):
    is_today = name == "llama-3.1-405b-h100"
    scenario, own = em.load_scenario(name), 16 * 2**20

    def at(**decisions):
        plan = dataclasses.replace(scenario.plan, **{name: np.asarray(value) for name, value in decisions.items()})
        with jax.enable_x64(True):
            return jax.tree.map(float, jax.device_get(evaluate_once(scenario.system, plan)))

    run, three = at(), at(batch=[3.0 * own])
    told = five_sentences(scenario, run, own)
    text, values = " ".join(map(sentence, told)), {name: cell.value for name, (_, cell) in told[0].numbers.items()}
    assert len(told) == 5
    assert "{" not in text
    assert words in text
    assert is_near_limit(scenario) != is_today

    # 1: 6 N D operations and those done again, of 32 bits each.
    operations = 6.0 * parameters * 15.6e12 * run.hfu / run.mfu
    assert values["multiple"] == pytest.approx(multiple, rel=1e-3)
    made = operations * 32.0 * values["multiple"] * KT_LN2 / values["reached"] * values["lost"]
    assert values["switching"] == pytest.approx(run.energy.dynamic)
    assert values["switching"] == pytest.approx(made, rel=5e-3)
    # 2: bytes at half the rate and twice the energy; their shares.
    changes = [f"system.{path}={number} {unit}" for path, unit, *numbers in SLOWER for number in numbers[is_today:][:1]]
    slower = em.load_scenario(name, changes)
    with jax.enable_x64(True):
        less = jax.tree.map(float, jax.device_get(evaluate_once(slower.system, slower.plan)))
    assert values["longer"] == pytest.approx(less.time / run.time - 1.0, rel=1e-6)
    assert values["more"] == pytest.approx(less.energy.total / run.energy.total - 1.0, rel=1e-6)
    assert values["moved"] == pytest.approx((run.energy.memory + run.energy.network) / run.energy.total)
    step = run.step_time
    sent = step.tensor + step.context + step.expert + step.pipeline + step.data
    assert values["moving"] == pytest.approx((step.memory + sent) / step.total)
    assert values["balance"] == pytest.approx(989.5e12 / 3.35e12, rel=2e-3)  # of an H100 on both
    # 3: a fixed time and one per token, from another pair of batches: t(3B) = t_0 + 3 tau B.
    per_token = (three.step_time.total - run.step_time.total) / (2.0 * own)
    fixed = run.step_time.total - per_token * own
    energies = [of.energy.total / of.steps for of in (run, three)]
    ratio = own * (1.5 * energies[0] - 0.5 * energies[1]) / (0.5 * (energies[1] - energies[0]))  # s B_h = e_0 / e_1
    assert values["half"] == pytest.approx(fixed / per_token, rel=1e-3)
    assert values["waiting"] * values["half"] == pytest.approx(ratio, rel=1e-3)
    assert values["best"] == pytest.approx(math.sqrt(ratio * values["critical"]), rel=1e-3)
    # 4: B* in sequences of 8,192 tokens; the fewest tokens by trial, (1 + u^p)^(1/p) (1 + (k / u)^2), u = B / B_c.
    assert values["fed"] == pytest.approx(values["best"] / 8192.0)
    assert values["ranks"] == ranks
    u, law = np.geomspace(1e-3, 1.0, 100_001), critical_batch_law(scenario)[0]
    tokens = (1.0 + u**law.sharpness) ** (1.0 / law.sharpness) * (1.0 + (values["wasted"] / u) ** 2)
    assert values["kept"] == pytest.approx(values["critical"] * u[np.argmin(tokens)], rel=5e-3)
    # 5: the parts of the energy at 99 % of the clock add up to its change.
    lower = at(clock=0.99 * run.clock)
    assert values["saved"] + values["cost"] == pytest.approx(lower.energy.total / run.energy.total - 1.0)
    assert values["saved"] < 0.0
    assert values["largest"] == pytest.approx(run.energy.host / run.energy.total)
