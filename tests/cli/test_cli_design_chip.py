"""`design-chip`: the question about the chip reaches the search, and the chip found is told beside its reference."""

import dataclasses

import pytest

from cli.shell import SMALL, numbers, run, run_json
from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.compare import cache_sizes, chip_question
from energymodel.system.chip_design import ScaledChip
from report.reference_optimum import optimum


@pytest.fixture
def search(monkeypatch):
    """A search that answers at once with a lower voltage, and remembers what it was asked."""
    asked = {}

    def answer(scenario, *, progress):
        asked["question"] = scenario.optimize
        found = {"system.chip_design.voltage": 0.8}
        return dataclasses.replace(optimum(), scenario=scenario, found=found)

    monkeypatch.setattr("energymodel.search.compare.optimize", answer)
    monkeypatch.setattr("energymodel.sweeps.first_order.saving_at_risk", lambda _: None)
    return asked


def test_limits_are_those_of_the_reference_unless_asked(search):
    run_json("design-chip", SMALL, "--minimize", "etp", "--limit", "chip_price=40000 USD")
    limits = search["question"].limits
    assert limits["chip_area"] == pytest.approx(814e-6)
    assert limits["chip_power"] == pytest.approx(700.0)
    assert limits["chip_price"] == pytest.approx(40e3)
    assert search["question"].minimize == "etp"
    assert "system.chip_design.voltage" in search["question"].vary


def test_choices_that_are_asked_replace_the_usual_ones(search):
    run_json("design-chip", SMALL, "--vary", "system.chip_design.voltage=0.8:1")
    assert search["question"].vary["system.chip_design.voltage"] == pytest.approx((0.8, 1.0))
    assert "system.chip_design.cache" not in search["question"].vary
    assert "chip_area" not in search["question"].limits


def test_the_chip_is_told_beside_its_reference(search):
    tree = run_json("design-chip", SMALL)
    reference, design = (numbers(tree, "chip", row) for row in (0, 1))
    assert reference["reference_voltage"] == pytest.approx(0.88)
    assert design["reference_voltage"] == pytest.approx(0.8 * 0.88)
    # 0.7040 V: on-current over voltage by hand as in tests/worked_numbers.toml, between 0.740 and 1
    assert 0.74 < design["peak_flops"] / reference["peak_flops"] < 0.78
    text = run("design-chip", SMALL).stdout
    assert "switching energy of an operation" in text
    assert "-20 %" in text
    assert "with a cache of 4.089 MB" in text


def test_caches_by_closed_form_are_those_by_hand():
    system = load_scenario(SMALL, {"system.chip_design": "scaled"}).system
    assert isinstance(system.chip_design, ScaledChip)
    found = cache_sizes(system.accelerator, system.chip_design.technology)
    # 2 x 16 bit x 3.9 pJ x sqrt(4096) / (0.015625 x 0.25 pJ) = 2.04472e6 elements; (989.4e12 x 2 / 3.35e12)^2 = 348,910
    assert found.lowest_energy == pytest.approx(4.08945e6, rel=1e-5)
    assert found.balance == pytest.approx(697_819, rel=1e-4)
    # 2 x 2 B x sqrt(28.5) x sqrt(65,536) / (0.5 B x sqrt(2)) results of 4 B
    assert found.registers == pytest.approx(4 * 2 * 2 * 28.5**0.5 * 256 / (0.5 * 2**0.5), rel=1e-6)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--vary", "system.chip_design.voltag=0.8:1"), "voltage"),
        (("--limit", "chip_area=814"), "has no unit"),
        (("--set", "system.chip_design.voltage=-1"), "voltage"),
        (("--set", "system.chip_design=near"), "Unknown preset"),
    ],
)
def test_bad_input_is_refused(more, message):
    result = run("design-chip", SMALL, *more)
    assert result.exit_code == 2
    assert message in result.stderr


def test_an_accelerator_of_the_catalog_has_nothing_to_vary():
    with pytest.raises(InputError, match="Set system"):
        chip_question(load_scenario(SMALL), "energy")
