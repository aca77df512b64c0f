"""Does a plan make sense on its system? Checked once, at the edge, with messages that name the next step."""

import warnings
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise, product
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.learning.data_set import LimitedData
from energymodel.physics.cooling import Cooling
from energymodel.physics.limits import landauer_energy
from energymodel.scenarios.attention_shape import ATTENTION_SHAPE, check_attention_shape
from energymodel.scenarios.buildable import check_bytes, check_network, check_pod, check_ports
from energymodel.scenarios.clock_scale import check_clock
from energymodel.scenarios.ranges import check_number
from energymodel.system.evaluate import learning_of, parameters_in_loss
from energymodel.system.plan import PRECISIONS, StagePower, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.plan_rules import check_formats, check_pipeline
from energymodel.system.training_system import TrainingSystem
from energymodel.units import format_quantity

WHOLE = 1e-6
UNLIMITED_TOKENS = 1e20  # a million times the largest run: what is left of the loss then is its floor
LARGEST_RISE = 200.0  # [K] of any coolant from supply to return
FITTED_RATE = 1.1  # share of the peak rate up to which constants are believed that were fitted to times with errors
MOST_TOGETHER = 4  # ranges, 16 combinations of ends
ENDS = ("first_stage_layers", "last_stage_layers")
"""Counts that are 0 where they are not given."""
COUNTS = ("tensor", "pipeline", "virtual_stages", "context", "expert", "microbatch")


def check_plan(system: TrainingSystem, plan: TrainingPlan, titles: Mapping[str, str] | None = None) -> None:
    """Check counts, divisibility, the pipeline, sharding, number formats, clock and goal of a plan.

    **Arguments:**

    - `titles`: what messages call the software and the accelerator of the system.

    **Raises:** `InputError` for the first thing that cannot be run.
    """
    layout = {name: float(getattr(plan.layout, name)) for name in type(plan.layout).__dataclass_fields__}
    for name, value in layout.items():
        if name in COUNTS or (name in ENDS and value > 0.0):
            _check_whole(f"plan.layout.{name}", value)
        elif not 0.0 <= value <= 1.0:
            raise InputError(f"plan.layout.{name}: {value:g} is not a share between 0 and 1.")
    check_precisions({name: layout[name] for name in PRECISIONS}, "plan.layout")
    check_context_heads(layout, float(system.workload.heads), "plan.layout")
    titles = titles or {}
    check_sharding(system, layout, titles.get("software") or "The framework")
    check_formats(system.accelerator, layout, "plan.layout", titles.get("accelerator", ""))
    chips = float(plan.chips)
    _check_whole("plan.chips", chips)
    check_bytes(system)
    check_network(system, chips)
    group = layout["tensor"] * layout["pipeline"] * layout["context"]
    data = chips / group
    if not _is_whole(data):
        raise InputError(
            f"plan.layout: tensor {layout['tensor']:g} x pipeline {layout['pipeline']:g} x context "
            f"{layout['context']:g} = {group:g} does not divide plan.chips = {chips:g}. "
            f"Take {max(1, round(data)) * group:g} chips, or degrees whose product divides the chips."
        )
    expert, experts = layout["expert"], float(system.workload.experts)
    if not _is_whole(data * layout["context"] / expert):
        raise InputError(
            f"plan.layout.expert: {expert:g} does not divide data x context = "
            f"{data * layout['context']:g}. Choose a divisor of it."
        )
    if expert > experts + WHOLE:
        raise InputError(f"plan.layout.expert: {expert:g} is more than the {experts:g} experts.")
    needed = data * layout["microbatch"] * float(system.workload.sequence)
    smallest = float(np.min(plan.batch))
    if smallest < needed * (1.0 - WHOLE):
        raise InputError(
            f"plan.batch: {format_quantity(smallest, 'token')} is less than one micro-batch for each of the {data:g} "
            f"replicas, {format_quantity(needed, 'token')}. Raise it, or take fewer chips or more model parallelism."
        )
    check_pipeline(system, plan)
    check_power_cap(system, float(plan.power_cap))
    if isinstance(plan.power, StagePower):
        for name, cap in vars(plan.power).items():
            check_power_cap(system, float(cap), f"plan.power.{name}")
    check_clock(system.accelerator, plan)
    if isinstance(plan.goal, TargetLoss):
        check_target(system, plan, float(plan.goal.loss), "plan.goal.loss")
        _check_not_reached(system, plan, float(plan.goal.loss))
    elif not isinstance(plan.goal, TokenBudget):
        raise InputError("plan.goal: use TokenBudget or TargetLoss.")
    elif float(plan.goal.tokens) <= 0.0:
        raise InputError("plan.goal.tokens: 0 tokens train nothing. Give a positive number of tokens.")


def check_sharding(system: TrainingSystem, layout: Mapping[str, float], framework: str) -> None:
    """Check that the framework runs a layout's ZeRO stage together with its pipeline.

    **Raises:** `InputError` that names the framework and what it runs.
    """
    stage = 3 if layout["shard_parameters"] > 0.0 else 2 if layout["shard_gradients"] > 0.0 else 1
    highest = float(system.software.zero_with_pipeline)
    if layout["pipeline"] > 1.0 and stage > highest:
        what = "parameters" if stage == 3 else "gradients"
        raise InputError(
            f"plan.layout.zero: {framework} does not shard {what} (ZeRO {stage}) with pipeline parallelism, here "
            f"{layout['pipeline']:g} stages. Take zero = {max(1.0, highest):g}, pipeline = 1, or another "
            "system.software, such as meta-fsdp."
        )


def check_values(
    system: TrainingSystem, plan: TrainingPlan, path: str, values: Sequence[float], calibration: Any, where: str
) -> None:
    """Check values that a number of a system and a plan shall take, such as the ends of a range or of an axis.

    **Arguments:**

    - `path`, `values`: dotted path of the number, and its values in SI.
    - `calibration`: section of the scenario on the measurements behind its numbers.
    - `where`: what messages call the number.

    **Raises:** `InputError` for a value that the number cannot have.
    """
    root, _, field = path.partition(".")
    check_number({"system": system, "plan": plan}[root], field, values, where)
    if path.startswith("plan.layout."):
        name = path.removeprefix("plan.layout.")
        check_formats(system.accelerator, {name: max(values)}, where.removesuffix(f".{name}"))
    if root == "system":
        check_pod(system, field, values, where)
        for value in dict.fromkeys((min(values), max(values))):
            _check_changed(system, plan, field, value, where)
    if path == "plan.chips":
        check_ports(system, max(values))
    if path == "plan.power_cap" or path.startswith("plan.power."):
        check_power_cap(system, max(values), where)
        check_measured(system, min(values), calibration, where)
    if path == "plan.clock" and min(values) < (lowest := float(system.accelerator.minimum_clock)) * (1.0 - WHOLE):
        raise InputError(
            f"{where}: {min(values):g} is below {lowest:g}, the lowest clock of the accelerator "
            "(system.accelerator.minimum_clock). Raise it."
        )


def _check_changed(system: TrainingSystem, plan: TrainingPlan, field: str, value: float, where: str) -> None:
    """Check a system in which one number has another value.

    **Raises:** `InputError` that begins with what the message calls the number.
    """
    try:
        _check_all(_with_number(system, field, value), plan)
    except InputError as error:
        text, path = str(error), f"system.{field}:"
        told = text.removeprefix(path).strip() if text.startswith(path) else f"{value:g} cannot be: {text}"
        raise InputError(f"{where}: {told}") from None


def check_ends(system: TrainingSystem, plan: TrainingPlan, vary: Mapping[str, Sequence[float]]) -> None:
    """Check that the ends of several ranges may stand together: every combination of up to four of the system.

    **Raises:** `InputError` that names the first combination that cannot be.
    """
    fields = [path.removeprefix("system.") for path in vary if path.startswith("system.")]
    if not 2 <= len(fields) <= MOST_TOGETHER:
        return
    for ends in product(*(dict.fromkeys(vary[f"system.{field}"]) for field in fields)):
        changed = system
        for field, value in zip(fields, ends, strict=True):
            changed = _with_number(changed, field, value)
        try:
            _check_all(changed, plan)
        except InputError as error:
            together = " and ".join(f"system.{field} = {value:g}" for field, value in zip(fields, ends, strict=True))
            raise InputError(f"vary: {together} cannot be together: {error}") from None


def _with_number(system: TrainingSystem, field: str, value: float) -> TrainingSystem:
    return eqx.tree_at(lambda tree: reduce(getattr, field.split("."), tree), system, np.asarray(value, np.float64))


def _check_all(system: TrainingSystem, plan: TrainingPlan) -> None:
    check_system(system, plan)
    check_network(system, float(plan.chips))
    check_bytes(system)


def check_power_cap(system: TrainingSystem, power_cap: float, path: str = "plan.power_cap") -> None:
    """Check that a power cap is one that the accelerator has.

    **Raises:** `InputError` for a power cap above the rated power.
    """
    rated = float(system.accelerator.rated_power)
    if power_cap > rated * (1.0 + WHOLE):
        raise InputError(
            f"{path}: {format_quantity(power_cap, 'W')} is above {format_quantity(rated, 'W')}, the rated power of the "
            "accelerator (system.accelerator.rated_power). Lower the cap, or take another accelerator."
        )


class Derived(NamedTuple):
    """What the checks of a system compute, by one program instead of one for each operation."""

    switching_power: Any
    energy_per_flop: Any
    landauer_energy: Any
    coolant_rise: Any
    host_power: Any


@jax.jit
def derived(system: TrainingSystem, coolant_temperature: Any) -> Derived:
    """Power left for switching [W], its energy and Landauer's bound [J/FLOP]; rise of the coolant [K] and power of a
    chip's share of the host [W] at the warmest recommended inlet.
    """
    chip, cooling = system.accelerator, system.facility.cooling
    coolant = cooling.at(cooling.inlet.recommended_highest)
    return Derived(
        chip.dynamic_power,
        chip.energy_per_flop,
        landauer_energy(chip.bits_per_flop, coolant_temperature),
        coolant.return_rise,
        system.host_power(chip.rated_power, coolant),
    )


def check_system(system: TrainingSystem, plan: TrainingPlan) -> None:
    """Check what the numbers of a system must be together: no negative remainders, coolant that carries the heat.

    **Raises:** `InputError` that names the numbers.
    """
    chip, workload = system.accelerator, system.workload
    numbers = Derived(*map(float, derived(system, plan.coolant_temperature)))
    switching, energy, bound = numbers[:3]
    parts = {"leakage.power": float(chip.leakage.power), "fixed_power": float(chip.fixed_power)}
    parts["memory traffic"] = float(chip.busy_power) - switching - sum(parts.values())
    if switching <= 0.0:
        taken = ", ".join(f"{name} {format_quantity(power, 'W')}" for name, power in parts.items())
        raise InputError(
            f"system.accelerator: {taken} leave {format_quantity(switching, 'W')} of busy_power "
            f"{format_quantity(float(chip.busy_power), 'W')} for switching. Lower one of them, or raise busy_power."
        )
    if energy < bound:
        raise InputError(
            f"system.accelerator: {format_quantity(energy, 'J/FLOP')} for switching is below "
            f"Landauer's bound, {format_quantity(bound, 'J/FLOP')} for {float(chip.bits_per_flop):g} bits at the "
            "temperature of the coolant. Lower peak_flops, or raise busy_power."
        )
    if float(chip.idle_power) > float(chip.busy_power):
        idle, busy = (format_quantity(float(one), "W") for one in (chip.idle_power, chip.busy_power))
        raise InputError(f"system.accelerator.idle_power: {idle} is more than busy_power, {busy}. Lower it.")
    for name, whole in ("kv_heads", "heads"), ("active_experts", "experts"), ("dense_layers", "layers"):
        part, most = float(getattr(workload, name)), float(getattr(workload, whole))
        if part > most:
            raise InputError(f"system.workload.{name}: {part:g} is more than {whole}, {most:g}. Lower it.")
    check_rates(system)
    _check_cooling(system.facility.cooling, numbers.coolant_rise)
    check_attention_shape({name: float(getattr(workload, name)) for name in ATTENTION_SHAPE}, "system.workload.")


def check_rates(system: TrainingSystem) -> None:
    """Check that no products run faster than the peak rate of their format.

    **Raises:** `InputError` that names the numbers.
    """
    chip, software = system.accelerator, system.software
    for kind in ("", "fp8_", "fp4_"):
        alone, of_software = f"{kind}gemm_efficiency", [f"{one}efficiency" for one in dict.fromkeys(("product_", kind))]
        names = [one for one in of_software if one != "efficiency"]
        share = float(getattr(chip, alone)) * float(np.prod([float(getattr(software, name)) for name in names]))
        if share > FITTED_RATE:
            factors = " x ".join(f"software.{name} {float(getattr(software, name)):g}" for name in names)
            raise InputError(
                f"system.software.{names[-1]}: accelerator.{alone} {float(getattr(chip, alone)):g} x {factors} = "
                f"{share:.4g} of the peak rate; above {FITTED_RATE:g} it cannot be an error of a fit. Lower one."
            )


def check_supplies(system: TrainingSystem, plan: TrainingPlan) -> None:
    """Warn where a chip and its share of the host draw more than their power supplies are rated for."""
    need = float(system.accelerator.rated_power) + float(derived(system, plan.coolant_temperature).host_power)
    for name in ("power_supply", "uninterruptible"):
        rating = float(getattr(system.facility, name).rated_power)
        if need > rating:
            warnings.warn(
                f"system.facility.{name}.rated_power: {format_quantity(rating, 'W')} is less than the "
                f"{format_quantity(need, 'W')} of a chip and its share of the host. Set it to about twice that.",
                UserWarning,
                stacklevel=1,
            )


def _check_cooling(cooling: Cooling, rise: float) -> None:
    """Check that the coolant carries the heat, and that temperatures are in order."""
    path = "system.facility.cooling"
    if not 0.0 < rise < LARGEST_RISE:
        raise InputError(f"{path}.loop: coolant that warms by {rise:g} K carries no heat. Check coolant_rise and flow.")
    weather, inlet = cooling.weather, cooling.inlet
    ordered = (
        (f"{path}.weather", weather, ("wet_bulb", "dry_bulb")),
        (f"{path}.inlet", inlet, ("lowest", "recommended_lowest", "recommended_highest", "highest")),
    )
    for where, part, names in ordered:
        for low, high in pairwise(names):
            below, above = float(getattr(part, low)), float(getattr(part, high))
            if below > above:
                raise InputError(
                    f"{where}.{low}: {format_quantity(below, 'K')} is above {high}, {format_quantity(above, 'K')}. "
                    "Lower the one or raise the other."
                )


def check_context_heads(layout: Mapping[str, float], heads: float, where: str) -> None:
    """Refuse to divide fewer heads than chips where context parallelism turns tokens into heads.

    **Raises:** `InputError` that begins with `where`.
    """
    parts = layout["tensor"] * layout["context"]
    if layout["context_all_to_all"] > 0.0 and layout["context"] > 1.0 and heads < parts * (1.0 - WHOLE):
        raise InputError(
            f"{where}: context_all_to_all = {layout['context_all_to_all']:g} divides {heads:g} heads over tensor x "
            f"context = {parts:g} chips. Choose smaller degrees, or context_all_to_all = 0 for a ring."
        )


def check_precisions(shares: Mapping[str, float], where: str) -> None:
    """Check that the shares of products in other precisions than 16 bits are together at most all of them.

    **Raises:** `InputError` that begins with `where`.
    """
    total = sum(shares.values())
    if total > 1.0 + WHOLE:
        words = " + ".join(f"{name} {share:g}" for name, share in shares.items() if share > 0.0)
        raise InputError(f"{where}: {words} = {total:g} of the products, of which each has one precision. Lower one.")


def check_measured(system: TrainingSystem, power_cap: float, calibration: Any, path: str = "plan.power_cap") -> None:
    """Check that a power cap stays where the accelerator was measured: what lies below is not known.

    **Arguments:**

    - `power_cap`: the lowest that is asked for [W].
    - `calibration`: section of the scenario on the measurements behind its numbers.
    - `path`: name of the power cap in the message.

    **Raises:** `InputError` for a power cap below the lowest one measured.
    """
    measured = calibration.get("power", {}) if isinstance(calibration, Mapping) else {}
    lowest = measured.get("lowest_power_cap")
    if lowest is None or abs(float(system.accelerator.rated_power) / measured["rated_power"] - 1.0) > WHOLE:
        return
    if power_cap < lowest * (1.0 - WHOLE):
        raise InputError(
            f"{path}: {format_quantity(power_cap, 'W')} is below {format_quantity(lowest, 'W')}, "
            f"the lowest limit that was measured ({measured.get('source', 'calibration')}). Power and time there are "
            "not known: raise it, or measure at that limit and calibrate again."
        )


def check_fit(system: TrainingSystem, plan: TrainingPlan, memory: float) -> None:
    """Check that the model fits into the memory of the chips.

    **Raises:** `InputError` with what is needed and what there is.
    """
    capacity = float(system.accelerator.memory_capacity)
    if memory > capacity:
        raise InputError(
            f"The model does not fit: {format_quantity(memory, 'B')} per chip of {format_quantity(capacity, 'B')}. "
            "Raise plan.layout.tensor, pipeline or zero, recompute activations, or take more chips."
        )


def check_target(system: TrainingSystem, plan: TrainingPlan, loss: float, name: str) -> None:
    """Check that unlimited data, or those of the system repeated without end, would reach a loss.

    **Raises:** `InputError` with the loss that they leave.
    """
    repeated = isinstance(system.data, LimitedData)
    with jax.enable_x64(True):
        learning, parameters = learning_of(system, plan), parameters_in_loss(system)
        floor = learning.loss(parameters, UNLIMITED_TOKENS)
        if repeated:
            floor, _ = learning.run(parameters, UNLIMITED_TOKENS, float(np.min(plan.batch)))
    if loss <= float(floor):
        data = "system.data repeated without end" if repeated else "unlimited data"
        more = ", take a larger model or more unique tokens." if repeated else " or take a larger model."
        raise InputError(
            f"{name}: {loss:g} nat/token cannot be reached: even {data} leave {float(floor):.4f} nat/token. "
            f"Raise the target{more}"
        )


def _check_not_reached(system: TrainingSystem, plan: TrainingPlan, loss: float) -> None:
    """Check that a continued run has something left to learn."""
    seen = float(system.tokens_seen)
    if seen <= 0.0:
        return
    with jax.enable_x64(True):
        now = float(learning_of(system, plan).loss(parameters_in_loss(system), 0.0))
    if loss >= now:
        raise InputError(
            f"plan.goal.loss: {loss:g} nat/token is reached already: after {format_quantity(seen, 'token')} seen the "
            f"loss is {now:.4f} nat/token. Lower the target, or system.tokens_seen."
        )


def _is_whole(value: float) -> bool:
    return value >= 1.0 - WHOLE and abs(value - round(value)) <= WHOLE


def _check_whole(path: str, value: float) -> None:
    if value < 1.0 or not _is_whole(value):
        raise InputError(f"{path}: {value:g} is not a whole number of at least 1.")
