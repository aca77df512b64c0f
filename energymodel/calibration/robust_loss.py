"""Losses that forgive large errors, and the noise and information that the errors of such a fit show."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import stats

from energymodel.calibration.constant_priors import Errors, Matrix, Outputs, Slopes
from energymodel.numerics import Numeric

Loss = Literal["pseudo-huber", "huber", "cauchy"]
CLIP = 2.0  # [noise] at which errors are clipped where the noise is estimated robustly
CLIPPINGS = 50
LOWEST_NOISE = 1e-6  # of an error: measurements are not more exact
ROUNDS = 3  # of noise and freedom, each of which depends on the other
QUADRATURE = 201  # points, over normal errors
NEARLY_ZERO = 1e-6


class FitOptions(NamedTuple):
    """How errors are weighed and how long the search lasts.

    Errors far above the noise count linearly ("huber", and smoothly so "pseudo-huber"), or by their logarithm
    ("cauchy").
    """

    loss: Loss = "pseudo-huber"
    threshold: float = 2.0  # where that begins [noise]
    estimate_noise: bool = True  # of each output from the errors; else that of the problem is kept
    noise_counts: float = 0.0  # measurements as which the problem's noise counts beside the errors, if estimated
    noise_freedom: float = 0.0  # degrees of freedom that it adds to those of the errors, if known from other data
    starts: int = 8  # points from which the search begins, the first is the prior's median
    steps: int = 200  # at most, of a search
    tolerance: float = 1e-9  # share of the objective that a search may leave to gain
    seed: int = 0  # of starts and resamples


def robust_error(error: Float[Array, "..."], threshold: Numeric, loss: Loss) -> Float[Array, "..."]:
    """What has a square twice the loss of an error r in units of the noise, `sign(r) sqrt(2 rho(r))` [Huber 1964].

    Huber: `rho = r^2 / 2` up to the threshold k, `k |r| - k^2 / 2` beyond. Pseudo-Huber: `k^2 (sqrt(1 + (r/k)^2) - 1)`.
    Cauchy: `k^2 ln(1 + (r/k)^2) / 2`.
    """
    square = (error / threshold) ** 2
    if loss == "pseudo-huber":
        return error * jnp.sqrt(2.0 / (1.0 + jnp.sqrt(1.0 + square)))
    if loss == "cauchy":
        small = square < NEARLY_ZERO
        safe = jnp.where(small, 1.0, square)
        return error * jnp.sqrt(jnp.where(small, 1.0 - 0.5 * square, jnp.log1p(safe) / safe))
    size = jnp.abs(error)
    far = size > threshold
    linear = jnp.sqrt(2.0 * threshold * jnp.where(far, size, threshold) - threshold**2)
    return jnp.where(far, jnp.sign(error) * linear, error)


class ErrorEstimate(NamedTuple):
    """What errors at a fit show."""

    noise: Outputs
    freedom: float  # measurements less the constants that they determine

    def pooled(self, guess: float, counts: float) -> "ErrorEstimate":
        """With a guess of the noise that counts as some measurements beside the errors."""
        squares = counts * guess**2 + self.freedom * self.noise**2
        return self._replace(noise=np.sqrt(squares / (counts + self.freedom)))


def estimate_noise(errors: Errors, slopes: Slopes, weights: Errors, prior: Matrix, first: Outputs) -> ErrorEstimate:
    """Standard deviation of the errors by output, with errors clipped at twice of it, from a first guess.

    The prior is the information of the coordinates in it.
    """
    counts = weights > 0
    squares = np.where(counts, weights**2 * errors**2, 0.0)
    rows, expected = np.maximum(np.sum(counts, axis=0), 1), _huber_moments(CLIP)[0]

    def freedom(noise: np.ndarray) -> float:
        """Measurements less the constants that they determine, `tr(H (H + S^-1)^-1)`."""
        data = information(slopes, weights, noise, np.full(np.shape(noise), np.inf))
        return max(1.0, float(np.sum(counts) - np.trace(np.linalg.solve(data + prior, data))))

    noise = first
    for _ in range(ROUNDS):
        share = np.sum(counts) / freedom(noise)
        noise = np.sqrt(np.sum(squares, axis=0) / rows * share)
        for _ in range(CLIPPINGS):
            noise = np.sqrt(np.sum(np.minimum(squares, (CLIP * noise) ** 2), axis=0) / rows * share / expected)
        noise = np.maximum(noise, LOWEST_NOISE)
    return ErrorEstimate(noise, freedom(noise))


def information(slopes: Slopes, weights: Errors, noise: Outputs, thresholds: Outputs) -> Matrix:
    """Fisher information of the coordinates in the data, less what a robust loss loses of it [Huber 1964].

    Linear counting begins at the thresholds [noise].
    """
    variance, slope = _huber_moments(thresholds)
    scaled = np.where(weights[:, :, None] > 0, slopes, 0.0) * (weights / noise * slope / np.sqrt(variance))[:, :, None]
    rows = scaled.reshape(-1, slopes.shape[-1])
    return rows.T @ rows


def _huber_moments(threshold: float | np.ndarray) -> tuple[np.ndarray | np.floating, np.ndarray | np.floating]:
    """`E[psi^2]` and `E[psi']` of Huber's psi at a threshold, for a standard normal error."""
    k = np.minimum(threshold, 40.0)
    inside = 2.0 * stats.norm.cdf(k) - 1.0
    return inside - 2.0 * k * stats.norm.pdf(k) + k**2 * (1.0 - inside), inside


def tempering(noise: Outputs, scale: Outputs, threshold: float, loss: Loss) -> Outputs:
    """Factor of the loss by output, with which it is half a chi-square, `E[psi'] / E[psi^2]` [Ribatet et al. 2012].

    psi is the slope of the loss of errors in units of `scale`; the mean is over normal errors of standard deviation
    `noise`.
    """
    if loss == "huber":
        variance, inside = _huber_moments(threshold * scale / noise)
        return inside / variance * (scale / noise) ** 2

    def rho(error: Array) -> Array:
        return 0.5 * robust_error(error, threshold, loss) ** 2

    nodes, share = np.polynomial.hermite_e.hermegauss(QUADRATURE)
    with jax.enable_x64(True):
        error = jnp.asarray(nodes[:, None] * noise / scale).ravel()
        psi, slope = (np.asarray(jax.vmap(of)(error)) for of in (jax.grad(rho), jax.grad(jax.grad(rho))))
    shape = (len(nodes), len(noise))
    return (share @ slope.reshape(shape)) / (share @ psi.reshape(shape) ** 2)
