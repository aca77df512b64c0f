"""Elasticities as slopes, exact ranges, and the optimum by the envelope theorem."""

import dataclasses
import math

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy import stats

import energymodel as em
from energymodel.scenarios.checks import check_plan
from energymodel.scenarios.distributions import parse_distribution
from energymodel.scenarios.files import names
from energymodel.scenarios.scenario import distributions
from energymodel.search import envelope
from energymodel.search.problem import formulate
from energymodel.search.result import SearchResult
from energymodel.search.sensitivity import OF, SHARES, next_values, sensitivity
from energymodel.search.training_run import LIMITS_OF_SYSTEM, UNITS, TrainingRun, expand, is_gain
from energymodel.system.evaluate import evaluate_once
from energymodel.system.memory import memory_limit
from report.reference_optimum import optimum

SMALL = "test-1b-h100"
SCENARIOS = [name for name in names("scenarios") if not name.startswith("_")]


@pytest.fixture(scope="module")
def small():
    return em.load_scenario(SMALL)


@pytest.fixture(scope="module")
def answer(small, room):
    return em.sensitivity(small)


@pytest.fixture(scope="module")
def rows(answer):
    return {row.path: row for row in answer.rows}


# Distributions


@pytest.mark.parametrize(
    ("text", "value", "unit", "reference"),
    [
        ("lognormal 0.3", 70.0, "W", stats.lognorm(0.3, scale=70.0)),
        ("normal 5", 294.15, "K", stats.norm(294.15, 5.0)),
        ("normal 5 °C", 294.15, "K", stats.norm(294.15, 5.0)),
        ("normal 0.05 kW", 70.0, "W", stats.norm(70.0, 50.0)),
        ("uniform 7.7e12 8.0e12", 7.9e12, "B/s", stats.uniform(7.7e12, 0.3e12)),
        ("uniform 7.7 8.0 TB/s", 7.9e12, "B/s", stats.uniform(7.7e12, 0.3e12)),
        ("uniform 10 30 °C", 293.15, "K", stats.uniform(283.15, 20.0)),
        ("beta 8 2", 0.8, "1", stats.beta(8.0, 2.0)),
    ],
)
def test_quantiles_are_those_of_scipy(text, value, unit, reference):
    shares = np.array([1e-6, 0.05, 0.5, 0.95, 1.0 - 1e-6])
    quantiles = parse_distribution(text, "system.x", unit, value).quantiles(value, shares)
    np.testing.assert_allclose(quantiles, reference.ppf(shares), rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "unit", "value", "words"),
    [
        ("lognorml 0.3", "W", 1.0, 'Did you mean "lognormal"'),
        ("", "W", 1.0, "no known distribution"),
        ("lognormal", "W", 1.0, "needs SIGMA"),
        ("lognormal wide", "W", 1.0, "needs SIGMA"),
        ("lognormal 0.3 0.4", "W", 1.0, "needs SIGMA"),
        ("lognormal 30 %", "W", 1.0, "have no unit"),
        ("lognormal -0.3", "W", 1.0, "must be positive"),
        ("normal 0", "W", 1.0, "must be positive"),
        ("normal 1e999", "W", 1.0, "must be finite"),
        ("normal 5 kg", "W", 1.0, "is not a power"),
        ("uniform 2", "W", 1.0, "needs LOW and HIGH"),
        ("uniform 2 1", "W", 1.5, "must be below"),
        ("uniform 2 3", "W", 1.0, "excludes the value"),
        ("beta 8 2", "W", 0.5, "shares between 0 and 1"),
        ("beta 8 2", "1", 1.5, "shares between 0 and 1"),
        ("beta 8 0", "1", 0.5, "must be positive"),
        ("joint", "1", 0.5, "needs the name"),
    ],
)
def test_bad_words_are_refused(text, unit, value, words):
    with pytest.raises(em.InputError, match=words) as error:
        parse_distribution(text, "system.x", unit, value)
    assert "system.x" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "words", "message"),
    [
        ("software.data_overlap", "uniform 0.5 1.5", "1.5 is impossible; give a share between 0 and 1"),
        ("node.overhead_power", "gaussian 3", "no known distribution"),
    ],
)
def test_a_bad_distribution_of_a_scenario_names_the_path(path, words, message):
    with pytest.raises(em.InputError, match=f"system.{path}.*{message}"):
        em.load_scenario(SMALL, {"uncertainty": {f"system.{path}": words}})


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_preset_can_be_read(name):
    scenario = em.load_scenario(name)
    run = TrainingRun(scenario.system, scenario.plan)
    assert list(run.values) == run.paths
    assert set(run.values) == set(scenario.provenance)
    for path, distribution in distributions(scenario, run.values).items():
        if distribution.has_quantiles:
            low, high = distribution.quantiles(run.values[path], SHARES)
            assert low < high, path
            assert distribution.family == "uniform" or low < run.values[path] < high, path


# Numbers as a vector


def test_a_changed_number_is_that_of_the_scenario_with_the_change(small):
    run = TrainingRun(small.system, small.plan)
    moved = run.at(run.changed("system.node.overhead_power", 2500.0))
    changed = em.load_scenario(SMALL, ["system.node.overhead_power=2500 W"])
    assert bool(eqx.tree_equal(moved, TrainingRun(changed.system, changed.plan)))


def test_a_schedule_of_the_batch_changes_as_a_whole():
    scenario = em.load_scenario(SMALL, {"plan.batch": ["262144 tokens", "524288 tokens"]})
    run = TrainingRun(scenario.system, scenario.plan)
    assert run.values["plan.batch"] == 393216.0
    plan = run.at(run.changed("plan.batch", 2 * 393216.0)).plan
    np.testing.assert_array_equal(plan.batch, [524288.0, 1048576.0])


def test_outputs_are_those_of_evaluate(small):
    outcome = evaluate_once(small.system, small.plan)
    run = TrainingRun(small.system, small.plan)
    wanted = ("energy", "energy.cooling", "carbon", "step_time", "mfu", "slack.memory")
    values = expand(run, wanted, run.vector[None])[0][0]
    expected = [
        outcome.energy.total,
        outcome.energy.cooling,
        outcome.carbon_operational + outcome.carbon_embodied,
        outcome.step_time.total,
        outcome.mfu,
        float(memory_limit(small.system, small.plan) / outcome.memory_per_chip),
    ]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert set(LIMITS_OF_SYSTEM) < set(UNITS)
    assert is_gain("mfu")
    assert not is_gain("energy")


# The plan as given


def test_elasticities_are_the_slopes_of_differences(small, rows):
    """Fourth-order differences for every number; where the slopes on both sides differ there is a kink."""
    run, step = TrainingRun(small.system, small.plan), 1e-4
    paths = [path for path, value in run.values.items() if value]
    offsets = (-2, -1, 0, 1, 2)
    vectors = [run.changed(path, run.values[path] * (1 + k * step)) for path in paths for k in offsets]
    logs = np.log(expand(run, OF, np.stack(vectors))[0].reshape(len(paths), len(offsets), len(OF)))
    central = np.einsum("k,pko->po", np.array([1.0, -8.0, 0.0, 8.0, -1.0]), logs) / (12.0 * step)
    # The second difference over the step grows with the step on a curve, and stays at a kink.
    near, far = (np.abs(logs[:, 2 + k] - 2.0 * logs[:, 2] + logs[:, 2 - k]) / step for k in (1, 2))
    smooth = np.all(np.abs(near - far / 4.0) < 1e-5, axis=1)
    kinks = {path for path, even in zip(paths, smooth, strict=True) if not even}
    # A whole node, one stage of the pipeline, one rank of experts or a ring, a switch whose ports have all lanes.
    switch = {f"system.network.topology.{name}" for name in ("radix", "port_lanes", "switch_lanes")}
    layout = {"plan.layout.pipeline", "plan.layout.virtual_stages", "plan.layout.expert", "plan.layout.context"}
    assert kinks <= {"plan.chips", "system.node.chips", *layout, *switch}
    elasticities = np.array([[rows[path].effects[name].elasticity for name in OF] for path in paths], np.float64)
    np.testing.assert_allclose(elasticities[smooth], central[smooth], rtol=1e-5, atol=1e-5)


def test_prices_add_up_to_the_money(answer):
    """Money is homogeneous of degree one in prices, so their elasticities add up to one [Euler's theorem]."""
    prices = [row for row in answer.rows if row.unit.startswith("USD")]
    total = sum(row.effects["money"].elasticity or 0.0 for row in prices)
    assert len(prices) >= 4
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


def test_effects_that_are_known_in_advance(answer, rows):
    effects = {path: row.effects for path, row in rows.items()}
    for output in ("energy", "time"):
        assert effects["plan.goal.tokens"][output].elasticity == pytest.approx(1.0, rel=1e-9)
    peak, efficiency = (effects[f"system.accelerator.{name}"]["energy"] for name in ("peak_flops", "gemm_efficiency"))
    # Attention has an efficiency of its own.
    assert peak.elasticity < efficiency.elasticity < 0.0
    assert effects["system.market.price.electricity"]["energy"].elasticity == 0.0
    delay = rows["system.market.price.delay_cost"]
    assert (delay.value, delay.effects["money"].elasticity) == (0.0, None)
    # Every second costs one dollar per dollar a second: d money / d delay_cost = time.
    assert delay.effects["money"].derivative == pytest.approx(answer.values["time"], rel=1e-9)


def test_ranges_are_exact(small, answer):
    for row in answer.by_uncertainty()[:3]:
        assert row.low is not None
        run = TrainingRun(small.system, small.plan)
        changed = run.at(run.changed(row.path, row.low))
        outcome = evaluate_once(changed.system, changed.plan)
        assert row.effects["energy"].low == pytest.approx(float(outcome.energy.total), rel=1e-12)
        assert row.effects["loss"].low == pytest.approx(float(outcome.loss), rel=1e-12)


def test_orders(answer):
    sizes = [row.size("energy", answer.values["energy"]) for row in answer.by_uncertainty()]
    assert sizes == sorted(sizes, reverse=True)
    elasticities = [abs(row.effects["money"].elasticity or 0.0) for row in answer.by_elasticity("money")]
    assert elasticities == sorted(elasticities, reverse=True)
    assert sum(answer.shares("money").values()) == pytest.approx(1.0)
    gains = [min(row.changes("energy", answer.values["energy"])) for row in answer.by_step()]
    assert gains == sorted(gains)


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("plan.clock", "change"),
        ("plan.layout.tensor", "change"),
        ("system.accelerator.gemm_efficiency", "measure"),
        ("system.market.price.electricity", "measure"),
        ("system.accelerator.busy_power", "measure"),
        ("system.accelerator.peak_flops", "given"),
        ("system.accelerator.bits_per_flop", "given"),  # a convention, although it has a spread
    ],
)
def test_actions_tell_decisions_from_knowledge(rows, path, action):
    assert rows[path].action == action


def test_joint_numbers_are_not_varied_alone(answer, rows):
    row = rows["system.learning.loss_law.data_exponent"]
    assert (row.low, row.high) == (None, None)
    assert row.path not in answer.shares("loss")
    assert row.effects["loss"].elasticity is not None
    assert rows["system.accelerator.bits_per_flop"].is_uncertain


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"of": ("enrgy",)}, 'Did you mean "energy"'),
        ({"of": ()}, "no output is named"),
        ({"minimize": "time"}, "set optimum=True"),
    ],
)
def test_unknown_outputs_are_refused(small, asked, message):
    with pytest.raises(em.InputError, match=message):
        em.sensitivity(small, **asked)


@pytest.mark.parametrize("name", ["llama-3.1-405b-h100", SMALL])
def test_next_values_can_be_run(name):
    scenario = em.load_scenario(name)
    run = TrainingRun(scenario.system, scenario.plan)
    group = float(scenario.plan.layout.tensor * scenario.plan.layout.pipeline * scenario.plan.layout.context)
    for path in run.paths:
        if not path.startswith("plan."):
            continue
        for end, value in zip(next_values(scenario, path), (-1, 1), strict=True):
            if end is None:
                continue
            changed = run.at(run.changed(path, end))
            check_plan(changed.system, changed.plan)
            assert math.copysign(1.0, end - run.values[path]) == value
            assert path != "plan.chips" or end % group == 0.0


# The optimum


@pytest.fixture(scope="module")
def best(small):
    with jax.enable_x64(True):
        baseline = jax.device_get(evaluate_once(small.system, small.plan))
    return dataclasses.replace(optimum(), scenario=small, baseline=baseline)


@pytest.fixture(scope="module")
def around(best):
    """The relaxed optimum in the scenario's own layout, and its derivatives."""
    with jax.enable_x64(True):
        return envelope.differentiate(best)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        "system.accelerator.gemm_efficiency",  # energy and, through the own plan's time, the limit
        "system.accelerator.busy_power",  # energy alone
        "system.learning.critical_batch.exponent",  # tokens, through a loss that moves with it
        "system.facility.cooling.weather.wet_bulb",
        "system.workload.hidden",
        "plan.goal.tokens",
        "plan.batch",  # chosen by the search: only through the limit of time
    ],
)
def test_the_optimum_moves_as_the_envelope_theorem_says(small, around, path):
    value, step = TrainingRun(small.system, small.plan).values[path], 1e-3
    higher, lower = (math.log(around.search(path, value * (1.0 + sign * step))) for sign in (1.0, -1.0))
    assert around.derivatives is not None
    elasticity = around.derivatives[path] * value / around.value
    assert elasticity == pytest.approx((higher - lower) / (2.0 * step), rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_limits_are_those_that_the_problem_takes_from_the_scenario(small, best, around):
    problem = formulate(small, best.baseline)
    assert {limit.name for limit in around.limits if limit.follows} == set(problem.limits)
    heat_flux = small.system.facility.cooling.loop.heat_flux_limit()
    assert problem.limits["heat_flux"] == pytest.approx(float(np.asarray(heat_flux)), rel=1e-12)
    for name, path in envelope.OF_HARDWARE.items():
        assert problem.limits[name] == pytest.approx(problem.run.number(path), rel=1e-12), name
    others = set(problem.limits) - set(envelope.OF_HARDWARE) - {"heat_flux"}
    assert others >= {"time", "loss"}
    memory = float(memory_limit(small.system, small.plan))
    assert problem.limits["memory"] == pytest.approx(memory, rel=1e-12)
    for name in others - {"time", "loss", "memory"}:  # what is used of a capacity, wherever that comes from
        assert problem.limits[name] == pytest.approx(1.0, rel=1e-12), name
    low, high = problem.bounds["plan.batch"]
    assert math.sqrt(low * high) == pytest.approx(float(small.plan.batch.item()))
    assert problem.bounds["plan.clock"][0] == float(small.system.accelerator.minimum_clock)


@pytest.mark.slow
def test_a_limit_that_is_given_does_not_move(small, best, around):
    asked = small.with_question(limits={"time": float(best.baseline.time)})
    held = envelope.differentiate(dataclasses.replace(best, scenario=asked))
    assert held.value == pytest.approx(around.value, rel=1e-9)
    time, following = (next(limit for limit in each.limits if limit.name == "time") for each in (held, around))
    assert following.follows
    assert not time.follows
    assert held.derivatives is not None
    assert around.derivatives is not None
    # With the time held, the own plan's clock is nothing to the optimum.
    assert held.derivatives["plan.clock"] == pytest.approx(0.0, abs=1e-6 * held.value)
    assert abs(around.derivatives["plan.clock"]) > 1e-2 * around.value
    np.testing.assert_allclose(time.elasticity, following.elasticity, rtol=1e-6)


def test_an_infeasible_search_has_no_rows(small, best, monkeypatch):
    def refuse(scenario, **asked):
        return dataclasses.replace(best, result=SearchResult.infeasible, message="No plan obeys these limits together.")

    monkeypatch.setattr("energymodel.search.sensitivity.optimize", refuse)
    answer = sensitivity(small, optimum=True)
    assert not answer.success
    assert answer.rows == ()
    assert answer.message == "No plan obeys these limits together."


@pytest.mark.slow
def test_the_largest_effects_on_the_optimum_are_searched_again(small, best, around, monkeypatch):
    monkeypatch.setattr("energymodel.search.sensitivity.optimize", lambda scenario, **asked: best)
    answer = sensitivity(small, optimum=True, resolve=1)
    exact = [row for row in answer.rows if row.is_uncertain and row.effects["energy"].exact]
    assert len(exact) == 1
    row = exact[0]
    assert row.low is not None
    assert row.effects["energy"].low == pytest.approx(around.search(row.path, row.low), rel=1e-9)
    other = answer.by_uncertainty()[5]
    effect = other.effects["energy"]
    assert effect.elasticity is not None
    assert other.high is not None
    assert effect.high == pytest.approx(around.value * (other.high / other.value) ** effect.elasticity, rel=1e-9)
    assert next(row for row in answer.rows if row.path == "plan.clock").action == "free"
    assert {limit.name for limit in answer.limits} >= {"time", "loss", "chips"}
