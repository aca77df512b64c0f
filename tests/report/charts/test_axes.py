"""Ticks are round numbers, units are those a person reads, pixels follow, and text fits."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis.strategies import booleans, floats, integers

from energymodel.report.cells import Column
from energymodel.report.charts.axes import Axis, bounds, tick_texts, ticks
from energymodel.report.charts.words import shortened, text_width, wrapped

ENERGY = Column("energy", "energy", "J")


def test_ticks_by_hand():
    assert ticks(0.0, 10.0, 5) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert ticks(0.0, 1.0, 4) == [0.0, 0.5, 1.0]
    assert ticks(1.0, 1000.0, 4, log=True) == [1.0, 10.0, 100.0, 1000.0]
    assert ticks(1.0, 100.0, 8, log=True) == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]


def test_words_of_ticks():
    assert tick_texts([0.0, 0.5, 1.0]) == ["0.0", "0.5", "1.0"]
    assert tick_texts([0.0, 0.25, 0.5]) == ["0.00", "0.25", "0.50"]
    assert tick_texts([10_000.0, 20_000.0]) == ["10,000", "20,000"]
    assert tick_texts([0.1, 1.0, 10.0, 100.0]) == ["0.1", "1", "10", "100"]
    assert tick_texts([1e6, 1e7]) == ["10⁶", "10⁷"]


@given(low=floats(-1e6, 1e6), size=floats(1.0, 1e12), count=integers(1, 12))
def test_ticks_are_round_and_inside(low: float, size: float, count: int):
    numbers = ticks(low, low + size, count)
    assert len(numbers) <= count + 1
    assert all(low - 1e-6 * size <= value <= low + (1.0 + 1e-6) * size for value in numbers)
    gaps = {round((after - before) / size, 9) for before, after in itertools.pairwise(numbers)}
    assert len(gaps) <= 1 or max(gaps) - min(gaps) < 1e-6


@given(low=floats(1e-9, 1e9), factor=floats(1.01, 1e12), log=booleans(), share=floats(0.0, 1.0))
def test_an_axis_runs_from_end_to_end(low: float, factor: float, log: bool, share: float):
    axis = Axis("energy", ENERGY, low, low * factor, log, 10.0, 110.0)
    assert axis(low) == pytest.approx(10.0)
    assert axis(low * factor) == pytest.approx(110.0)
    middle = low * factor**share if log else low + share * (low * factor - low)
    assert axis(middle) == pytest.approx(10.0 + 100.0 * share, abs=1e-3)
    assert axis(2.0 * low * factor) == pytest.approx(110.0)


def test_units_are_those_that_a_person_reads():
    assert Axis("energy", ENERGY, 3.6e12, 9e13).name == "energy [GWh]"
    share = Axis("", Column("", "", kind="share"), 0.1, 0.4, start=0.0, end=30.0)
    assert share.ticks(3) == (pytest.approx([0.0, 10.0, 20.0, 30.0]), ["10", "20", "30", "40"])
    celsius = Axis("", Column("", "", "K", "temperature"), 293.15, 313.15, start=0.0, end=20.0)
    assert celsius.name == "°C"
    assert celsius.ticks(2) == (pytest.approx([0.0, 10.0, 20.0]), ["20", "30", "40"])
    assert Axis("", Column("", "", "K", "difference"), 0.0, 5.0).name == "K"
    assert Axis("plans", Column("", ""), 0.0, 5.0).name == "plans"
    assert Axis("energy", ENERGY, 1e-12, 1e8, log=True).name == "energy [J]"  # no prefix fits all


def test_bounds_of_what_is_no_number():
    assert bounds([math.nan, math.inf]) == (0.0, 1.0)
    assert bounds([0.0, -1.0], log=True) == (1.0, 10.0)
    assert bounds([3.0], zero=True)[0] == 0.0
    assert bounds([0.0], zero=True) == (0.0, 0.5)


def test_widths_of_letters():
    # Helvetica's metrics: W 944, i 222, a 556 thousandths
    assert text_width("Wia", 10.0) == pytest.approx(1.06 * (9.44 + 2.22 + 5.56))


@given(width=floats(20.0, 300.0))
def test_shortened_text_fits(width: float):
    words = "communication and computation overlap"
    assert text_width(shortened(words, width)) <= width
    assert all(text_width(line) <= width for line in wrapped(words, width))
