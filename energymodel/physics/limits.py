"""Minimum energy of a training run by physics, by CMOS technology and by the roofline of a chip.

A ladder of lower bounds: bits of the model, bits overwritten, bits erased by operations, CMOS, roofline. Never
calibrate to them: a run uses 1e6 to 1e22 times the first three.

Shared arguments: `temperature` theta of the surroundings [K]; `parameters` N of the model and optimizer `steps` S [1];
`bits` erased, n, `information` absorbed in training, I, and `data_information` of the training set, H [bit];
`operations` F [FLOP]; `bits_per_operation` erased, n_b [bit/FLOP], 32 by default, 0.4 to 128; `error_margin` m, ln(1/p)
for errors with probability p [1]; `energy` E of a run or a system and `minimum_energy` E_min, a bound above 0 [J];
`power` P [W]; `rate` R of operations achieved, above 0 [FLOP/s]; `energy_per_operation` E_op [J/FLOP].
"""

import math

import jax.numpy as jnp

from energymodel.constants import BOLTZMANN, PLANCK, SPEED_OF_LIGHT
from energymodel.numerics import Numeric, Values

_OPERATIONS_PER_TOKEN_AND_PARAMETER = 6.0


def landauer_energy(bits: Numeric, temperature: Numeric) -> Values:
    """Minimum heat of erasing bits [J], `E = k_B theta ln 2 n` [Landauer 1961]."""
    # Constants first: k_B ln 2 is about 1e-23, well within float32, and so is its product with the bits.
    return BOLTZMANN * math.log(2.0) * jnp.asarray(temperature) * bits


def reliable_operation_energy(bits: Numeric, error_margin: Numeric, temperature: Numeric) -> Values:
    """Minimum energy of an operation whose bits thermal noise flips with a probability of `e^-m`, `E = n k_B theta m`.

    A bit held by a barrier E flips with `exp(-E / (k_B theta))` [Meindl & Davis 2000]; m = ln 2 is Landauer's bound,
    where every second bit is wrong.

    **Returns:** energy [J].
    """
    return BOLTZMANN * jnp.asarray(temperature) * error_margin * bits


def noise_error_rate(bit_rate: Numeric, error_margin: Numeric) -> Values:
    """Bits that thermal noise flips in a second [1/s], `r = R e^-m` [Meindl & Davis 2000].

    **Arguments:**

    - `bit_rate`: R, bits erased in a second [bit/s].
    - `error_margin`: m, as in `reliable_operation_energy` [1].
    """
    return jnp.asarray(bit_rate) * jnp.exp(-jnp.asarray(error_margin))


def landauer_model_energy(
    information: Numeric, parameters: Numeric, bits_per_parameter: Numeric, temperature: Numeric
) -> Values:
    """Writing the bits the model keeps [J], `E = k_B theta ln 2 min(I, c N)` [derivation: docs/physics.md A0.7].

    **Arguments:**

    - `information`: absorbed in training, I [bit].
    - `bits_per_parameter`: storage capacity c [bit], 2 to 3.6.
    """
    written = jnp.minimum(jnp.asarray(information), information_capacity(parameters, bits_per_parameter))
    return landauer_energy(written, temperature)


def landauer_overwrite_energy(
    parameters: Numeric, steps: Numeric, bits_per_parameter: Numeric, temperature: Numeric
) -> Values:
    """Every step overwrites every parameter [J], `E = k_B theta ln 2 b_p N S` [derivation: docs/physics.md A0.7].

    **Arguments:**

    - `steps`: optimizer steps S [1].
    - `bits_per_parameter`: overwritten irreversibly in a step, b_p [bit].
    """
    return landauer_energy(jnp.asarray(parameters) * bits_per_parameter * steps, temperature)


def landauer_operation_energy(operations: Numeric, bits_per_operation: Numeric, temperature: Numeric) -> Values:
    """Every operation erases bits [J], `E = k_B theta ln 2 n_b F` [derivation: docs/physics.md A0.7]."""
    return landauer_energy(jnp.asarray(operations) * bits_per_operation, temperature)


def landauer_source_energy(parameters: Numeric, data_information: Numeric, temperature: Numeric) -> Values:
    """Parameters times data [J], `E = k_B theta ln 2 N H` [derivation: docs/physics.md A0.7].

    A product of two extensive quantities has no derivation as a bit count. With H = D h it is
    `landauer_operation_energy` at h / 6 bits per operation: see `source_bits_per_operation`.
    """
    return landauer_energy(jnp.asarray(parameters) * data_information, temperature)


def source_bits_per_operation(entropy: Numeric) -> Values:
    """Bits per operation in N H [bit/FLOP], `n_b = h / (6 ln 2)`, as F = 6 N D [derivation: docs/physics.md A0.7].

    **Arguments:**

    - `entropy`: of the data, h [nat/token].
    """
    return jnp.asarray(entropy) / (_OPERATIONS_PER_TOKEN_AND_PARAMETER * math.log(2.0))


def finite_time_landauer_energy(
    bits: Numeric, temperature: Numeric, duration: Numeric, relaxation_time: Numeric
) -> Values:
    """Erasure in finite time [J], `E = k_B theta ln 2 n (1 + tau_c / tau)` [Bérut et al. 2012; Proesmans et al. 2020].

    First order in tau_c / tau: slow erasure.

    **Arguments:**

    - `bits`: n [bit].
    - `duration`: of one erasure, tau [s], above 0.
    - `relaxation_time`: of the memory, tau_c [s].
    """
    return landauer_energy(bits, temperature) * (1.0 + jnp.asarray(relaxation_time) / duration)


def margolus_levitin_rate(energy: Numeric) -> Values:
    """Fastest rate of distinct states [1/s], `r = 2 E / (pi hbar) = 4 E / h` [Margolus & Levitin 1998]."""
    # 4 / h is 6e33, in the range of float32; h itself is close to the smallest normal float32.
    return jnp.asarray(energy) * (4.0 / PLANCK)


def light_distance(duration: Numeric, refraction: Numeric) -> Values:
    """Width of a machine across which a signal passes in a time [m], at most `d = c t / n` [definition].

    **Arguments:**

    - `duration`: t [s].
    - `refraction`: group index n of the medium [1]; 1.47 of silica fiber.
    """
    return SPEED_OF_LIGHT * jnp.asarray(duration) / refraction


def landauer_multiple(energy: Numeric, minimum_energy: Numeric) -> Values:
    """Energy as a multiple of a bound, `kappa = E / E_min` [definition].

    **Returns:** multiple [1], at least 1 for a true bound; its inverse is an efficiency.
    """
    return jnp.asarray(energy) / minimum_energy


def energy_per_operation(power: Numeric, rate: Numeric) -> Values:
    """All-in energy of an operation [J/FLOP], `E_op = P / R` [definition]."""
    return jnp.asarray(power) / rate


def operation_multiple(energy_per_operation: Numeric, bits_per_operation: Numeric, temperature: Numeric) -> Values:
    """Operation energy over its bound [1], `kappa = E_op / (n_b k_B theta ln 2)` [derivation: docs/physics.md A0.8].

    With E_op [J/FLOP] and n_b [bit/FLOP] as in `energy_per_operation` and `landauer_operation_energy`.
    """
    return landauer_multiple(energy_per_operation, landauer_energy(bits_per_operation, temperature))


def cmos_wall_energy(operations: Numeric, operations_per_joule: Numeric) -> Values:
    """Minimum energy of operations in CMOS [J], `E = F / e_max` [Ho et al. 2023].

    The geometric mean of their estimates is 4.7e15 fp4 FLOP/J, about 200 times today's chips.

    **Arguments:**

    - `operations`: F [FLOP].
    - `operations_per_joule`: limit of the technology, e_max [FLOP/J], above 0.
    """
    return jnp.asarray(operations) / operations_per_joule


def roofline_energy(
    operations: Numeric, energy_per_operation: Numeric, traffic: Numeric, energy_per_byte: Numeric, voltage: Numeric
) -> Values:
    """Energy without any overhead [J], `E = F E_op v^2 + Q E_mem` [Choi et al. 2013].

    No static power, waiting, network or cooling: with v at the voltage floor, this chip's minimum for this work.

    **Arguments:**

    - `operations`: F [FLOP].
    - `energy_per_operation`: at reference voltage, E_op [J/FLOP].
    - `traffic`: bytes to and from memory, Q [B].
    - `energy_per_byte`: E_mem [J/B].
    - `voltage`: voltage fraction v [1].
    """
    switching = jnp.asarray(operations) * energy_per_operation * jnp.asarray(voltage) ** 2
    return switching + jnp.asarray(traffic) * energy_per_byte


def energy_per_bit(energy: Numeric, information: Numeric) -> Values:
    """Energy per bit of absorbed information [J/bit], `E / I` [definition]."""
    return jnp.asarray(energy) / information


def information_capacity(parameters: Numeric, bits_per_parameter: Numeric) -> Values:
    """Storage capacity of a model [bit], `I_max = c N` [Allen-Zhu & Li 2024; Morris et al. 2025].

    **Arguments:**

    - `parameters`: N [1].
    - `bits_per_parameter`: c [bit]; 2 measured for knowledge, 3.6 for memorized text.
    """
    return jnp.asarray(parameters) * bits_per_parameter
