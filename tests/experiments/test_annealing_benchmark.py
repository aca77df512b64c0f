"""Annealing on landscapes whose minimum is known: neighbors, success, and what it must refuse."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "design" / "annealing.py"
SPEC = importlib.util.spec_from_file_location("annealing", FILE)
assert SPEC is not None
assert SPEC.loader is not None
BENCHMARK = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(BENCHMARK)
anneal, neighbors = BENCHMARK.anneal, BENCHMARK.neighbors


def grid(size):
    axis = np.arange(float(size))
    return np.stack(np.meshgrid(axis, axis, [7.0], indexing="ij"), axis=-1).reshape(-1, 3)


def test_neighbors_are_one_step_away_and_skip_holes():
    coordinates = grid(5)
    moves = neighbors(coordinates)
    assert moves.shape == (25, 4)
    steps = np.abs(coordinates[moves] - coordinates[:, None]).sum(axis=-1)
    assert set(np.unique(steps)) == {0.0, 1.0}
    assert np.sum(steps[12] == 1.0) == 4  # the middle
    assert np.sum(steps[0] == 1.0) == 2  # a corner
    coordinates = np.array([[0.0, 1.0], [1.0, 1.0], [4.0, 1.0], [1.0, 2.0]])
    assert set(neighbors(coordinates)[1]) == {0, 2, 3, 1}


@pytest.mark.parametrize("method", ["simulated", "path-integral"])
def test_rugged_bowl_is_solved_by_most_walkers(method):
    coordinates = grid(24)
    x, y = coordinates[:, 0] - 17.0, coordinates[:, 1] - 5.0
    costs = 0.02 * (x**2 + y**2) + np.sin(1.9 * x) ** 2 + np.sin(1.7 * y) ** 2
    result = anneal(costs, neighbors(coordinates), steps=4000, method=method, seed=1)
    assert np.mean(result.cost == costs.min()) > 0.5
    np.testing.assert_array_equal(result.cost, costs[result.position])
    assert result.asked.max() <= len(costs)
    early = anneal(costs, neighbors(coordinates), steps=40, method=method, seed=1)
    assert np.mean(early.cost) > np.mean(result.cost)


def test_single_place_and_bad_costs():
    assert anneal(np.array([3.0]), neighbors(np.zeros((1, 2))), steps=3).position.tolist() == [0] * 64
    with pytest.raises(ValueError, match="not finite"):
        anneal(np.array([1.0, np.inf]), np.array([[1], [0]]), steps=3)
