"""Is every way in which a CSV file can be wrong answered by file, line and column, and is a right one read?"""

import re

import numpy as np
import pytest

from energymodel.calibration import kinds, measurements
from energymodel.calibration.measurements import read_measurements
from energymodel.errors import InputError

HEADER = "workload,batch,power_limit_w,time_s,power_w"
ROWS = ("a,8,100,20,98", "a,8,150,15,140", "a,8,200,14,180")


def read(tmp_path, *lines, **options):
    file = tmp_path / "m.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_measurements(file, kinds.POWER_COLUMNS, **options)


def assert_refused(tmp_path, pattern, *lines, **options):
    with pytest.raises(InputError, match=pattern) as caught:
        read(tmp_path, *lines, **options)
    assert "\n" not in str(caught.value)


def test_a_right_file_is_read_with_its_lines(tmp_path):
    table = read(tmp_path, HEADER, ROWS[0], "", *ROWS[1:])
    np.testing.assert_array_equal(table.lines, [2, 4, 5])
    np.testing.assert_array_equal(table.columns["power_w"], [98.0, 140.0, 180.0])
    assert table.text("gpu", "?").tolist() == ["?"] * 3


def test_columns_of_public_files_are_known_by_their_names_there(tmp_path):
    header = "gpu,dataset,network,batch_size,optimizer,power_limit_w,epoch_time_s,average_power_w,epoch_energy_j"
    table = read(
        tmp_path,
        header,
        "V100,cifar,net,8,sgd,100,20,98,1960",
        "A40,cifar,net,8,sgd,100,20,98,1960",
        "V100,cifar,net,8,sgd,200,15,150,2250",
        where={"gpu": "V100"},
    )
    np.testing.assert_array_equal(table.columns["time_s"], [20.0, 15.0])
    np.testing.assert_array_equal(table.lines, [2, 4])


def test_a_missing_column_is_named_with_its_unit(tmp_path):
    assert_refused(
        tmp_path,
        r'm.csv, line 1: column "power_w" is missing: mean power of the device \[W\]',
        "workload,batch,power_limit_w,time_s",
        "a,8,100,20",
    )


def test_a_wrong_unit_suffix_is_told_from_a_missing_column(tmp_path):
    assert_refused(
        tmp_path,
        r'line 1: column "power_kw" has the unit "kw".*call it "power_w"',
        "workload,batch,power_limit_w,time_s,power_kw",
        "a,8,100,20,0.1",
    )


@pytest.mark.parametrize(
    ("row", "pattern"),
    [
        ("a,8,150,fast,140", "line 3, column \"time_s\": 'fast' is not a number"),
        ("a,8,150,15 s,140", "line 3, column \"time_s\": '15 s' is not a number.*without a unit"),
        ("a,8,150,nan,140", 'line 3, column "time_s": nan is not finite'),
        ("a,8,150,inf,140", 'line 3, column "time_s": inf is not finite'),
        ("a,8,150,-1,140", 'line 3, column "time_s": -1 s cannot be'),
        ("a,8,150,15", "line 3: 4 cells under 5 columns"),
    ],
)
def test_a_bad_cell_is_named_by_line_and_column(tmp_path, row, pattern):
    assert_refused(tmp_path, pattern, HEADER, ROWS[0], row, ROWS[2])


def test_one_row_no_row_and_no_file(tmp_path):
    assert_refused(tmp_path, "1 row of measurements; at least 2", HEADER, ROWS[0])
    assert_refused(tmp_path, "0 rows of measurements", HEADER)
    assert_refused(tmp_path, "empty. The first line names the columns: time_s, power_w", "")
    with pytest.raises(InputError, match="no such file"):
        read_measurements(tmp_path / "none.csv", kinds.POWER_COLUMNS)


def test_too_many_rows_end_the_reading_early(tmp_path, monkeypatch):
    monkeypatch.setattr(measurements, "MOST_ROWS", 2)
    assert_refused(tmp_path, "line 4: more than 2 rows", HEADER, *ROWS)


def test_a_column_that_stands_twice_and_binary_files(tmp_path):
    assert_refused(tmp_path, 'column "batch" stands there twice', HEADER + ",batch", ROWS[0] + ",8")
    file = tmp_path / "b.csv"
    file.write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(InputError, match="not a text file"):
        read_measurements(file, kinds.POWER_COLUMNS)


def test_rows_are_chosen_by_words_that_exist(tmp_path):
    assert_refused(tmp_path, "no row has workload=b", HEADER, *ROWS, where={"workload": "b"})
    assert_refused(
        tmp_path,
        'no column "worklod" to choose rows by. Did you mean "workload"',
        HEADER,
        *ROWS,
        where={"worklod": "a"},
    )


def test_a_device_is_named_in_every_row_or_in_none(tmp_path):
    named = [f"{gpu},{row}" for gpu, row in zip(("A40", "", "A40"), ROWS, strict=True)]
    table = read(tmp_path, f"gpu,{HEADER}", *named)
    with pytest.raises(InputError, match=re.escape('line 3, column "gpu": empty. Name the device of every row')):
        kinds.power_case(table, None)


def test_limits_or_clocks_are_needed_and_more_than_one_of_them(tmp_path):
    with pytest.raises(InputError, match=r'"power_limit_w" \[W\] or "clock_hz" \[Hz\] is missing'):
        kinds.power_case(read(tmp_path, "batch,time_s,power_w", "8,20,98", "16,20,98"), None)
    with pytest.raises(InputError, match="measured at one limit or clock only"):
        kinds.power_case(read(tmp_path, HEADER, "a,8,200,14,180", "a,16,200,13,185"), None)
