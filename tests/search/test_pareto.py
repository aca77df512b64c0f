"""Fronts: efficient points, knees and levels against counting and closed forms; plans of the small test run."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import energymodel as em
from energymodel.scenarios.checks import check_fit, check_plan
from energymodel.search.result import efficient, knee, levels_by_slope, simplex
from energymodel.system.evaluate import evaluate_once

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


@pytest.mark.parametrize(("low", "high"), [(-1.0, 2.0), (-0.2, 2.0), (-1.0, 0.1), (-30.0, 0.1)])
@pytest.mark.parametrize("units", [(1.0, 1.0), (3.6e12, 86400.0)])
def test_the_knee_depends_neither_on_the_ends_of_a_front_nor_on_units(low, high, units):
    """1 % more of the second objective saves 0.8 % of the first before the bend at x = 1, and 0.1 % after it."""
    logarithms = np.sort(np.append(np.linspace(low, high, 60), 0.0))
    first = np.where(logarithms < 0.0, -0.8, -0.1) * logarithms
    values = np.exp(np.stack([first, logarithms], axis=1)) * units
    assert logarithms[knee(values)] == 0.0


def test_knee_of_fronts_without_a_bend_or_with_more_objectives():
    assert knee(np.array([[2.0, 3.0]])) == 0
    assert knee(np.array([[2.0, 3.0], [1.0, 4.0]])) in (0, 1)
    assert knee(np.array([[1.0, 8.0, 3.0], [2.0, 3.0, 3.0], [4.0, 2.0, 3.0]])) == 1  # products 24, 18, 24


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


@pytest.fixture(scope="module")
def scenario():
    return em.load_scenario("test-1b-h100")


@pytest.fixture(scope="module")
def front(scenario, room):
    return em.pareto(scenario, ("energy", "time"), points=24)


def test_plans_are_realizable_and_are_what_evaluate_says(scenario, front):
    assert front.success, front.message
    assert len(front.points) >= 8
    with jax.enable_x64(True):
        for point in front.points[::4]:
            check_plan(scenario.system, point.plan)
            check_fit(scenario.system, float(point.outcome.memory_per_chip), float(point.outcome.out_of_memory))
            outcome = evaluate_once(scenario.system, point.plan)
            np.testing.assert_allclose(np.asarray(outcome.energy.total), point.values["energy"], rtol=1e-9)
            np.testing.assert_allclose(float(outcome.time), point.values["time"], rtol=1e-9)
            np.testing.assert_allclose(float(outcome.loss), float(evaluate_once(scenario.system, scenario.plan).loss))


def test_a_single_layout_has_a_front(scenario, front, room):
    degrees = tuple(f"plan.layout.{field.name}" for field in dataclasses.fields(scenario.plan.layout))
    alone = em.pareto(scenario, ("energy", "time"), points=6, fix=degrees)
    assert alone.success, alone.message
    assert alone.layouts_considered == alone.layouts_searched == 1
    assert alone.table()[:, 0].min() >= front.table()[:, 0].min() * (1.0 - 1e-4)


def test_no_plan_dominates_another(front):
    values = front.table()
    assert efficient(values).all()
    assert np.all(np.diff(values[:, 1]) > 0.0)
    assert np.all(np.diff(values[:, 0]) < 0.0)


def test_ends_are_the_single_optima(scenario, front):
    fastest = em.optimize(scenario, minimize="time", tolerance=0.0)
    np.testing.assert_allclose(front.points[0].values["time"], fastest.value, rtol=2e-3)
    middle = front.points[len(front.points) // 2]
    best = em.optimize(scenario, limits={"time": middle.values["time"]}, tolerance=0.0)
    np.testing.assert_allclose(middle.values["energy"], best.value, rtol=1e-4)


def test_every_plan_has_an_exchange_rate(front):
    # No level of an efficient front is free, also where its own lane stands still at a kink.
    assert all(point.exchange["time"] > 1e-4 for point in front.points)


def test_exchange_rates_are_slopes_where_the_layout_stays(front):
    logs, checked = np.log(front.table()), 0
    for left, mid, right in zip(range(len(logs) - 2), range(1, len(logs) - 1), range(2, len(logs)), strict=True):
        layouts = {tuple(map(float, jax.tree.leaves(front.points[k].plan.layout))) for k in (left, mid, right)}
        chips = {float(front.points[k].plan.chips) for k in (left, mid, right)}
        batches = {float(front.points[k].plan.batch[0]) for k in (left, mid, right)}
        if len(layouts) == len(chips) == len(batches) == 1:
            before, after = (
                -(logs[b, 0] - logs[a, 0]) / (logs[b, 1] - logs[a, 1]) for a, b in ((left, mid), (mid, right))
            )
            exchange = front.points[mid].exchange["time"]  # a convex front lies between its chords
            assert 0.98 * after - 0.005 <= exchange <= 1.02 * before + 0.005
            checked += 1
    assert checked > 0


@pytest.mark.slow
@pytest.mark.parametrize("minimize", [("energy", "time"), ("money", "time")])
def test_the_front_of_405b_has_the_layouts_that_optimize_finds(minimize):
    scenario = em.load_scenario("llama-3.1-405b-h100")
    front = em.pareto(scenario, minimize, points=12)
    assert front.success, front.message
    assert all(point.exchange[minimize[1]] > 1e-4 for point in front.points)
    for point in front.points[:: len(front.points) // 3]:
        limits = {minimize[1]: point.values[minimize[1]] * (1.0 + 1e-6)}
        best = em.optimize(scenario, minimize[0], limits=limits, tolerance=0.0)
        # `optimize` looks at more counts around its best plan, which finds 0.1 % less energy here.
        np.testing.assert_allclose(point.values[minimize[0]], best.value, rtol=2e-3)


@pytest.mark.slow
def test_three_objectives(scenario):
    front = em.pareto(scenario, ("energy", "time", "money"), points=10)
    assert front.success, front.message
    assert efficient(front.table()).all()
    assert len(front.points) >= 5
    assert set(front.points[0].exchange) == {"time", "money"}


@pytest.mark.slow
def test_loss_as_an_objective(scenario):
    front = em.pareto(scenario, ("energy", "loss"), points=6, limits={"time": "30 hours"})
    values = front.table()
    assert np.all(np.diff(values[:, 0]) < 0.0)
    assert max(float(point.outcome.time) for point in front.points) <= 30 * 3600 * (1 + 1e-6)


@pytest.mark.parametrize(
    ("minimize", "word"),
    [
        (("energy",), "two or more"),
        (("energy", "energy"), "two or more"),
        (("energy", "tme"), "Unknown objective"),
        (("energy", "mfu"), "more of it is better"),
    ],
)
def test_bad_objectives_are_refused(scenario, minimize, word):
    with pytest.raises(em.InputError, match=word):
        em.pareto(scenario, minimize)
    with pytest.raises(em.InputError, match="no front"):
        em.pareto(scenario, points=1)
