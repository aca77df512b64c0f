"""How should power be divided over unlike devices so that their total throughput is highest?

At the optimum, one more watt gains the same everywhere [Boyd & Vandenberghe 2004, ex. 5.2]. Three laws of throughput
against power have closed forms. Devices are the last axis.

Shared arguments: `power` P to divide [W]; `gains` c_i or k_i, the throughput at one watt (of dynamic power)
[token/s], or g_i [1/W], positive; `static_powers` s_i [W].
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, implicit_root
from energymodel.performance.heterogeneous import Devices


def square_root_power_split(power: Numeric, gains: Devices) -> Float[Array, "*batch devices"]:
    """Best division for throughputs `c_i sqrt(P_i)`: `P_i = P c_i^2 / sum_j c_j^2`.

    The marginal throughput `c_i / (2 sqrt(P_i))` is the same everywhere [derivation: Lagrange].

    **Returns:** power of each device [W], summing to P.
    """
    c = jnp.asarray(gains)
    weight = (c / jnp.max(c, axis=-1, keepdims=True)) ** 2
    return jnp.asarray(power)[..., None] * weight / jnp.sum(weight, axis=-1, keepdims=True)


def square_root_throughput(power: Numeric, gains: Devices) -> Float[Array, "*batch"]:
    """Throughput of the best division for `c_i sqrt(P_i)`: `R = sqrt(P sum_i c_i^2)`.

    The value at `square_root_power_split` [derivation: inserted].

    **Returns:** throughput [token/s].
    """
    c = jnp.asarray(gains)
    largest = jnp.max(c, axis=-1)
    return largest * jnp.sqrt(power * jnp.sum((c / largest[..., None]) ** 2, axis=-1))


def cube_root_power_split(power: Numeric, gains: Devices, static_powers: Devices) -> Float[Array, "*batch devices"]:
    """Best division for `k_i (P_i - s_i)^(1/3)`: `P_i = s_i + (P - sum s) k_i^1.5 / sum_j k_j^1.5`.

    The marginal throughput is the same everywhere [derivation: Lagrange]. For devices whose voltage follows the clock,
    dynamic power goes with the cube of throughput. All devices are on: if P does not cover their static powers, each
    gets only its static power.

    **Returns:** power of each device [W], summing to P.
    """
    k, s = map(jnp.asarray, (gains, static_powers))
    weight = (k / jnp.max(k, axis=-1, keepdims=True)) ** 1.5
    excess = jnp.maximum(power - jnp.sum(s, axis=-1), 0.0)
    return s + excess[..., None] * weight / jnp.sum(weight, axis=-1, keepdims=True)


def cube_root_throughput(power: Numeric, gains: Devices, static_powers: Devices) -> Float[Array, "*batch"]:
    """Throughput of the best division for `k_i (P_i - s_i)^(1/3)`: `R = (P - sum s)^(1/3) (sum k_i^1.5)^(2/3)`.

    The value at `cube_root_power_split` [derivation: inserted].

    **Returns:** throughput [token/s]; zero where the power does not cover the static powers.
    """
    k, s = map(jnp.asarray, (gains, static_powers))
    largest = jnp.max(k, axis=-1)
    total = jnp.sum((k / largest[..., None]) ** 1.5, axis=-1)
    excess = power - jnp.sum(s, axis=-1)
    some = excess > 0
    root = jnp.where(some, jnp.exp(jnp.log(jnp.where(some, excess, 1.0)) / 3.0), 0.0)
    return largest * root * total ** (2.0 / 3.0)


def water_level(power: Numeric, gains: Devices) -> Float[Array, "*batch"]:
    """Level l of water-filling, `sum_i max(0, l - 1 / g_i) = P` [Boyd & Vandenberghe 2004, ex. 5.2].

    **Returns:** level [W]: a device is on if 1/g_i lies below it.
    """
    floors = 1.0 / jnp.asarray(gains)
    P = jnp.asarray(power)
    lowest = jnp.min(floors, axis=-1)

    def surplus(level: Array, parameters: tuple[Array, Array]) -> Array:
        power, floors = parameters
        return jnp.sum(jnp.maximum(level[..., None] - floors, 0.0), axis=-1) - power

    # The highest possible level gives all power to the best device; a margin keeps the root inside the bracket.
    return implicit_root(surplus, lowest, lowest + P + 0.5 * (P + lowest), (P, floors))


def logarithmic_power_split(power: Numeric, gains: Devices) -> Float[Array, "*batch devices"]:
    """Best division for throughputs `ln(1 + g_i P_i)`: `P_i = max(0, l - 1 / g_i)` [Boyd & Vandenberghe 2004, ex. 5.2].

    Throughput saturates with power, and devices with low gain stay off.

    **Returns:** power of each device [W], summing to P.
    """
    level = water_level(power, gains)
    return jnp.maximum(level[..., None] - 1.0 / jnp.asarray(gains), 0.0)


def logarithmic_throughput(power: Numeric, gains: Devices) -> Float[Array, "*batch"]:
    """Value of the best division, `sum_i ln(1 + g_i P_i)` [Boyd & Vandenberghe 2004, ex. 5.2].

    **Returns:** throughput in units of the e-folding gain [1].
    """
    return jnp.sum(jnp.log(1.0 + jnp.asarray(gains) * logarithmic_power_split(power, gains)), axis=-1)
