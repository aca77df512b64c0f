"""Every reduction against NumPy on the whole grid, in any chunks and tiles."""

import jax.numpy as jnp
import numpy as np
import pytest

import energymodel as em
from energymodel.errors import InputError
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.full_array import FullArray
from energymodel.sweeps.histogram import Histogram, quantiles
from energymodel.sweeps.pareto import Pareto, ParetoBins, efficient
from energymodel.sweeps.reductions import AbstractReduction
from sweeps.sweep_models import LIMITS, axes, everywhere, sweep_model

SIZES = (7, 5, 9, 6)
RANGES = {name: (-np.inf, limit) for name, limit in LIMITS.items()}
CUTS = [(2**18, None), (31, 200)]


@pytest.fixture(scope="module")
def truth():
    return everywhere(axes(*SIZES))


@pytest.mark.parametrize(("chunk", "tile"), CUTS)
@pytest.mark.parametrize("along", [("voltage", "clock"), ("batch",), ("batch", "clock", "nodes", "voltage")])
def test_best_along_axes(truth, along, chunk, tile):
    outputs, feasible = truth
    keep = "along:" + ",".join(along)
    swept = em.sweep(sweep_model, axes(*SIZES), keep, minimize="energy", limits=LIMITS, chunk=chunk, tile=tile)
    names = [axis.name for axis in swept.axes]
    places = tuple(names.index(name) for name in along)
    best = np.min(np.where(feasible, outputs["energy"], np.inf), axis=places)
    kept = [place for place in range(4) if place not in places]
    found = np.full(best.shape, np.inf)
    for winner in swept.winners:
        found[tuple(winner.index[place] for place in kept)] = winner.value
    np.testing.assert_allclose(found, best, rtol=1e-10)
    assert np.sort(np.ravel(swept.result))[0] == pytest.approx(best.min(), rel=1e-5)


@pytest.mark.parametrize(("chunk", "tile"), CUTS)
@pytest.mark.parametrize("objectives", [("energy", "time"), ("energy", "time", "power")])
def test_pareto_front_is_exact(truth, objectives, chunk, tile):
    outputs, feasible = truth
    swept = em.sweep(
        sweep_model, axes(*SIZES), Pareto(objectives, RANGES), limits=LIMITS, chunk=chunk, tile=tile, precision=64
    )
    places = np.flatnonzero(feasible)
    front = efficient([np.ravel(outputs[name])[places] for name in objectives])
    expected = {tuple(int(one) for one in np.unravel_index(places[place], SIZES)) for place in front}
    assert {winner.index for winner in swept.winners} == expected
    assert not swept.message


def test_full_front_says_so():
    swept = em.sweep(lambda x: {"a": x, "b": -x}, {"x": "0:1:300"}, Pareto(("a", "b"), capacity=100))
    assert "more than 100 points; 200 were lost" in swept.message


def test_efficient_points_by_hand():
    # (1, 3), (2, 2) and (3, 1) are efficient; (2, 3) is beaten by (2, 2); the second (1, 3) is a twin.
    assert efficient([np.array([2.0, 1.0, 3.0, 2.0, 1.0]), np.array([2.0, 3.0, 1.0, 3.0, 3.0])]) == [1, 0, 2]


@pytest.mark.parametrize(("chunk", "tile"), CUTS)
def test_pareto_bins_hold_the_least_of_each_bin(truth, chunk, tile):
    outputs, feasible = truth
    bins = ParetoBins(("energy", "time"), RANGES, capacity=20)
    swept = em.sweep(sweep_model, axes(*SIZES), bins, limits=LIMITS, chunk=chunk, tile=tile, precision=64)
    keep = swept.keep
    assert isinstance(keep, ParetoBins)
    energy, time = outputs["energy"][feasible], outputs["time"][feasible]
    number = np.asarray(keep.bin_of(energy))
    least = np.array([time[number == one].min(initial=np.inf) for one in range(20)])
    steps = least < np.concatenate([[np.inf], np.minimum.accumulate(least)[:-1]])
    np.testing.assert_allclose(
        sorted(winner.outputs["time"] for winner in swept.winners), np.sort(least[steps]), rtol=2e-4
    )


@pytest.mark.parametrize(("chunk", "tile"), CUTS)
def test_histogram_counts_every_feasible_point(truth, chunk, tile):
    outputs, feasible = truth
    spans = {"energy": (2e10, 2e12), "temperature": (40.0, 60.0)}
    keep = Histogram(tuple(spans), RANGES, bins=16, spans=spans)
    result = em.sweep(sweep_model, axes(*SIZES), keep, chunk=chunk, tile=tile, precision=64).result
    for name, (low, high) in spans.items():
        values = outputs[name][feasible]
        edges = np.geomspace(low, high, 17)
        np.testing.assert_allclose(result[name].edges, edges)
        np.testing.assert_array_equal(result[name].counts, np.histogram(values, edges)[0])
        assert (result[name].below, result[name].above) == ((values < low).sum(), (values >= high).sum())


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


@pytest.mark.parametrize(("chunk", "tile"), CUTS)
def test_full_array(truth, chunk, tile):
    outputs, _ = truth
    swept = em.sweep(sweep_model, axes(*SIZES), FullArray(("energy", "time")), chunk=chunk, tile=tile)
    order = [[axis.name for axis in swept.axes].index(axis.name) for axis in swept.grid.axes]
    for name in ("energy", "time"):
        np.testing.assert_allclose(swept.result[name], np.transpose(outputs[name], order), rtol=3e-5)


class Sum(AbstractReduction):
    """A reduction of a person's own."""

    def pick(self, outputs):
        return outputs["y"]

    def init(self, grid):
        return jnp.zeros(())

    def update(self, state, picked, chunk):
        return state + jnp.sum(picked if chunk.valid is None else jnp.where(chunk.valid, picked, 0.0))

    def merge(self, first, second):
        return first + second

    def result(self, state, grid):
        return float(state)


def test_custom_reduction():
    # The sum of x y over 0..9 and 0..4 is 45 x 10.
    for chunk in (2**18, 7):
        swept = em.sweep(lambda x, y: {"y": x * y}, {"x": "0:9:10", "y": "0:4:5"}, Sum(), chunk=chunk, tile=chunk)
        assert swept.result == 450.0


def test_nothing_feasible_in_any_reduction():
    for keep in ("pareto:y,z", "bins:y,z", "along:x", "top:3"):
        swept = em.sweep(lambda x: {"y": x, "z": 1.0 / x}, {"x": "1:2:5"}, keep, minimize="y", limits={"y": 0.5})
        assert swept.winners == ()
        assert "No point obeys" in swept.message
    assert em.sweep(lambda x: {"y": x}, {"x": "1:2:5"}, "count", limits={"y": 0.5}).result == 0


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        ("pareto:y", "at least 2"),
        ("bins:y,z,y", "more than two"),
        ("along:w", '"w" is not an axis'),
        ("full", "at least 1"),
        ("bins:s,y", "not positive"),
        ("histogram:nan", "not finite at any"),
    ],
)
def test_bad_reductions_are_named(keep, words):
    def model(x):
        return {"y": x, "z": 1.0 / x, "s": x - 1.5, "nan": x * jnp.nan}

    with pytest.raises(InputError, match=words):
        em.sweep(model, [Axis.linear("x", 1.0, 2.0, 5)], keep, minimize="y")
