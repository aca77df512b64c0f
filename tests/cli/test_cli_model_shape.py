"""`optimize --vary model.*`: the shape of the model in the same search, and what is refused."""

import pytest

from cli.shell import numbers, run, run_json
from report.page.read_page import assert_sound

SMALL = "test-1b-h100"
TOTALS = ("parameters", "active_parameters")


def test_the_shape_is_found_and_the_printed_command_evaluates_it(tmp_path):
    report = tmp_path / "report.html"
    tree = run_json("optimize", SMALL, "--vary", "model.hidden", "--vary", "model.layers", "-o", str(report))
    search, own, best = numbers(tree, "search"), numbers(tree, "shape", 0), numbers(tree, "shape", 1)
    assert tree["result"] == "successful"
    assert search["saving"] > 0.0
    # Attention stays as wide as the model, to a head.
    assert best["heads"] == pytest.approx(best["hidden"] / own["hidden"] * own["heads"], abs=1.0)
    names = set(tree["tables"]["shape"]["columns"]) - set(TOTALS)
    changes = [f"system.workload.{name}={best[name]}" for name in names]
    plan, outcome = numbers(tree, "plan", 1), numbers(tree, "outcome", 1)
    changes += [f"plan.batch={plan['batch']} token", f"plan.clock={plan['clock']}"]
    changes.append(f"plan.goal.tokens={outcome['tokens']} token")
    again = run_json("evaluate", SMALL, *(part for change in changes for part in ("--set", change)))
    assert numbers(again)["energy"] == pytest.approx(search["value"], rel=1e-9)
    assert numbers(again)["loss"] + search["penalty"] == pytest.approx(search["loss"], rel=1e-9)
    page = assert_sound(report.read_text(encoding="utf-8"), data=False)
    assert {"Shape", "The best of each depth"} <= set(page.headings)
    assert numbers(again)["energy.dynamic"] == pytest.approx(outcome["energy.dynamic"], rel=1e-9)
    assert outcome["energy"] in page.numbers("energy")


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
