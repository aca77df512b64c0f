"""What does a model return at a random sample of its uncertain numbers?

Samples are Sobol points with independent random digital shifts, the replicates: each sample is uniform, so that
estimates have no bias, and the spread between replicates gives their errors [L'Ecuyer & Lemieux 2002].
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import qmc

from energymodel.sweeps.draws import BITS, NumberSampler


def sobol_points(count: int, dimensions: int, seed: int) -> np.ndarray:
    """Scrambled Sobol points as integers of 32 bits, which the random bits of each replicate shift."""
    points = qmc.Sobol(dimensions, scramble=True, rng=seed).random(count)
    return np.minimum(np.floor(points * 2.0**32), 2.0**32 - 1.0).astype(np.uint32)


def uniform(seed: Any, replicate: Any, point: Any) -> Float[Array, " factors"]:
    """Numbers between 0 and 1 of a sample: its Sobol point with the digital shift of its replicate."""
    point = jnp.asarray(point).astype(jnp.uint32)
    key = jax.random.fold_in(jax.random.key(seed), jnp.asarray(replicate).astype(jnp.uint32))
    shifted = point ^ jax.random.bits(key, point.shape, jnp.uint32)
    return ((shifted >> (32 - BITS)).astype(float) + 0.5) * 2.0**-BITS


class SampledModel(eqx.Module):
    """A model at the sample (`replicate`, `point`) of its uncertain numbers."""

    model: Callable[..., Any]
    sampler: NumberSampler
    seed: Any = eqx.field(converter=np.uint32)

    def __call__(self, replicate: Any, point: Any) -> Any:
        """Outputs of one sample."""
        return self.model(**self.sampler.named(self.sampler(uniform(self.seed, replicate, point))))


class ResampledModel(eqx.Module):
    """A model at two independent samples A and B, and at A with some factors of B [Saltelli et al. 2010].

    `point` holds the coordinates of both; `from_b` is one for each factor that B supplies, zero elsewhere.
    """

    model: Callable[..., Any]
    sampler: NumberSampler
    seed: Any = eqx.field(converter=np.uint32)

    def __call__(self, replicate: Any, point: Any, from_b: Any) -> Any:
        """Outputs of one sample."""
        count = len(self.sampler.factors)
        both = uniform(self.seed, replicate, point)
        a, b = self.sampler(both[:count]), self.sampler(both[count:])
        resampled = jnp.asarray(from_b)[np.array(self.sampler.owners, int)] > 0.5
        return self.model(**self.sampler.named(jnp.where(resampled, b, a)))
