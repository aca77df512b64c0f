"""A model of a training run in one page, which every implementation of a sweep computes: 150 FLOP, 17 exp/log, 2 sqrt.

batch [million token], clock [GHz], nodes, voltage [V] -> energy [J], time [s], junction temperature [C], power [W].
Minimize energy where time < 2e4, power < 2e6, temperature < 70. `xp` supplies exp, log, sqrt.
The specification on which the project compared ways to sweep before its first line; formulas are schematic.
Grid of K points an axis: batch log 0.05..64, clock linear 0.5..2.2, nodes log 4..1024, voltage linear 0.6..1.15.
"""


def sweep_model(batch, clock, nodes, voltage, xp):
    log_batch = xp.log(batch)
    steps = 2.0e4 * (1 + 2.0 / batch)
    tokens = batch * 125000.0 / nodes
    efficiency = tokens / (tokens + 2000.0)
    compute = tokens * 6.0e10 / (clock * 0.55e15 * efficiency)
    memory = tokens * 6.0e-9 + 2.0e-3
    busy = xp.exp(0.25 * xp.log(xp.exp(4 * xp.log(compute)) + xp.exp(4 * xp.log(memory))))
    network = 1.0e-3 * xp.log(nodes + 1) + 4.0e-3
    step = busy + network + 0.15 * xp.sqrt(busy * network)
    share = busy / step
    fastest = 0.4246 * xp.log(1 + xp.exp((voltage - 0.35) * 8.3333))
    slack = clock / fastest
    penalty = xp.exp(6 * (slack - 1))
    dynamic = 330 * voltage * voltage * clock * (0.35 + 0.65 * share)
    resistance = 0.045 + 0.01 * slack
    static, temperature = 0.0, 30 + resistance * dynamic
    for _ in range(3):  # leakage and temperature, fixed point
        static = 40 * voltage * voltage * xp.exp((temperature - 60) * 0.01818)
        temperature = 30 + resistance * (dynamic + static)
    power = dynamic + static + 40
    junction = 30 + resistance * power
    x, y, z = (junction - 60) * 0.02, slack, share
    a1 = 1 + x * (0.05 + x * (0.01 + x * (0.002 + x * (0.0004 + x * 0.00006))))
    a2 = 1 + y * (0.01 + y * (0.004 + y * (0.001 + y * (0.0002 + y * 0.00003))))
    a3 = 0.9 + z * (0.05 + z * (0.03 + z * (0.01 + z * (0.004 + z * (0.001 + z * 0.0001)))))
    l3 = xp.log(a1 * a2 * a3)
    supply = 0.92 + 0.05 * l3 - 0.02 * l3 * l3 + 0.005 * l3 * l3 * l3
    node = 8 * power * a1 / supply + 400 + 150 * a2
    cooling = 1.05 + 0.12 * xp.exp(0.02 * (junction - 80)) + 0.01 * a3
    site = nodes * node * cooling
    failures = 1.0e-9 * nodes * xp.exp((junction - 60) * 0.035) * (1 + penalty)
    interval = xp.sqrt(120.0 / (failures + 1.0e-12))
    overhead = 1 + 60.0 / (interval + 60.0) + failures * interval * 0.5
    time = steps * step * overhead
    energy = site * time * (1 + 0.01 * penalty) * (1 + 0.001 * log_batch * log_batch)
    return energy, time, junction, site
