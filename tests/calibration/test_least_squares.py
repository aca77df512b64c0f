"""Recovery of known constants by the fit, and coverage of its intervals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.calibration.constant_priors import ConstantPrior, flat_values, joint_prior, values_of
from energymodel.calibration.intervals import (
    bootstrap,
    laplace_intervals,
    next_measurement,
    posterior_intervals,
    quantiles,
    undetermined,
)
from energymodel.calibration.least_squares import FitOptions, FitProblem, fit, held_out_errors
from energymodel.calibration.robust_loss import ErrorEstimate, robust_error

LEAST_SQUARES = FitOptions(loss="huber", threshold=1e6)
TRUE = {"amplitude": 3.0, "exponent": 0.4, "share": 0.3}
CONSTANTS = {
    "amplitude": ConstantPrior(2.0, 3.0, unit="s"),
    "exponent": ConstantPrior(1.0, 2.0),
    "share": ConstantPrior(0.5, 0.4, 0.0, 1.0),
}


def model(constants, x):
    """A power law that starts from a floor: `a (m + (1 - m) x^-b)`."""
    share = constants["share"]
    return jnp.log(constants["amplitude"]) + jnp.log(share + (1 - share) * x ** (-constants["exponent"]))


def errors(constants, table):
    x, y = table
    return (model(constants, x) - jnp.log(y))[:, None]


def per_device_errors(constants, table):
    x, device, y = table
    return (jnp.log(jnp.atleast_1d(constants["rate"])[device]) - constants["exponent"] * jnp.log(x) - jnp.log(y))[
        :, None
    ]


def unused_errors(constants, table):
    """A constant that acts on nothing, and two that act only as a product."""
    x, y = table
    level = jnp.log(constants["a"]) + jnp.log(constants["b"])
    return (level - constants["exponent"] * jnp.log(x) + 0.0 * constants["idle"] - jnp.log(y))[:, None]


def sample(generator, rows=30, noise=0.02, outliers=0):
    x = np.exp(np.linspace(0.0, np.log(300.0), rows))
    y = np.exp(np.asarray(model(TRUE, jnp.asarray(x))) + noise * generator.standard_normal(rows))
    y[: outliers * 5 : 5] *= 2.0
    return jnp.asarray(x), jnp.asarray(y)


def test_coordinates_keep_constants_in_their_range():
    constants = {
        "a": ConstantPrior(2.0, 1.0, 1.0),
        "b": ConstantPrior(0.5, 0.1, 0.2, 0.6),
        "c": ConstantPrior(-3.0, 1.0, -np.inf),
    }
    for z in (np.full(3, -40.0), np.full(3, 40.0)):
        a, b, c = np.asarray(flat_values(constants, z))
        assert a >= 1.0
        assert 0.2 <= b <= 0.6
        assert c == z[2]
    np.testing.assert_allclose(flat_values(constants, joint_prior(constants).mean), [2.0, 0.5, -3.0])


def test_prior_spread_of_a_bounded_constant_is_in_its_unit():
    constants = {"b": ConstantPrior(0.5, 0.01, 0.2, 0.6)}
    prior = joint_prior(constants)
    above = float(values_of(constants, prior.mean + prior.spread)["b"])
    np.testing.assert_allclose(above - 0.5, 0.01, rtol=0.05)


def test_a_clipped_constant_ends_on_its_bound_and_others_are_best_there():
    """y = rate x^-exponent with the exponent held at 0.3, where the data ask for 0.4: the rate of least squares."""
    x = np.exp(np.linspace(0.0, 2.0, 20))
    constants = {"rate": ConstantPrior(1.0, 5.0), "exponent": ConstantPrior(0.2, 5.0, 0.1, 0.3, clipped=True)}
    table = (jnp.asarray(x), jnp.zeros(20, int), jnp.asarray(2.0 * x**-0.4))
    options = LEAST_SQUARES._replace(estimate_noise=False)
    fitted = fit(FitProblem(per_device_errors, constants, table, noise=1e-3, options=options))
    assert fitted.converged
    assert float(fitted.values["exponent"]) == pytest.approx(0.3, rel=1e-12)
    np.testing.assert_allclose(np.log(fitted.values["rate"]), np.mean(np.log(2.0) - 0.1 * np.log(x)), atol=1e-5)
    assert laplace_intervals(fitted).upper[1] <= 0.3 * (1.0 + 1e-12)


@pytest.mark.parametrize(
    "bad", [ConstantPrior(2.0, 0.1, 0.0, 1.0), ConstantPrior(1.0, 0.0), ConstantPrior(1.0, np.inf)]
)
def test_a_prior_that_cannot_be_is_refused(bad):
    with pytest.raises(ValueError, match="the prior's"):
        joint_prior({"a": bad})


def test_robust_error_squared_is_twice_the_loss():
    r, k = jnp.linspace(-9.0, 9.0, 37), 1.5
    huber = np.where(np.abs(r) <= k, 0.5 * r**2, k * np.abs(r) - 0.5 * k**2)
    np.testing.assert_allclose(0.5 * robust_error(r, k, "huber") ** 2, huber, rtol=1e-12)
    pseudo = k**2 * (np.sqrt(1 + (r / k) ** 2) - 1)
    np.testing.assert_allclose(0.5 * robust_error(r, k, "pseudo-huber") ** 2, pseudo, rtol=1e-12, atol=1e-12)
    cauchy = 0.5 * k**2 * np.log1p((r / k) ** 2)
    np.testing.assert_allclose(0.5 * robust_error(r, k, "cauchy") ** 2, cauchy, rtol=1e-12, atol=1e-12)


def test_without_noise_the_fit_is_exact():
    fitted = fit(FitProblem(errors, CONSTANTS, sample(np.random.default_rng(0), noise=0.0)))
    assert fitted.converged
    np.testing.assert_allclose([fitted.values[name] for name in TRUE], list(TRUE.values()), rtol=1e-4)


@pytest.mark.slow
def test_outliers_move_a_robust_fit_less():
    table = sample(np.random.default_rng(1), outliers=4)
    squares = fit(FitProblem(errors, CONSTANTS, table, options=LEAST_SQUARES))
    for loss in ("huber", "pseudo-huber", "cauchy"):
        robust = fit(FitProblem(errors, CONSTANTS, table, options=FitOptions(loss=loss)))
        gap = [abs(np.log(result.values["amplitude"] / TRUE["amplitude"])) for result in (robust, squares)]
        assert gap[0] < 0.5 * gap[1]
        assert robust.noise[0] < 0.5 * np.std(squares.errors)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["huber", "pseudo-huber"])
def test_nominal_90_percent_intervals_hold_the_constants_in_85_to_97_percent_of_200_repetitions(loss):
    generator, options = np.random.default_rng(2), FitOptions(loss=loss, starts=1)
    held, noise = np.zeros(3), []
    for _ in range(200):
        fitted = fit(FitProblem(errors, CONSTANTS, sample(generator), options=options))
        low, high = laplace_intervals(fitted)
        held += (low < list(TRUE.values())) & (list(TRUE.values()) < high)
        noise.append(fitted.noise[0])
        assert fitted.converged
    assert np.all((held >= 170) & (held <= 194)), held
    np.testing.assert_allclose(np.mean(noise), 0.02, rtol=0.05)


@pytest.mark.slow
def test_bootstrap_and_laplace_agree_where_rows_are_independent():
    table = sample(np.random.default_rng(3), rows=60)
    fitted = fit(FitProblem(errors, CONSTANTS, table))
    draws = bootstrap(fitted, np.arange(60))
    laplace, resampled = laplace_intervals(fitted), quantiles(draws)
    ratio = (resampled.upper - resampled.lower) / (laplace.upper - laplace.lower)
    assert np.all((ratio > 0.5) & (ratio < 2.0)), ratio


@pytest.mark.slow
def test_held_out_groups_are_predicted_by_the_others_alone():
    generator = np.random.default_rng(4)
    device = np.repeat(np.arange(4), 8)
    x = np.exp(generator.uniform(0, 4, 32))
    rates = np.array([1.0, 2.0, 4.0, 8.0])
    y = rates[device] * x**-0.5 * np.exp(0.02 * generator.standard_normal(32))
    constants = {"rate": ConstantPrior(1.0, 2.0, labels=tuple("abcd")), "exponent": ConstantPrior(1.0, 0.5)}
    table = (jnp.asarray(x), jnp.asarray(device), jnp.asarray(y))
    fitted = fit(FitProblem(per_device_errors, constants, table))
    np.testing.assert_allclose(fitted.values["rate"], rates, rtol=0.05)
    assert fitted.names == ("rate[a]", "rate[b]", "rate[c]", "rate[d]", "exponent")
    first = np.arange(32) % 8 == 0
    blind = held_out_errors(fitted, device)
    np.testing.assert_allclose(  # a rate that nobody measured is the prior's, 1
        [np.mean(blind[device == number]) for number in range(4)], -np.log(rates), atol=0.1
    )
    transferred = held_out_errors(fitted, device, trained_on=first)
    assert np.max(np.abs(transferred)) < 0.1
    alone = fit(FitProblem(per_device_errors, constants, table, weights=(device != 2) | first))
    np.testing.assert_allclose(transferred[device == 2], per_device_errors(alone.values, table)[device == 2], atol=2e-3)


def test_constants_that_the_data_do_not_determine_are_named():
    constants = {
        "a": ConstantPrior(1.0, 1.0),
        "b": ConstantPrior(1.0, 1.0),
        "exponent": ConstantPrior(1.0, 0.5),
        "idle": ConstantPrior(0.5, 0.2, 0.0, 1.0),
    }
    x = jnp.asarray(np.exp(np.linspace(0, 5, 30)))
    fitted = fit(FitProblem(unused_errors, constants, (x, 4.0 * x**-0.5)))
    assert undetermined(fitted) == ("a", "b", "idle")
    np.testing.assert_allclose(fitted.values["a"] * fitted.values["b"], 4.0, rtol=1e-3)
    low, high = laplace_intervals(fitted)
    assert low[3] > 0.0
    assert high[3] < 1.0


@pytest.mark.slow
def test_the_next_measurement_is_where_the_model_is_least_sure():
    generator = np.random.default_rng(5)
    x = jnp.asarray(np.exp(np.linspace(0.0, 1.0, 12)))
    y = jnp.exp(model(TRUE, x)) * np.exp(0.02 * generator.standard_normal(12))
    fitted = fit(FitProblem(errors, CONSTANTS, (x, y)))
    candidates = jnp.asarray([1.0, 2.0, 10.0, 300.0])
    row, gain = next_measurement(fitted, (candidates, jnp.ones(4)))
    assert row == 3
    assert 0.0 < gain < 1.0

    # Brute force: the covariance after the row is measured, from the information of all rows.
    def predicted(z, x):
        return model(values_of(CONSTANTS, z), x)

    slopes = jax.jacfwd(predicted)(jnp.asarray(fitted.coordinates), candidates)
    before = np.linalg.inv(fitted.covariance)
    after = np.linalg.inv(before + np.outer(slopes[3], slopes[3]) / fitted.noise[0] ** 2)
    spread = [np.einsum("ri,ij,rj->", slopes, covariance, slopes) for covariance in (fitted.covariance, after)]
    np.testing.assert_allclose(gain, 1.0 - spread[1] / spread[0], rtol=1e-6)
    # For a target of its own, the candidate beside it helps most.
    assert next_measurement(fitted, (candidates, jnp.ones(4)), (jnp.asarray([1.1]), jnp.ones(1)))[0] == 0


def product_errors(values, table):
    predicted = values["fixed"] + values["rate"] * table["x"]
    return jnp.log(predicted / table["y"])[:, None]


def test_posterior_intervals_are_those_of_the_density_integrated_on_a_grid():
    # A fixed time that is small beside the rest: its logarithm has a long tail downward, beyond Laplace's interval.
    generator = np.random.default_rng(5)
    x = np.linspace(1.0, 4.0, 24)
    table = {"x": x, "y": (0.05 + x) * np.exp(0.02 * generator.standard_normal(24))}
    constants = {"fixed": ConstantPrior(0.05, 1.0), "rate": ConstantPrior(1.0, 0.5)}
    fitted = fit(FitProblem(product_errors, constants, table, noise=0.02, options=LEAST_SQUARES))
    ends = posterior_intervals(fitted, np.ones(2, bool))
    fixed, rate = np.log(np.geomspace(1e-4, 0.5, 401)), np.linspace(-0.1, 0.1, 201)
    error = np.log((np.exp(fixed)[:, None, None] + np.exp(rate)[None, :, None] * x) / table["y"]) / fitted.noise[0]
    deviance = np.sum(error**2, axis=-1) + (fixed[:, None] - np.log(0.05)) ** 2 + (rate[None] / 0.5) ** 2
    density = (1.0 + (deviance - np.min(deviance)) / fitted.freedom) ** (-0.5 * (fitted.freedom + 2.0))
    for index, (grid, marginal) in enumerate(((fixed, density.sum(axis=1)), (rate, density.sum(axis=0)))):
        exact = np.exp(np.interp([0.05, 0.95], np.cumsum(marginal) / np.sum(marginal), grid))
        width = np.log(exact[1] / exact[0])
        np.testing.assert_allclose(np.log([ends.lower[index], ends.upper[index]]), np.log(exact), atol=0.05 * width)
    laplace = laplace_intervals(fitted)
    assert ends.lower[0] < 0.8 * laplace.lower[0]
    np.testing.assert_array_equal(posterior_intervals(fitted, np.zeros(2, bool)), laplace)


def test_a_guess_of_the_noise_counts_as_measurements():
    # (12 x 0.1^2 + 4 x 0.3^2) / 16 = 0.03
    pooled = ErrorEstimate(np.array([0.3]), 4.0).pooled(0.1, 12.0)
    np.testing.assert_allclose(pooled.noise, np.sqrt(0.03), rtol=1e-12)
    assert pooled.freedom == 4.0


def test_few_exact_rows_do_not_make_a_fit_certain():
    x = np.array([1.0, 2.0, 4.0, 8.0])
    table = (x, np.exp(np.asarray(model(TRUE, x))))
    free, guessed = (
        fit(FitProblem(errors, CONSTANTS, table, noise=0.1, options=FitOptions(noise_counts=counts)))
        for counts in (0.0, 12.0)
    )
    assert free.noise[0] < 0.02
    # At least one measurement is beside the twelve of the guess.
    assert 0.08 < guessed.noise[0] < 0.1
    assert np.all(np.diag(free.covariance) < np.diag(guessed.covariance))
