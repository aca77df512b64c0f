"""Best plans of variants of a scenario, over process generations, and with the chip that trains a model best."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.performance.caches import balance_cache_size, optimal_cache_size
from energymodel.physics.limits import landauer_energy
from energymodel.readers.expressions import data_file
from energymodel.scenarios.layers import topology_changes
from energymodel.scenarios.question import BATCH, Limits, Minimize, Ranges
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.search.optimize import optimize
from energymodel.search.problem import BATCH_RANGE, LEEWAY
from energymodel.search.result import Optimum, SearchResult
from energymodel.search.training_run import replace_leaf
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_design import CatalogChip, ScaledChip, Technology
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value
from energymodel.system.training_system import as_designed

PRECISIONS: Mapping[str, Mapping[str, float]] = {
    "bf16": {"fp8": 0.0, "fp4": 0.0},
    "fp8": {"fp8": 1.0, "fp4": 0.0},
    "fp4": {"fp8": 0.0, "fp4": 1.0},
}
"""Shares of the products with weights in each format."""
MOST = 64  # combinations of one comparison
USUAL_POINTS, MOST_POINTS = 7, 61
USUAL_LAST, FARTHEST = 30.0, 60.0  # generations
DESIGN = "system.chip_design"
CHIP = f"{DESIGN}."
GENERATIONS = f"{CHIP}generations"
LESS = 1.0 - 1e-4  # of the objective: the start of another search must promise more
CHOICES: Mapping[str, Sequence[float]] = data_file(__file__, "chip_choices.toml")["generation"]
"""Choices of a designer that every generation makes anew, relative to the reference."""
ELEMENT = 2.0  # bytes of a number in 16 bits
FLOP_PER_PRODUCT = 2.0  # a multiply-add
CHIP_CHOICES: Mapping[str, Sequence[float]] = data_file(__file__, "chip_choices.toml")["chip"]
"""What is varied unless the question says so, and its bounds."""
CHIP_LIMITS = {"chip_area": ("die_area", "m^2"), "chip_power": ("rated_power", "W"), "chip_price": ("price", "USD")}
"""Limits on the chip, the field of the accelerator that each bounds, and its unit."""


class Candidate(NamedTuple):
    """One combination: what was chosen, its best plan, and why there is none.

    - `accelerator`, `precision`, `network`, `topology`, `chips`: as asked, `None` where the scenario's own stays.
    - `optimum`: of the search; `None` if the combination cannot be stated.
    - `reason`: empty if the plan can be trusted.
    """

    accelerator: str | None
    precision: str | None
    network: str | None
    topology: str | None
    chips: int | float | None
    optimum: Optimum | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """The combination in words."""
        chips = None if self.chips is None else f"{self.chips:,.0f} chips"
        return ", ".join(filter(None, (*self[:4], chips))) or "own"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All combinations, the best first, then those without a plan; `unit` is that of the objective.

    `own` is the scenario with its own plan, whose outcome is `baseline`; none where its layout was chosen.
    """

    minimize: str
    unit: str
    limits: Mapping[str, float]
    candidates: tuple[Candidate, ...]
    own: Scenario | None = None
    baseline: TrainingOutcome | None = None

    @property
    def solved(self) -> dict[str, Optimum]:
        """The plans that can be trusted by name of their combination, the best first."""
        return {each.name: each.optimum for each in self.candidates if each.optimum is not None and not each.reason}

    @property
    def varied(self) -> tuple[str, ...]:
        """Paths of the system that vary in some of them."""
        paths = (path for candidate in self.candidates if candidate.optimum for path in candidate.optimum.varied)
        return tuple(dict.fromkeys(path for path in paths if path.startswith("system.")))


Variants = Callable[[Sequence[str], str | None, float | None], Scenario]
"""What makes a scenario with further changes, on an accelerator, of so many chips; its own ones where they are none."""


def compare(
    source: str | Path | Mapping[str, Any] | Variants,
    *,
    accelerators: Sequence[str] = (),
    precisions: Sequence[str] = (),
    networks: Sequence[str] = (),
    topologies: Sequence[str] = (),
    chips: Sequence[int | float] = (),
    changes: Sequence[str] = (),
    cluster: str | Path | None = None,
    minimize: Minimize | None = None,
    limits: Limits | None = None,
    vary: Ranges | None = None,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Optimize every combination of accelerators, formats, networks and numbers of chips within the same limits.

    Unless limits are given, all reach the loss of the scenario's own plan on its own hardware, in no more time; where
    its layout was chosen, in the time that the slowest takes in its fastest layout. Node, network, building and power
    caps are those that belong to an accelerator. A combination that cannot be stated or has no plan is listed with its
    reason.

    **Arguments:**

    - `source`, `changes`, `cluster`: as in `load_scenario`; or a function that makes the scenarios (`Variants`).
    - `accelerators`: names of presets; by default the scenario's own.
    - `precisions`: `"bf16"`, `"fp8"`, `"fp4"` of all products with weights; by default the scenario's own shares.
    - `networks`: names of presets of networks between nodes, with their links and protocol.
    - `topologies`: `"fat-tree"`, `"rail-only"`, `"dragonfly"`, `"torus"`, of the switches of the network.
    - `chips`: the most chips of a plan; by default as many as the scenario's own plan has.
    - `minimize`, `limits`, `vary`: as in `optimize`; a combination that lacks a path which varies has no plan.

    **Raises:** `InputError` for a question or a scenario that `optimize` refuses, an unknown format or topology, or
    too many combinations.
    """
    tell = progress or (lambda sentence: None)
    for name in precisions:
        if name not in PRECISIONS:
            raise InputError(f'precision: unknown "{name}". {suggest(name, PRECISIONS)}')
    names = (accelerators or (None,), precisions or (None,), networks or (None,), topologies or (None,))
    combinations = [Candidate(*choice) for choice in product(*names, chips or (None,))]
    if len(combinations) > MOST:
        raise InputError(f"compare: {len(combinations)} combinations are more than {MOST}. Ask for fewer.")

    def load(layers: Sequence[str], accelerator: str | None, chips: float | None) -> Scenario:
        if callable(source):
            return source(layers, accelerator, chips)
        chip = [] if accelerator is None else [f"system.accelerator={accelerator}"]
        return load_scenario(source, [*changes, *layers, *chip], cluster)

    scenarios = [_loaded(load, candidate, changes) for candidate in combinations]
    stated, candidates = [scenario for scenario in scenarios if isinstance(scenario, Scenario)], []
    made = (scenario for scenario in stated if "layout" in scenario.chosen)
    first = next(made, None) or load((), None, None)
    own = first.with_question(minimize, limits)
    for name in topologies:
        topology_changes(name, own.system.network.topology, changes)
    objective, baseline = own.optimize.minimize, _outcome(own)
    held = {"loss": float(baseline.loss), "time": float(baseline.time)}
    if has_chosen := "layout" in own.chosen:
        others = (float(_outcome(scenario).time) for scenario in stated if scenario is not first)
        held["time"] = LEEWAY * max([held["time"], *others])
    held = {name: value for name, value in held.items() if name != objective} | dict(own.optimize.limits)
    for candidate, scenario in zip(combinations, scenarios, strict=True):
        tell(f"optimizing {candidate.name}")
        optimum, reason = None, str(scenario)
        if isinstance(scenario, Scenario):
            most = candidate.chips or held.get("chips") or float(scenario.plan.chips)
            optimum, reason = _optimized(scenario, objective, {**held, "chips": float(most)}, vary)
        candidates.append(candidate._replace(optimum=optimum, reason=reason))
    candidates.sort(key=lambda each: each.optimum.value if each.optimum and not each.reason else float("inf"))
    unit = next((candidate.optimum.value_unit for candidate in candidates if candidate.optimum), "")
    plan = {} if has_chosen else {"own": own, "baseline": baseline}
    return Comparison(objective, unit, held, tuple(candidates), **plan)


def _loaded(load: Variants, choice: Candidate, changes: Sequence[str]) -> Scenario | InputError:
    """The scenario with a combination in it, or why there is none."""
    shares = {} if choice.precision is None else PRECISIONS[choice.precision]
    layers = [f"plan.layout.{name}={share:g}" for name, share in shares.items()]
    layers += [] if choice.network is None else [f"system.network={choice.network}"]
    try:
        scenario = load(layers, choice.accelerator, choice.chips)
        if choice.topology is None:
            return scenario
        layers += topology_changes(choice.topology, scenario.system.network.topology, [*changes, *layers])
        return load(layers, choice.accelerator, choice.chips)
    except InputError as error:
        return error


def _outcome(scenario: Scenario) -> TrainingOutcome:
    """Outcome of the plan of a scenario."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))


def _optimized(
    scenario: Scenario, minimize: str, limits: Mapping[str, float], vary: Ranges | None
) -> tuple[Optimum | None, str]:
    """The best plan of a variant, and the reason why there is none that can be trusted."""
    try:
        optimum = optimize(scenario, minimize=minimize, limits=limits, vary=vary, keep_layout=False)
    except InputError as error:
        return None, str(error)
    return optimum, "" if optimum.success else optimum.message


class FrontierStep(NamedTuple):
    """One step on the way to the limit.

    - `generations`: of processes that there are after today's [1]; a design uses the last or an earlier one.
    - `operation_energy` of the chip that was chosen, at clock 1 [J/FLOP], and how many times Landauer's bound of its
      bits that is, `landauer_multiple` [1], at the temperature of its leakage.
    - `optimum`: the best plan, if one obeys the limits; `reason`: why none can be trusted, or empty.
    """

    generations: float
    operation_energy: float
    landauer_multiple: float
    optimum: Optimum | None
    reason: str

    @property
    def value(self) -> float:
        """The objective of the best plan, infinite where there is none."""
        return math.inf if self.optimum is None else self.optimum.value


@dataclasses.dataclass(frozen=True)
class Frontier:
    """All steps, from today on."""

    minimize: str
    limits: Mapping[str, float]
    steps: tuple[FrontierStep, ...]


def frontier(
    source: str | Path | Mapping[str, Any],
    *,
    points: int = USUAL_POINTS,
    last: float = USUAL_LAST,
    changes: Sequence[str] = (),
    cluster: str | Path | None = None,
    minimize: Minimize | None = None,
    limits: Limits | None = None,
    vary: Ranges | None = None,
    progress: Callable[[str], None] | None = None,
) -> Frontier:
    """Optimize a scenario at process generations from today's to the last one.

    The energy of an operation falls toward Landauer's bound with the generations of `system.chip_design`, and hosts and
    links improve with them [docs/hardware.md]; batch, clock, coolant, chips, layout and the process, of those that
    there are, are decided anew. All steps reach the loss of the scenario's own plan, with no more chips, unless other
    limits are given; the time is free. Each step also starts from the plans of those beside it and keeps an earlier one
    that is better: the objective never rises.

    **Arguments:**

    - `source`, `changes`, `cluster`: as in `load_scenario`; `changes` may choose other numbers of the design.
    - `points`: steps, evenly spaced in generations.
    - `last`: generations of the last step [1].
    - `minimize`: as in `optimize`; the energy-time product unless given.
    - `limits`, `vary`: as in `optimize`; `CHOICES` vary as well.

    **Raises:** `InputError` for numbers that make no path, and for a scenario or a question that `optimize` refuses.
    """
    tell = progress or (lambda sentence: None)
    if not 2 <= points <= MOST_POINTS:
        raise InputError(f"points: {points} make no path. Give 2 to {MOST_POINTS}.")
    if not 0.0 < last <= FARTHEST:
        raise InputError(f"generations: {last:g} is not above 0 and at most {FARTHEST:g}. Give for example 30.")
    own = load_scenario(source, changes, cluster)
    if isinstance(own.system.chip_design, CatalogChip):
        changes = [*changes, f"{DESIGN}=scaled"]
        own = load_scenario(source, changes, cluster)
    baseline = _outcome(own)
    held = {"loss": float(baseline.loss), "chips": float(own.plan.chips)}
    held["time"] = 1e6 * float(baseline.time)  # far away: no step is late
    batch = float(np.max(own.plan.batch))  # of every start alike
    ranges = {BATCH: (batch / BATCH_RANGE, batch * BATCH_RANGE), **CHOICES}
    asked = own.with_question(minimize or "etp", held, ranges).with_question(limits=limits, vary=vary).optimize

    def searched(generations: float, start: Scenario) -> FrontierStep:
        """A step by a search from the plan of a scenario."""
        vary = {**asked.vary, GENERATIONS: (0.0, generations)}
        optimum, reason = _optimized(start, asked.minimize, asked.limits, vary)
        if optimum is not None and optimum.result == SearchResult.interrupted:
            raise KeyboardInterrupt
        optimum = None if optimum is None or optimum.result == SearchResult.infeasible else optimum
        with jax.enable_x64(True):
            system = start.system if optimum is None else optimum.system
            chip = as_designed(system, start.plan).system.accelerator
            energy = float(np.asarray(chip.energy_per_flop))
            multiple = energy / float(landauer_energy(chip.bits_per_flop, chip.leakage.reference_temperature))
        return FrontierStep(generations, energy, multiple, optimum, reason)

    steps: list[FrontierStep] = []
    for generations in map(float, np.linspace(0.0, last, points)):
        tell(f"optimizing {generations:g} generations from now")
        own = load_scenario(source, [*changes, f"{GENERATIONS}={generations!r}"], cluster)
        steps.append(searched(generations, own))
    onward = [(index - 1, index) for index in range(1, points)]
    for beside, index in [*onward, *((later, earlier) for earlier, later in reversed(onward))]:
        step, near = steps[index], steps[beside].optimum
        if near is not None:
            process = np.minimum(near.found[GENERATIONS], step.generations)
            system = replace_leaf(near.system, GENERATIONS.removeprefix("system."), process)
            start = dataclasses.replace(own, system=system, plan=near.plan)
            if step.reason or float(objective_value(_outcome(start), asked.minimize)) < step.value * LESS:
                tell(f"optimizing {step.generations:g} generations from now, from {steps[beside].generations:g}")
                again = searched(step.generations, start)
                steps[index] = min(step, again, key=lambda each: each.value * (1.0 if each.reason else LESS))
    for before, index in onward:  # its process is there later, too
        if steps[before].value < steps[index].value:
            steps[index] = steps[before]._replace(generations=steps[index].generations)
    return Frontier(asked.minimize, asked.limits, tuple(steps))


class DesignedOptimum(NamedTuple):
    """The best chip with the plan for it, beside the scenario's own."""

    optimum: Optimum
    reference: Accelerator
    chip: Accelerator
    caches: "CacheSizes"


def chip_question(
    scenario: Scenario, minimize: str | None, limits: Sequence[str] = (), vary: Sequence[str] = ()
) -> Scenario:
    """The scenario with a question about its chip: the choices and limits that are not asked are those of this file.

    **Raises:** `InputError` where the accelerator of the scenario is taken as it is.
    """
    if isinstance(scenario.system.chip_design, CatalogChip):
        raise InputError(
            "system.chip_design: the accelerator is taken as it is. Set system.chip_design=scaled to design it."
        )
    chip, every = scenario.system.accelerator, [text.strip() for text in vary]
    if not any(text.startswith(CHIP) for text in every):
        every += [f"{CHIP}{name}={low}:{high}" for name, (low, high) in CHIP_CHOICES.items()]
    asked = {text.partition("=")[0].strip() for text in limits}
    if not any(text.startswith(f"{CHIP}area") for text in every):
        asked.add("chip_area")  # a limit on what does not vary only narrows the search
    own = {name: f"{float(getattr(chip, field))!r} {unit}" for name, (field, unit) in CHIP_LIMITS.items()}
    own = [f"{name}={value}" for name, value in own.items() if name not in asked]
    return scenario.with_question(minimize, [*limits, *own], every)


class CacheSizes(NamedTuple):
    """What closed forms say of last cache and registers of a chip, for large products with elements of two bytes [B].

    `lowest_energy` moves operands at the lowest energy; below `balance`, memory limits the products. `registers` of a
    core do the same as `lowest_energy` between local memory and units.
    """

    lowest_energy: float
    balance: float
    registers: float


def cache_sizes(chip: Accelerator, technology: Technology) -> CacheSizes:
    """Sizes by `optimal_cache_size` and `balance_cache_size` for a chip."""
    sram = technology.sram
    elements = optimal_cache_size(
        dram_energy=8.0 * ELEMENT * chip.memory_energy,
        sram_energy=ELEMENT * sram.reference_energy,
        reference_cache=sram.reference_size / ELEMENT,
        accesses=FLOP_PER_PRODUCT * technology.cache_accesses / ELEMENT,
    )
    balanced = balance_cache_size(chip.peak_flops, chip.memory_bandwidth, ELEMENT)
    return CacheSizes(float(ELEMENT * elements), float(ELEMENT * balanced), float(technology.core.best_registers(sram)))


def design_chip(asked: Scenario, progress: Callable[[str], None] | None = None) -> DesignedOptimum:
    """The best chip and plan for a question of `chip_question`. Runs in float64."""
    with jax.enable_x64(True):
        optimum = optimize(asked, progress=progress, keep_layout=False)
        design, chip = optimum.system.chip_design, as_designed(optimum.system, optimum.plan).system.accelerator
        if not isinstance(design, ScaledChip):
            raise TypeError(f"system.chip_design is {type(design).__name__}; use ScaledChip.")
        # Its cells are those of the reference; they do not depend on links.
        caches = cache_sizes(chip, design.technology.of(asked.system.accelerator, 0.0))
    return DesignedOptimum(optimum, asked.system.accelerator, chip, caches)
