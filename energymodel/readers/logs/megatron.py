"""Lines of Megatron-LM and of what is built on it.

Megatron-LM old and new, Megatron-DeepSpeed, Megatron-Bridge, Primus, NeMo and GPT-NeoX print one line for each logged
iteration, of fields that a bar ends. `global batch size` counts sequences; times, losses and rates are means since the
line before. Tokens of a step follow from `seq_length` among the arguments that Megatron prints at its start, or from
`actual seqlen`.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator

from energymodel.readers.cells import stamp
from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.text import DECLARED, made, number, pattern, plain, step_fields, whole

SIGN, SEQUENCE, FLOPS, MEMORY, EVALUATED, LOSS, SAVED, SAVING, LOADED, MARK, TIMER, BARE = (
    pattern(text) for text in DECLARED["megatron"]["patterns"].values()
)
_WORDS = ("iteration", "checkpoint", "seq_length", "memory", "mem-max", "GPU utilization", "evaluate", "training is")


def steps(lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
    """Steps and events of lines; a checkpoint is told at the next step, when its timer may have been printed."""
    state = _Run()
    for raw in lines:
        if any(word in raw for word in _WORDS) or "start of training" in raw:
            line = plain(raw)
            matches = list(SIGN.finditer(line)) if "|" in line and "validation" not in line else []
            if not matches:
                yield from state.between(line)
                continue
            yield from state.told()
            starts, ends = [0, *(match.end() for match in matches)], [*(match.start() for match in matches), len(line)]
            for at, match in enumerate(matches):
                before, after = line[starts[at] : ends[at]], line[starts[at + 1] : ends[at + 1]]
                if step := state.step(whole(match[1]), stamp(before), after):
                    yield step
    yield from state.told()


class _Run:
    """What the lines so far say of those that follow."""

    def __init__(self) -> None:
        self.sequence = self.memory = self.flops = self.evaluation = NOT_SAID
        self.checkpoint: LogEvent | None = None
        self.saved: int | None = None  # the last checkpoint that was told: an asynchronous one ends many steps later

    def told(self) -> Iterator[LogEvent]:
        """The checkpoint that waits, if one does."""
        if self.checkpoint is not None:
            self.saved = self.checkpoint.step
            yield self.checkpoint
            self.checkpoint = None

    def step(self, step: int | None, time: float, text: str) -> LoggedStep | None:
        """One iteration: its number, its time and the text of its fields, the first of two equal names counting."""
        # What no bar ends may be cut short; NeMo ends no line with a bar.
        complete = text if "global_step:" in text or "reduced_train_loss" in text else text.rpartition("|")[0]
        fields: dict[str, str] = {}
        for part in complete.split("|", 200)[:200]:
            name, colon, value = part.partition(":")
            if colon and len(name) < 100:
                fields.setdefault(" ".join(name.lower().split()), value.strip())
        bare = BARE.findall(text) if "loss" not in fields and "lm loss " in text else ()
        values = step_fields("megatron", (*fields.items(), *bare))
        if not {"step_time", "loss"} & values.keys():
            return None
        sequence = number(fields.get("actual seqlen", ""))
        sequence = self.sequence if math.isnan(sequence) else sequence
        tokens = values.get("sequences", NOT_SAID) * sequence
        return made(step, time, {"tokens": tokens, "memory": self.memory, "flops_rate": self.flops} | values)

    def between(self, line: str) -> Iterator[LogEvent]:
        """Lines that are no step."""
        if match := SEQUENCE.search(line):
            self.sequence = number(match[1])
        elif match := FLOPS.search(line):
            self.flops = number(match[1]) * 1e12
        elif match := MEMORY.search(line):
            self.memory = number(match[1]) * 2**20 if match[1] else number(match[2]) * 1e9
        elif match := EVALUATED.search(line):
            loss = LOSS.search(line, match.end())
            value = number(loss[1]) if loss else NOT_SAID
            yield LogEvent("evaluation", stamp(line), self.evaluation, value, whole(match[1] or ""))
            self.evaluation = NOT_SAID
        elif match := SAVED.search(line):
            if self.checkpoint is None and whole(match[1]) != self.saved:
                self.checkpoint = LogEvent("checkpoint", stamp(line), step=whole(match[1]))
            elif self.checkpoint is not None and not math.isnan(self.checkpoint.time):
                duration = stamp(line) - self.checkpoint.time
                self.checkpoint = dataclasses.replace(self.checkpoint, duration=duration if duration >= 0 else NOT_SAID)
        elif match := SAVING.search(line):
            if self.checkpoint is None or self.checkpoint.step != whole(match[1]):
                yield from self.told()
                self.checkpoint = LogEvent("checkpoint", stamp(line[: match.start()]), step=whole(match[1]))
        elif match := LOADED.search(line):
            yield LogEvent("restart", stamp(line), step=whole(match[1] or ""))
        elif match := MARK.search(line):
            yield LogEvent("start" if match[1].startswith("before") else "stop", stamp(line))
        elif match := TIMER.search(line):
            duration = number(match[3] or match[2]) * 1e-3
            if match[1] == "evaluate":
                self.evaluation = duration
            elif self.checkpoint is not None:
                self.checkpoint = dataclasses.replace(self.checkpoint, duration=duration)
