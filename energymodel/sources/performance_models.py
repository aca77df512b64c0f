"""The document "Engineering Optimization" on dividing work, throughput and energy, literally.

Its sections "Implementation Strategy" and "Performance Models"; the earlier sections are in `engineering_optimization`.
Shared arguments: `peak_rate` F_peak and `compute_throughput` [FLOP/s]; `memory_bandwidth` B_mem, `network_bandwidth`
B_network, `memory_throughput` and `communication_throughput` [B/s]; efficiencies η_compute, η_memory and η_network [1];
`total_work` W_total [FLOP]; `power` P_i and `total_power` [W]; `exponent` and `activity` α,
`coefficient_of_performance` CoP [1]; `capacitance` C_eff [F]; `voltage` V [V]; `frequency` f [Hz]; `leakage_current`
I_leak [A]; `time` t [s]; `heat` Q_thermal, `dynamic_energy`, `static_energy` and `cooling_energy` [J].
"""

import jax.numpy as jnp

from energymodel.numerics import Numeric, Values


def stated_workload_share(total_work: Numeric, power: Numeric, total_power: Numeric, exponent: Numeric) -> Values:
    """Work of device i [FLOP], `W_i = W_total · (P_i/P_total)^α` ("Engineering Optimization", Software Optimization).

    Wrong unless α = 1: the shares do not add up to the whole, and they should follow throughput, not power.
    """
    return jnp.asarray(total_work) * (jnp.asarray(power) / total_power) ** jnp.asarray(exponent)


def stated_compute_throughput(peak_rate: Numeric, compute_efficiency: Numeric) -> Values:
    """Compute bound [FLOP/s], `T_compute = F_peak · η_compute` ("Engineering Optimization", Throughput Estimation).

    OK alone, in FLOP/s.
    """
    return jnp.asarray(peak_rate) * compute_efficiency


def stated_memory_throughput(memory_bandwidth: Numeric, memory_efficiency: Numeric) -> Values:
    """Memory bound [B/s], `T_memory = B_mem · η_memory` ("Engineering Optimization", Throughput Estimation).

    OK alone, in B/s.
    """
    return jnp.asarray(memory_bandwidth) * memory_efficiency


def stated_communication_throughput(network_bandwidth: Numeric, network_efficiency: Numeric) -> Values:
    """Communication bound [B/s], `T_comm = B_network · η_network` ("Engineering Optimization", Throughput Estimation).

    OK alone, in B/s.
    """
    return jnp.asarray(network_bandwidth) * network_efficiency


def stated_throughput_estimate(
    compute_throughput: Numeric, memory_throughput: Numeric, communication_throughput: Numeric
) -> Values:
    """Rate, `T_est = min(T_compute, T_memory, T_communication)` ("Engineering Optimization", Throughput Estimation).

    Wrong: FLOP/s and B/s cannot be compared before each is divided by what a token needs; then the minimum is
    perfect overlap, and the p-norm of times generalizes it.

    **Returns:** the smallest number as printed; [token/s] if the arguments are.
    """
    return jnp.minimum(jnp.minimum(jnp.asarray(compute_throughput), memory_throughput), communication_throughput)


def stated_dynamic_energy(capacitance: Numeric, voltage: Numeric, frequency: Numeric, activity: Numeric) -> Values:
    """Dynamic energy, `E_dynamic = C_eff · V² · f · α` ("Engineering Optimization", Energy Estimation).

    Wrong in unit: this is a power, to be multiplied by the busy time.

    **Returns:** the number as printed, in truth a power [W].
    """
    return jnp.asarray(capacitance) * jnp.asarray(voltage) ** 2 * frequency * activity


def stated_static_energy(voltage: Numeric, leakage_current: Numeric, time: Numeric) -> Values:
    """Static energy [J], `E_static = V · I_leak · t` ("Engineering Optimization", Energy Estimation).

    OK at constant temperature; leakage grows with voltage and temperature, and both change over a run.
    """
    return jnp.asarray(voltage) * leakage_current * time


def stated_cooling_energy(coefficient_of_performance: Numeric, heat: Numeric) -> Values:
    """Energy of cooling [J], `E_cooling = CoP · Q_thermal` ("Engineering Optimization", Energy Estimation).

    Wrong: the coefficient of performance is heat removed per work, so it divides: `Q/CoP`. They agree at CoP = 1.
    """
    return jnp.asarray(coefficient_of_performance) * heat


def stated_energy_estimate(dynamic_energy: Numeric, static_energy: Numeric, cooling_energy: Numeric) -> Values:
    """Sum `E_est = E_dynamic + E_static + E_cooling` ("Engineering Optimization", Energy Estimation).

    OK as a sum; the model adds memory, network, host, idle wait and delivery loss.

    **Returns:** energy [J].
    """
    return jnp.asarray(dynamic_energy) + static_energy + cooling_energy
