"""Tables of users: separators, headings, units, choices, and everything that a row can have wrong."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from energymodel.calibration import kinds
from energymodel.calibration.kinds import KINDS
from energymodel.errors import InputError
from energymodel.readers import table
from energymodel.readers.columns import Column, TableChoices
from energymodel.readers.table import read_table

HEADER = "workload,batch,power_limit_w,time_s,power_w"
ROWS = ("a,8,100,20,98", "a,8,150,15,140", "a,8,200,14,180")
CASES = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
TABLES = CASES["tables"]


def written(tmp_path, *lines, encoding="utf-8"):
    file = tmp_path / "m.csv"
    file.write_text("\n".join(lines) + "\n", encoding=encoding)
    return file


def read(tmp_path, *lines, fewest=2, **choices):
    return read_table(written(tmp_path, *lines), kinds.POWER_COLUMNS, TableChoices(**choices), fewest=fewest)


def assert_refused(tmp_path, pattern, *lines, **choices):
    with pytest.raises(InputError, match=pattern) as caught:
        read(tmp_path, *lines, **choices)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_reads_what_a_spreadsheet_of_any_language_saves(tmp_path, kind, separator, encoding):
    """Semicolons or tabs with decimal commas and a byte order mark give what commas with points give."""
    expected = KINDS[kind].table(written(tmp_path, *TABLES[kind]))
    lines = [line.replace(",", separator).replace(".", ",") for line in TABLES[kind]]
    measured = KINDS[kind].table(written(tmp_path, *lines, encoding=encoding))
    assert measured.columns.keys() == expected.columns.keys()
    for name, values in expected.columns.items():
        np.testing.assert_array_equal(measured.columns[name], values, name)


def test_a_right_file_is_read_with_its_lines(tmp_path):
    measured = read(tmp_path, HEADER, ROWS[0], "", HEADER, *ROWS[1:])
    np.testing.assert_array_equal(measured.lines, [2, 5, 6])
    np.testing.assert_array_equal(measured.columns["power_w"], [98.0, 140.0, 180.0])
    assert measured.text("gpu", "?").tolist() == ["?"] * 3
    assert "1 copies of the header" in measured.notes[0]


@pytest.mark.parametrize(("heading", "cell", "name", "value"), CASES["units"])
def test_units_are_read_from_headings_and_cells(tmp_path, heading, cell, name, value):
    others = {column: words for column, words in (("time_s", "20"), ("power_w", "98")) if column != name}
    lines = (",".join((heading, *others)), ",".join((cell, *others.values())))
    assert read(tmp_path, *lines, fewest=1).columns[name][0] == pytest.approx(value, rel=1e-12)


def test_degrees_celsius_become_kelvin(tmp_path):
    columns = (Column("inlet_k", "K", "temperature"),)
    measured = read_table(written(tmp_path, "inlet [°C]", "20", "293.15 K"), columns)
    np.testing.assert_allclose(measured.columns["inlet_k"], 293.15)


def test_columns_of_public_files_are_known_by_their_names_there(tmp_path):
    header = "gpu,dataset,network,batch_size,optimizer,power_limit_w,epoch_time_s,average_power_w,epoch_energy_j"
    rows = [f"{gpu},cifar,net,8,sgd,{limit},20,98,1960" for gpu, limit in (("V100", 1), ("A40", 2), ("V100", 3))]
    measured = read(tmp_path, header, *rows, where={"gpu": "V100"})
    np.testing.assert_array_equal(measured.columns["power_limit_w"], [1.0, 3.0])
    np.testing.assert_array_equal(measured.lines, [2, 4])


def test_choices_of_a_person_hold_for_every_kind(tmp_path):
    lines = ("what,batch,watts used,time_s,power_kw", "a,8,100,20,7", "a,8,x,20,7", "a,8,90,21,7")
    options: dict[str, Any] = {"rename": {"watts used": "power_w", "what": "workload"}, "constants": {"gpu": "A40"}}
    measured = read(tmp_path, *lines, **options, ignore=("power_kw",), skip_bad_rows=True)
    np.testing.assert_array_equal(measured.columns["power_w"], [100.0, 90.0])
    assert measured.columns["gpu"].tolist() == ["A40", "A40"]
    assert measured.notes[-1].startswith("Left out because they cannot be read: 1 of 3 rows. line 3: column")
    assert_refused(tmp_path, 'no column "wat"', *lines, rename={"wat": "power_w"})
    assert_refused(tmp_path, 'unknown column "powr_w". Did you mean "power_w"', *lines, constants={"powr_w": "1"})
    assert_refused(tmp_path, '"power_w" and "power_kw" both mean power_w', f"{HEADER},power_kw", f"{ROWS[0]},1")


@pytest.mark.parametrize(("header", "pattern"), CASES["headers"])
def test_a_wrong_header_is_named(tmp_path, header, pattern):
    assert_refused(tmp_path, pattern, header, "")


def test_a_known_name_with_a_unit_of_something_else_is_told(tmp_path):
    lines = (f"{HEADER},clock_kg,note_b", *(f"{row},7,x" for row in ROWS))
    (note,) = read(tmp_path, *lines).notes
    assert 'Column "clock_kg" is not read: "kg" is no unit of' in note
    assert not read(tmp_path, *lines, ignore=("clock_kg",)).notes


@pytest.mark.parametrize(("row", "pattern"), CASES["rows"])
def test_a_bad_cell_is_named_by_line_and_column(tmp_path, row, pattern):
    assert_refused(tmp_path, pattern, HEADER, ROWS[0], row, ROWS[2])


def test_files_without_rows_and_files_that_are_none(tmp_path, monkeypatch):
    assert_refused(tmp_path, "1 row of measurements; at least 2", HEADER, ROWS[0])
    assert_refused(tmp_path, "0 rows of measurements", HEADER)
    assert_refused(tmp_path, "empty. The first line names the columns", "")
    assert_refused(tmp_path, "no row has workload=b", HEADER, *ROWS, where={"workload": "b"})
    assert_refused(tmp_path, 'no column "worklod". Did you mean "workload"', HEADER, *ROWS, where={"worklod": "a"})
    with pytest.raises(InputError, match="no such file"):
        read_table(tmp_path / "none.csv", kinds.POWER_COLUMNS)
    (tmp_path / "b.csv").write_bytes(b"a\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        read_table(tmp_path / "b.csv", kinds.POWER_COLUMNS)
    monkeypatch.setattr(table, "read_csv", lambda path, where, **_: READ_CSV(path, where, 2))
    assert_refused(tmp_path, "line 4: more than 2 rows", HEADER, *ROWS)


READ_CSV = table.read_csv


def test_a_device_is_named_in_every_row_or_in_none(tmp_path):
    rows = [f"{gpu},{row}" for gpu, row in zip(("A40", "", "A40"), ROWS, strict=True)]
    measured = read(tmp_path, f"gpu,{HEADER}", *rows)
    with pytest.raises(InputError, match=re.escape('line 3, column "gpu": empty. Name the device of every row')):
        kinds.power_case(measured, None)


def test_limits_or_clocks_are_needed_and_more_than_one_of_them(tmp_path):
    with pytest.raises(InputError, match=r'"power_limit_w" \[W\] or "clock_hz" \[Hz\] is missing'):
        kinds.power_case(read(tmp_path, "batch,time_s,power_w", "8,20,98", "16,20,98"), None)
    with pytest.raises(InputError, match="measured at one limit or clock only"):
        kinds.power_case(read(tmp_path, HEADER, "a,8,200,14,180", "a,16,200,13,185"), None)
