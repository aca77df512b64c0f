"""The document "Engineering Optimization" on hardware, power, heat and design, literally.

Shared arguments: `power` P or P_inst, `total_power` P_total, `idle_power` P_idle, `maximum_power` P_max,
`compute_power`, `memory_power` and `cooling_power` P_cooling, the heat removed [W]; `throughput` T(P),
`maximum_throughput` B_max, `minimum_throughput` T_min, `achieved_throughput` and `theoretical_throughput` [token/s];
energies `achieved_energy`, `minimum_energy`, `actual_energy`, `useful_energy` and `total_energy` [J]; `total_time` [s];
`architecture_efficiency` α, `power_efficiency` β and `maximum_efficiency` γ [1]; `energy_per_operation` E_op [J/token];
`batch` B, `maximum_batch`, `optimal_batch` B_opt and `reference_batch`, which fixes a constant with the
`reference_power` there [token, W]; `temperature` T and `maximum_temperature` [K]; `temperature_rate` dT/dt and
`maximum_rate` R_max [K/s]; `thermal_capacity` C [J/K]; `maximum_frequency` f_max [Hz], `coefficient` k in W per Hz and
V^2, and `voltage` V [V].
"""

from collections.abc import Callable

import jax.numpy as jnp

from energymodel.numerics import Numeric, Values


def stated_hardware_efficiency(achieved_energy: Numeric, minimum_energy: Numeric) -> Values:
    """Achieved over minimum energy, `η_hw = E_achieved/E_min` ("Engineering Optimization", Core System Parameters).

    OK after renaming: it is at least 1, so an overhead and not an efficiency; the model calls it Landauer multiple.

    **Returns:** η_hw [1].
    """
    return jnp.asarray(achieved_energy) / minimum_energy


def stated_energy_time_product(total_energy: Numeric, total_time: Numeric) -> Values:
    """Energy-time product [J s], `ETP = E_total · T_total` ("Engineering Optimization", Fundamental Relation).

    OK: the energy-delay product of [Gonzalez & Horowitz 1996]. If the number of chips is free it tends to 0 unless
    communication, stragglers or capital cost limit it.
    """
    return jnp.asarray(total_energy) * total_time


def stated_power_throughput(
    power: Numeric, architecture_efficiency: Numeric, energy_per_operation: Numeric, maximum_throughput: Numeric
) -> Values:
    """Throughput of a power [token/s], `T(P) = min(α·P/E_op, B_max)` ("Engineering Optimization", Throughput Model).

    Generalized: it has no idle power and no voltage curve, so it holds only where voltage is at its floor and static
    power is negligible. Together with `stated_instantaneous_power` it leaves one possible power, so α is derived.
    """
    return jnp.minimum(jnp.asarray(architecture_efficiency) * power / energy_per_operation, maximum_throughput)


def stated_objective(
    power: Numeric,
    batch: Numeric,
    total_energy: Callable[[Numeric, Numeric], Numeric],
    total_time: Callable[[Numeric, Numeric], Numeric],
) -> Values:
    """Objective `f(P, B) = E_total(P, B) · T_total(P, B)` ("Engineering Optimization", Objective Function).

    OK: one of the objectives that `optimize` offers (`etp`).

    **Arguments:**

    - `power`: P [W].
    - `batch`: B [token].
    - `total_energy`: E_total(P, B), returns [J].
    - `total_time`: T_total(P, B), returns [s].

    **Returns:** objective [J s].
    """
    return stated_energy_time_product(total_energy(power, batch), total_time(power, batch))


def stated_design_constraints_hold(
    power: Numeric,
    maximum_power: Numeric,
    throughput: Numeric,
    minimum_throughput: Numeric,
    batch: Numeric,
    maximum_batch: Numeric,
) -> Values:
    """Constraints `P ≤ P_max`, `T(P) ≥ T_min`, `B ≤ B_max` ("Engineering Optimization", Objective Function).

    OK, but B_max is a throughput in the preceding throughput model and a batch size here.

    **Returns:** 1 where all hold, else 0 [1].
    """
    hold = (jnp.asarray(power) <= maximum_power) & (jnp.asarray(throughput) >= minimum_throughput)
    return jnp.where(hold & (jnp.asarray(batch) <= maximum_batch), 1.0, 0.0)


def stated_instantaneous_power(
    throughput: Numeric, power_efficiency: Numeric, energy_per_operation: Numeric, idle_power: Numeric
) -> Values:
    """Power now [W], `P_inst = β·T(P)·E_op + P_idle` ("Engineering Optimization", Power-Performance Relationship).

    OK alone: idle power plus energy per operation. With `stated_power_throughput` it gives `P(1 - αβ) = P_idle`, a
    single power; the model keeps this law and derives the throughput.
    """
    return jnp.asarray(power_efficiency) * throughput * energy_per_operation + idle_power


def stated_temperature_rate(power: Numeric, cooling_power: Numeric, thermal_capacity: Numeric) -> Values:
    """Warming [K/s], `dT/dt = (P_inst - P_cooling)/C` ("Engineering Optimization", Thermal Model).

    OK if P_cooling is the heat removed, `(T - T_coolant)/R_th`, and not the electric power of the cooling plant.
    """
    return (jnp.asarray(power) - cooling_power) / thermal_capacity


def stated_thermal_constraints_hold(
    temperature: Numeric, maximum_temperature: Numeric, temperature_rate: Numeric, maximum_rate: Numeric
) -> Values:
    """Constraints `T ≤ T_max` and `|dT/dt| ≤ R_max` ("Engineering Optimization", Thermal Constraints).

    OK: after a power step ΔP the steepest slope is ΔP/C, so the second bounds power steps, `ΔP ≤ C R_max`.

    **Returns:** 1 where both hold, else 0 [1].
    """
    hold = (jnp.asarray(temperature) <= maximum_temperature) & (jnp.abs(jnp.asarray(temperature_rate)) <= maximum_rate)
    return jnp.where(hold, 1.0, 0.0)


def stated_batch_efficiency(batch: Numeric, maximum_efficiency: Numeric, optimal_batch: Numeric) -> Values:
    """Batch efficiency [1], `η_batch(B) = γ·(1 - exp(-B/B_opt))` ("Engineering Optimization", Efficiency Function).

    Generalized: it always rises, so B_opt is an e-folding scale (63.2 % of γ) and not an optimum. Kept as an
    alternative saturation curve.
    """
    return jnp.asarray(maximum_efficiency) * (1.0 - jnp.exp(-jnp.asarray(batch) / optimal_batch))


def stated_compute_power(batch: Numeric, reference_power: Numeric, reference_batch: Numeric) -> Values:
    """Power of computing [W], `P_compute ∝ B` ("Engineering Optimization", Power-Batch Relationship).

    Wrong for large batches: the device saturates. Proportional only far below the half-saturation batch.
    """
    return jnp.asarray(reference_power) * (jnp.asarray(batch) / reference_batch)


def stated_memory_power(batch: Numeric, reference_power: Numeric, reference_batch: Numeric) -> Values:
    """Power of memory [W], `P_memory ∝ √B` ("Engineering Optimization", Power-Batch Relationship).

    Wrong: a square root has no derivation. Power is energy per byte times bytes per second, which may even fall with
    the batch where weights dominate the traffic.
    """
    return jnp.asarray(reference_power) * jnp.sqrt(jnp.asarray(batch) / reference_batch)


def stated_total_power(compute_power: Numeric, memory_power: Numeric) -> Values:
    """Sum `P_total(B) = P_compute(B) + P_memory(B)` ("Engineering Optimization", Power-Batch Relationship).

    OK as a sum; the model adds static, network, host, delivery and cooling power.

    **Returns:** power [W].
    """
    return jnp.asarray(compute_power) + memory_power


def stated_energy_efficiency_index(
    achieved_throughput: Numeric, theoretical_throughput: Numeric, minimum_energy: Numeric, actual_energy: Numeric
) -> Values:
    """Index `EEI = (T_achieved/T_theoretical) · (E_min/E_actual)` ("Engineering Optimization", Key Metrics).

    OK: dimensionless. E_min must be specified: with the roofline's energy EEI lies in (0, 1], with Landauer's it is
    near 1e-9. Its two terms are correlated: it scales with the square of utilization.

    **Returns:** EEI [1].
    """
    return (jnp.asarray(achieved_throughput) / theoretical_throughput) * (jnp.asarray(minimum_energy) / actual_energy)


def stated_performance_per_watt(throughput: Numeric, total_power: Numeric) -> Values:
    """Performance per watt [token/J], `PPW = T(P)/P_total` ("Engineering Optimization", Key Metrics).

    OK: token/s per watt is token per joule.
    """
    return jnp.asarray(throughput) / total_power


def stated_energy_utilization_factor(useful_energy: Numeric, total_energy: Numeric) -> Values:
    """Share of useful energy [1], `EUF = E_useful/E_total` ("Engineering Optimization", Key Metrics).

    OK: the model defines the useful energy as that of the model's own operations.
    """
    return jnp.asarray(useful_energy) / total_energy


def stated_optimal_frequency(
    maximum_frequency: Numeric, maximum_power: Numeric, coefficient: Numeric, voltage: Numeric
) -> Values:
    """Clock, `f_opt = min(f_max, √(P_max/k·V²))` ("Engineering Optimization", Optimization Variables).

    Read from left to right; `stated_optimal_frequency_as_fraction` reads the slash as a fraction bar.
    Wrong: P = k V² f gives f = P/(k V²), without a root, and in this reading even the voltage is on the wrong side. Nor
    is the fastest clock within a power limit the best clock.

    **Returns:** the number as printed; the document calls it a frequency [Hz].
    """
    return jnp.minimum(
        maximum_frequency, jnp.sqrt(jnp.asarray(maximum_power) / coefficient * jnp.asarray(voltage) ** 2)
    )


def stated_optimal_frequency_as_fraction(
    maximum_frequency: Numeric, maximum_power: Numeric, coefficient: Numeric, voltage: Numeric
) -> Values:
    """Clock, `f_opt = min(f_max, √(P_max/(k·V²)))` ("Engineering Optimization", Optimization Variables).

    The slash of `√(P_max/k·V²)` read as a fraction bar.
    Wrong: the square root of the right answer. 150 W at 0.8 V gives 3.79e4 where P/(k V²) is 1.434 GHz. A square root
    requires V to grow as √f; with V proportional to f it is a cube root.

    **Returns:** the number as printed; the document calls it a frequency [Hz].
    """
    root = jnp.sqrt(jnp.asarray(maximum_power) / (jnp.asarray(coefficient) * jnp.asarray(voltage) ** 2))
    return jnp.minimum(maximum_frequency, root)
