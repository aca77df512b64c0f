"""Every reduction against NumPy on the whole grid, whatever chunks, tiles, padding and hints."""

import jax.numpy as jnp
import numpy as np
import pytest

import energymodel as em
from energymodel.errors import InputError
from energymodel.sweeps import sweep as sweep_module
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.histogram import Count, Histogram, quantiles
from energymodel.sweeps.pareto import FrontState, Pareto, below_steps, efficient
from energymodel.sweeps.prepared_sweep import OrderedMerge
from energymodel.sweeps.reductions import AbstractPointReduction
from energymodel.sweeps.sweep import prepare_sweep
from energymodel.sweeps.tile_program import LANES, TileProgram, row_lanes
from sweeps.sweep_models import LIMITS, Sum, axes, everywhere, sweep_model

SIZES = (7, 5, 9, 6)
RANGES = {name: (-np.inf, limit) for name, limit in LIMITS.items()}
CUTS = [(2**18, None), (31, 200)]


@pytest.fixture(scope="module")
def truth():
    return everywhere(axes(*SIZES))


def swept(keep, chunk=31, tile: int | None = 200, **options):
    options = {"minimize": "energy", "limits": LIMITS, "chunk": chunk, "tile": tile, **options}
    return em.sweep(sweep_model, axes(*SIZES), keep, **options)


@pytest.mark.parametrize("along", [("voltage", "clock"), ("batch",), ("batch", "clock", "nodes", "voltage")])
def test_best_along_axes(truth, along):
    outputs, feasible = truth
    result = swept("along:" + ",".join(along))
    names = [axis.name for axis in result.axes]
    others = [number for number, name in enumerate(names) if name not in along]
    best = np.min(np.where(feasible, outputs["energy"], np.inf), axis=tuple(map(names.index, along)))
    values = np.full(best.shape, np.inf)
    for winner in result.winners:
        values[tuple(winner.index[number] for number in others)] = winner.value
    np.testing.assert_allclose(values, best, rtol=1e-10)
    assert np.sort(np.ravel(result.result))[0] == pytest.approx(best.min(), rel=1e-5)


@pytest.mark.parametrize(("chunk", "tile"), CUTS)
@pytest.mark.parametrize("objectives", [("energy", "time"), ("energy", "time", "power")])
def test_pareto_front_is_exact(truth, objectives, chunk, tile):
    outputs, feasible = truth
    result = swept(Pareto(objectives, RANGES), chunk, tile, precision=64)
    points = np.flatnonzero(feasible)
    front = points[efficient([np.ravel(outputs[name])[points] for name in objectives])]
    indices = np.stack(np.unravel_index(front, SIZES), axis=1)
    assert {winner.index for winner in result.winners} == set(map(tuple, indices.tolist()))
    assert not result.message


def test_a_front_that_is_too_large_is_reported():
    result = em.sweep(lambda x: {"a": x, "b": -x}, {"x": "0:1:300"}, Pareto(("a", "b"), capacity=100))
    assert "more than 100 points; 200 were lost" in result.message


def test_efficient_points_by_hand():
    # (1, 3), (2, 2) and (3, 1) are efficient; (2, 3) is beaten by (2, 2); the second (1, 3) is a twin.
    columns = [np.array([2.0, 1.0, 3.0, 2.0, 1.0]), np.array([2.0, 3.0, 1.0, 3.0, 3.0])]
    assert efficient(columns) == efficient([*columns, np.zeros(5)]) == [1, 0, 2]


def test_histogram_counts_every_feasible_point(truth):
    outputs, feasible = truth
    spans = {"energy": (2e10, 2e12), "temperature": (40.0, 60.0)}
    counts = swept(Histogram(tuple(spans), RANGES, bins=16, spans=spans), precision=64).result
    for name, (low, high) in spans.items():
        values = outputs[name][feasible]
        edges = np.geomspace(low, high, 17)
        np.testing.assert_allclose(counts[name].edges, edges)
        np.testing.assert_array_equal(counts[name].counts, np.histogram(values, edges)[0])
        assert (counts[name].below, counts[name].above) == ((values < low).sum(), (values >= high).sum())
    assert swept(Count(RANGES)).result == feasible.sum()


def test_quantiles_lie_within_a_bin(truth):
    outputs, feasible = truth
    result = em.sweep(sweep_model, axes(*SIZES), Histogram(("energy",), RANGES, summary=quantiles)).result["energy"]
    for share, value in result.items():
        exact = np.quantile(outputs["energy"][feasible], share, method="inverted_cdf")
        assert value == pytest.approx(exact, rel=0.05)


def test_quantiles_of_the_uniform_distribution():
    result = em.sweep(lambda x, y: {"z": x + 0 * y}, {"x": "-1:1:401", "y": "0:1:3"}, "quantiles:z").result["z"]
    for share, value in result.items():
        assert value == pytest.approx(2.0 * share - 1.0, abs=0.01)


def test_full_array(truth):
    outputs, _ = truth
    result = swept("full:energy,time")
    order = [[axis.name for axis in result.axes].index(axis.name) for axis in result.grid_axes]
    for name in ("energy", "time"):
        np.testing.assert_allclose(result.result[name], np.transpose(outputs[name], order), rtol=3e-5)


def test_custom_reduction():
    # The sum of x y over 0..9 and 0..4 is 45 x 10.
    for chunk in (2**18, 7):
        result = em.sweep(lambda x, y: {"y": x * y}, {"x": "0:9:10", "y": "0:4:5"}, Sum(), chunk=chunk, tile=chunk)
        assert result.result == 450.0


def test_nothing_feasible_in_any_reduction():
    for keep in ("pareto:y,z", "along:x", "top:3"):
        result = em.sweep(lambda x: {"y": x, "z": 1.0 / x}, {"x": "1:2:5"}, keep, minimize="y", limits={"y": 0.5})
        assert result.winners == ()
        assert "No point obeys" in result.message
    assert em.sweep(lambda x: {"y": x}, {"x": "1:2:5"}, "count", limits={"y": 0.5}).result == 0


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        ("pareto:y", "at least 2"),
        ("along:w", '"w" is not an axis'),
        ("full", "at least 1"),
        ("histogram:nan", "not finite at any"),
    ],
)
def test_bad_reductions_are_named(keep, words):
    def model(x):
        return {"y": x, "z": 1.0 / x, "nan": x * jnp.nan}

    with pytest.raises(InputError, match=words):
        em.sweep(model, [Axis.linear("x", 1.0, 2.0, 5)], keep, minimize="y")


def front(monkeypatch, model, grid_axes, keep, *, hints, **options):
    """Indices of the points that the scan keeps, with or without what tiles know of a sample of the grid."""
    with monkeypatch.context() as patch:
        if not hints:
            patch.setattr(TileProgram, "hint", property(TileProgram.no_hint))
        program = prepare_sweep(model, grid_axes, keep, **options, chunk=60, tile=240).program
        merged = OrderedMerge(program.reduction)
        for number in range(program.grid.tiles):
            merged.add(number, program.run(number))
        if hints:
            assert np.any(np.asarray(program.hint) != np.asarray(program.no_hint()))
        assert isinstance(program.reduction, AbstractPointReduction)
        return sorted(program.reduction.kept_points(merged.finish(), program.grid))


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["pareto:energy,time", "pareto:energy,time,power"])
def test_hints_change_no_point(monkeypatch, keep):
    # Sizes that divide neither chunks nor tiles leave padding.
    grid_axes = axes(13, 9, 11, 10)
    fronts = [front(monkeypatch, sweep_model, grid_axes, keep, hints=hints, limits=LIMITS) for hints in (True, False)]
    assert len(fronts[0]) > 5
    assert fronts[0] == fronts[1]


def test_of_equal_points_the_first_stays(monkeypatch):
    # Whole numbers, each on many points of the grid.
    def model(x, y, z):
        return {"a": jnp.floor(x / 3.0) + jnp.floor(z / 5.0), "b": 9.0 - jnp.floor(x / 3.0) + jnp.floor(y / 4.0)}

    sizes = (30, 24, 25)
    grid_axes = [Axis.of(name, range(size)) for name, size in zip("xyz", sizes, strict=True)]
    x, y, z = np.meshgrid(*map(np.arange, sizes), indexing="ij")
    points = efficient([(x // 3 + z // 5).ravel(), (9 - x // 3 + y // 4).ravel()])
    expected = sorted(zip(*(column.tolist() for column in np.unravel_index(points, sizes)), strict=True))
    for hints in (True, False):
        assert front(monkeypatch, model, grid_axes, "pareto:a,b", hints=hints, order="xyz") == expected
    # In one chunk, of 140 rows with points that pass, these are first compared with each other.
    swept = em.sweep(model, grid_axes, "pareto:a,b", order="xyz")
    assert sorted(winner.index for winner in swept.winners) == expected


def test_points_are_compared_with_lower_steps():
    # (2, 1) is below (1, 2), (3, 3) above both; a point that broke a limit covers none, whatever its second objective.
    first, second = jnp.array([1.0, 2.0, 3.0, jnp.inf]), jnp.array([2.0, 1.0, 3.0, 0.0])
    np.testing.assert_array_equal(below_steps(first, second)[:3], [True, True, False])
    columns = np.exp(np.random.default_rng(0).normal(size=(2, 10_000))).astype(np.float32)
    passes = np.asarray(below_steps(*columns))
    assert passes[efficient(columns)].all()
    assert passes.sum() < 600


def test_merged_fronts_are_the_front_of_all():
    outputs, feasible = everywhere(axes(9, 7, 8, 6))
    columns = np.stack([outputs[name][feasible].astype(np.float32) for name in ("energy", "time")])
    half = columns.shape[1] // 2

    def state(rows):
        values, numbers = np.full((2, 600), np.inf, np.float32), np.zeros(600, np.int32)
        values[:, : len(rows)], numbers[: len(rows)] = columns[:, rows], rows
        return FrontState(values, np.zeros(600, np.int32), numbers, np.int32(0))

    parts = [state(efficient(columns[:, :half])), state(half + np.array(efficient(columns[:, half:])))]
    joined = Pareto(("energy", "time"), capacity=600).merge(*parts)
    assert joined.position[np.isfinite(joined.values[0])].tolist() == efficient(columns)
    assert joined.lost == 0
    few = Pareto(("energy", "time"), capacity=3).merge(*parts)
    assert few.values.shape == (2, 3)
    assert few.lost == len(efficient(columns)) - 3


PADDED = [pytest.param(keep, marks=pytest.mark.slow) for keep in ("top:40", "along:voltage")]


@pytest.mark.parametrize("keep", ["pareto:energy,time", *PADDED])
def test_padded_rows_change_no_result(monkeypatch, keep):
    order, rows, indices = ("batch", "clock", "nodes", "voltage"), [], []
    for lanes in (1, LANES):
        monkeypatch.setattr(sweep_module, "row_lanes", lambda lanes=lanes: lanes)
        # Blocks of 4 of 7 clocks: the axis that is cut is padded as well.
        options = {"limits": LIMITS, "order": order, "chunk": 4 * 6 * 13, "tile": 1}
        prepared = prepare_sweep(sweep_model, axes(5, 7, 6, 13), keep, "energy", **options)
        rows.append(prepared.program.grid.shape[-1])
        indices.append([winner.index for winner in prepared.run().winners])
    assert rows == [13, 16]  # voltages, whole vector registers
    assert indices[0] == indices[1] != []


@pytest.mark.parametrize("flag", ["--xla_cpu_max_isa=AVX2", "--xla_cpu_max_isa=SSE4_2"])
def test_vectors_are_as_narrow_as_xla_was_told(monkeypatch, flag):
    monkeypatch.setenv("XLA_FLAGS", flag)
    assert row_lanes() == LANES
