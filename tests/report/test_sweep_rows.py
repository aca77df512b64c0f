"""What a sweep kept, as rows: no point vanishes, and numbers of all points are written, not a heading alone."""

import csv
import io

import pytest

from energymodel.errors import InputError
from energymodel.report.sweep_report import rows_table
from energymodel.report.sweep_rows import MOST_ROWS, check_rows, infeasible_points, sweep_csv
from energymodel.sweeps.sweep import sweep


def product(x, y):
    return {"product": x * y, "sum": x + y}


AXES = {"x": [1.0, 2.0], "y": [3.0, 4.0, 5.0]}


def rows_of(keep, **options):
    return list(csv.reader(io.StringIO(sweep_csv(sweep(product, AXES, keep, **options)))))


def test_a_full_array_has_a_row_for_each_point():
    head, *rows = rows_of("full:product,sum")
    place = {name: at for at, name in enumerate(head)}
    found = {tuple(float(row[place[name]]) for name in ("x", "y", "product", "sum")) for row in rows}
    assert len(rows) == 6
    assert found == {(x, y, x * y, x + y) for x in AXES["x"] for y in AXES["y"]}


def test_a_full_array_too_large_for_a_table_is_refused_before_the_work():
    check_rows("full:energy", MOST_ROWS)
    check_rows("best", 10 * MOST_ROWS)
    with pytest.raises(InputError, match="--resume FOLDER"):
        check_rows(" full:energy", MOST_ROWS + 1)


def test_a_count_is_a_row():
    # Of the sums 4, 5, 6, 5, 6, 7 three are at most 5.
    assert rows_of("count", limits={"sum": 5.0}) == [["points", "within limits"], ["6", "3"]]


def test_a_histogram_and_quantiles_are_rows():
    head, *bins = rows_of("histogram:product")
    assert head == ["output", "from", "to", "points", "unit"]
    assert sum(int(row[3]) for row in bins) == 6
    head, *shares = rows_of("quantiles:sum")
    assert [float(row[1]) for row in shares] == [0.05, 0.25, 0.5, 0.75, 0.95]


def test_combinations_without_a_point_are_named():
    # With y = 5 both sums, 6 and 7, break the limit; with y = 4 only x = 1 obeys it.
    swept = sweep(product, AXES, "along:x", minimize="product", limits={"sum": 5.0})
    assert infeasible_points(swept) == [{"y": 5.0}]
    _, *rows = list(csv.reader(io.StringIO(sweep_csv(swept))))
    assert ["", "5.0", "", ""] in rows
    assert len(rows) == 3


def test_a_table_shows_what_all_points_give():
    table = rows_table(sweep(product, AXES, "count", limits={"sum": 5.0}))
    assert [column.header for column in table.columns] == ["points", "within limits"]
