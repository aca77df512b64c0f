"""`limits`: the ladder of least energies, against the formulas by hand."""

import math

import pytest

from cli.shell import SMALL, run, run_json
from energymodel.constants import BOLTZMANN, PLANCK
from report.page.read_page import assert_sound


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return tmp_path_factory.mktemp("limits") / "limits.html"


@pytest.fixture(scope="module")
def shown(page):
    return run_json("limits", SMALL, "-o", str(page))


def test_the_page_has_the_ladder(shown, page):
    read = assert_sound(page.read_text(encoding="utf-8"))
    assert read.headings[1:3] == ["Lower bounds on energy", "Where the energy goes"]
    assert read.numbers("the run") == {shown["outcome"]["energy_j"]["total"]}
    assert read.numbers("CMOS wall, fp4 arithmetic") == {shown["limits"]["bounds_j"]["cmos_wall"]}
    assert not [text for text in read.text if "inf " in text]


def test_ladder_by_hand(shown):
    outcome, limits = shown["outcome"], shown["limits"]
    parameters = _parameters(shown)
    bit = BOLTZMANN * 298.15 * math.log(2.0)
    flops = 6.0 * parameters * 24e9
    # Docs/physics.md A0.7: bits written, overwritten, erased by operations (32 per FLOP), and N H with H = D E / ln 2.
    assert limits["bounds_j"]["landauer_model"] == pytest.approx(
        bit * min(outcome["information_bit"], 2.0 * parameters), rel=1e-9
    )
    assert limits["bounds_j"]["landauer_overwrite"] == pytest.approx(
        bit * 16.0 * parameters * outcome["steps"], rel=1e-9
    )
    assert limits["bounds_j"]["landauer_operation"] == pytest.approx(bit * 32.0 * flops, rel=1e-9)
    assert limits["bounds_j"]["landauer_source"] == pytest.approx(
        bit * parameters * 24e9 * 1.8172 / math.log(2.0), rel=1e-9
    )
    assert limits["bounds_j"]["landauer_finite_time"] == pytest.approx(bit * 32.0 * flops * 1.1, rel=1e-9)
    assert limits["bounds_j"]["cmos_wall"] == pytest.approx(flops / 4.7e15, rel=1e-9)


def _parameters(shown):
    # 16 layers of 4 x 2048^2 in attention and 3 x 2048 x 8192 in the feed-forward block, tied embedding of 50304
    assert shown["scenario"]["system"]["workload"]["layers"]["value"] == 16
    return 16 * (4 * 2048**2 + 3 * 2048 * 8192) + 50304 * 2048


def test_multiples_and_speed_limits(shown):
    energy, limits = shown["outcome"]["energy_j"]["total"], shown["limits"]
    for key, bound in limits["bounds_j"].items():
        assert limits["multiples"][key] == pytest.approx(energy / bound, rel=1e-9)
        assert limits["multiples"][key] > 1
    assert limits["multiples"]["landauer_operation"] == pytest.approx(shown["outcome"]["landauer_multiple"], rel=1e-9)
    assert limits["speed_limit_of_energy_per_s"] == pytest.approx(4.0 * energy / PLANCK, rel=1e-9)
    assert limits["energy_per_bit_j_per_bit"] == pytest.approx(energy / shown["outcome"]["information_bit"], rel=1e-9)
    assert limits["operation_rate_flop_per_s"] < limits["speed_limit_of_step_energy_per_s"]


def test_near_limit_hardware_is_near_its_limits():
    near = run_json("limits", "near-limit-hardware")["limits"]["multiples"]
    today = run_json("limits", "llama-3.1-405b-h100")["limits"]["multiples"]
    assert near["landauer_operation"] < today["landauer_operation"] / 1000
    assert near["cmos_wall"] < 10


def test_table():
    text = run("limits", SMALL).stdout
    for words in ("bits of the model", "CMOS wall", "roofline", "Margolus", "J/bit", "x 1"):
        assert words in text
