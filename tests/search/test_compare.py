"""Are combinations of accelerators, formats and chips ranked by their best plans, and the others given a reason?"""

import numpy as np
import pytest

from cli.shell import run
from energymodel.errors import InputError
from energymodel.report.compare_report import compare_csv, compare_figure, compare_json, compare_report
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.compare import compare
from energymodel.search.optimize import optimize

SMALL = "test-1b-h100"


@pytest.fixture(scope="module")
def comparison():
    return compare(SMALL, accelerators=("h100-sxm", "v100-sxm2-32gb"), precisions=("bf16", "fp8"), chips=(8,))


def test_the_best_plan_of_each_is_that_of_a_search(comparison):
    by_name = {one.name: one for one in comparison.candidates}
    assert next(iter(by_name)) == "h100-sxm, fp8, 8 chips"
    own = by_name["h100-sxm, bf16, 8 chips"]
    assert own.reason == ""
    found = optimize(load_scenario(SMALL))
    assert own.optimum.value == pytest.approx(found.value, rel=1e-9)
    values = [one.optimum.value for one in comparison.candidates if not one.reason]
    assert values == sorted(values)
    np.testing.assert_allclose(found.limits["loss"], comparison.limits["loss"], rtol=1e-12)


def test_what_has_no_plan_says_why(comparison):
    reasons = {one.name: one.reason for one in comparison.candidates}
    assert "has no fp8" in reasons["v100-sxm2-32gb, fp8, 8 chips"]
    assert "No plan obeys these limits together" in reasons["v100-sxm2-32gb, bf16, 8 chips"]


def test_table_rows_and_figure_hold_all_combinations(comparison):
    lines = compare_csv(comparison).splitlines()
    assert len(lines) == 1 + 4
    assert "has no fp8" in compare_csv(comparison)
    shown = compare_json(comparison)
    assert shown["candidates"][0]["value"] == comparison.candidates[0].optimum.value
    assert shown["candidates"][-1]["reason"]
    assert compare_report(comparison) is not None
    assert b"h100-sxm, fp8, 8 chips" in compare_figure(comparison, "svg")


def test_too_much_and_unknown_things_are_refused():
    with pytest.raises(InputError, match='precision: unknown "fp16"'):
        compare(SMALL, precisions=("fp16",))
    with pytest.raises(InputError, match="66 combinations are more than 64"):
        compare(SMALL, chips=range(1, 67))


@pytest.mark.parametrize(
    ("more", "message"), [((), "nothing to compare"), (("--chips", "8", "--plot", "c.gif"), "Choose one of .svg, .png")]
)
def test_the_command_refuses_bad_input(more, message):
    result = run("compare", SMALL, *more)
    assert result.exit_code == 2
    assert message in result.stderr
