"""Points of a sweep and random samples: no point vanishes, and numbers of all points are written."""

import csv
import io

import pytest

import energymodel as em
from energymodel.errors import InputError
from energymodel.report import data, drawing
from energymodel.report.answers.samples import samples_answer
from energymodel.report.answers.sweep import MOST_ROWS, check_rows, infeasible_points, rows_table, sweep_answer
from energymodel.report.number import sentence
from energymodel.sweeps.best_points import BestAlong, Top
from energymodel.sweeps.pareto import Pareto
from energymodel.sweeps.sweep import sweep
from report.reference_sweep import samples, swept

SMALL = "test-1b-h100"
AXES = {"x": [1.0, 2.0], "y": [3.0, 4.0, 5.0]}


def product(x, y):
    return {"product": x * y, "sum": x + y}


def rows_of(result):
    return list(csv.DictReader(io.StringIO(data.csv_text(rows_table(result, "product")))))


def answer_of(keep, energies, message=""):
    return sweep_answer(em.load_scenario(SMALL), swept(keep, energies, message), "energy")


def test_a_full_array_has_a_row_for_each_point():
    rows = rows_of(sweep(product, AXES, "full:product,sum"))
    points = {tuple(float(row[f"{name} [1]"]) for name in ("x", "y", "product", "sum")) for row in rows}
    assert len(rows) == 6
    assert points == {(x, y, x * y, x + y) for x in AXES["x"] for y in AXES["y"]}


def test_a_full_array_too_large_for_a_table_is_refused_before_the_work():
    check_rows("full:energy", MOST_ROWS)
    check_rows("best", 10 * MOST_ROWS)
    with pytest.raises(InputError, match="--resume FOLDER"):
        check_rows(" full:energy", MOST_ROWS + 1)


def test_a_full_array_on_a_terminal_alone_makes_few_rows():
    table = rows_table(sweep(product, AXES, "full:product"), "product", most=2)
    assert len(table.rows) == 2


def test_a_count_is_a_row():
    # Of the sums 4, 5, 6, 5, 6, 7 three are at most 5.
    (row,) = rows_of(sweep(product, AXES, "count", limits={"sum": 5.0}))
    assert [float(number) for number in row.values()] == [6.0, 3.0]


def test_a_histogram_and_quantiles_are_rows():
    bins = rows_of(sweep(product, AXES, "histogram:product"))
    assert sum(float(row["points [1]"]) for row in bins) == 6
    shares = rows_of(sweep(product, AXES, "quantiles:sum"))
    assert [float(row["share [1]"]) for row in shares] == [0.05, 0.25, 0.5, 0.75, 0.95]


def test_combinations_without_a_point_are_named():
    # With y = 5 both sums, 6 and 7, break the limit; with y = 4 only x = 1 obeys it.
    result = sweep(product, AXES, "along:x", minimize="product", limits={"sum": 5.0})
    assert infeasible_points(result) == [{"y": 5.0}]
    rows = rows_of(result)
    assert len(rows) == 3
    assert [row["y [1]"] for row in rows if not row["product [1]"]] == ["5.0"]


def test_the_best_points_are_beside_each_other():
    answer = answer_of(Top("energy", 3), (4e8, 4.4e8, 5e8))
    assert "Of 6 points, the best has clock 0.6, layout t1·p1" in sentence(answer.sentences[0])
    # 4.4e8 over 4e8
    assert sentence(answer.charts[0].title) == "The second-best point takes 10 % more energy"
    assert "clock 0.8, layout t1·p1" in drawing.svg(answer, answer.charts[0], 860.0)


def points(answer):
    """Numbers across and up of the first figure."""
    chart = answer.charts[0]
    across, up = (answer.table(chart.table).column(name)[1] for name in (chart.x, chart.y[0]))
    return [(x.value, y.value) for x, y in zip(across, up, strict=True)]


def test_points_along_an_axis_are_a_line_with_the_lowest_of_them():
    answer = answer_of(BestAlong("energy", ("plan.layout",)), (4.4e8, 4e8, 5e8))
    assert sentence(answer.charts[0].title) == "The lowest energy is at clock 0.8"
    assert sorted(points(answer)) == [(0.6, 4.4e8), (0.8, 4e8), (1.0, 5e8)]


def test_a_front_of_a_grid_is_in_its_plane():
    answer = answer_of(Pareto(("energy", "time")), (4e8, 4.4e8, 5e8))
    assert points(answer)[0] == (108_000.0, 4e8)


def test_an_interrupted_sweep_says_why_it_has_no_points():
    answer = answer_of(Top("energy"), (), "Interrupted after 3 points.")
    assert (answer.result, answer.message) == ("interrupted", "Interrupted after 3 points.")
    assert sentence(answer.sentences[0]) == "Interrupted after 3 points."
    assert answer.charts == []


def test_samples_show_distributions_chances_and_causes():
    answer = samples_answer(em.load_scenario(SMALL), samples())
    words = " ".join(map(sentence, answer.sentences))
    assert "The plan stays within all limits in 75.0 % of the samples." in words
    assert "node.fan_power matters most: it takes part in 70 % of the variance of energy." in words
    assert answer.table("outputs").number("median")[1][:3] == (5e8, 4e8, 7e8)
    index = answer.table("indices_energy").number("total")[1]
    # Half of a 95 % interval of 0.05 is 0.05 1.645 / 1.960 = 0.042 of one of 90 %.
    assert index[:3] == pytest.approx((0.7, 0.658, 0.742), abs=1e-4)
