"""Samples of uncertain numbers against quantile functions, NumPy loops, closed forms and SALib."""

import dataclasses
import itertools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import energymodel as em
from cli.shell import SMALL, run
from energymodel.errors import InputError
from energymodel.learning.critical_batch import PowerCriticalBatch
from energymodel.learning.learning import CriticalBatchLearning
from energymodel.scenarios.distributions import parse_distribution, read_joint
from energymodel.sweeps.draws import UncertainNumber, number_sampler, parse_numbers, uniform
from energymodel.sweeps.monte_carlo import prepare_monte_carlo, sample_axes, scenario_numbers
from energymodel.sweeps.sample_statistics import chance

PI = float(np.pi)
BOX: dict[str, Any] = dict.fromkeys(("x", "y", "z"), f"uniform {-PI} {PI}")
FIELDS = ("entropy_floor", "parameter_coefficient", "parameter_exponent", "data_coefficient", "data_exponent")


def ishigami(x, y, z):
    return {"f": jnp.sin(x) + 7.0 * jnp.sin(y) ** 2 + 0.1 * z**4 * jnp.sin(x)}


def uncertain(text, value, path="x", unit="1"):
    return UncertainNumber(path, value, unit, parse_distribution(text, path, unit, value))


@pytest.mark.parametrize(
    ("text", "value"),
    [("lognormal 0.3", 5.0), ("normal 0.5", -2.0), ("uniform -1 4", 3.0), ("beta 8 2", 0.8), ("beta 0.7 2", 0.3)],
)
def test_draws_follow_the_quantiles_of_each_family(text, value):
    number = uncertain(text, value)
    shares = np.linspace(0.001, 0.999, 37)
    drawn = jax.vmap(number_sampler([number]))(jnp.asarray(shares)[:, None])[:, 0]
    np.testing.assert_allclose(drawn, number.distribution.quantiles(value, shares), rtol=2e-4, atol=1e-6)


def test_numbers_stay_within_their_range():
    # P(x < 1) = Phi(ln(1 / 0.9) / 0.2) = Phi(0.5268) = 0.7008: the median of what remains is the quantile at 0.3504.
    share = number_sampler([dataclasses.replace(uncertain("lognormal 0.2", 0.9), ends=(0.0, 1.0))])
    np.testing.assert_allclose(float(share(jnp.array([0.5]))[0]), 0.9 * np.exp(0.2 * norm.ppf(0.3504)), rtol=1e-4)
    assert float(share(jnp.array([1.0]))[0]) <= 1.0 + 1e-6
    # Of U(0, 4) within 1 to 3, the quarters are 1.5 and 2.5; beta 1 1 is U(0, 1).
    flat = number_sampler([dataclasses.replace(uncertain("uniform 0 4", 2.0), ends=(1.0, 3.0))])
    np.testing.assert_allclose([float(flat(jnp.array([u]))[0]) for u in (0.25, 0.75)], [1.5, 2.5], rtol=1e-6)
    beta = number_sampler([dataclasses.replace(uncertain("beta 1 1", 0.5), ends=(0.2, 0.6))])
    np.testing.assert_allclose([float(beta(jnp.array([u]))[0]) for u in (0.0, 0.5, 1.0)], [0.2, 0.4, 0.6], atol=1e-4)


def test_a_function_has_no_ranges_but_the_sign_of_its_numbers():
    positive, negative = parse_numbers({"x": (0.5, "normal 1"), "y": (-0.5, "normal 1")})
    assert abs(float(number_sampler([positive])(jnp.array([0.0]))[0])) < 1e-3
    assert float(number_sampler([negative])(jnp.array([0.0]))[0]) < -4.0
    signs = number_sampler(parse_numbers({"x": (0.0, "lognormal 1"), "y": (-2.0, "lognormal 1")}))
    np.testing.assert_allclose(signs(jnp.array([0.9, 0.5])), [0.0, -2.0])


def test_numbers_of_a_scenario_are_drawn_as_their_fields_allow():
    # A knee of 0.73 +- 0.1 beyond a clock of 1 would have the voltage fall towards the reference clock.
    numbers = scenario_numbers(em.load_scenario("llama-3.1-405b-h100"), {})
    ends = {number.path: number.ends for number in numbers}
    assert ends["system.accelerator.voltage.knee"] == (0.0, 0.99)
    assert ends["system.network.link.efficiency"][1] == 1.0
    drawn = number_sampler(numbers)
    lowest, highest = (np.array(drawn(jnp.full(len(drawn.factors), share))) for share in (1e-6, 1.0 - 1e-6))
    independent = drawn.paths[: len(drawn.kinds)]
    for path, first, last in zip(independent, lowest, highest, strict=False):
        low, high = ends[path]
        assert low <= first < last <= high * (1.0 + 1e-6), path


def test_joint_numbers_are_drawn_together():
    values = dict(zip(FIELDS, (1.69, 406.4, 0.34, 410.7, 0.28), strict=True))
    numbers = [uncertain("joint chinchilla", value, f"law.{name}") for name, value in values.items()]
    drawn = number_sampler([uncertain("normal 1", 3.0), *numbers])
    assert drawn.factors == ("x", "joint chinchilla")
    shares = (np.arange(0, 1000, 4) + 0.5) / 1000.0
    rows = np.asarray(jax.vmap(drawn)(jnp.stack([jnp.full(250, 0.5), jnp.asarray(shares)], axis=1)))
    floor, a, alpha, b, beta = rows[:, 1:].T
    # Besiroglu et al. 2024: standard errors 0.02566 (E), 0.0154 (alpha), 0.0206 (beta).
    np.testing.assert_allclose([floor.std(), alpha.std(), beta.std()], [0.02566, 0.0154, 0.0206], rtol=0.15)
    assert np.corrcoef(np.log(a), alpha)[0, 1] > 0.99
    assert np.corrcoef(np.log(b), beta)[0, 1] > 0.99
    terms = a * 1e9**-alpha, b * 2e10**-beta  # where the points are, the terms are known far better than a and b
    assert all(np.log(term).std() < 0.25 * np.log(factor).std() for term, factor in zip(terms, (a, b), strict=True))


def test_samples_fill_every_block_evenly_and_differ_between_blocks_and_seeds():
    blocks, lanes = sample_axes(2**14, 3, 5)
    assert len(blocks) * len(lanes) == 2**14
    first, second = (np.array(jax.vmap(lambda lane, k=k: uniform(5, k, lane))(lanes.values)) for k in (0, 1))
    for column in (*first.T, *second.T):  # one point in each of as many equal intervals as there are points
        np.testing.assert_array_equal(np.sort(np.floor(column * len(lanes))), np.arange(len(lanes)))
    assert not np.any(first == second)
    assert not np.any(first == np.array(jax.vmap(lambda lane: uniform(6, 0, lane))(lanes.values)))
    with jax.enable_x64(False):
        np.testing.assert_array_equal(first, np.array(jax.vmap(lambda lane: uniform(5, 0, lane))(lanes.values)))


def test_distributions_equal_a_loop_in_numpy():
    numbers = {"a": (2.0, "lognormal 0.5"), "b": "uniform -1 3"}
    swept = em.monte_carlo(
        lambda a, b: {"y": a * b}, 1000, numbers=numbers, of=["y"], limits={"y": 4.0}, indices=False, precision=64
    )
    drawn = number_sampler(parse_numbers(numbers))
    blocks, lanes = sample_axes(1000, 2, 0)
    draw = jax.jit(lambda block, lane: drawn(uniform(0, block, lane)))
    rows = [np.asarray(draw(block, lane)) for block, lane in itertools.product(blocks.values, lanes.values)]
    y = np.prod(rows, axis=1)
    spread = swept.spreads["y"]
    assert swept.samples == len(y)
    np.testing.assert_allclose([spread.mean, spread.deviation], [y.mean(), y.std()], rtol=1e-9)
    assert swept.chances["y"].share == np.mean(y <= 4.0)
    assert swept.chances["all"] == swept.chances["y"]
    for share, value in spread.quantiles.items():
        assert value == pytest.approx(np.quantile(y, share, method="inverted_cdf"), abs=0.02)
        assert spread.ranges[share][0] <= value <= spread.ranges[share][1]


def test_chance_by_hand():
    # Wilson at 100 of 100: n / (n + z^2) = 100 / 103.8415 = 0.96301.
    np.testing.assert_allclose(dataclasses.astuple(chance(100, 100)), [1.0, 0.96301, 1.0], atol=1e-5)
    assert chance(0, 100).low == 0.0


@pytest.fixture(scope="module")
def ishigamis():
    return em.monte_carlo(ishigami, 2**15, numbers=BOX, of=["f"])


def test_indices_of_the_ishigami_function_are_exact_within_their_intervals(ishigamis):
    # Ishigami & Homma 1990 with a = 7, b = 0.1: variance a^2/8 + b pi^4/5 + b^2 pi^8/18 + 1/2.
    variance = 49 / 8 + 0.1 * PI**4 / 5 + 0.01 * PI**8 / 18 + 0.5
    first = np.array([0.5 * (1 + 0.1 * PI**4 / 5) ** 2, 49 / 8, 0.0]) / variance
    both = 0.01 * PI**8 * (1 / 18 - 1 / 50) / variance
    spread = ishigamis.spreads["f"]
    assert abs(spread.mean - 3.5) < 4.0 * spread.error
    assert spread.error < 0.01
    np.testing.assert_allclose(spread.deviation**2, variance, rtol=0.01)
    for index, alone, total in zip(ishigamis.indices["f"], first, [first[0] + both, first[1], both], strict=True):
        assert abs(index.first - alone) < 1.5 * index.first_half < 0.1
        assert abs(index.total - total) < 1.5 * index.total_half < 0.1


@pytest.mark.filterwarnings("ignore")
def test_indices_agree_with_salib(ishigamis):
    pytest.importorskip("SALib", reason="the extra oracles is not installed")
    from SALib.analyze import sobol as analyze
    from SALib.sample import sobol

    problem: Any = {"num_vars": 3, "names": ["x", "y", "z"], "bounds": [[-PI, PI]] * 3}
    points = sobol.sample(problem, 2048, calc_second_order=False, seed=1)
    theirs = analyze.analyze(problem, np.asarray(ishigami(*points.T)["f"]), calc_second_order=False, seed=1)
    for row, index in enumerate(ishigamis.indices["f"]):
        for own, half, key in ((index.first, index.first_half, "S1"), (index.total, index.total_half, "ST")):
            width = np.hypot(half, theirs[f"{key}_conf"][row])
            assert abs(own - theirs[key][row]) <= 1.6 * width + 1e-3, (index.factor, key)


def test_undefined_outputs_are_counted_and_reported():
    drawn = em.monte_carlo(
        lambda x: {"y": jnp.where(x < 0.25, jnp.nan, x), "z": x}, 2**12, numbers={"x": "uniform 0 1"}, of=["y", "z"]
    )
    assert drawn.spreads["y"].undefined == pytest.approx(0.25, abs=0.01)
    assert drawn.spreads["y"].mean == pytest.approx(0.625, abs=0.01)
    assert "y is not finite in 25 % of the samples" in drawn.message
    assert drawn.spreads["z"].undefined == 0.0


def test_what_does_not_vary_has_no_indices():
    drawn = em.monte_carlo(
        lambda x, y: {"c": 3.0 + 0.0 * x, "x": x}, 256, numbers={"x": "uniform 0 1", "y": "uniform 0 1"}, of=["c", "x"]
    )
    assert all(index.total == index.first == 0.0 for index in drawn.indices["c"])
    assert [index.factor for index in drawn.by_total("x")] == ["x", "y"]
    np.testing.assert_allclose([index.total for index in drawn.by_total("x")], [1.0, 0.0], atol=0.15)


def test_samples_resume_and_refuse_another_seed(tmp_path):
    arguments: Any = {"numbers": {"x": (1.0, "normal 1")}, "of": ["y"], "resume": tmp_path}

    def cube(x):
        return {"y": x**3}

    first = em.monte_carlo(cube, 2**18, **arguments)
    tiles = sorted((tmp_path / "samples" / "tiles").glob("*.tile"))
    assert len(tiles) == 4
    tiles[1].unlink()
    told = []
    again = em.monte_carlo(cube, 2**18, **arguments, progress=told.append)
    assert "3 of 4 tiles are finished" in told
    assert (again.spreads, again.indices) == (first.spreads, first.indices)
    with pytest.raises(InputError, match=r"holds another sweep: scenario\.seed was 0, is 1"):
        em.monte_carlo(cube, 2**18, **arguments, seed=1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"samples": 0}, "0 cannot be drawn"),
        ({"numbers": {}}, "Nothing is uncertain"),
        ({"numbers": {"x": "lognormal 0.3"}}, "needs a value"),
        ({"numbers": {"x": "uniform 0"}}, "LOW and HIGH"),
        ({"numbers": {"x": (1.0, "joint newton")}}, 'unknown joint distribution "newton"'),
        ({"numbers": {"x": (1.0, "joint chinchilla")}}, "holds only entropy_floor"),
        ({"of": ()}, "no output is named"),
        ({"of": ["z"]}, 'Unknown output "z"'),
        ({"limits": {"z": 1.0}}, 'Unknown output "z"'),
        ({"precision": 16}, "neither 32 nor 64"),
    ],
)
def test_bad_samples_are_named(changes, words):
    with pytest.raises(InputError, match=words):
        em.monte_carlo(lambda x: {"y": x}, **{"samples": 16, "numbers": {"x": "uniform 0 1"}, "of": ["y"], **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"numbers": {"system.market.prise": "lognormal 1"}}, "unknown path"),
        ({"of": ["enrgy"]}, 'Did you mean "energy"'),
        ({"limits": {"tyme": 1.0}}, "time"),
    ],
)
def test_bad_samples_of_a_scenario_are_named(changes, words):
    with pytest.raises(InputError, match=words):
        prepare_monte_carlo(em.load_scenario(SMALL), 16, **changes)


@pytest.mark.slow
def test_command_draws_samples(tmp_path):
    path = tmp_path / "samples.csv"
    options = ("--samples", "200", "--limit", "time=1000 days", "--of", "loss", "--json", "-o", str(path))
    done = run("sweep", SMALL, *options)
    assert done.exit_code == 0, done.stderr
    tree = json.loads(done.stdout)
    tables = {name: table["rows"] for name, table in tree["tables"].items()}
    assert tables["run"][0]["samples"] == 208
    loss = next(row for row in tables["outputs"] if row["name"] == "loss")
    assert loss["quantile_05"]["value"] < loss["median"]["value"] < loss["quantile_95"]["value"]
    assert loss["undefined"] == 0.0
    chances = {row["name"]: row["chance"] for row in tables["chances"]}
    assert chances["time"] == 1.0
    assert chances["all"] <= min(chances.values())
    moving = {row["path"] for row in tables["indices_loss"] if row["total"]["value"] > 1e-3}
    # The plan gives the tokens: only the law and the penalty of the batch move the loss.
    assert "joint chinchilla" in moving
    assert all(factor.startswith(("joint", "system.learning", "system.mixture")) for factor in moving)
    assert path.read_text().startswith("output,median unit,median,median low,median high,relative_deviation [1]")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--samples", "8", "--axis", "plan.clock=0.5:1:2"), "--axis needs a grid"),
        (("--samples", "8", "--minimize", "money"), "--minimize needs a grid"),
        (("--of", "energy"), "--of needs samples"),
        (("--samples", "0"), "0 cannot be drawn"),
    ],
)
def test_command_names_bad_samples(options, words):
    done = run("sweep", SMALL, *options)
    assert done.exit_code == 2
    assert words in done.stderr


def test_numbers_of_the_critical_batch_are_drawn_together_and_hardly_correlated():
    scenario = em.load_scenario("llama-3.1-405b-h100")
    path = "system.learning.critical_batch."
    texts = {name: scenario.uncertainty[path + name] for name in ("at_pivot", "exponent", "sharpness")}
    assert set(texts.values()) == {"joint critical-batch"}
    numbers, logarithmic, draws = read_joint("critical-batch")
    assert numbers == ("at_pivot", "exponent", "sharpness")
    assert logarithmic == (True, False, True)
    assert np.max(np.abs(np.corrcoef(draws.T)[np.triu_indices(3, 1)])) < 0.3
    learning = scenario.system.learning
    assert isinstance(learning, CriticalBatchLearning)
    law = learning.critical_batch
    assert isinstance(law, PowerCriticalBatch)
    pivot = parse_distribution(texts["at_pivot"], path + "at_pivot", "token", float(law.at_pivot))
    low, middle, high = pivot.quantiles(float(law.at_pivot), [0.05, 0.5, 0.95])
    assert low < 0.98 * middle < float(law.at_pivot) < 1.02 * middle < high
    assert not parse_distribution("joint chinchilla", "law.data_exponent", "1", 0.37).has_quantiles
