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
from energymodel.readers.log_records import LogEvent, LoggedStep, PowerReading, Record, is_chip, is_node
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
PAUSE = 1.1  # A step beside a pause holds a part of it if it took this multiple of the usual time

_readings, _steps, _recent = (partial(deque, maxlen=most) for most in (KEPT_READINGS, KEPT_STEPS, RECENT))


@dataclass
class DeviceState:
    """One device: its energy so far [J] in the time of its readings [s], and its last readings, in SI."""

    energy: float = 0.0
    seconds: float = 0.0
    last: PowerReading | None = None
    powers: deque[float] = field(default_factory=_readings)
    clocks: deque[float] = field(default_factory=_readings)
    throttled: deque[float] = field(default_factory=_readings)
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
        if last is None or reading.fresh or not 0.0 < (passed := reading.time - last.time) <= LONGEST_GAP:
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


@dataclass
class RunState:
    """What is known of a run so far, in SI.

    - `last`: the last step; `lowest`: the lowest one of the log, since a restart may go back before its first.
    - `start`: when it began; `from_start`: whether the log says so; `start_pause`: from there to the first step.
    - `trained_steps`, `trained_time`: steps without pauses, and their time [s].
    - `losses`: by range of tokens, sums of tokens, losses and learning rates, and their number.
    - `recent_losses`: tokens and loss of the last steps; `not_finite`: steps whose loss is no number.
    - `warm_tokens`: before which the learning rate still rose.
    """

    expected: Expectation
    last: LoggedStep | None = None
    lowest: float = math.inf
    start: float = math.nan
    start_pause: float = 0.0
    from_start: bool = False
    elapsed: float = 0.0
    tokens: float = 0.0
    tokens_per_step: float = math.nan
    failures: int = 0
    checkpoints: deque[float] = field(default_factory=_steps)
    step_times: deque[float] = field(default_factory=_steps)
    trained_steps: int = 0
    trained_time: float = 0.0
    losses: dict[int, np.ndarray] = field(default_factory=dict)
    recent_losses: deque[tuple[float, float]] = field(default_factory=_recent)
    not_finite: int = 0
    highest_rate: float = math.nan
    warm_tokens: float = 0.0
    devices: dict[str, DeviceState] = field(default_factory=dict)
    _with_loss: int = 0
    _without_loss: int = 0
    _has_gaps: bool = False  # between steps whose loss is said
    _pending: set[str] = field(default_factory=set)  # kinds of pauses since the last step
    _paused: float = 0.0  # how long they took, as far as the log says so [s]
    _is_told: bool = False  # whether it says how long the checkpoint among them took

    def copy(self) -> "RunState":
        """The state of now, which stays as it is while this one takes further records."""
        return copy.deepcopy(self, {id(self.expected): self.expected})

    def add(self, record: Record) -> None:
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
        self._add_tokens(step)
        if last is None:
            self._begin(step, own)
        elif step.learning_rate > (1.0 + RISE) * last.learning_rate:
            self.warm_tokens = self.tokens
        passed = own * count if own > 0.0 else 0.0
        # Steps without a time do not say the pauses between them.
        timed = math.isfinite(step.time - self.start)
        self.elapsed = step.time - self.start if timed else self.elapsed + passed + self._paused
        if own > 0.0:
            self._add_time(own, count)
        self.highest_rate = float(np.fmax(self.highest_rate, step.learning_rate))
        self._add_loss(step.loss, step.learning_rate)
        self._pending, self._paused, self._is_told = set(), 0.0, False

    def _begin(self, step: LoggedStep, own: float) -> None:
        """The first step: what came between the start of the run and its steps, such as compiling, comes but once."""
        begun = step.time - (own * step.step if own > 0.0 else 0.0)
        if begun >= self.start:
            self.start_pause, self.from_start = begun - self.start, True
        else:
            self.start = step.time - (own if own > 0.0 else 0.0)
        for device in self.devices.values():
            device.powers.clear()

    def _add_tokens(self, step: LoggedStep) -> None:
        """Tokens so far: as stated, else steps times the batch."""
        if math.isfinite(step.tokens):
            self.tokens_per_step = step.tokens
        elif math.isfinite(step.sequences):
            self.tokens_per_step = step.sequences * float(self.expected.scenario.system.workload.sequence)
        elif not math.isfinite(self.tokens_per_step):
            self.tokens_per_step = self.expected.batch
        so_far = step.tokens_so_far
        self.tokens = so_far if math.isfinite(so_far) else step.step * self.tokens_per_step

    def _add_time(self, own: float, count: int) -> None:
        """The time of steps, or that of the pause beside them."""
        if self._pending & {"checkpoint", "restart", "evaluation"} and self.step_times:
            usual = float(np.median(self.step_times))
            if "checkpoint" in self._pending and own > usual and not self._is_told:
                self.checkpoints.append((own - usual) * count)
            if own > PAUSE * usual:
                return
        self.step_times.append(own)
        self.trained_steps, self.trained_time = self.trained_steps + count, self.trained_time + own * count

    def _add_loss(self, loss: float, rate: float) -> None:
        """A loss, or none: which is no number where every step before had one, else not said."""
        if not math.isfinite(loss):
            self.not_finite += math.isinf(loss) or (self._with_loss >= FEW_LOSSES and not self._has_gaps)
            self._without_loss += 1
            return
        self._has_gaps = self._has_gaps or self._without_loss > 0
        self._with_loss += 1
        self.recent_losses.append((self.tokens, loss))
        range_of_tokens = int(BINS_OF_E * math.log(max(self.tokens, 1.0)))
        self.losses[range_of_tokens] = self.losses.get(range_of_tokens, 0.0) + np.array([self.tokens, loss, rate, 1.0])

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
    def usual_times(self) -> np.ndarray:
        """Times of the recorded steps, warm-up and pauses left out [s]."""
        times = np.asarray(self.step_times)
        low, high = usual_range(times) if len(times) else (0.0, 0.0)
        return times[(times >= low) & (times <= high)]

    @property
    def usual_step_time(self) -> float:
        """Their median [s]."""
        return median(self.usual_times)

    @property
    def mean_step_time(self) -> float:
        """Of all steps so far without pauses [s]."""
        return self.trained_time / self.trained_steps if self.trained_steps else math.nan

    @property
    def loss(self) -> float:
        """Mean of the last steps that tell it [nat/token]."""
        near = [loss for tokens, loss in self.recent_losses if tokens >= (1.0 - LAST_SHARE) * self.tokens]
        return _mean(near or [loss for _, loss in self.recent_losses][-1:])

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
    def nodes(self) -> list[DeviceState]:
        """Meters of nodes."""
        return [device for name, device in self.meters.items() if is_node(name) and device.seconds > 0.0]

    @property
    def chip_power(self) -> float:
        """Mean power of a chip while it trains [W], if chips have meters."""
        return _mean([device.busy_power for name, device in self.meters.items() if is_chip(name)])

    @property
    def node_power(self) -> float:
        """Mean power of a node [W], if nodes have meters."""
        return _mean([node.energy / node.seconds for node in self.nodes])

    def measured(self, loss: float | None = None) -> MeasuredRun:
        """The state as `replan` takes it, with the loss of now as it is with the learning rate decayed."""
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
        """The loss so far, in narrow ranges of tokens, with the learning rate of the log, else that of the plan."""
        sums = np.reshape([self.losses[key] for key in sorted(self.losses)], (-1, 4))
        tokens, loss, rate, _ = (sums / sums[:, 3:]).T
        rate = rate / self.highest_rate
        return LossCourse(tokens, loss, sums[:, 3], np.where(np.isfinite(rate), rate, self.expected.rate(tokens)))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def mean_spread(values: Sequence[float] | np.ndarray, progress: float) -> float:
    """Standard deviation of the mean of what is to come over that of the values so far [1]; 0 for a few values.

    Means of `BLOCKS` parts of the values scatter as parts of the rest will, which is (1 - p) / p times as long.
    """
    if len(values) < 2 * BLOCKS:
        return 0.0
    means = np.array([np.mean(part) for part in np.array_split(np.asarray(values), BLOCKS)])
    share = min(max(progress, 1e-3), 1.0 - 1e-6)
    return float(np.std(means, ddof=1) / np.mean(means) * math.sqrt((1.0 + share / (1.0 - share)) / BLOCKS))
