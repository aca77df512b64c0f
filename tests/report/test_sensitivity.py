"""The report of a sensitivity analysis: what to measure, what to change, in tables, JSON, CSV and a figure."""

import csv
import dataclasses
import io
import json
import sys

import pytest
from rich.console import Console, RenderableType

from energymodel.errors import InputError
from energymodel.report.json_tree import dumps
from energymodel.report.sensitivity_report import (
    choices,
    headline,
    notes,
    sensitivity_csv,
    sensitivity_file,
    sensitivity_json,
    sensitivity_report,
)
from energymodel.report.tornado import tornado
from energymodel.search.result import SearchResult
from report.reference_sensitivity import of_optimum, sensitivity


def _lines(report: RenderableType) -> list[str]:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(report)
    return capture.get().splitlines()


def _line(lines: list[str], *words: str) -> str:
    return next(line for line in lines if all(word in line for word in words))


def test_the_report_says_what_to_measure_and_what_to_change():
    lines = _lines(sensitivity_report(sensitivity()))
    measured = _line(lines, "system.accelerator.gemm_efficiency", "0.6")
    # Mean squares of +10 and -8 % and of -1 and +3 %: 82 and 5, of 87.
    assert "+10.0 %" in measured
    assert "-8.0 %" in measured
    assert "94 %" in measured
    assert "measured" in measured
    assert "6 %" in _line(lines, "system.facility.cooling.coil_approach", "5 K", "15 K")
    assert "± 9.3 %" in _line(lines, "All 2 together")
    # The efficiency has a source, the approach is a prior: 5 of 87.
    assert "priors (1 of the 1 have any effect): energy 6 %, loss 0 %." in _line(lines, "Share of the variance")
    assert "-5.0 %" in _line(lines, "plan.clock", "0.9")


def test_a_value_that_breaks_a_limit_is_not_proposed():
    first, second = choices(sensitivity())
    assert (first.row.path, first.value) == ("plan.clock", 0.9)
    # Eight sequences would save a fifth but do not fit, so the other value is shown.
    assert (second.row.path, second.value, second.breaks) == ("plan.layout.microbatch", 2.0, ())


def test_the_headline_says_what_of():
    # Roots of half the sums of squares of +10, -8 % and -1, +3 % add up to 9.3 %: 100 J times exp(-+0.093).
    own = "The scenario's own plan: energy 100 J (90 %: 91 to 110), loss 2 nat/token."
    assert headline(sensitivity()) == own
    assert "Lowest energy within the limits: 100 J" in headline(of_optimum())
    nothing = dataclasses.replace(of_optimum(), rows=(), result=SearchResult.infeasible)
    assert (
        headline(nothing) == "The search for the lowest energy ended infeasible, so the optimum has no sensitivities."
    )


def test_notes_say_what_the_tables_leave_out():
    text = "\n".join(notes(sensitivity()))
    assert "At 8, plan.layout.microbatch exceeds" not in text
    assert "Not varied alone, because their distribution is joint (chinchilla): system.learning.loss_law.*." in text
    assert "without a stated uncertainty: 1, such as system.workload.hidden (+1.500)" in text
    assert "(--json gives their derivatives): 1." in text


def test_the_report_of_an_optimum_has_limits_and_marks_what_was_searched_again():
    lines = _lines(sensitivity_report(of_optimum()))
    assert "-0.250" in _line(lines, "time", "24 hours", "moves with it")
    assert "≈" in _line(lines, "system.facility.cooling.coil_approach", "5 K")
    assert "≈" not in _line(lines, "system.accelerator.gemm_efficiency", "0.6")
    assert not any("plan.clock" in line for line in lines)
    assert any("hold one with --limit" in line for line in lines)


def test_json_is_strict_and_complete():
    tree = json.loads(dumps(sensitivity_json(sensitivity())), parse_constant=pytest.fail)
    rows = {row["path"]: row for row in tree["numbers"]}
    together, from_priors = pytest.approx(0.0932738, abs=1e-6), pytest.approx(5.0 / 87.0)
    expected = {"value": 100.0, "unit": "J", "together": together, "prior_share": from_priors}
    assert tree["outputs"]["energy"] == expected
    row = rows["system.accelerator.gemm_efficiency"]
    assert (row["kind"], row["unit"], row["action"], row["distribution"]) == (
        "measured",
        "1",
        "measure",
        "lognormal 0.0087",
    )
    assert row["effects"]["energy"]["at_low"] == 110.0
    assert row["effects"]["energy"]["share"] == pytest.approx(82.0 / 87.0)
    assert row["range"] == "quantiles"
    assert rows["plan.clock"]["range"] == "next values"
    zero = rows["system.market.price.delay_cost"]["effects"]["energy"]
    assert (zero["elasticity"], zero["derivative"], zero["form"]) == (None, 7.0, "derivative: the number is zero")
    assert tree["by_uncertainty"]["energy"][0] == "system.accelerator.gemm_efficiency"
    assert tree["by_elasticity"]["energy"][0] == "system.workload.hidden"
    assert rows["plan.layout.microbatch"]["breaks_at_high"] == ["memory"]


def test_what_is_not_a_number_is_null():
    row = sensitivity().rows[0]
    lost = dataclasses.replace(row, effects={"energy": dataclasses.replace(row.effects["energy"], low=float("nan"))})
    other = dataclasses.replace(sensitivity().rows[1], effects={"energy": sensitivity().rows[1].effects["energy"]})
    found = dataclasses.replace(sensitivity(), rows=(lost, other), values={"energy": 100.0})
    tree = json.loads(dumps(sensitivity_json(found)), parse_constant=pytest.fail)
    assert tree["numbers"][0]["effects"]["energy"]["at_low"] is None
    assert any("at_low" in warning for warning in tree["warnings"])
    assert "no plan" in "\n".join(_lines(sensitivity_report(found)))
    assert ",," in sensitivity_csv(found)


def test_csv_has_a_line_for_each_number():
    rows = list(csv.DictReader(io.StringIO(sensitivity_csv(sensitivity()))))
    assert len(rows) == len(sensitivity().rows)
    clock = next(row for row in rows if row["path"] == "plan.clock")
    assert (clock["energy.elasticity"], clock["energy.at_low"], clock["energy.at_high"]) == ("0.5", "95.0", "")
    assert next(row for row in rows if row["path"] == "plan.layout.microbatch")["breaks"] == "memory at high"


def test_the_figure_shows_the_changes_and_is_reproducible():
    pytest.importorskip("matplotlib", reason="figures need the extra `plot`")
    axes = tornado(sensitivity()).axes[0]
    widths = [bar.get_width() for container in axes.containers for bar in container]
    assert widths == pytest.approx([10.0, -1.0, -8.0, 3.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "system.accelerator.gemm_efficiency",
        "system.facility.cooling.coil_approach",
    ]
    assert sensitivity_file(sensitivity(), ".svg") == sensitivity_file(sensitivity(), ".svg")
    assert b"<svg" in sensitivity_file(sensitivity(), ".svg")
    assert sensitivity_file(sensitivity(), ".png").startswith(b"\x89PNG")
    assert sensitivity_file(sensitivity(), ".csv").startswith(b"path,value,unit,kind")


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"energymodel\[plot\]"):
        tornado(sensitivity())
