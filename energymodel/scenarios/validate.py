"""Checks of a plan on its system, and of values that numbers of both shall take; each names the next step."""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

import equinox as eqx
import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.learning.data_set import LimitedData
from energymodel.ranges import check_number
from energymodel.scenarios.clock_scale import check_clock
from energymodel.scenarios.system_checks import WHOLE, check_bytes, check_network, check_pod, check_ports, check_system
from energymodel.system.evaluate import learning_of, parameters_in_loss
from energymodel.system.plan import PRECISIONS, StagePower, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.plan_rules import check_formats, check_pipeline
from energymodel.system.training_system import TrainingSystem
from energymodel.units import format_quantity

UNLIMITED_TOKENS = 1e20  # a million times the largest run: what is left of the loss then is its floor
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
    titles, chips = titles or {}, float(plan.chips)
    layout = {name: float(getattr(plan.layout, name)) for name in type(plan.layout).__dataclass_fields__}
    for name, value in layout.items():
        if name in COUNTS or (name in ENDS and value > 0.0):
            _check_whole(f"plan.layout.{name}", value)
        elif not 0.0 <= value <= 1.0:
            raise InputError(f"plan.layout.{name}: {value:g} is not a share between 0 and 1.")
    check_precisions({name: layout[name] for name in PRECISIONS}, "plan.layout")
    check_context_heads(layout, float(system.workload.heads), "plan.layout")
    _check_sharding(system, layout, titles.get("software") or "The framework")
    check_formats(system.accelerator, layout, "plan.layout", titles.get("accelerator", ""))
    _check_whole("plan.chips", chips)
    check_bytes(system)
    check_network(system, chips)
    _check_division(system, plan, layout, chips)
    check_pipeline(system, plan)
    _check_power_cap(system, float(plan.power_cap))
    for name, cap in vars(plan.power).items() if isinstance(plan.power, StagePower) else ():
        _check_power_cap(system, float(cap), f"plan.power.{name}")
    check_clock(system.accelerator, plan)
    if isinstance(plan.goal, TargetLoss):
        check_target(system, plan, float(plan.goal.loss), "plan.goal.loss")
        _check_not_reached(system, plan, float(plan.goal.loss))
    elif not isinstance(plan.goal, TokenBudget):
        raise InputError("plan.goal: use TokenBudget or TargetLoss.")
    elif float(plan.goal.tokens) <= 0.0:
        raise InputError("plan.goal.tokens: 0 tokens train nothing. Give a positive number of tokens.")


def _check_division(system: TrainingSystem, plan: TrainingPlan, layout: Mapping[str, float], chips: float) -> None:
    """Refuse degrees that do not divide the chips, the experts or the batch."""
    tensor, pipeline, context = layout["tensor"], layout["pipeline"], layout["context"]
    group = tensor * pipeline * context
    data = chips / group
    if not _is_whole(data):
        raise InputError(
            f"plan.layout: tensor {tensor:g} x pipeline {pipeline:g} x context {context:g} = {group:g} does not divide "
            f"plan.chips = {chips:g}. Take {max(1, round(data)) * group:g} chips, or degrees whose product divides the "
            "chips."
        )
    expert, experts = layout["expert"], float(system.workload.experts)
    if not _is_whole(data * context / expert):
        raise InputError(
            f"plan.layout.expert: {expert:g} does not divide data x context = {data * context:g}. Choose a divisor of "
            "it."
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


def _check_sharding(system: TrainingSystem, layout: Mapping[str, float], framework: str) -> None:
    """Refuse a ZeRO stage that the framework does not run together with a pipeline."""
    stage = 3 if layout["shard_parameters"] > 0.0 else 2 if layout["shard_gradients"] > 0.0 else 1
    highest = float(system.software.zero_with_pipeline)
    if layout["pipeline"] > 1.0 and stage > highest:
        what = "parameters" if stage == 3 else "gradients"
        raise InputError(
            f"plan.layout.zero: {framework} does not shard {what} (ZeRO {stage}) with pipeline parallelism, here "
            f"{layout['pipeline']:g} stages. Take zero = {max(1.0, highest):g}, pipeline = 1, or another "
            "system.software, such as meta-fsdp."
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
    if root == "system":
        if field == "network.topology.pod":
            check_pod(system, values, where)
        for value in dict.fromkeys((min(values), max(values))):
            try:
                _check_all(_with_numbers(system, {field: value}), plan)
            except InputError as error:
                text, start = str(error), f"{path}:"
                reason = text.removeprefix(start).strip() if text.startswith(start) else f"{value:g} cannot be: {text}"
                raise InputError(f"{where}: {reason}") from None
    elif field.startswith("layout."):
        name = field.removeprefix("layout.")
        check_formats(system.accelerator, {name: max(values)}, where.removesuffix(f".{name}"))
    elif field == "chips":
        check_ports(system, max(values))
    elif field == "power_cap" or field.startswith("power."):
        _check_power_cap(system, max(values), where)
        check_measured(system, min(values), calibration, where)
    elif field == "clock" and min(values) < (lowest := float(system.accelerator.minimum_clock)) * (1.0 - WHOLE):
        raise InputError(
            f"{where}: {min(values):g} is below {lowest:g}, the lowest clock of the accelerator "
            "(system.accelerator.minimum_clock). Raise it."
        )


def check_ends(system: TrainingSystem, plan: TrainingPlan, vary: Mapping[str, Sequence[float]]) -> None:
    """Check that the ends of several ranges may stand together: every combination of up to four of the system.

    **Raises:** `InputError` that names the first combination that cannot be.
    """
    ranges = {path.removeprefix("system."): ends for path, ends in vary.items() if path.startswith("system.")}
    if not 2 <= len(ranges) <= MOST_TOGETHER:
        return
    for ends in product(*map(dict.fromkeys, ranges.values())):
        numbers = dict(zip(ranges, ends, strict=True))
        try:
            _check_all(_with_numbers(system, numbers), plan)
        except InputError as error:
            together = " and ".join(f"system.{field} = {value:g}" for field, value in numbers.items())
            raise InputError(f"vary: {together} cannot be together: {error}") from None


def _with_numbers(system: TrainingSystem, numbers: Mapping[str, float]) -> TrainingSystem:
    paths = [field.split(".") for field in numbers]
    values = [np.asarray(value, np.float64) for value in numbers.values()]
    return eqx.tree_at(lambda tree: [reduce(getattr, path, tree) for path in paths], system, values)


def _check_all(system: TrainingSystem, plan: TrainingPlan) -> None:
    check_system(system, plan)
    check_network(system, float(plan.chips))
    check_bytes(system)


def _check_power_cap(system: TrainingSystem, power_cap: float, path: str = "plan.power_cap") -> None:
    """Refuse a power cap above the rated power of the accelerator."""
    rated = float(system.accelerator.rated_power)
    if power_cap > rated * (1.0 + WHOLE):
        raise InputError(
            f"{path}: {format_quantity(power_cap, 'W')} is above {format_quantity(rated, 'W')}, the rated power of the "
            "accelerator (system.accelerator.rated_power). Lower the cap, or take another accelerator."
        )


def check_measured(system: TrainingSystem, power_cap: float, calibration: Any, path: str = "plan.power_cap") -> None:
    """Check that a power cap stays where the accelerator was measured: what lies below is not known.

    **Arguments:**

    - `power_cap`: the lowest that is asked for [W].
    - `calibration`: section of the scenario on the measurements behind its numbers.
    - `path`: name of the power cap in the message.

    **Raises:** `InputError` for a power cap below the lowest one measured.
    """
    fit = calibration.get("power", {}) if isinstance(calibration, Mapping) else {}
    lowest = fit.get("lowest_power_cap")
    if lowest is None or abs(float(system.accelerator.rated_power) / fit["rated_power"] - 1.0) > WHOLE:
        return
    if power_cap < lowest * (1.0 - WHOLE):
        raise InputError(
            f"{path}: {format_quantity(power_cap, 'W')} is below {format_quantity(lowest, 'W')}, "
            f"the lowest limit that was measured ({fit.get('source', 'calibration')}). Power and time there are "
            "not known: raise it, or measure at that limit and calibrate again."
        )


def check_fit(system: TrainingSystem, memory: float) -> None:
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
    """Refuse a target that the checkpoint of a continued run has reached."""
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
