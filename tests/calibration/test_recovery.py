"""Coverage of nominal 90 % intervals by kind, over 200 repetitions with 2 % noise."""

import jax
import numpy as np
import pytest

from energymodel.calibration import batch_curves as batch
from energymodel.calibration import device_power, node_power
from energymodel.calibration.constant_priors import ConstantPrior, Values, joint_prior, values_of
from energymodel.calibration.intervals import outer_intervals, undetermined
from energymodel.calibration.kinds import loss, node, step_time
from energymodel.calibration.layout_table import inputs_of, layouts
from energymodel.calibration.least_squares import FitOptions, FitProblem, fit
from energymodel.learning.loss_law import ChinchillaLaw, chinchilla_loss
from energymodel.scenarios.scenario import load_scenario
from energymodel.scenarios.step_population import step_population

REPETITIONS, NOISE = 200, 0.02
LEAST_DETERMINED = 100  # repetitions, of a constant that is counted


def assert_covered(problem, measured, truth=None):
    """Each constant lies in its interval in about 90 % of the repetitions in which the data determine it.

    Constants are drawn from their priors, unless there is a truth: what an interval from data and prior is to hold.
    """
    generator, prior = np.random.default_rng(7), problem.prior or joint_prior(problem.constants)
    held, determined, converged = np.zeros(len(prior.names)), np.zeros(len(prior.names)), 0
    for _ in range(REPETITIONS):
        values, exact = Values(), truth
        if truth is None:
            standard = generator.standard_normal(len(prior.mean))
            values = values_of(problem.constants, prior.mean + np.linalg.solve(prior.whiten, standard))
            values = {name: np.asarray(value) for name, value in values.items()}
            exact = np.concatenate([np.atleast_1d(value) for value in values.values()])
        fitted = fit(problem._replace(table=measured(values, generator)))
        low, high = ends = outer_intervals(fitted)
        sure = ~np.isin(prior.names, undetermined(fitted, ends))
        held += sure & (low < exact) & (exact < high)
        determined += sure
        converged += fitted.converged
    often = determined >= LEAST_DETERMINED
    shares = dict(zip(np.array(prior.names)[often].tolist(), (held[often] / determined[often]).tolist(), strict=True))
    print(shares, determined, converged)
    assert shares
    # Intervals take the model as linear: those of a constant that acts through a maximum hold a few percent less.
    assert all(0.82 <= share <= 0.97 for share in shares.values()), shares
    assert converged >= 0.9 * REPETITIONS  # of constants drawn at random, some at the ends of their ranges


def multiplied(values, generator):
    values = np.asarray(values)
    return values * np.exp(NOISE * generator.standard_normal(values.shape))


@pytest.mark.slow
def test_constants_of_power_limits_are_covered():
    constants, ones = device_power.power_constants(), np.ones(96)
    columns = dict.fromkeys(device_power.Profiles._fields, ones)
    columns |= {"workload": np.zeros(96, int), "device": np.zeros(96, int), "reference_time": 100.0 * ones}
    columns |= {"idle_power": 40.0 * ones, "rated_power": 250.0 * ones, "memory_activity": 0.0 * ones}
    columns |= {"limit": np.tile(np.linspace(90.0, 240.0, 12), 8), "overhead": np.repeat(np.linspace(0.0, 0.5, 8), 12)}
    runs = device_power.Profiles(**{**columns, "reference_power": np.repeat(np.linspace(140.0, 240.0, 8), 12)})

    def measured(values, generator):
        time, watt = device_power.predict_power(values, runs)
        return runs._replace(time=multiplied(time, generator), power=multiplied(watt, generator))

    noise, options = device_power.NOISE, device_power.OPTIONS
    assert_covered(FitProblem(device_power.power_errors, constants, runs, noise=noise, options=options), measured)


@pytest.mark.slow
@pytest.mark.parametrize("weighed", [False, True], ids=["huber", "weighed by noise"])
def test_constants_of_the_loss_law_are_covered(weighed):
    size, tokens = (grid.ravel() for grid in np.meshgrid(np.geomspace(1e7, 1e11, 16), np.geomspace(1e9, 1e13, 15)))
    truth = np.array([1.8172, 482.01, 0.3478, 2085.43, 0.3658])
    law = ChinchillaLaw(*truth)

    def measured(_, generator):
        return loss.TrainedModels(size, tokens, multiplied(chinchilla_loss(size, tokens, law), generator))

    problem = loss.loss_law_problem(loss.TrainedModels(size, tokens, size))
    if weighed:
        problem = problem._replace(options=FitOptions(), noise=0.01)
    assert_covered(problem, measured, truth)


@pytest.mark.slow
def test_constants_of_metered_nodes_are_covered():
    """Twenty nodes in air at five rates, every other one with metered chips, and their idle power."""
    rate, chip = np.tile(np.linspace(0.3, 1.0, 5), 4), np.tile([0.0, 0.4, 0.0, 0.9], 5)
    columns = {
        "idle_power": 0.0,
        "chips": 8.0,
        "rated_power": 700.0,
        "busy_power": 8.0 / 7.0,
        "idle_chip": 75.0 / 700.0,
    }
    columns |= {"relative_rate": np.append(rate, 1.0), "chip_power": np.append(chip, 0.0)}
    columns |= {"efficiency": 0.975, "fan_effort": 1.0, "running": np.append(np.ones(20), 0.0)}
    runs = node_power.node_runs(np.ones(21), **columns)
    constants = {"idle_power": ConstantPrior(2900.0, 0.25, 1300.0, unit="W"), **node_power.CONSTANTS}

    def measured(values, generator):
        return runs._replace(power=multiplied(node_power.predicted_power(values, runs), generator))

    problem = FitProblem(node_power.node_power_errors, constants, runs, noise=node.NOISE, options=node.OPTIONS)
    assert_covered(problem, measured)


@pytest.mark.slow
def test_constants_of_one_law_of_critical_batches_are_covered():
    sizes, batches = np.repeat(np.geomspace(1e8, 3e9, 5), 9), np.tile(np.geomspace(3e4, 8e6, 9), 5)
    names = [f"{size:.3g}" for size in sizes]
    constants = batch.family_constants(names)
    runs = batch.batch_runs(names, batches, np.ones(45), 20.0 * sizes)

    def measured(values, generator):
        exact = np.exp(np.asarray(batch.family_errors(values, runs)))[:, 0]
        return runs._replace(tokens=multiplied(exact, generator))

    assert_covered(FitProblem(batch.family_errors, constants, runs, noise=0.04), measured)


@pytest.mark.slow
def test_constants_of_groups_with_batches_of_their_own_are_covered():
    """Also where points deviate smoothly from the curve of their group."""
    names = ["a"] * 10 + ["b"] * 10
    batches = np.tile(np.geomspace(1e4, 1e7, 10), 2)
    problem = batch.group_problem(batch.batch_runs(names, batches, np.ones(20)), names, "token")

    def measured(values, generator):
        exact = np.exp(np.asarray(batch.group_errors(values, problem.table)))[:, 0]
        scatter = np.exp(batch.reference_population().noise * generator.standard_normal(20))
        return problem.table._replace(tokens=exact * scatter)

    assert_covered(problem, measured)


@pytest.mark.slow
def test_constants_of_a_cluster_are_covered():
    shapes = ((16, 2048, 16), (32, 4096, 32), (40, 6144, 48))
    degrees = ["8 1 1 1", "8 2 1 1", "8 8 1 4", "32 1 1 2", "32 4 2 1", "64 8 4 1", "64 1 1 1", "128 4 1 2"]
    degrees += ["128 8 8 1", "256 8 2 2", "256 2 1 1", "512 8 4 1", "512 1 8 1", "64 2 8 1", "32 8 1 4", "16 4 4 2"]
    names = ("layers", "hidden", "heads", "chips", "tensor", "pipeline", "microbatch")
    rows = [
        dict(zip(names, (*shape, *map(int, layout.split())), strict=True)) for shape in shapes for layout in degrees
    ]
    common = {"vocabulary": 51200, "sequence": 2048, "batch_sequences": 1024, "cluster": "measured"}
    inputs = inputs_of(layouts([row | common for row in rows]))
    system = load_scenario("llama-3.1-405b-h100").system
    before = step_population().of({"framework": "megatron", "chip": "h100-sxm"})
    steps = step_time.MeasuredSteps(system, inputs, np.ones(len(rows)))
    exact = jax.jit(step_time.step_time_errors)

    def measured(values, generator):
        time = np.exp(np.asarray(exact(values, steps)))[:, 0]
        return steps._replace(measured=multiplied(time, generator))

    assert_covered(step_time.step_time_problem(before, NOISE, steps), measured)
