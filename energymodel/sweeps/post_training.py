"""An iteration of post-training with generation: what fits in memory, how long it takes, and how certain that is.

Forward passes and updates take what `evaluate` predicts for tokens that are packed; other
models are sharded over all chips that train.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from energymodel.errors import InputError, suggest
from energymodel.performance.adaptation import FineTuning
from energymodel.performance.memory_footprint import state_bytes_per_parameter
from energymodel.performance.post_training import IterationLoad, IterationTime, RolloutEngine
from energymodel.readers.expressions import data_file
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.components import Provenance, build
from energymodel.scenarios.distributions import parse_distribution
from energymodel.scenarios.pieces import Pieces
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.outcome_spread import DEVIATIONS, outcome_spread
from energymodel.system.division import divide
from energymodel.system.evaluate import evaluate_once
from energymodel.system.memory import FAILING_RISK, chip_memory, reserved_memory
from energymodel.system.outcome import TrainingOutcome
from energymodel.units import format_quantity

WORDS: Mapping[str, Any] = data_file(__file__, "post_training.toml")
ONCE = ("optimizer", "data", "overhead")
"""Terms of a step that do not grow with its tokens."""
HALF = 0.5  # of the memory of an engine that its weights take at most, unless its chips are given
_ONE_DEVIATION = ndtr(np.array([-1.0, 1.0]))


@dataclasses.dataclass(frozen=True)
class PostTraining:
    """What an iteration does, and where.

    - `prompts` of an iteration, `answers` to each, and `updates` of the actor.
    - `prompt_length`, `answer_length`: means, and `longest_answer` [token]; one of those of answers may be unknown.
      Updates have sequences packed up to `sequence` [token], the longest one if not given.
    - `rollout_chips` that write alone; 0 where the chips that train write, too. `engine_chips` share the model of an
      engine, which takes a share `engine_share` of their memory; both follow from memory if not given.
    - `overlap`: answers of the next iteration are written while this one trains. `offload`: training states are on the
      host while answers are written, other models while the actor trains.

    **Raises:** `InputError` for what contradicts itself.
    """

    algorithm: str
    prompts: float
    answers: float
    updates: float
    prompt_length: float
    answer_length: float | None = None
    longest_answer: float | None = None
    sequence: float | None = None
    rollout_chips: float = 0.0
    engine_chips: float | None = None
    engine_share: float | None = None
    overlap: bool = False
    offload: bool = False

    def __post_init__(self) -> None:
        mean, longest = self.answer_length, self.longest_answer
        if self.algorithm not in WORDS["algorithms"]:
            raise InputError(f'--algorithm: unknown "{self.algorithm}". {suggest(self.algorithm, WORDS["algorithms"])}')
        if mean is None and longest is None:
            raise InputError("--answer-length is missing. Give the mean tokens of an answer, or --longest-answer.")
        if mean is not None and longest is not None and mean > longest:
            raise InputError(f"--answer-length {mean:g} is above --longest-answer {longest:g}. Give the mean.")
        if self.engine_share is not None and not 0.0 < self.engine_share <= 1.0:
            raise InputError(f"--engine-share {self.engine_share:g}: not a share of memory. Give for example 0.6.")
        if self.overlap and not self.rollout_chips:
            raise InputError("--overlap needs chips that write while others train. Give --rollout-chips.")


class Iteration(NamedTuple):
    """An iteration, by the `scenario` and `outcome` of an update of the actor, for which some was `assumed`.

    - `time` [s], and `halves`, half-widths of the 90 % intervals of its logarithms [1]; `load` of an engine.
    - `memory` [B]: of the fullest chip while it is "training" and "writing", "others" in it than the actor, "capacity".
    - `tokens` of an iteration, and `chips`, all [1]. `shortfall`: why it cannot run, and what to change, or empty.
    """

    scenario: Scenario
    outcome: TrainingOutcome
    assumed: tuple[str, ...]
    time: IterationTime
    halves: IterationTime
    load: IterationLoad
    memory: Mapping[str, float]
    tokens: float
    chips: float
    shortfall: str


def post_training(
    asked: PostTraining, pieces: Callable[[float | None, float, tuple[str, ...]], Pieces], preset: str = "paged"
) -> Iteration:
    """An iteration with an engine of a preset.

    **Arguments:**

    - `pieces`: makes the scenario of an update from tokens of its batch, any if None, tokens of a sequence and changes.

    **Raises:** `InputError` as `pieces`, also where the actor does not fit beside the other models.
    """
    origins: dict[str, Provenance] = {}
    engine: RolloutEngine = build(preset, RolloutEngine, "engine", origins)
    ratio, own = float(engine.answer_share), bool(asked.rollout_chips)
    answer = asked.answer_length or ratio * float(asked.longest_answer or 0.0)
    longest, count = asked.longest_answer or answer / ratio, asked.prompts * asked.answers
    sequence = asked.sequence or float(round(asked.prompt_length + longest))
    tokens = count * (asked.prompt_length + answer)

    draft = pieces(None, sequence, ()).scenario
    chips, others = float(draft.plan.chips), _others(asked, draft, engine)
    packed = max(1.0, round(tokens / asked.updates / sequence / chips)) * chips * sequence
    reserve = float(draft.system.software.reserved_memory) + others
    try:
        made = pieces(packed, sequence, (f"system.software.reserved_memory={reserve} B",))
    except InputError as error:
        raise InputError(f"{error} Other models and the engine take {format_quantity(others, 'B')} of it.") from None
    scenario, total = made.scenario, chips + asked.rollout_chips
    system, plan, workload = scenario.system, scenario.plan, scenario.system.workload
    outcome = jax.device_get(evaluate_once(system, plan))

    held, capacity = _held(scenario), float(system.accelerator.memory_capacity)
    resident = 0.0 if asked.offload else held + others - float(engine.asleep_memory)
    beside = 0.0 if own else resident + float(reserved_memory(system, plan)) - others
    usual, free = float(engine.own_memory_share if own else engine.memory_share), 1.0 - beside / capacity
    share = asked.engine_share or min(usual, max(free, 0.01))
    weights, writers = float(workload.parameters * engine.weight_bytes), asked.rollout_chips or chips
    fewest = 2.0 ** max(0, int(np.ceil(np.log2(weights / (HALF * share * capacity)))))
    if writers % (width := asked.engine_chips or min(fewest, writers)):
        raise InputError(f"--engine-chips {width:g}: does not divide {writers:g} chips. Give a divisor.")
    once = sum(float(getattr(outcome.step_time, name)) for name in ONCE)
    of, passes = WORDS["algorithms"][asked.algorithm], system.adaptation.passes(plan.trained_share).layer
    fabric = system.links(total).fabric
    rate = fabric.inner_bandwidth if total <= system.node.chips else fabric.outer_bandwidth
    load = IterationLoad(
        *(workload, width, max(1.0, width / float(system.node.chips))),
        *(system.accelerator.peak_flops * float(np.asarray(outcome.clock)), system.accelerator.sustained_bandwidth),
        *(share * capacity, count * width / writers, asked.prompt_length, answer, longest),
        *((float(np.asarray(outcome.step_time.total)) - once) / packed * count, asked.updates * once),
        *(of["passes"] / (passes + plan.layout.recompute_full), float(of["critics"]), weights / width / rate),
        hosts=2.0 * held / float(system.node.host_bandwidth) if asked.offload else 0.0,
        overlap=float(asked.overlap),
    )
    deviations = [_deviation(origins[f"engine.{name}"], float(value)) for name, value in vars(engine).items()]
    deviations.append(outcome_spread(scenario).deviation("step_time"))
    unknown = np.array([not asked.answer_length, not asked.longest_answer], np.float64)
    time, halves = jax.tree.map(float, _times(engine, load, np.array(deviations), unknown))
    memory = {"training": float(outcome.memory_per_chip), "writing": share * capacity + beside}
    memory |= {"others": others, "capacity": capacity}
    lacks = {
        "training": float(outcome.out_of_memory) > FAILING_RISK,
        "writing": memory["writing"] > capacity * (1.0 + 1e-9),
        "cache": time.at_once < 1.0,
    }
    shortfall = next((WORDS["shortfalls"][name] for name, is_short in lacks.items() if is_short), "")
    shortfall = shortfall.replace("SHARE", f"{max(0.01, free):.2f}")
    return Iteration(scenario, outcome, made.assumed, time, halves, load, memory, tokens, total, shortfall)


def _others(asked: PostTraining, scenario: Scenario, engine: RolloutEngine) -> float:
    """Memory of frozen models, critic and sleeping engine on each chip that trains [B]."""
    of, system, software = WORDS["algorithms"][asked.algorithm], scenario.system, scenario.system.software
    adapted = isinstance(system.adaptation, FineTuning) and float(system.adaptation.rank) > 0.0
    copies = max(0, of["copies"] - adapted)  # the actor without its adapters is the reference
    trained = software.weight_bytes + software.gradient_bytes + software.optimizer_bytes
    each = 0.0 if asked.offload else copies * engine.weight_bytes + of["critics"] * trained
    asleep = 0.0 if asked.rollout_chips else engine.asleep_memory
    return float(system.workload.parameters * each / scenario.plan.chips + asleep)


def _held(scenario: Scenario) -> float:
    """Weights and optimizer states of the actor on the fullest chip [B]."""
    system, plan, layout = scenario.system, scenario.plan, scenario.plan.layout
    memory = chip_memory(system, plan, divide(system, plan, float(np.max(plan.batch))))
    weight = memory.stored.weight * (1.0 - layout.offload_parameters)
    optimizer = memory.stored.optimizer * (1.0 - layout.offload_optimizer)
    kept = (weight, 0.0, optimizer, layout.shard_parameters, layout.shard_gradients, layout.shard_optimizer)
    own = memory.shard
    dense = own.dense * state_bytes_per_parameter(*kept, own.dense_ranks)
    return float(dense + own.routed * state_bytes_per_parameter(*kept, own.routed_ranks))


@Compiled
def _times(
    engine: RolloutEngine, load: IterationLoad, deviations: Any, unknown: Any
) -> tuple[IterationTime, IterationTime]:
    """Times of an iteration [s], and half-widths of their intervals to first order in logarithms [1].

    - `deviations`: of the numbers of the engine, and of the time of updates.
    - `unknown`: 1 where the mean and the longest answer follow from `answer_share`.
    """
    leaves, structure = jax.tree.flatten(engine)

    def parts(moved: Any) -> IterationTime:
        factor = jnp.exp(moved)
        own = jax.tree.unflatten(structure, [leaf * factor[i] for i, leaf in enumerate(leaves)])
        ratio = own.answer_share / engine.answer_share
        lengths = {"answer": load.answer * ratio ** unknown[0], "longest": load.longest / ratio ** unknown[1]}
        return own.iteration(
            load._replace(**lengths, per_token=load.per_token * factor[-1], once=load.once * factor[-1])
        )

    def half(time: Any, slopes: Any) -> Any:
        return DEVIATIONS * jnp.sqrt(jnp.sum((slopes * deviations) ** 2)) / jnp.maximum(time, 1e-9)

    still = jnp.zeros(len(leaves) + 1)
    times = parts(still)
    return times, jax.tree.map(half, times, jax.jacrev(parts)(still))


def _deviation(origin: Provenance, value: float) -> float:
    """Standard deviation of the logarithm of a number; 0 where it is known."""
    if not origin.distribution:
        return 0.0
    ends = parse_distribution(origin.distribution, "engine", origin.unit, value).quantiles(value, _ONE_DEVIATION)
    return float(np.ptp(np.log(ends))) / 2.0
