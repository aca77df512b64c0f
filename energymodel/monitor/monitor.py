"""Watching a run from within a training loop, or from its log and its meters."""

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from energymodel.errors import InputError
from energymodel.monitor.expectation import expectation_of
from energymodel.monitor.forecast import RunForecast, forecast
from energymodel.monitor.run_state import RunState
from energymodel.monitor.status import Finding, Status, findings, prometheus_text, status_line
from energymodel.readers.log_records import LogEvent, LoggedStep, Record
from energymodel.readers.meters import Meter
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.search.replan import Replan, replan

EVERY = 0.05  # share of the run after which its end is forecast anew
FIRST = 0.01  # share of the run at which its end is first forecast
SECONDS = 1.0  # between two readings of a meter [s]


@dataclass
class Monitor:
    """Watches a run: takes its steps, events and power readings, and says where it is and where it goes.

    ```python
    with em.Monitor("mine.toml", meter=em.NvmlMeter(), output="run.jsonl") as monitor:
        for batch in data:
            loss = step(batch)
            monitor.step(loss=loss)
    print(monitor.status().forecast)
    ```

    **Arguments:**

    - `scenario`: the run as planned: a `Scenario`, the name of a preset, or a file.
    - `meter`: of the devices of this machine, read every `interval` seconds while the context is open.
    - `output`: a file of JSON lines that gets one for each forecast; `energymodel replan --so-far` reads it.
    - `metrics`: a text file in Prometheus' format, written anew at each of them.
    - `every`: share of the run between two forecasts [1]. `step` and `event` have them made beside the training.
    - `on_status`: called with each `Status` that has a new forecast, in the thread that made it.

    **Raises:** `InputError` for a scenario that cannot be, and for a plan that changes with progress.
    """

    scenario: Scenario | str | Path
    meter: Meter | None = None
    output: str | Path | None = None
    metrics: str | Path | None = None
    interval: float | int = SECONDS
    every: float | int = EVERY
    on_status: Callable[[Status], None] | None = None
    state: RunState = field(init=False)

    def __post_init__(self) -> None:
        """Evaluate the plan."""
        if not (math.isfinite(self.interval) and self.interval > 0.0):
            raise InputError(f"interval: {self.interval} is no time between readings. Give seconds above zero.")
        if not 0.0 < self.every <= 1.0:
            raise InputError(f"every: {self.every} is no share of a run. Give a number above 0, up to 1.")
        scenario = self.scenario if isinstance(self.scenario, Scenario) else load_scenario(self.scenario)
        self.state = RunState(expectation_of(scenario))
        self._forecast: RunForecast | None = None
        self._next = FIRST
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._beside: threading.Thread | None = None
        self._last_time = time.time()
        self._count = 0
        self._failed = self._meter_failed = ""

    def __enter__(self) -> "Monitor":
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self, step: int = 0) -> None:
        """Begin to read the meter; `step` is that from which a run goes on."""
        self._last_time, self._count = time.time(), step
        if self.meter is not None and self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._read_meter, daemon=True, name="energymodel-meter")
            self._thread.start()

    def end(self) -> None:
        """Stop reading, and write the last state."""
        self._stop.set()
        for thread in (self._thread, self._beside):
            if thread is not None:
                thread.join()
        self._thread = self._beside = None
        if self.state.has_begun:
            self.update()

    def step(
        self,
        loss: float | int | None = None,
        *,
        step: int | None = None,
        tokens: float | int | None = None,
        learning_rate: float | int | None = None,
        time_of_step: float | int | None = None,
    ) -> None:
        """Say that a step of the optimizer has ended, or several since the last call.

        **Arguments:**

        - `loss`: its training loss [nat/token]; `tokens`: of the step in the whole run [token], by default the plan's.
        - `step`: its number, by default one more than the last.
        - `time_of_step`: how long each took [s], by default the time since the last call over the number of steps.
        """
        now = time.time()
        passed, self._last_time = now - self._last_time, now
        before, self._count = self._count, self._count + 1 if step is None else step
        reported = {"loss": loss, "tokens": tokens, "learning_rate": learning_rate}
        numbers = {name: float(value) for name, value in reported.items() if value is not None}
        if not math.isfinite(numbers.get("loss", 0.0)):
            numbers["loss"] = math.inf
        taken = passed / max(self._count - before, 1) if time_of_step is None else float(time_of_step)
        if self._take(LoggedStep(self._count, time=now, step_time=taken, **numbers)):
            self._update_beside()

    def event(self, kind: str, duration: float | int = math.nan) -> None:
        """Say that an evaluation, a checkpoint or a restart happened, and how long it took [s].

        **Raises:** `InputError` for another kind.
        """
        if kind not in ("evaluation", "checkpoint", "restart"):
            raise InputError(f"event {kind}: not known. Say evaluation, checkpoint or restart.")
        self._take(LogEvent(kind, time.time(), float(duration)))
        self._last_time = time.time()

    def add(self, record: Record) -> bool:
        """Take a record of a log or a meter, and forecast anew where it is time; whether it was."""
        due = self._take(record)
        if due:
            self.update()
        return due

    def _take(self, record: Record) -> bool:
        """Take a record; whether it is time for a new forecast."""
        with self._lock:
            self.state.add(record)
        if not isinstance(record, LoggedStep) or self.state.progress < self._next:
            return False
        self._next = self.state.progress + float(self.every)
        return True

    def _update_beside(self) -> None:
        """Forecast in a thread of its own, since compiling takes a minute; not while another one is made."""
        if self._beside is not None and self._beside.is_alive():
            return

        def update() -> None:
            try:
                self.update()
            except Exception as error:  # must not reach the training
                self._failed = f"{type(error).__name__}: {error}"

        self._beside = threading.Thread(target=update, daemon=True, name="energymodel-forecast")
        self._beside.start()

    def watch(self, records: Iterable[Record]) -> Status:
        """Take all records, and say where the run is at their end; on the way it is forecast only for who is told."""
        is_told = self.output is not None or self.metrics is not None or self.on_status is not None
        for record in records:
            if self._take(record) and is_told:
                self.update()
        return self.update()

    def update(self, plan: Replan | None = None) -> Status:
        """Forecast the end now, and write the files; `plan` is shown with it."""
        with self._lock:
            state = self.state.copy()
        try:
            self._forecast, self._failed = forecast(state) or self._forecast, ""
        except InputError as error:
            self._failed = str(error)
        status = self.status(plan, state)
        if self.output is not None:
            with Path(self.output).open("a", encoding="utf-8") as file:
                file.write(status_line(status) + "\n")
        if self.metrics is not None:
            part = Path(f"{self.metrics}.part")
            part.write_text(prometheus_text(status), encoding="utf-8")
            part.replace(self.metrics)
        if self.on_status is not None:
            self.on_status(status)
        return status

    def status(self, plan: Replan | None = None, state: RunState | None = None) -> Status:
        """Where the run is now, or was in a state, with the last forecast."""
        if state is None:
            with self._lock:  # the meter and the training go on while it is looked at
                state = self.state.copy()
        failures = (("forecast", self._failed), ("meter", self._meter_failed))
        own = (Finding(kind, text) for kind, text in failures if text)
        return Status(state, (*findings(state), *own), self._forecast, plan)

    def replan(self, progress: Callable[[str], None] | None = None) -> Replan | None:
        """The best plan for the rest; it takes a search. Nothing before the first forecast.

        **Raises:** `InputError` as `energymodel.replan`.
        """
        if self._forecast is None:
            return None
        return replan(self.state.expected.scenario, self._forecast.measured, progress=progress)

    def _read_meter(self) -> None:
        assert self.meter is not None
        while not self._stop.is_set():
            try:
                readings = self.meter.read()
            except Exception as error:  # whatever a driver raises must not reach the training
                self._meter_failed = f"The meter stopped: {error}. Power is forecast by the plan from here on."
                return
            with self._lock:
                for reading in readings:
                    self.state.add(reading)
            self._stop.wait(float(self.interval))


def trainer_callback(monitor: Monitor) -> Any:
    """A `TrainerCallback` of Hugging Face's Trainer (and axolotl) that reports steps and pauses to a monitor.

    Steps come with what the Trainer logs, every `logging_steps`.

    ```python
    trainer = Trainer(..., callbacks=[em.trainer_callback(em.Monitor("mine.toml", meter=em.NvmlMeter()))])
    ```

    **Raises:** `InputError` if `transformers` is not installed.
    """
    try:
        from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError("A TrainerCallback needs transformers. Install it: pip install transformers.") from error

    class EnergyCallback(TrainerCallback):
        """Reports the steps since the Trainer logged last."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if _is_first(state):
                monitor.begin(int(state.global_step))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if _is_first(state) and logs and "loss" in logs:
                monitor.step(logs["loss"], step=int(state.global_step), learning_rate=logs.get("learning_rate"))

        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if _is_first(state):
                monitor.event("evaluation")

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if _is_first(state):
                monitor.event("checkpoint")

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if _is_first(state):
                monitor.end()

    return EnergyCallback()


def _is_first(state: Any) -> bool:
    """Whether this is the process that speaks for all."""
    return bool(getattr(state, "is_world_process_zero", True))
