"""`optimize --vary model.*`: the shape of the model in the same search, and what is refused."""

import pytest

from cli.shell import numbers, run, run_json
from report.page.read_page import assert_sound

SMALL = "test-1b-h100"
TOTALS = ("parameters", "active_parameters")


def test_the_shape_is_found_and_the_printed_command_evaluates_it(tmp_path):
    report = tmp_path / "report.html"
    tree = run_json("optimize", SMALL, "--vary", "model.hidden", "--vary", "model.layers", "-o", str(report))
    assert tree["success"]
    assert tree["saving"] > 0.0
    shape = tree["shape"]
    # Attention stays as wide as the model, to a head.
    wider = shape["hidden"]["found"] / shape["hidden"]["own"]
    assert shape["heads"]["found"] == pytest.approx(wider * shape["heads"]["own"], abs=1.0)
    changes = [f"system.workload.{name}={both['found']}" for name, both in shape.items() if name not in TOTALS]
    plan = [f"plan.batch={tree['plan']['batch_tokens']} token", f"plan.clock={tree['plan']['clock']}"]
    plan.append(f"plan.goal.tokens={tree['outcome']['tokens']} token")
    options = [part for change in (*changes, *plan) for part in ("--set", change)]
    again = run_json("evaluate", SMALL, *options)
    assert numbers(again)["energy"] == pytest.approx(tree["value"], rel=1e-9)
    loss = numbers(again)["loss"] + tree["penalty_nat_per_token"]
    assert loss == pytest.approx(tree["loss_nat_per_token"], rel=1e-9)
    dynamic = next(
        row["energy"]["value"] for row in again["tables"]["energy_parts"]["rows"] if row["part"] == "switching"
    )
    page = assert_sound(report.read_text(encoding="utf-8"))
    assert {"The shape beside the scenario's own", "What other shapes cost"} <= set(page.headings)
    assert {tree["outcome"]["energy_j"]["total"], dynamic} <= (page.numbers("total") | page.numbers("switching"))
    assert set(tree["flatness"]["layers"]) <= page.numbers("layers")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--vary", "model.hidden=1000:4000"), "without bounds of its own"),
        (("--vary", "model.depth"), 'Shape variable "depth" is none of'),
        (("--vary", "model.*", "--tolerance", "0.1"), "a search of the model's shape has none"),
        (("--vary", "model.*", "--minimize", "loss"), "the loss is held"),
        (("--vary", "model.*", "--vary", "plan.batch@0..1"), "only optimize lets it vary, for the model as it is"),
        (("--vary", "model.*", "--vary", "plan.layout.tensor=1:8"), "the layout stays while the shape varies"),
    ],
)
def test_bad_questions_are_refused(options, message):
    result = run("optimize", SMALL, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_other_searches_point_to_it():
    result = run("pareto", SMALL, "--vary", "model.hidden=1000:4000")
    assert result.exit_code == 2
    assert "energymodel optimize --vary model.*" in result.stderr
