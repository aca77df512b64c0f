"""Power, energy, time and money of a whole run, written a second time in NumPy from docs/physics.md.

The step's terms are those of `bookkeeping_work`. What cooling and fans take for a heat is that of the building
(tests/physics/test_building.py), what links draw and cost that of the network (tests/system/test_network.py).
"""

from types import SimpleNamespace

import numpy as np

from system.bookkeeping_work import gated_share, leakage_power, norm, plain, step_times, voltage, work

K_B = 1.380649e-23  # [J/K], exact since 2019
YEAR = 8760.0 * 3600.0


def bookkeeping(system, plan, outcome):
    """Expected outputs of a steady run by name, without tensor, context and pipeline parallelism."""
    building = system.facility.cooling
    coolant = building.at(plan.coolant_temperature)
    site = SimpleNamespace(
        links=float(system.links(plan.chips).power),
        link_price=float(system.links(plan.chips).price),
        fan_effort=float(coolant.fan_effort),
        heat_power=lambda heat: float(building.demand(heat, coolant).power),
        coolant=float(coolant.last),
        resistance=float(coolant.resistance),
        hottest_power=lambda heat: float(building.hottest_demand(heat, coolant).power),
    )
    system, plan, outcome = plain(system), plain(plan), plain(outcome)
    done = work(system, plan)
    # The last chip of a row, whose coolant is warmest, is the one that counts.
    temperature = site.coolant + (site.resistance + system.accelerator.thermal_resistance) * outcome.power_busy
    terms = step_times(system, plan, done, outcome, temperature)
    power, levels = step_power(system, plan, done, terms, outcome, site, temperature)
    result = {f"step_time.{name}": term for name, term in terms.items()}
    result |= run(system, plan, done, sum(terms.values()), power, levels, site, outcome)
    return result


def precision_energy(chip, layout):
    """Energy of a product with weights over one in bf16, and of one without weights."""
    e = chip.fp8_energy_ratio
    wide = 1.0 + (layout.tf32 + layout.fp32) * (1.0 / e - 1.0)
    saved = layout.fp8 * (1.0 - e) * (chip.peak_flops_fp8 > 0.0)
    saved += layout.fp4 * (1.0 - e * e) * (chip.peak_flops_fp4 > 0.0)
    return wide - saved, wide


def switching_energy(chip):
    """Joules of an operation in bf16 at clock 1: what leakage, fixed power and memory leave of the busy power."""
    memory = 8.0 * chip.memory_energy * chip.reference_memory_utilization * chip.memory_bandwidth
    kappa = chip.busy_power - chip.leakage.power - chip.fixed_power - memory
    return kappa, kappa / (chip.gemm_efficiency * chip.peak_flops)


def step_power(system, plan, done, terms, outcome, site, temperature):
    """Mean power of a chip over a step by part, and its power while waiting, writing and stopped."""
    chip, layout = system.accelerator, plan.layout
    total, clock = sum(terms.values()), outcome.clock
    tuned = total / system.production_slowdown
    kappa, per_flop = switching_energy(chip)
    weighted, wide = precision_energy(chip, layout)
    switched = (done.flops - done.attention_flops) * weighted + done.attention_flops * wide
    switched = done.layer_passes * switched + done.microbatches * done.head_flops * wide
    volts = voltage(chip, clock)
    dynamic = switched * per_flop / system.software.product_efficiency * volts**2 / tuned
    moved = done.layer_passes * (done.gemm_bytes + done.elementwise_bytes)
    moved += done.microbatches * done.head_bytes + done.optimizer_traffic
    memory = 8.0 * chip.memory_energy * moved / tuned

    def static(at):
        return leakage_power(chip, voltage(chip, at), temperature) + chip.fixed_power

    def spin(at):
        return chip.spin_activity * kappa * at * voltage(chip, at) ** 2

    busy = terms["compute"] + terms["memory"] + terms["optimizer"]
    apart = terms["data"] + terms["overhead"] + terms["straggler"] + terms["bubble"]
    waiting = apart + terms["expert"]
    awake = static(clock) + spin(clock)
    low = max(clock * plan.waiting_clock, chip.minimum_clock)
    slowed = (awake - static(low) - spin(low)) * max(1.0 - 2.0 * chip.clock_switch_time / apart, 0.0)
    periods = done.layer_passes + done.microbatches + 1.0
    leakage = leakage_power(chip, voltage(chip, low), temperature)
    off = gated_share(chip, leakage, waiting / periods)
    saved = off * ((1.0 - chip.gate.residual_fraction) * leakage * waiting - periods * chip.gate.wake_energy)
    idle = (awake * waiting - slowed * apart - saved + chip.idle_power * terms["host"]) / total
    drawn = dynamic + static(clock) * busy / total + memory + idle
    # No level is below the floor of the plan: what lifts it is waste.
    level = awake - slowed - saved / waiting
    working = (drawn * total - level * apart) / (total - apart)
    floor = plan.power_floor * outcome.power_busy
    added = (max(floor - working, 0.0) * (total - apart) + max(floor - level, 0.0) * apart) / total
    parts = {
        "dynamic": dynamic,
        "static": static(clock) * busy / total,
        "memory": memory,
        "idle_wait": idle + added,
        "network": site.links + (sent_energy(system, plan, done) / tuned if in_one_node(system, plan) else 0.0),
    }
    parts["host"] = host_power(system, site, drawn + added)
    # Within a layer: kernels, and what they wait for other chips.
    layer = norm(chip.roofline_exponent, done.arithmetic / clock, done.gemm_bytes / done.bandwidth)
    layer += done.attention_time / clock + done.elementwise_bytes / done.bandwidth
    of_layer = (done.flops - done.attention_flops) * weighted + done.attention_flops * wide
    joules = of_layer * per_flop / system.software.product_efficiency * volts**2
    joules += 8.0 * chip.memory_energy * (done.gemm_bytes + done.elementwise_bytes)
    wait = terms["expert"] / system.production_slowdown / done.layer_passes
    worked = (joules + spin(clock) * wait) / (layer + wait)
    return parts, {"waiting": max(level, floor), "busy": static(clock) + worked}


def in_one_node(system, plan):
    """Whether all that chips send are gradients and parameters within a node."""
    return plan.chips <= system.node.chips and system.workload.experts == 1.0


def sent_energy(system, plan, done):
    """Joules of a chip's gradients and parameters within a node: `(n - 1) / n` of the bytes of each."""
    s, layout = system.software, plan.layout
    gradients = plan.trained_share * s.communicated_bytes * done.wide
    updated = plan.trained_share * s.weight_bytes * done.wide
    sharded = max(layout.shard_optimizer, layout.shard_parameters)
    both = gradients + sharded * updated + (1.0 - sharded) * gradients
    sent = (plan.chips - 1.0) / plan.chips * both * (done.counts.rest + done.counts.embeddings)
    return 8.0 * sent * system.node.scale_up.energy


def host_power(system, site, chip_power):
    """Host and fans per chip; fans follow the heat of the chips."""
    node, heat = system.node, chip_power
    return node.overhead_power / node.chips + site.fan_effort * (node.fan_power / node.chips + node.fan_fraction * heat)


def run(system, plan, done, step, power, levels, site, outcome):
    """Calendar, energy at the meter, peak power, money, carbon and efficiencies of the whole run."""
    chip, r, n = system.accelerator, system.reliability, plan.chips
    tokens = plan.goal.tokens
    steps = tokens / plan.batch
    # Calendar: checkpoints, repeated work, restarts.
    mtbf = r.chip_mtbf / n
    tau = max(np.sqrt(2.0 * r.checkpoint_time * mtbf), r.write_time)
    repair = max(r.repair_time / mtbf, 1e-6)
    missing = 1.0 / (1.0 + np.exp(-1.702 * (repair + 0.5 - plan.spares) / np.sqrt(repair)))
    writing, rework = r.checkpoint_time / tau, (0.5 * tau + r.write_time) / mtbf
    restart = (r.restart_time + r.replacement_time * missing) / mtbf
    available = 1.0 - writing - rework - restart
    assert available > 0.5
    time = steps * step / available * (1.0 + system.other_stages)
    # Repeated work draws what work draws; writing chips wait; those that restart, and spare nodes, idle.
    spares = plan.spares * system.node.chips / n
    idle_host = host_power(system, site, chip.idle_power)
    mean = {name: part * (available + rework) for name, part in power.items()}
    mean["idle_wait"] += writing * levels["waiting"] + (restart + spares) * chip.idle_power
    mean["host"] += (writing + restart + spares) * idle_host
    mean["network"] += (writing + restart + spares) * site.links
    if not in_one_node(system, plan):  # what is sent farther is tested in test_communication.py
        mean["network"] = outcome.energy.network / (n * time)
    load = sum(mean.values())
    equipment, meter, other = at_meter(system.facility, load)
    cooling = site.heat_power(equipment)
    mean |= {"delivery_loss": meter - load, "cooling": cooling, "other": other}
    joules = {name: part * n * time for name, part in mean.items()}
    energy = sum(joules.values())
    # The site must carry busy chips, and idle spare ones, in the hottest hour.
    busy = outcome.power_busy + site.links + host_power(system, site, outcome.power_busy)
    full = busy + spares * (chip.idle_power + site.links + idle_host)
    equipment_full, meter_full, _ = at_meter(system.facility, full)
    hottest = site.hottest_power(equipment_full)
    peak = n * (meter_full + hottest + other)
    result = {f"energy.{name}": part for name, part in joules.items()}
    return result | {
        "time": time,
        "steps": steps,
        "chip_time": time * n,
        "availability": available,
        "power_average": energy / time,
        "power_peak": peak,
        "power_busy": levels["busy"],
        "pue": energy / (equipment * n * time),
        "money": money(system, plan, site, time, energy, peak),
        "carbon_operational": system.market.carbon.intensity * energy,
        "carbon_embodied": carbon(system, plan, time),
        "etp": energy * time,
        "ppw": tokens / energy,
        **efficiencies(system, plan, done, step, energy, outcome),
    }


def at_meter(facility, load):
    """Input power of the equipment, power at the meter, and lights and offices, per chip for a load."""

    def converted(unit, watts):
        x = watts / unit.rated_power
        return watts + unit.rated_power * (unit.fixed_loss + unit.proportional_loss * x + unit.quadratic_loss * x * x)

    line = load + (load / facility.distribution.voltage) ** 2 * facility.distribution.resistance
    equipment = converted(facility.power_supply, line)
    meter = converted(facility.uninterruptible, equipment) / (1.0 - facility.transformer_loss)
    return equipment, meter, facility.miscellaneous_fraction * facility.uninterruptible.rated_power


def money(system, plan, site, time, energy, peak):
    """Rent; or servers, their repairs, and building with interest over their lives, energy, peak; and value of time."""
    price, chip = system.market.price, system.accelerator
    chips = plan.chips + plan.spares * system.node.chips
    if hasattr(price, "chip_time"):  # rented
        return time * (price.chip_time * chips + price.delay_cost)

    def rate(life):
        years, r = life / YEAR, price.interest_rate
        return r * (1.0 + r) ** years / ((1.0 + r) ** years - 1.0) / (YEAR * price.utilization)

    servers = chips * (chip.price * price.server_multiplier + site.link_price)
    servers = servers * (rate(price.life) + price.maintenance / (YEAR * price.utilization))
    building = price.facility_price * peak * rate(price.facility_life)
    return time * (servers + building + price.demand_charge * peak + price.delay_cost) + price.electricity * energy


def carbon(system, plan, time):
    """Share of the chips' embodied carbon."""
    law, chips = system.market.carbon, plan.chips + plan.spares * system.node.chips
    total = system.accelerator.embodied_carbon * law.embodied_multiplier
    return chips * total * time / (law.chip_life * law.utilization)


def efficiencies(system, plan, done, step, energy, outcome):
    """Utilization of peak rate and energy, over the operations that the model needs."""
    chip, layout, tokens = system.accelerator, plan.layout, plan.goal.tokens
    needed = (4.0 + 2.0 * plan.trained_share) * done.counts.active
    slower = 1.0
    for share, peak in (
        (layout.fp8, chip.peak_flops_fp8),
        (layout.fp4, chip.peak_flops_fp4),
        (layout.tf32, chip.peak_flops_tf32),
        (layout.fp32, chip.peak_flops_fp32),
    ):
        slower += share * (chip.peak_flops / peak - 1.0 if peak else 0.0)
    peak = plan.chips * chip.peak_flops / slower
    performed = done.layer_passes * done.flops + done.microbatches * done.head_flops
    mfu = needed * plan.batch / step / peak
    per_flop = switching_energy(chip)[1] * precision_energy(chip, layout)[0] * voltage(chip, outcome.clock) ** 2
    erased = chip.bits_per_flop * needed * tokens * K_B * plan.coolant_temperature * np.log(2.0)
    euf = needed * tokens * per_flop / energy
    return {
        "mfu": mfu,
        "hfu": performed * plan.chips / step / peak,
        "euf": euf,
        "eei": mfu * euf,
        "landauer_multiple": energy / erased,
    }
