"""A design problem with 12 variables and 20 inequalities, 9 or 10 of them active: the benchmark of the solver.

x: logarithms of batch [million token], clock of 8 devices [GHz], nodes, rail voltage [V], fan speed [1].
A scenario is 12 numbers in natural units (see `scenarios`). `problem` returns the log energy [GJ] and 20 log ratios,
feasible where <= 0: limits of time, power, money and memory; 8 temperatures; 8 timing limits f_i <= f_max(V).
It is written against a small namespace of functions, so that JAX and CasADi evaluate the same lines.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

LOWER = np.log(np.array([0.05] + [0.5] * 8 + [4.0, 0.60, 0.05]))
UPPER = np.log(np.array([64.0] + [2.2] * 8 + [4096.0, 1.15, 1.0]))
START = 0.5 * (LOWER + UPPER)
LEAKAGE = np.array([0.90, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 0.85])  # spread of silicon
SPEED = np.array([1.02, 0.99, 1.0, 1.01, 0.98, 0.97, 1.03, 0.96])
THERMAL_RESISTANCE = np.array([1.0, 1.05, 0.97, 1.1, 0.95, 1.15, 1.0, 1.08])


def problem(x, scenario, xp: Any = jnp):
    """Log energy and 20 log ratios; `xp` provides exp, log, tanh, sum and concatenate."""
    (
        time_limit,
        power_limit,
        money_limit,
        temperature_limit,
        ambient,
        critical_batch,
        least_steps,
        flop_per_token,
        price_per_kwh,
        memory_limit,
        leakage,
        latency,
    ) = (scenario[i] for i in range(12))
    e = xp.exp(x)
    batch, clock, nodes, voltage, fan = e[0], e[1:9], e[9], e[10], e[11]
    steps = least_steps * (1 + critical_batch / batch)
    tokens = batch * 1e6 / (nodes * 8)  # per device and step
    efficiency = tokens / (tokens + 2000)
    compute = tokens * flop_per_token / (clock * 0.55e15 * efficiency)
    memory_time = tokens * 6e-9 + 2e-3
    busy = (compute**4 + memory_time**4) ** 0.25
    slowest = xp.sum(busy**8) ** 0.125
    network = latency * xp.log(nodes + 1) + 4e-3
    step = slowest + network + 0.15 * (slowest * network) ** 0.5
    resistance = 0.085 * THERMAL_RESISTANCE * (0.35 + 0.65 / (1 + 3 * fan))
    dynamic = 330 * voltage**2 * clock * (0.35 + 0.65 * busy / step)
    cold = ambient + resistance * dynamic
    static = leakage * LEAKAGE * voltage**2 * xp.exp((cold - 60) / 55)
    static = static / (1 - 0.8 * xp.tanh(resistance * static / 55))
    power = dynamic + static + 40
    temperature = ambient + resistance * power
    fastest = 2.3 * SPEED * xp.log(1 + xp.exp((voltage - 0.35) / 0.12)) * 0.12 / 0.65
    node_power = xp.sum(power) + 400 + 600 * fan**3
    time, site_power = steps * step, nodes * node_power
    energy = site_power * time
    money = time / 3600 * nodes * 16 + energy / 3.6e6 * price_per_kwh
    memory = 18 * 7 / (1 + 0.05 * nodes) + tokens * 1.2e-3 + 8
    limits = [time / time_limit, site_power / power_limit, money / money_limit, memory / memory_limit]
    limits = [limit.reshape((1,)) for limit in limits] if xp is jnp else limits
    ratios = xp.concatenate([*limits, temperature / temperature_limit, clock / fastest])
    return xp.log(energy / 1e9), xp.log(ratios)


def scenarios(count, seed=0):
    """Random scenarios, nearly all feasible."""
    r = np.random.default_rng(seed)

    def log_uniform(a, b):
        return np.exp(r.uniform(np.log(a), np.log(b), count))

    ranges = [
        (3 * 86400, 40 * 86400),
        (0.4e6, 4e6),
        (0.8e5, 3e6),
        (72, 90),
        (22, 40),
        (0.5, 6.0),
        (8e3, 6e4),
        (3e10, 9e10),
        (0.04, 0.25),
        (60, 110),
        (25, 60),
        (2e-4, 2e-3),
    ]
    return np.stack([log_uniform(a, b) for a, b in ranges], 1)


def tight_scenarios(count, seed=5):
    """About a third of these are infeasible."""
    s, r = scenarios(count, seed), np.random.default_rng(9)
    s[:, 0] *= np.exp(r.uniform(np.log(0.01), np.log(0.3), count))
    s[:, 1] *= np.exp(r.uniform(np.log(0.05), 0, count))
    s[:, 2] *= np.exp(r.uniform(np.log(0.005), np.log(0.3), count))
    s[:, 3] = r.uniform(55, 75, count)
    return s
