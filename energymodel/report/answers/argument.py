"""Why a plan is what it is, in five sentences whose numbers follow from its outcome by the formulas of `argument.toml`.

The energy of switching; what memory and links take, and more if they scaled less; the best batch of a run whose steps
have a fixed time, `B* = sqrt(s B_h B_c)` [docs/physics.md A0.9]; the ranks that it feeds; and what then limits.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from energymodel.learning.critical_batch import AbstractCriticalBatch, PowerCriticalBatch, best_batch
from energymodel.performance.saturation import half_throughput_batch, time_optimal_batch
from energymodel.physics.limits import operation_multiple
from energymodel.readers.expressions import data_file, evaluate, work_out
from energymodel.report.answer import Sentence
from energymodel.report.answers.details import critical_batch_law
from energymodel.report.answers.plan_fields import part_fields
from energymodel.report.cells import number
from energymodel.scenarios.components import chosen_numbers
from energymodel.scenarios.files import read_preset
from energymodel.scenarios.scenario import Scenario
from energymodel.search.training_run import TrainingRun
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.training_system import as_designed, learning_of, parameters_in_loss

NEAR_LIMIT = 1e5
"""Multiple of Landauer's limit of an operation below which hardware is near the limits; that of an H100 is 7e6."""


def operation_of(scenario: Scenario, outcome: TrainingOutcome) -> dict[str, float]:
    """Operations that the model needs [FLOP], the energy of each [J/FLOP], and its multiple of Landauer's limit [1]."""
    system, chip = scenario.system, scenario.system.accelerator
    useful = float(system.adaptation.flops_per_token(system.workload, scenario.plan.trained_share) * outcome.tokens)
    each = float(outcome.euf) * float(np.asarray(outcome.energy.total)) / useful
    multiple = operation_multiple(each, chip.bits_per_flop, chip.leakage.reference_temperature)
    return {"useful": useful, "each": each, "multiple": float(multiple)}


def five_sentences(scenario: Scenario, outcome: TrainingOutcome, own_batch: float) -> list[Sentence]:
    """Why the plan of a scenario is what it is; nothing of fine-tuning, whose loss is not predicted.

    **Arguments:**

    - `own_batch`: of the plan that this one is compared with [token].
    """
    law = critical_batch_law(scenario.system.learning)[0]
    if scenario.is_fine_tuned or law is None:
        return []
    with jax.enable_x64(True):
        return _sentences(scenario, jax.tree.map(float, outcome), own_batch, law)


def _sentences(
    scenario: Scenario, now: TrainingOutcome, own_batch: float, law: AbstractCriticalBatch
) -> list[Sentence]:
    rules, (system, plan) = data_file(__file__, "argument.toml"), as_designed(scenario.system, scenario.plan)
    # The clock where a power cap may have left it.
    run = TrainingRun(scenario.system, dataclasses.replace(scenario.plan, clock=np.asarray(now.clock)))
    words: dict[str, Any] = {name: _evaluated(run, factors) for name, factors in rules["runs"].items()}
    progress = learning_of(system, plan).effective_tokens(parameters_in_loss(system), now.loss)
    critical = law.run_level(progress + system.tokens_seen, now.loss)
    kept = best_batch(critical, law.sharpness, law.small_batch_share) if isinstance(law, PowerCriticalBatch) else 0.0
    words |= operation_of(scenario, now) | {"critical": critical, "kept": kept, "law": law, "own_batch": own_batch}
    words |= {"now": now, "system": system, "plan": plan, "chip": system.accelerator, "template": _template(scenario)}
    words |= {"calendar": system.reliability.calendar(plan.chips, plan.spares), "max": max}
    words |= {"rest": {field.value: field.title for field in part_fields(now.energy)[1:]}}
    words |= {"half_batch": half_throughput_batch, "optimal_batch": time_optimal_batch}
    work_out(rules["words"], words)
    texts, numbers = list(rules["sentences"].values()), {}
    for name, (formula, *look) in rules["numbers"].items():
        value = evaluate(formula, words)
        if isinstance(value, str):
            texts = [text.replace(f"{{{name}}}", value) for text in texts]
        elif value is not None:
            numbers[name] = number(float(value), *look)
    return [Sentence(text, numbers) for text in texts]


def _template(scenario: Scenario) -> dict[str, Any] | None:
    """Preset of today's device that a near-limit accelerator takes after."""
    table = scenario.accelerator
    if not chosen_numbers(table):
        return None
    own = read_preset("hardware", table["preset"] if isinstance(table, Mapping) else table)
    return read_preset("hardware", own["template"])


def _evaluated(run: TrainingRun, factors: Mapping[str, float]) -> TrainingOutcome:
    """Outcome of a run with some of its numbers times factors."""
    for path, factor in factors.items():
        run = run.at(run.changed(path, factor * run.values[path]))
    return jax.tree.map(float, jax.device_get(evaluate_once(run.system, run.plan)))
