"""Fine-tuning in words of options and configuration files: what is trained, optimizers, samples and padding."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.performance.adaptation import FineTuning
from energymodel.readers.expressions import data_file, evaluate, work_out
from energymodel.scenarios.checks import Numbers, with_numbers
from energymodel.scenarios.files import read_preset
from energymodel.system.division import divide
from energymodel.system.memory import chip_memory
from energymodel.system.outputs import parse_number
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

WORDS = data_file(__file__, "fine_tuning.toml")
NUMBERS = tuple(name for name in WORDS["numbers"] if name not in ("width", "rank_is_used"))
PADDINGS = ("packed", "longest", "sequence")
"""Samples are packed into whole sequences, padded to the longest of their micro-batch, or to the sequence."""
ADAPTATION = "system.adaptation"


class Samples(NamedTuple):
    """Tokens of a run and of a sequence, both with padding, and the largest micro-batch over the mean one."""

    tokens: float
    sequence: float
    longest: float


def padded_samples(
    samples: float, epochs: float, mean_length: float, sequence: float, padding: str, microbatch: float
) -> Samples:
    """Tokens that samples take in all epochs [token], `e n m` packed, `e n min(m H_b, s)` or `e n s` padded.

    Lengths scatter about their mean m as an exponential distribution does, an assumption, so that the longest of b
    samples has `m H_b` tokens, `H_b = 1 + 1/2 + ... + 1/b`, and none more than the sequence s [derivation].

    **Raises:** `InputError` for another padding, and for a mean beyond the sequence.
    """
    if padding not in PADDINGS:
        raise InputError(f'padding: unknown "{padding}". {suggest(padding, PADDINGS)}')
    if mean_length > sequence:
        raise InputError(
            f"mean length: {mean_length:,.0f} tokens are more than a sequence of {sequence:,.0f}. Longer samples are "
            "cut off: give the mean of what is left, or a longer --sequence."
        )
    if padding == "packed":
        return Samples(epochs * samples * mean_length, sequence, 1.0)
    with jax.enable_x64(True):
        harmonic = float(jax.scipy.special.digamma(round(microbatch) + 1.0)) + np.euler_gamma
    length = sequence if padding == "sequence" else min(sequence, mean_length * harmonic)
    return Samples(epochs * samples * length, length, sequence / length)


def samples_of(words: Mapping[str, Any], sequence: float | None, microbatch: float | None) -> Samples | None:
    """What words on samples say; None if they say nothing of how many there are.

    **Arguments:**

    - `words`: `samples`, `mean_length` [token], `epochs` and `padding`, numbers or texts.
    - `sequence`: longest of a sample [token]; `microbatch`: samples of a micro-batch [1]; None if nobody says them.

    **Raises:** `InputError` for what is missing, and as `padded_samples`.
    """
    if words.get("samples") is None:
        if words.get("mean_length") is not None:
            raise InputError("mean length: of samples, whose number is missing. Give --samples, or leave it out.")
        return None
    padding = str(words.get("padding") or "packed")
    needed = {
        "--sequence": sequence,
        "--mean-length": 1.0 if padding == "sequence" else words.get("mean_length"),
        "--set plan.layout.microbatch=N": microbatch if padding == "longest" else 1.0,
    }
    if missing := [name for name, value in needed.items() if value is None]:
        raise InputError(f"samples: {padding} samples take tokens by {', '.join(missing)}, which is missing. Give it.")
    epochs = parse_number(words.get("epochs") or 1.0, "1", "epochs")
    samples = parse_number(words["samples"], "1", "samples")
    if not (epochs > 0.0 and samples >= 1.0):
        raise InputError(f"samples: {samples:g} in {epochs:g} epochs train nothing. Give for example --samples 52k.")
    length = words.get("mean_length")
    text = f"{length} token" if isinstance(length, str) and "tok" not in length.lower() else length
    mean = float(sequence or 1.0) if text is None else parse_number(text, "token", "mean length")
    return padded_samples(samples, epochs, mean, float(sequence or 1.0), padding, microbatch or 1.0)


def adaptation_changes(words: Mapping[str, Any], layers: Any = None) -> list[str]:
    """Changes of a scenario that fine-tuning in words stands for; none of a run that trains the whole model.

    **Arguments:**

    - `words`: `tuning`, "full", "freeze", "lora" or "dora" and what is more (`TrainingConfig`); None is not stated. A
      framework may name its `adapters` alone.
    - `layers`: of the model [1], where it is known.

    **Raises:** `InputError` for a word that is not known.
    """
    tuning, presets = words.get("tuning"), WORDS["presets"]
    if tuning is None and (named := re.match(WORDS["adapters"], str(words.get("adapters")), re.IGNORECASE)):
        tuning = named[1].lower()
        trained_format = words.get("trained_format") or "bf16"
        words = {**words, "tuning": tuning, "rank": named[2] and float(named[2]), "trained_format": trained_format}
    if tuning is None:
        return []
    name = presets.get(f"{tuning} {words.get('frozen_format')}", presets.get(tuning))
    if name is None:
        raise InputError(f'tuning: unknown "{tuning}". {suggest(str(tuning), presets)}')
    own = {key: float(number["value"]) for key, number in read_preset("adaptations", name).items() if "value" in number}
    words = {**dict.fromkeys(WORDS["words"]), **words, "layers": layers, "bytes": WORDS["bytes"]}
    numbers = work_out(WORDS["numbers"], {**words, "own": {"trained_bytes": 2.0, **own}, "states": _states})
    changes = {name: numbers[name] for name in NUMBERS if numbers[name] is not None}
    if targets := words.get("targets"):
        fields = {field for target in targets for field in _fields_of(target)}
        every = " ".join(WORDS["targets"].values()).split()
        changes |= {field: float(field in fields) for field in dict.fromkeys(every)}
    units = {path: " B" if path.endswith("_bytes") else "" for path in changes}
    texts = [f"{ADAPTATION}.{path}={float(value)!r}{units[path]}" for path, value in changes.items()]
    settings = [f"{ADAPTATION}={name}", *texts]
    return settings + [f"system.software.logit_bytes={WORDS['chunked_logit_bytes']} B"] * bool(
        words.get("chunked_loss")
    )


def lighter_memory(system: TrainingSystem, plan: TrainingPlan) -> dict[str, float]:
    """Memory of the fullest chip with what makes fine-tuning take less, by its words [B]; empty for another run."""
    tuned = system.adaptation
    if not isinstance(tuned, FineTuning):
        return {}
    words = {"tuned": Numbers(tuned), "software": Numbers(system.software)}
    rows = [row for row in WORDS["lighter"] if evaluate(row["when"], words)]
    same = [row for row in rows if row["same"]]
    numbers = {path: value for row in same for path, value in row["numbers"].items()}
    together = [{"text": "both" if len(same) == 2 else "all of these", "numbers": numbers}] if len(same) > 1 else []

    def memory(numbers: Mapping[str, float]) -> float:
        with jax.enable_x64(True):
            other = with_numbers(system, numbers)
            return float(chip_memory(other, plan, divide(other, plan, np.max(plan.batch))).total)

    return {row["text"]: memory(row["numbers"]) for row in [*same, *together, *rows[len(same) :]]}


def _states(optimizer: str, width: float) -> float:
    """Bytes of the states of an optimizer for a weight of so many bytes."""
    plain = optimizer.lower().replace("-", "_")
    for row in WORDS["optimizers"]:
        if re.match(row["names"], plain):
            return float(evaluate(row["bytes"], {"width": width}))
    raise InputError(
        f'optimizer: the bytes of the states of "{optimizer}" are not known. Give the nearest one, such as '
        f"paged_adamw_8bit, or set {ADAPTATION}.optimizer_bytes."
    )


def _fields_of(target: str) -> Sequence[str]:
    """Fields of the matrices that a target names."""
    targets, last = WORDS["targets"], target.rpartition(".")[2].strip("$)(\\")
    if last not in targets:
        raise InputError(f'target: "{target}" is no matrix that is known. {suggest(last, targets)}')
    return targets[last].split()
