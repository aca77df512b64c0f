"""Ticks are round numbers, units are those a person reads, and pixels follow."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis.strategies import booleans, floats, integers

from energymodel.report.charts.scale import Scale, bounds, measure, read, tick_texts, ticks
from energymodel.report.charts.text_width import shortened, text_width, wrapped


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
    high = low + size
    found = ticks(low, high, count)
    assert len(found) <= count + 1
    assert all(low - 1e-6 * size <= one <= high + 1e-6 * size for one in found)
    gaps = {round((after - before) / size, 9) for before, after in itertools.pairwise(found)}
    assert len(gaps) <= 1 or max(gaps) - min(gaps) < 1e-6


@given(low=floats(1e-9, 1e9), factor=floats(1.01, 1e12), log=booleans(), share=floats(0.0, 1.0))
def test_scale_runs_from_end_to_end(low: float, factor: float, log: bool, share: float):
    scale = Scale(low, low * factor, 10.0, 110.0, log)
    assert scale(low) == pytest.approx(10.0)
    assert scale(low * factor) == pytest.approx(110.0)
    middle = low * factor**share if log else low + share * (low * factor - low)
    assert scale(middle) == pytest.approx(10.0 + 100.0 * share, abs=1e-3)
    assert scale(2.0 * low * factor) == pytest.approx(110.0)


def test_units_are_those_that_a_person_reads():
    assert measure([3.6e12, 9e13], "J").word == "GWh"
    assert measure([0.1, 0.4], "%").shown(0.4) == pytest.approx(40.0)
    celsius = measure([300.0, 320.0], "K")
    assert celsius.word == "°C"
    assert celsius.shown(293.15) == pytest.approx(20.0)
    assert measure([5.0], "K", difference=True).word == "K"
    assert measure([5.0], "1").word == ""
    assert read(0.123, "%") == "12.3 %"
    assert read(16384.0, "1", digits=5) == "16,384"


def test_bounds_of_what_is_no_number():
    assert bounds([math.nan, math.inf]) == (0.0, 1.0)
    assert bounds([0.0, -1.0], log=True) == (1.0, 10.0)
    assert bounds([3.0], zero=True)[0] == 0.0


def test_widths_of_letters():
    # Helvetica's metrics: W 944, i 222, a 556 thousandths
    assert text_width("Wia", 10.0) == pytest.approx(1.06 * (9.44 + 2.22 + 5.56))


@given(width=floats(20.0, 300.0))
def test_shortened_text_fits(width: float):
    words = "communication and computation overlap"
    assert text_width(shortened(words, width)) <= width
    assert all(text_width(one) <= width for one in wrapped(words, width))
