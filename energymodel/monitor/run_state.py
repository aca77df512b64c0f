"""State of a run by the records of its log and its meters as they come.

Memory is bounded: of steps and readings the last ones are kept, of the loss its means over narrow ranges of tokens.
"""

import copy
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from energymodel.monitor.expectation import Expectation, LossCourse
from energymodel.readers.log_records import LogEvent, LoggedStep, PowerReading, is_chip, is_node
from energymodel.readers.logged_run import usual_range
from energymodel.readers.metered import BUSY_SHARE, median
from energymodel.search.replan import MeasuredRun

KEPT_STEPS = 2_000
KEPT_READINGS = 3_600
RECENT = 50  # steps whose median is the step time of now
LAST_SHARE = 0.02  # of the tokens so far, over which the loss of now is averaged
BINS_OF_E = 40.0  # ranges of tokens, in each factor of e, over which the loss is averaged
LONGEST_GAP = 60.0  # between two readings of a device, beyond which nothing is known of its energy [s]
FEW_LOSSES = 3  # steps that report a loss, before a step without one counts as one whose loss is no number
BLOCKS = 8  # parts of the readings or steps so far, whose means tell how far the mean of the rest may be
RISE = 1e-4  # A learning rate that is higher than the step's before by more than this share still warms up [1]


@dataclass
class DeviceState:
    """One device: its energy so far, and its last readings."""

    energy: float = 0.0
    seconds: float = 0.0
    last: PowerReading | None = None
    powers: deque[float] = field(default_factory=partial(deque, maxlen=KEPT_READINGS))
    clocks: deque[float] = field(default_factory=partial(deque, maxlen=KEPT_READINGS))
    throttled: deque[float] = field(default_factory=partial(deque, maxlen=KEPT_READINGS))
    limit: float = math.nan
    temperature: float = math.nan

    def add(self, reading: PowerReading) -> None:
        """Add a reading; its energy by the counter if there is one, else by the trapezoid of power."""
        last, self.last = self.last, reading
        series = ((self.powers, reading.power), (self.clocks, reading.clock), (self.throttled, reading.throttled))
        for values, value in series:
            if math.isfinite(value):
                values.append(value)
        self.limit = reading.power_limit if math.isfinite(reading.power_limit) else self.limit
        self.temperature = reading.temperature if math.isfinite(reading.temperature) else self.temperature
        if last is None or reading.fresh:
            return
        passed = reading.time - last.time
        if not 0.0 < passed <= LONGEST_GAP:
            return
        rise = reading.energy - last.energy
        energy = rise if rise >= 0.0 else 0.5 * (reading.power + last.power) * passed
        if math.isfinite(energy):
            self.energy, self.seconds = self.energy + energy, self.seconds + passed

    @property
    def busy_power(self) -> float:
        """Mean power while it trains [W]: of the readings that are not far below the high ones."""
        values = np.asarray(self.powers)
        if not len(values):
            return self.energy / self.seconds if self.seconds > 0.0 else math.nan
        return float(np.mean(values[values >= BUSY_SHARE * np.percentile(values, 95.0)]))

    @property
    def power_now(self) -> float:
        """Mean of the last half of the readings [W], of which the first may be of a start that does not come again."""
        values = list(self.powers)
        return float(np.mean(values[len(values) // 2 :])) if values else self.energy / self.seconds

    @property
    def clock(self) -> float:
        """Median of the last readings [Hz]."""
        return median(list(self.clocks)[-RECENT:])


class RunState:
    """What is known of a run so far."""

    def __init__(self, expected: Expectation) -> None:
        self.expected = expected
        self.first: LoggedStep | None = None
        self.last: LoggedStep | None = None
        self.lowest = math.inf  # step that the log holds: a restart may go back before its first
        self.start = math.nan
        self.start_pause = 0.0  # between the start and the first step
        self.from_start = False  # whether the log tells the start of the run
        self.elapsed = 0.0
        self.steps = 0
        self.tokens = 0.0
        self.failures = 0
        self.checkpoints: deque[float] = deque(maxlen=KEPT_STEPS)
        self.evaluations = 0
        self.not_finite = 0
        self._with_loss = self._without_loss = 0
        self._has_gaps = False  # between steps whose loss is said
        self.step_times: deque[float] = deque(maxlen=KEPT_STEPS)
        self.losses: dict[int, tuple[float, float, float, int]] = {}
        self.highest_rate = math.nan
        self.recent_losses: deque[tuple[float, float]] = deque(maxlen=RECENT)  # tokens and loss
        self.devices: dict[str, DeviceState] = {}
        self.trained_steps = 0
        self.trained_time = 0.0
        self.tokens_per_step = math.nan
        self.warm_tokens = 0.0  # before which the learning rate still rose
        self._pending: set[str] = set()
        self._paused = 0.0  # how long the pauses since the last step took, as far as the log says so [s]
        self._is_told = False  # whether the log says how long the checkpoint since the last step took

    def copy(self) -> "RunState":
        """The state of now, which stays as it is while this one takes further records."""
        return copy.deepcopy(self, {id(self.expected): self.expected})

    def add(self, record: LoggedStep | LogEvent | PowerReading) -> None:
        """Take a record into account."""
        if isinstance(record, PowerReading):
            self.devices.setdefault(record.device, DeviceState()).add(record)
        elif isinstance(record, LogEvent):
            self._add_event(record)
        else:
            self._add_step(record)

    def _add_event(self, event: LogEvent) -> None:
        self._pending.add(event.kind)
        if event.kind == "start" and not self.has_begun and math.isfinite(event.time):
            self.start = event.time
        elif event.kind == "restart":
            self.failures += self.has_begun
        elif event.kind == "evaluation":
            self.evaluations += 1
        elif event.kind == "checkpoint" and math.isfinite(event.duration):
            self.checkpoints.append(event.duration)
            self._is_told = True
        if event.kind in ("evaluation", "checkpoint") and event.duration > 0.0:
            self._paused += event.duration

    def _add_step(self, step: LoggedStep) -> None:
        last, self.last = self.last, step
        self.lowest = min(self.lowest, step.step)
        count = max(step.step - last.step, 1) if last is not None else 1
        own = step.step_time
        if not own > 0.0:
            own = (step.time - last.time) / count if last is not None else math.nan
        if self.first is None:
            self._begin(step, own)
        passed = own * count if own > 0.0 else 0.0
        # Steps without a time do not say the pauses between them.
        timed = math.isfinite(step.time - self.start)
        self.elapsed = step.time - self.start if timed else self.elapsed + passed + self._paused
        self.steps += 1
        self._add_tokens(step)
        self._add_time(own, count)
        if last is not None and step.learning_rate > (1.0 + RISE) * last.learning_rate:
            self.warm_tokens = self.tokens
        self.highest_rate = float(np.fmax(self.highest_rate, step.learning_rate))
        self._add_loss(step.loss, step.learning_rate)
        self._pending, self._paused, self._is_told = set(), 0.0, False

    def _begin(self, step: LoggedStep, own: float) -> None:
        """The first step: what came between the start of the run and its steps, such as compiling, comes but once."""
        self.first = step
        begun = step.time - (own * step.step if own > 0.0 else 0.0)
        if begun >= self.start:
            self.start_pause, self.from_start = begun - self.start, True
        else:
            self.start = step.time - (own if own > 0.0 else 0.0)
        for device in self.devices.values():
            device.powers.clear()

    def _add_loss(self, loss: float, rate: float) -> None:
        """A loss, or none: which is no number where every step before had one, else not said."""
        if not math.isfinite(loss):
            self.not_finite += math.isinf(loss) or (self._with_loss >= FEW_LOSSES and not self._has_gaps)
            self._without_loss += 1
            return
        self._has_gaps = self._has_gaps or self._without_loss > 0
        self._with_loss += 1
        self.recent_losses.append((self.tokens, loss))
        bin_of_tokens = int(BINS_OF_E * math.log(max(self.tokens, 1.0)))
        tokens, total, rates, number = self.losses.get(bin_of_tokens, (0.0, 0.0, 0.0, 0))
        self.losses[bin_of_tokens] = (tokens + self.tokens, total + loss, rates + rate, number + 1)

    def _add_tokens(self, step: LoggedStep) -> None:
        """Tokens so far: as stated, else steps times the batch."""
        expected = self.expected
        if math.isfinite(step.tokens):
            self.tokens_per_step = step.tokens
        elif math.isfinite(step.sequences):
            self.tokens_per_step = step.sequences * expected.sequence
        elif not math.isfinite(self.tokens_per_step):
            self.tokens_per_step = expected.batch
        so_far = step.tokens_so_far
        self.tokens = so_far if math.isfinite(so_far) else step.step * self.tokens_per_step

    def _add_time(self, own: float, count: int) -> None:
        """The time of steps, or that of the pause beside them."""
        if not own > 0.0:
            return
        if self._pending & {"checkpoint", "restart", "evaluation"} and self.step_times:
            usual = float(np.median(self.step_times))
            if "checkpoint" in self._pending and own > usual and not self._is_told:
                self.checkpoints.append((own - usual) * count)
            if own > 1.1 * usual:
                return
        self.step_times.append(own)
        self.trained_steps, self.trained_time = self.trained_steps + count, self.trained_time + own * count

    @property
    def has_begun(self) -> bool:
        """Whether a step has been seen."""
        return self.last is not None

    @property
    def progress(self) -> float:
        """Share of the tokens of the plan [1]."""
        return self.tokens / self.expected.tokens

    @property
    def step_time(self) -> float:
        """Median of the last steps [s]."""
        return median(list(self.step_times)[-RECENT:])

    @property
    def _usual_times(self) -> np.ndarray:
        times = np.asarray(self.step_times)
        low, high = usual_range(times) if len(times) else (0.0, 0.0)
        return times[(times >= low) & (times <= high)]

    @property
    def usual_step_time(self) -> float:
        """Median of the recorded steps, warm-up left out [s]."""
        return median(self._usual_times)

    @property
    def step_time_spread(self) -> float:
        """Standard deviation of the mean step time of the rest over that so far, without warm-up and pauses [1]."""
        return mean_spread(self._usual_times, self.progress)

    @property
    def mean_step_time(self) -> float:
        """Of all steps so far without pauses [s]."""
        return self.trained_time / self.trained_steps if self.trained_steps else math.nan

    @property
    def loss(self) -> float:
        """Mean of the last steps that tell it [nat/token]."""
        near = [loss for tokens, loss in self.recent_losses if tokens >= (1.0 - LAST_SHARE) * self.tokens]
        last = [loss for _, loss in self.recent_losses][-1:]
        return float(np.mean(near or last)) if last else math.nan

    @property
    def time(self) -> float:
        """Since the start of the run [s]; of a log that begins later, as if it had run alike before."""
        if self.last is None:
            return 0.0
        if self.from_start or self.lowest <= 1:
            return self.elapsed
        return self.elapsed * self.last.step / (self.last.step - self.lowest + 1)

    @property
    def meters(self) -> dict[str, DeviceState]:
        """Devices whose power is known."""
        return {name: device for name, device in self.devices.items() if device.powers or device.seconds > 0.0}

    @property
    def chip_power(self) -> float:
        """Mean power of a chip while it trains [W], if chips have meters."""
        return _mean([device.busy_power for name, device in self.meters.items() if is_chip(name)])

    @property
    def node_power(self) -> float:
        """Mean power of a node [W], if nodes have meters."""
        return _mean([node.energy / node.seconds for node in self._nodes])

    @property
    def node_power_now(self) -> float:
        """Mean power of a node lately [W], if nodes have meters."""
        return _mean([node.power_now for node in self._nodes])

    def node_power_spread(self) -> float:
        """Standard deviation of the mean power of the rest over that of now [1]."""
        return max((mean_spread(list(node.powers), self.progress) for node in self._nodes), default=0.0)

    @property
    def _nodes(self) -> list[DeviceState]:
        return [device for name, device in self.meters.items() if is_node(name) and device.seconds > 0.0]

    def measured(self, loss: float | None = None) -> MeasuredRun:
        """The state as `replan` takes it.

        **Arguments:**

        - `loss`: of now, with the learning rate decayed.
        """
        nodes = self.expected.chips / float(self.expected.scenario.system.node.chips)
        chip, node = self.chip_power, self.node_power * nodes
        return MeasuredRun(
            tokens=self.tokens,
            time=self.time if self.time > 0.0 else None,
            loss=loss,
            equipment_power=node if math.isfinite(node) else None,
            chip_power=chip if math.isfinite(chip) and not math.isfinite(node) else None,
            failures=float(self.failures) if self.time > 0.0 else None,
        )

    def course(self) -> LossCourse:
        """The loss so far, in narrow ranges of tokens; the learning rate is NaN where the log does not say it."""
        rows = np.array([self.losses[key] for key in sorted(self.losses)], float).reshape(-1, 4)
        tokens, loss, rate, number = rows.T
        return LossCourse(tokens / number, loss / number, number, rate / number / self.highest_rate)


def _mean(powers: list[float]) -> float:
    return float(np.mean(powers)) if powers else math.nan


def mean_spread(values: Sequence[float] | np.ndarray, progress: float) -> float:
    """Standard deviation of the mean of what is to come over that of the values so far [1]; 0 for a few values.

    Means of `BLOCKS` parts of the values scatter as parts of the rest will, which is (1 - p) / p times as long.
    """
    if len(values) < 2 * BLOCKS:
        return 0.0
    means = np.array([np.mean(part) for part in np.array_split(np.asarray(values), BLOCKS)])
    share = min(max(progress, 1e-3), 1.0 - 1e-6)
    return float(np.std(means, ddof=1) / np.mean(means) * math.sqrt((1.0 + share / (1.0 - share)) / BLOCKS))
