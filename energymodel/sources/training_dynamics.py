"""The document "Training Dynamics" on batch size, throughput, loss and energy, literally.

Shared arguments: global `batch` B and `maximum_batch` B_max [token]; `throughput` T(B), `maximum_throughput` T₀ and
`minimum_throughput` T_min [token/s]; `loss` L, `initial_loss` L₀, `target_loss` L* and `loss_drop` L₀ - L* [nat/token];
`efficiency` E(B), loss per token [nat/token]; `base_efficiency` α, in nat per token at a batch of one token;
`scaling_exponent` β in (0, 1) and `utilization_exponent` γ [1]; `base_power` W_base [W]; `training_time` Time [s];
`temperature` T [K]; `parameters` N_params and `practical_efficiency_factor` η [1]; `data_entropy` H_data [bit];
`minimum_energy` E_min [J].
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from energymodel.constants import BOLTZMANN
from energymodel.numerics import Numeric, Values


def stated_per_sample_efficiency(batch: Numeric, base_efficiency: Numeric, scaling_exponent: Numeric) -> Values:
    """Loss reduction per token [nat/token], `E(B) = α·B^(-β)` ("Training Dynamics", Efficiency Relations).

    Wrong for small batches: it diverges as B -> 0, with more than one token's worth of progress per token. Measured
    efficiency saturates below the critical batch; this is the limit of batches far above it.
    """
    return jnp.asarray(base_efficiency) * jnp.asarray(batch) ** (-jnp.asarray(scaling_exponent))


def stated_batch_throughput(
    batch: Numeric, maximum_throughput: Numeric, maximum_batch: Numeric, utilization_exponent: Numeric
) -> Values:
    """Throughput against batch [token/s], `T(B) = T₀·min(1, B/B_max)^γ` ("Training Dynamics", Throughput Scaling).

    Generalized: one B_max is both the saturation batch and the largest batch allowed, so that the `min` never acts. The
    model separates the saturation batch from the memory limit and smooths the kink.
    """
    filled = jnp.minimum(1.0, jnp.asarray(batch) / maximum_batch)
    return jnp.asarray(maximum_throughput) * filled ** jnp.asarray(utilization_exponent)


def stated_training_time(
    initial_loss: Numeric, target_loss: Numeric, efficiency: Numeric, throughput: Numeric
) -> Values:
    """Time to a loss, `Time = (L₀ - L*)/E(B)·T(B)` ("Training Dynamics", Energy-Time Tradeoff).

    Wrong: read from left to right, more throughput takes more time. It is also linear in the loss drop, contrary to the
    document's own differential equation, whose time is logarithmic. `stated_training_time_as_fraction` fixes the first
    error.

    **Returns:** the number as printed, of unit [token^2/s] where a time was meant.
    """
    return (jnp.asarray(initial_loss) - target_loss) / efficiency * throughput


def stated_training_time_as_fraction(
    initial_loss: Numeric, target_loss: Numeric, efficiency: Numeric, throughput: Numeric
) -> Values:
    """Time to a loss [s], `Time = (L₀ - L*)/[E(B)·T(B)]` ("Training Dynamics", Energy-Time Tradeoff).

    The slash of `(L₀ - L*)/E(B)·T(B)` read as a fraction bar. Wrong except to first order in (L₀ - L*)/L₀: the
    document's own `dL/dt = -E·T·L` takes `ln(L₀/L*)/(E·T)`. At L₀ = 10, L* = 5 the linear form is 28 % too short.
    """
    return (jnp.asarray(initial_loss) - target_loss) / (jnp.asarray(efficiency) * throughput)


def stated_total_energy(base_power: Numeric, training_time: Numeric) -> Values:
    """Energy of a run [J], `W_total = W_base · Time` ("Training Dynamics", Energy-Time Tradeoff; W: Core Parameters).

    Wrong in unit, and base power does not depend on the batch there: the document gives W "in watts", which is power,
    not energy. The product itself holds for a constant batch.
    """
    return jnp.asarray(base_power) * training_time


def stated_information_rate(efficiency: Numeric, throughput: Numeric) -> Values:
    """Rate of information [nat/s], `I = E(B)·T(B)` ("Training Dynamics", Information Processing Rate).

    Generalized: a rate of progress; it becomes bit/s when E is the excess code length absorbed per token.
    """
    return jnp.asarray(efficiency) * throughput


def stated_training_constraints_hold(
    loss: Numeric,
    target_loss: Numeric,
    batch: Numeric,
    maximum_batch: Numeric,
    throughput: Numeric,
    minimum_throughput: Numeric,
) -> Values:
    """Constraints `L ≤ L*`, `B ≤ B_max`, `T(B) ≥ T_min` ("Training Dynamics", Optimization Problem).

    Constraints of `minimize W_total`. OK: the loss limit binds at every optimum. The model adds limits on power,
    temperature, memory and time.

    **Returns:** 1 where all hold, else 0 [1].
    """
    hold = (jnp.asarray(loss) <= target_loss) & (jnp.asarray(batch) <= maximum_batch)
    return jnp.where(hold & (jnp.asarray(throughput) >= minimum_throughput), 1.0, 0.0)


def stated_minimum_energy(temperature: Numeric, parameters: Numeric, data_entropy: Numeric) -> Values:
    """Minimum energy [J], `E_min = k_B·T·ln(2)·N_params·H_data` ("Training Dynamics", Minimum Energy Requirement).

    Wrong: in joules only if N·H counts bits, and the entropy of the data is not erased once per parameter. With
    H = D h it charges h/6 bits for each of the 6 N D operations. The model has a ladder of bounds instead.
    """
    # In this order, no intermediate result leaves the range of float32.
    return BOLTZMANN * jnp.asarray(parameters) * data_entropy * temperature * jnp.log(2.0)


def stated_practical_energy(minimum_energy: Numeric, practical_efficiency_factor: Numeric) -> Values:
    """Practical energy [J], `E_practical = η·E_min`, η 10⁶ to 10⁹ ("Training Dynamics", Practical Energy Consumption).

    Generalized: η is an overhead above 1, not an efficiency, and its range is right only for bounds per operation;
    relative to the bits that the model keeps it is 4.6e21 today.
    """
    return jnp.asarray(practical_efficiency_factor) * minimum_energy


def stated_energy_slope(
    batch: Numeric,
    base_power: Numeric,
    loss_drop: Numeric,
    base_efficiency: Numeric,
    scaling_exponent: Numeric,
    maximum_throughput: Numeric,
    maximum_batch: Numeric,
    utilization_exponent: Numeric,
) -> Values:
    """Slope whose zero should be the best batch, `∂W_total/∂B = 0` ("Training Dynamics", Batch Size Optimization).

    Wrong: the slope of a product of two powers of B has no zero. As printed, W_total goes as B^(β+γ); with a fraction
    bar, as B^(β-γ). Both have their best batch at a bound.

    **Returns:** ∂W_total/∂B with W_total as printed, of unit [W token/s].
    """

    def total_energy(batch: Array) -> Array:
        efficiency = stated_per_sample_efficiency(batch, base_efficiency, scaling_exponent)
        throughput = stated_batch_throughput(batch, maximum_throughput, maximum_batch, utilization_exponent)
        return stated_total_energy(base_power, stated_training_time(loss_drop, 0.0, efficiency, throughput))

    batch = jnp.asarray(batch)
    return jax.jvp(total_energy, (batch,), (jnp.ones_like(batch),))[1]


def stated_optimal_batch(
    scaling_exponent: Numeric, utilization_exponent: Numeric, base_power: Numeric, maximum_throughput: Numeric
) -> Values:
    """Best batch, `B* = (β·γ·W_base/T₀)^(1/(γ-β))` ("Training Dynamics", Batch Size Optimization).

    Wrong: the unit is that of (J/token)^(1/(γ-β)), not a token count, and it does not follow from the preceding energy,
    which has no stationary batch. The model minimizes saturating forms, which have one.

    **Returns:** the number as printed; the document calls it a batch [token].
    """
    difference = jnp.asarray(utilization_exponent) - scaling_exponent
    product = jnp.asarray(scaling_exponent) * utilization_exponent * base_power / maximum_throughput
    return product ** (1.0 / difference)


def stated_loss_rate(efficiency: Numeric, throughput: Numeric, loss: Numeric) -> Values:
    """Rate of the loss [nat/token/s], `dL/dt = -E(B)·T(B)·L` ("Training Dynamics", System Dynamics).

    Wrong: the loss decays exponentially to zero. Measured losses fall as a power of data to an entropy floor; this
    is the limit of an infinite exponent and a floor at zero. Here E is per token, not nat per token as defined above.
    """
    return -jnp.asarray(efficiency) * throughput * loss
