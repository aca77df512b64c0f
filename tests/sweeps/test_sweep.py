"""The sweep against brute force in NumPy, whatever the axes, chunks, tiles and their order."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import energymodel as em
from energymodel.errors import InputError
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.engines import in_process
from energymodel.sweeps.grid import cheapest_order, costs_by_axes, divide
from energymodel.sweeps.sweep import prepare_sweep
from sweeps.sweep_models import LIMITS, axes, everywhere, sweep_model

SIZES = (7, 5, 9, 6)


def brute_force(grid_axes, count):
    """Indices of the best points in float64, best first, and their energies."""
    outputs, feasible = everywhere(grid_axes)
    masked = np.where(feasible, outputs["energy"], np.inf)
    best = np.argsort(masked, axis=None, kind="stable")[:count]
    return list(zip(*map(list, np.unravel_index(best, masked.shape)), strict=True)), masked.ravel()[best]


@pytest.mark.parametrize(("chunk", "tile"), [(2**18, None), (54, 54), (31, 1000)])
def test_top_equals_brute_force(chunk, tile):
    grid_axes = axes(*SIZES)
    swept = em.sweep(sweep_model, grid_axes, "top:5", minimize="energy", limits=LIMITS, chunk=chunk, tile=tile)
    indices, values = brute_force(grid_axes, 5)
    assert [winner.index for winner in swept.winners] == indices
    np.testing.assert_allclose([winner.value for winner in swept.winners], values, rtol=1e-12)
    assert swept.complete
    assert swept.points == np.prod(SIZES)


@pytest.mark.parametrize("order", list(itertools.permutations(("batch", "clock", "nodes", "voltage")))[::8])
def test_order_of_axes_does_not_matter(order):
    grid_axes = axes(*SIZES)
    swept = em.sweep(sweep_model, grid_axes, minimize="energy", limits=LIMITS, order=order, chunk=64, tile=128)
    assert swept.best.index == brute_force(grid_axes, 1)[0][0]


def test_an_infeasible_grid_and_a_single_point():
    swept = em.sweep(sweep_model, axes(2, 2, 2, 2), minimize="energy", limits={"time": 1e-30})
    assert swept.winners == ()
    with pytest.raises(InputError, match="No point obeys all limits"):
        _ = swept.best
    assert em.sweep(sweep_model, axes(1, 1, 1, 1), minimize="energy").best.index == (0, 0, 0, 0)


def test_nan_is_no_value():
    def model(x):
        return {"y": jnp.where(x > 2.5, jnp.nan, -x)}

    swept = em.sweep(model, [Axis.of("x", range(5))], minimize="y")
    assert swept.best.point == {"x": 2.0}


def test_infinite_values_are_no_values():
    for keep in ("best", "pareto:y,z", "along:x"):
        swept = em.sweep(
            lambda x: {"y": jnp.where(x < 2.0, -jnp.inf, x), "z": 0.0 * x}, {"x": "0:4:5"}, keep, minimize="y"
        )
        assert swept.winners[0].point == {"x": 2.0}
    large: Any = (lambda x: {"y": x * 1e30}, {"x": "1e20:1e21:3"})
    swept = em.sweep(*large, minimize="y")
    assert swept.winners == ()
    assert "need precision 64" in swept.message
    assert em.sweep(*large, minimize="y", precision=64).best.value == 1e50


@pytest.mark.parametrize("keep", ["count", "full:energy"])
def test_interrupted_sweep_keeps_what_it_has(keep):
    def interrupted(tiles, numbers):
        for number in (0, 3, 4, 6):
            yield number, tiles.run(number)
        raise KeyboardInterrupt

    prepared = prepare_sweep(sweep_model, axes(*SIZES), keep, None, LIMITS, chunk=30, tile=60)
    part = prepared.run(engine=interrupted)
    assert not part.complete
    assert f"interrupted after {part.points} of" in part.message
    if keep == "count":
        assert part.result == sum(int(prepared.program.run(number)) for number in (0, 3, 4, 6))
        return
    finite = np.isfinite(part.result["energy"])
    np.testing.assert_array_equal(part.result["energy"][finite], prepared.run().result["energy"][finite])
    assert 0 < finite.sum() <= part.points


def test_limits_have_two_sides():
    swept = em.sweep(lambda x: {"y": x, "z": x}, {"x": "0:9:10"}, minimize="y", limits={"z": (3.5, 8.0)})
    assert swept.best.point == {"x": 4.0}


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), chunk=st.integers(1, 40), tile=st.integers(1, 200))
@settings(max_examples=25, deadline=None)
def test_grid_covers_every_point_once(sizes, chunk, tile):
    grid = divide([Axis.of(f"x{i}", range(size)) for i, size in enumerate(sizes)], chunk, tile)
    indices = []
    for number in range(grid.chunks):
        start = (number % grid.blocks) * grid.block
        valid = np.broadcast_to(True if grid.valid(start) is None else np.asarray(grid.valid(start)), grid.shape)
        indices += [grid.index(number, point) for point in np.flatnonzero(valid).tolist()]
    assert indices == list(itertools.product(*(range(size) for size in sizes)))
    assert sum(grid.points_of_tile(number) for number in range(grid.tiles)) == grid.points
    assert grid.volume <= max(chunk, 1)


def test_costs_are_known_by_axis():
    def model(a, b, c):
        return jnp.exp(a) * b + jnp.sin(jnp.exp(c)) * 0.0 + jnp.where(b > 0, c, 0.0)

    costs = costs_by_axes(model, (1.0, 1.0, 1.0))
    assert costs[frozenset({0})] == 10.0
    assert costs[frozenset({0, 1})] == 1.0


def test_costly_operations_go_outside():
    # Axis 0 and 1 share a costly part; a chunk that holds all of 2 and 3 evaluates it least often.
    order = cheapest_order({frozenset({0, 1}): 1000.0, frozenset({0, 1, 2, 3}): 10.0}, (10, 10, 10, 10), 100)
    assert set(order[:2]) == {0, 1}
    # A long axis comes last even if a costly part depends on it: only whole rows fill vector registers.
    assert cheapest_order({frozenset({0, 1}): 1000.0, frozenset({0, 1, 2}): 10.0}, (64, 5, 8), 600) == (1, 2, 0)


def test_tiles_do_not_depend_on_the_order_in_which_they_run():
    program = prepare_sweep(sweep_model, axes(*SIZES), "top:3", "energy", LIMITS, chunk=30, tile=60).program
    tiles = dict(in_process(program, range(program.grid.tiles)))
    for number in (3, 0, 2):
        for left, right in zip(tiles[number], program.run(number), strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keep": "worst"}, 'unknown "worst"'),
        ({"keep": "top:x"}, "no number of points"),
        ({"minimize": None}, "which output"),
        ({"order": ["x", "z"]}, "are not the axes"),
        ({"precision": 16}, "neither 32 nor 64"),
        ({"limits": {"y": "much"}}, "limit y"),
    ],
)
def test_bad_input_is_named(changes, words):
    arguments = {"keep": "best", "minimize": "y", **changes}
    with pytest.raises(InputError, match=words):
        em.sweep(lambda x: {"y": x}, {"x": "0:1:2"}, **arguments)
