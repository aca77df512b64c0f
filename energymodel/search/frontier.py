"""What would a run take if the energy of an operation fell from today's toward Landauer's bound, all decided anew?

Each step is a number of process generations of `system.chip_design` [docs/hardware.md], with the plan that is best for
the accelerator that follows: batch, clock, coolant, chips and layout.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.physics.limits import landauer_energy
from energymodel.scenarios.question import Limits, Minimize, Question, Ranges
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.search.optimize import optimize
from energymodel.search.result import Optimum
from energymodel.search.training_run import replace_leaf
from energymodel.system.chip_design import CatalogChip
from energymodel.system.designed import as_designed
from energymodel.system.evaluate import evaluate_once

USUAL_POINTS, MOST_POINTS = 7, 61
FARTHEST = 60.0  # generations
USUAL_LAST = 30.0
DESIGN = "system.chip_design"
CHOICES = {
    f"{DESIGN}.voltage": (0.4, 1.2),
    f"{DESIGN}.area": (0.1, 1.0),
    f"{DESIGN}.memory_stacks": (1e-3, 1.0),
    f"{DESIGN}.link_lanes": (0.05, 2.0),
}
"""Choices of a designer that every step makes anew, relative to the reference."""


class FrontierStep(NamedTuple):
    """One step on the way to the limit.

    - `generations`: of the process after today's [1].
    - `operation_energy` of the chip that was chosen, at clock 1 [J/FLOP], and how many times Landauer's bound of its
      bits that is, `landauer_multiple` [1], at the temperature of its leakage.
    - `optimum`: the best plan; `reason`: why there is none that can be trusted, or empty.
    """

    generations: float
    operation_energy: float
    landauer_multiple: float
    optimum: Optimum | None
    reason: str


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

    All steps reach the loss of the scenario's own plan, with no more chips, unless other limits are given; the time is
    free.

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
    objective = minimize or "etp"
    with jax.enable_x64(True):
        baseline = evaluate_once(own.system, own.plan)
    own_time = {"time": 1e6 * float(baseline.time)}  # far away: no step is late
    held = {"loss": float(baseline.loss), "chips": float(own.plan.chips)}
    question = own.with_question(objective, {**own_time, **held}, CHOICES).with_question(limits=limits, vary=vary)
    asked = question.optimize
    steps = []
    for generations in np.linspace(0.0, last, points):
        tell(f"optimizing {generations:g} generations from now")
        steps.append(_step(source, [*changes, f"{DESIGN}.generations={float(generations)!r}"], cluster, asked))
    return Frontier(asked.minimize, asked.limits, tuple(steps))


def _step(
    source: str | Path | Mapping[str, Any], changes: Sequence[str], cluster: str | Path | None, asked: Question
) -> FrontierStep:
    scenario = load_scenario(source, changes, cluster)
    generations = float(getattr(scenario.system.chip_design, "generations", 0.0))
    try:
        optimum = optimize(scenario, minimize=asked.minimize, limits=asked.limits, vary=asked.vary)
    except InputError as error:
        return FrontierStep(generations, *_operation_energy(scenario, {}), None, str(error))
    reason = "" if optimum.success else optimum.message
    return FrontierStep(generations, *_operation_energy(scenario, optimum.found), optimum, reason)


def _operation_energy(scenario: Scenario, found: Mapping[str, float]) -> tuple[float, float]:
    """Energy of an operation of the designed chip [J/FLOP], and that over Landauer's bound of its bits [1]."""
    system = scenario.system
    with jax.enable_x64(True):
        for path, value in found.items():
            if path.startswith("system."):
                system = replace_leaf(system, path.removeprefix("system."), value)
        chip = as_designed(system, scenario.plan).system.accelerator
        energy = float(np.asarray(chip.energy_per_flop))
        return energy, energy / float(landauer_energy(chip.bits_per_flop, chip.leakage.reference_temperature))
