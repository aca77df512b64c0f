"""Why a plan is what it is, in five sentences whose numbers follow from its outcome by the formulas of `argument.toml`.

The energy of switching; what memory and links take, and more if they scaled less; the best batch of a run whose steps
have a fixed time, `B* = sqrt(s B_h B_c)` [docs/physics.md A0.9]; the ranks that it feeds; and what then limits.
"""

from collections.abc import Mapping
from typing import Any

import jax

from energymodel.learning.critical_batch import best_batch
from energymodel.performance.saturation import time_optimal_batch
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
FORMULAS = (best_batch, time_optimal_batch, operation_multiple, read_preset, max, getattr)


def is_near_limit(scenario: Scenario) -> bool:
    """Whether an operation of the chip takes less than `NEAR_LIMIT` times what erasing its bits takes."""
    chip = scenario.system.accelerator
    multiple = operation_multiple(chip.energy_per_flop, chip.bits_per_flop, chip.leakage.reference_temperature)
    return float(multiple) < NEAR_LIMIT


def five_sentences(scenario: Scenario, outcome: TrainingOutcome, own_batch: float) -> list[Sentence]:
    """Why the plan of a scenario is what it is; nothing of fine-tuning, whose loss is not predicted.

    **Arguments:**

    - `own_batch`: of the plan that this one is compared with [token].
    """
    rules, (law, _), table = data_file(__file__, "argument.toml"), critical_batch_law(scenario), scenario.accelerator
    if scenario.is_fine_tuned or law is None:
        return []
    with jax.enable_x64(True):
        (system, plan), now = as_designed(scenario.system, scenario.plan), jax.tree.map(float, outcome)
        run = TrainingRun(scenario.system, scenario.plan)
        run = run.at(run.changed("plan.clock", now.clock))  # where a power cap may have left it
        words: dict[str, Any] = {name: _evaluated(run, factors) for name, factors in rules["runs"].items()}
        words |= {"now": now, "system": system, "plan": plan, "chip": system.accelerator, "law": law}
        words |= {"learning": learning_of(system, plan), "size": parameters_in_loss(system), "own_batch": own_batch}
        words |= {"calendar": system.reliability.calendar(plan.chips, plan.spares)}
        words |= {"rest": {field.value: field.title for field in part_fields(now.energy)[1:]}}
        words |= {"preset": dict(table)["preset"] if isinstance(table, Mapping) else table}
        words |= {"is_derived": bool(chosen_numbers(table)), **{formula.__name__: formula for formula in FORMULAS}}
        work_out(rules["words"], words)
        texts, numbers = list(rules["sentences"].values()), {}
        for name, (formula, *look) in rules["numbers"].items():
            value = evaluate(formula, words)
            if isinstance(value, str):
                texts = [text.replace(f"{{{name}}}", value) for text in texts]
            elif value is not None:
                numbers[name] = number(float(value), *look)
    return [Sentence(text, numbers) for text in texts]


def _evaluated(run: TrainingRun, factors: Mapping[str, float]) -> TrainingOutcome:
    """Outcome of a run with some of its numbers times factors."""
    for path, factor in factors.items():
        run = run.at(run.changed(path, factor * run.values[path]))
    return jax.tree.map(float, jax.device_get(evaluate_once(run.system, run.plan)))
