"""`limits`: lower bounds on the energy, against the formulas by hand."""

import math

import pytest

from cli.shell import SMALL, numbers, run_json
from energymodel.constants import BOLTZMANN, PLANCK


@pytest.fixture(scope="module")
def tree():
    return run_json("limits", SMALL)


def bounds(tree, name="energy"):
    return {row["key"]: row[name]["value"] if isinstance(row[name], dict) else row[name] for row in rows(tree)}


def rows(tree):
    return tree["tables"]["bounds"]["rows"][:-1]  # without the run itself


def test_ladder_by_hand(tree):
    outcome, energies = numbers(tree), bounds(tree)
    parameters = _parameters(tree)
    bit = BOLTZMANN * 298.15 * math.log(2.0)
    flops = 6.0 * parameters * 24e9
    # Docs/physics.md A0.7: bits written, overwritten, erased by operations (32 per FLOP), and N H with H = D E / ln 2.
    by_hand = {
        "landauer_model": bit * min(outcome["information"], 2.0 * parameters),
        "landauer_overwrite": bit * 16.0 * parameters * outcome["steps"],
        "landauer_operation": bit * 32.0 * flops,
        "landauer_source": bit * parameters * 24e9 * 1.8172 / math.log(2.0),
        "landauer_finite_time": bit * 32.0 * flops * 1.1,
        "cmos_wall": flops / 4.7e15,
    }
    assert {key: energies[key] for key in by_hand} == pytest.approx(by_hand, rel=1e-9)


def _parameters(tree):
    # 16 layers of 4 x 2048^2 in attention and 3 x 2048 x 8192 in the feed-forward block, tied embedding of 50304
    assert tree["scenario"]["system"]["workload"]["layers"]["value"] == 16
    return 16 * (4 * 2048**2 + 3 * 2048 * 8192) + 50304 * 2048


def test_multiples_and_speed_limits(tree):
    outcome, rates, multiples = numbers(tree), numbers(tree, "rates"), bounds(tree, "multiple")
    for key, energy in bounds(tree).items():
        assert multiples[key] == pytest.approx(outcome["energy"] / energy, rel=1e-9)
        assert multiples[key] > 1
    assert multiples["landauer_operation"] == pytest.approx(outcome["landauer_multiple"], rel=1e-9)
    assert rates["speed_limit_of_energy"] == pytest.approx(4.0 * outcome["energy"] / PLANCK, rel=1e-9)
    assert rates["energy_per_bit"] == pytest.approx(outcome["energy"] / outcome["information"], rel=1e-9)
    assert rates["operation_rate"] < rates["speed_limit_of_step_energy"]


def test_near_limit_hardware_is_near_its_limits():
    near, today = (
        bounds(run_json("limits", name), "multiple") for name in ("near-limit-hardware", "llama-3.1-405b-h100")
    )
    assert near["landauer_operation"] < today["landauer_operation"] / 1000
    assert near["cmos_wall"] < 10
