"""Efficient points, their hypervolume and knee, weights over the simplex: against counting and closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.search.front import efficient, hypervolume, knee, levels_by_slope, relative_hypervolume, simplex

POINTS = st.lists(st.tuples(*[st.integers(1, 6)] * 3), min_size=1, max_size=12)


@given(POINTS)
@settings(max_examples=50, deadline=None)
def test_efficient_points_are_those_that_no_other_dominates(points):
    values = np.array(points, float)
    mask = efficient(values)
    for index, point in enumerate(points):
        beaten = any(np.all(np.array(p) <= point) and tuple(p) != tuple(point) for p in points)
        again = tuple(point) in [tuple(p) for p in points[:index]]
        assert mask[index] == (not beaten and not again)


@given(POINTS)
@settings(max_examples=50, deadline=None)
def test_hypervolume_counts_dominated_cells(points):
    values, reference = np.array(points, float), np.full(3, 7.0)
    cells = np.stack(np.meshgrid(*[np.arange(1.0, 7.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    dominated = np.any(np.all(values[None] <= cells[:, None], axis=-1), axis=1)
    assert hypervolume(values, reference) == pytest.approx(np.sum(dominated))


def test_hypervolume_of_a_line():
    x = np.linspace(0.0, 1.0, 2001)
    line = np.stack([x, 1.0 - x], axis=1)
    assert hypervolume(line, np.ones(2)) == pytest.approx(0.5, abs=1e-3)
    assert hypervolume(line + 2.0, np.ones(2)) == 0.0
    assert relative_hypervolume(np.exp(line)) == pytest.approx(0.5, abs=1e-3)


def test_knee_of_a_bent_front():
    values = np.exp(np.array([[0.0, 1.0], [0.1, 0.2], [0.5, 0.1], [1.0, 0.0]]))
    assert knee(values) == 1


@pytest.mark.parametrize(("count", "size"), [(2, 2), (10, 3), (30, 4)])
def test_weights_spread_over_the_simplex(count, size):
    weights = simplex(count, size)
    assert len(weights) >= count
    assert weights.min() == 0.0
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert len(np.unique(weights, axis=0)) == len(weights)


def test_levels_are_close_where_a_front_is_steep():
    """Of y = 1/x the density is 1/x, so that levels divide the logarithm evenly; slopes at the ends are guessed."""
    second = np.geomspace(1.0, 8.0, 60)
    slopes = 1.0 / second**2
    slopes[[0, -1]] = np.nan
    levels = levels_by_slope(1.0 / second, second, slopes, 16)
    np.testing.assert_allclose(levels, np.geomspace(1.0, 8.0, 16), rtol=2e-3)


def test_levels_of_a_straight_front_are_even():
    levels = levels_by_slope(np.array([1.0, 0.0]), np.array([2.0, 4.0]), np.full(2, np.nan), 5)
    np.testing.assert_allclose(levels, np.linspace(2.0, 4.0, 5), rtol=1e-6)
