"""Tables of users: separators, headings, units, choices, and everything that a row can have wrong."""

import re
from typing import Any

import numpy as np
import pytest

from energymodel.calibration import kinds
from energymodel.calibration.kinds import KINDS
from energymodel.errors import InputError
from energymodel.readers import table
from energymodel.readers.columns import Column, TableChoices
from energymodel.readers.table import read_table

HEADER = "workload,batch,power_limit_w,time_s,power_w"
ROWS = ("a,8,100,20,98", "a,8,150,15,140", "a,8,200,14,180")
TABLES = {
    "power": (HEADER, *ROWS),
    "loss": ("params_n,tokens,loss,note", "1e9,2.5e10,2.5,x", "2e9,5.5e10,2.25,y"),
    "batch": ("benchmark,global_batch_size,steps", "a,64,1200.5", "a,128,700"),
    "node": ("system,node_power_w,min_power_w,cooling", "1x,7000.5,2900,air", "2x,7200,-43.5,air"),
    "step-time": (
        "num_layers,hidden_size,num_heads,vocab_size,seq_len,n_gpu,global_batch_size,tp,gpu,step_time_s",
        "24,2048,16,51200,2048,8,64,2,H100-SXM5-80GB,1.5",
        "24,2048,16,51200,2048,8,64,4,H100-SXM5-80GB,1.625",
    ),
}


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


@pytest.mark.parametrize(
    ("heading", "cell", "name", "value"),
    [
        ("power [W]", "98", "power_w", 98.0),
        ("Power (kW)", "0.5", "power_w", 500.0),
        ("power_kw", "0.5", "power_w", 500.0),
        ("average-power_mW", "98000", "power_w", 98.0),
        ("power.draw [W]", "98.5 W", "power_w", 98.5),
        ("power_w", "0.5 kW", "power_w", 500.0),
        ("time_ms", "1500", "time_s", 1.5),
        ("epoch time [min]", "2", "time_s", 120.0),
        ("clock_mhz", "1410", "clock_hz", 1.41e9),
        ("batch_thousands", "2", "batch", 2000.0),
    ],
)
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


@pytest.mark.parametrize(
    ("header", "pattern"),
    [
        ("workload,batch,time_s", r'line 1: column "power_w" is missing: mean power of the device \[W\]'),
        ("workload,time_s,power_kg,power_w2", 'column "power_w" is missing'),
        ("workload,time_s,power_ghz", 'column "power_ghz" has the unit "ghz".*call it "power_w"'),
        ("batch,batch,time_s", 'column "batch" appears twice'),
    ],
)
def test_a_wrong_header_is_named(tmp_path, header, pattern):
    assert_refused(tmp_path, pattern, header, "")


def test_a_known_name_with_a_unit_of_something_else_is_told(tmp_path):
    lines = (f"{HEADER},clock_kg,note_b", *(f"{row},7,x" for row in ROWS))
    (note,) = read(tmp_path, *lines).notes
    assert 'Column "clock_kg" is not read: "kg" is no unit of' in note
    assert not read(tmp_path, *lines, ignore=("clock_kg",)).notes


@pytest.mark.parametrize(
    ("row", "pattern"),
    [
        ("a,8,150,fast,140", "line 3, column \"time_s\": 'fast' is not a number"),
        ("a,8,150,15 kg,140", "line 3, column \"time_s\": '15 kg' is not a number.*without a unit"),
        ("a,8,150,nan,140", 'line 3, column "time_s": nan is not finite'),
        ("a,8,150,inf,140", 'line 3, column "time_s": inf is not finite'),
        ("a,8,150,-1,140", 'line 3, column "time_s": -1 s cannot be'),
        ("a,8,150,15", "line 3: 4 cells under 5 columns"),
    ],
)
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
