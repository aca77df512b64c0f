"""How does a training framework tell a `Monitor` of its steps?"""

from typing import Any

from energymodel.errors import InputError
from energymodel.monitor.monitor import Monitor


def trainer_callback(monitor: Monitor) -> Any:
    """A `TrainerCallback` of Hugging Face's Trainer (and axolotl) that tells a monitor of steps and pauses.

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
        """Tells the monitor of the steps since the Trainer logged last."""

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


def loop_callback(monitor: Monitor) -> "LoopCallback":
    """A callback for loops of one's own: call it with the loss after each step."""
    return LoopCallback(monitor)


class LoopCallback:
    """Called after each step of a loop with its loss, and with its tokens where they differ from the plan's."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def __call__(self, loss: float | int | None = None, tokens: float | int | None = None, **more: Any) -> None:
        """Say that a step has ended."""
        self.monitor.step(loss, tokens=tokens, **more)
