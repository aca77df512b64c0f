"""May a trend be negative, and nothing else?"""

import pytest

import energymodel as em
from energymodel.ranges import ends_of
from energymodel.scenarios.scenario import load_scenario

TREND = "system.learning.critical_batch.token_trend"


@pytest.mark.parametrize("given", [-0.03, "-0.03", {"value": -0.03, "unit": "1", "kind": "measured", "source": "here"}])
def test_a_trend_may_fall(given):
    system = load_scenario("test-1b-h100", {TREND: given}).system
    assert float(system.learning.critical_batch.token_trend) == -0.03  # pyright: ignore[reportAttributeAccessIssue]


def test_other_numbers_may_not():
    with pytest.raises(em.InputError, match="is negative"):
        load_scenario("test-1b-h100", {"system.learning.critical_batch.sharpness": -1.0})


def test_ends_are_those_that_a_scenario_is_checked_against():
    system = load_scenario("test-1b-h100").system
    assert ends_of(system, "learning.critical_batch.token_trend") == (-10.0, 10.0)
    assert ends_of(system, "learning.critical_batch.sharpness") == (1e-9, 10.0)
    assert ends_of(system, "accelerator.gemm_efficiency") == (1e-9, 1.0)  # zero itself is excluded
