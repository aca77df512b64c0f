"""What tiles know of a sample of the grid makes them faster, and changes nothing."""

import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.sweeps.axes import Axis
from energymodel.sweeps.pareto import FrontState, Pareto, efficient
from energymodel.sweeps.prepared_sweep import OrderedMerge
from energymodel.sweeps.reductions import AbstractPointReduction
from energymodel.sweeps.sweep import prepare_sweep
from energymodel.sweeps.tile_program import TileProgram
from sweeps.sweep_models import LIMITS, axes, everywhere, sweep_model


def front(monkeypatch, model, grid_axes, keep, *, hints, limits=None, order=None):
    """Indices of the points that the scan keeps."""
    with monkeypatch.context() as patch:
        if not hints:
            patch.setattr(TileProgram, "hint", TileProgram.no_hint)
        program = prepare_sweep(model, grid_axes, keep, limits=limits, order=order, chunk=60, tile=240).program
        merged = OrderedMerge(program.reduction)
        for number in range(program.grid.tiles):
            merged.add(number, program.run(number))
        if hints and program.hint() is not None:
            assert np.any(np.asarray(program.hint()) != np.asarray(program.no_hint()))
        assert isinstance(program.reduction, AbstractPointReduction)
        return program.reduction.kept_points(merged.finish(), program.grid).indices


@pytest.mark.parametrize("keep", ["bins:energy,time", "pareto:energy,time", "pareto:energy,time,power"])
def test_hints_change_no_point(monkeypatch, keep):
    # Sizes that divide neither chunks nor tiles leave padding.
    found = [
        front(monkeypatch, sweep_model, axes(13, 9, 11, 10), keep, hints=hints, limits=LIMITS)
        for hints in (True, False)
    ]
    assert len(found[0]) > 5
    assert sorted(found[0]) == sorted(found[1])


def test_of_equal_points_the_first_stays(monkeypatch):
    # Whole numbers, each on many points of the grid.
    def model(x, y, z):
        return {"a": jnp.floor(x / 3.0) + jnp.floor(z / 5.0), "b": 9.0 - jnp.floor(x / 3.0) + jnp.floor(y / 4.0)}

    sizes = (30, 24, 25)
    grid_axes = [Axis.of(name, range(size)) for name, size in zip("xyz", sizes, strict=True)]
    x, y, z = np.meshgrid(*map(np.arange, sizes), indexing="ij")
    objectives = [(x // 3 + z // 5).ravel(), (9 - x // 3 + y // 4).ravel()]
    expected = sorted(tuple(map(int, np.unravel_index(one, sizes))) for one in efficient(objectives))
    for hints in (True, False):
        assert sorted(front(monkeypatch, model, grid_axes, "pareto:a,b", hints=hints, order="xyz")) == expected


def test_merged_fronts_are_the_front_of_all():
    outputs, feasible = everywhere(axes(9, 7, 8, 6))
    columns = [outputs[name][feasible].astype(np.float32) for name in ("energy", "time")]
    keep, half = Pareto(("energy", "time"), capacity=600), len(columns[0]) // 2

    def state(places):
        values = np.full((2, 600), np.inf, np.float32)
        values[:, : len(places)] = [column[places] for column in columns]
        numbers = np.zeros(600, np.int32)
        numbers[: len(places)] = places
        return FrontState(values, np.zeros(600, np.int32), numbers, np.int32(0))

    parts = [[*map(int, efficient([column[part] for column in columns]))] for part in (slice(half), slice(half, None))]
    joined = keep.merge(state(parts[0]), state([half + one for one in parts[1]]))
    assert joined.place[np.isfinite(joined.values[0])].tolist() == efficient(columns)
    assert joined.lost == 0
    few = Pareto(("energy", "time"), capacity=3).merge(state(parts[0]), state([half + one for one in parts[1]]))
    assert few.values.shape == (2, 3)
    assert few.lost == len(efficient(columns)) - 3
