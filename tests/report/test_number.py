"""Digits, units and intervals of numbers as people read them."""

import pytest

from energymodel.report.answer import Sentence
from energymodel.report.cells import Column, Quantity
from energymodel.report.number import interval, layout_of_column, plain, sentence, text

GWH = 3.6e12
JOULE = Column("energy", "energy", "J")


@pytest.mark.parametrize(
    ("value", "half_width", "words"),
    [
        (26.18, 4.5, "26 GWh"),
        (26.18, 0.7, "26.2 GWh"),
        (6.1, 4.9, "6 GWh"),
        (26.18, 0.001, "26.18 GWh"),
        (26.18, 0.0, "26.18 GWh"),
        (30.0, 1.0, "30.0 GWh"),
        (0.973, 1.05, "1.0 GWh"),
    ],
)
def test_the_last_digit_is_worth_at_most_half_of_half_the_interval(value, half_width, words):
    cell = Quantity(value * GWH, (value - half_width) * GWH, (value + half_width) * GWH)
    assert text(cell, JOULE) == words


def test_a_number_and_its_interval():
    energy = {"energy": (JOULE, Quantity(26.18 * GWH, 22.1 * GWH, 31.2 * GWH))}
    assert sentence(Sentence("It takes {energy:i}.", energy)) == "It takes 26 GWh (90 %: 22 to 31)."
    assert sentence(Sentence("{energy}, {other}", energy)) == "26 GWh, {other}"
    assert text(Quantity(5.84e6, 5.7e6, 6.0e6), Column("", "", "s")) == "67.6 days"
    assert interval(Quantity(5.84e6, 5.7e6, 6.0e6), Column("", "", "s")) == "66.0 to 69.4"
    assert (text(Quantity(5.0, 5.0, 5.0), Column("", "", "W")), interval(Quantity(5.0), Column("", "", "W"))) == (
        "5 W",
        "",
    )


@pytest.mark.parametrize(
    ("kind", "unit", "value", "ends", "words", "between"),
    [
        ("temperature", "K", 347.21, (333.2, 361.9), "74 °C", "60 to 89"),
        ("temperature", "K", 351.65, (None, None), "78.5 °C", ""),
        ("difference", "K", 12.3, (8.0, 16.0), "12 K", "8 to 16"),
        ("share", "1", 0.3871, (0.329, 0.461), "39 %", "33 to 46"),
        ("share", "1", 0.41, (None, None), "41.0 %", ""),
        ("hours", "s", 3600.0 * 32443992.0, (3600.0 * 26.8e6, 3600.0 * 39.3e6), "32 million h", "27 to 39"),
        ("amount", "kg", 11.94e6, (9.1e6, 15.6e6), "12 kt", "9 to 16"),
        ("count", "1", 929832.4, (929832.4, 929832.4), "929,832", ""),
        ("amount", "1", 16384.0, (None, None), "16,384", ""),
        ("amount", "1", 1.36919, (None, None), "1.369", ""),
        ("amount", "1", 1.791e20, (None, None), "1.791e20", ""),
        ("amount", "token/J", 0.1157405, (None, None), "0.1157 token/J", ""),
        ("amount", "1/s", 12.0, (None, None), "12 per s", ""),
        ("amount", "nat/token", float("nan"), (None, None), "nan", ""),
        ("change", "1", -0.0687, (-0.11, -0.03), "-7 %", "-11 to -3"),
        ("change", "1", 0.612, (0.31, 0.91), "+60 %", "30 to 90"),
        ("change", "1", -0.108, (None, None), "-11 %", ""),
        ("change", "1", 0.0, (None, None), "0.0 %", ""),
    ],
)
def test_numbers_are_read_in_their_usual_units(kind, unit, value, ends, words, between):
    column, cell = Column("", "", unit, kind), Quantity(value, *ends)
    assert (text(cell, column), interval(cell, column)) == (words, between)


def test_a_number_of_unknown_uncertainty_has_two_digits():
    assert text(Quantity(26.18 * GWH), Column("", "", "J", digits="two")) == "26 GWh"


def test_rows_with_a_common_error_stay_apart():
    column = Column("", "", "J", digits="rows")
    cells = [Quantity(value * 3.6e6, 0.8 * value * 3.6e6, 1.2 * value * 3.6e6) for value in (141.5, 139.9, 138.2)]
    layout = layout_of_column(cells, column)
    assert [text(cell, column, layout) for cell in cells] == ["141.5 kWh", "139.9 kWh", "138.2 kWh"]
    assert not any(interval(cell, column, layout) for cell in cells)


def test_a_prior_has_a_mark():
    assert text(Quantity(8.0, prior="not disclosed"), Column("", "")) == "8 †"
    assert plain(1.464e9, "Hz") == "1.464 GHz"


def test_a_step_time_has_three_digits_and_the_interval_its_own():
    column, cell = Column("step_time", unit="s", digits="three"), Quantity(15.83, 11.2, 22.4)
    assert (text(cell, column), interval(cell, column)) == ("15.8 s", "11 to 22")
    assert text(Quantity(15.83, 15.82, 15.84), column) == "15.83 s"
