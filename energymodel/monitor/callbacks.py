"""Callbacks by which training frameworks report their steps to a `Monitor`."""

from collections.abc import Callable
from typing import Any

from energymodel.errors import InputError
from energymodel.monitor.monitor import Monitor


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


def loop_callback(monitor: Monitor) -> Callable[..., None]:
    """A callback for loops of one's own: call it after each step with its loss, and its tokens if not the plan's."""

    def callback(loss: float | int | None = None, tokens: float | int | None = None, **more: Any) -> None:
        monitor.step(loss, tokens=tokens, **more)

    return callback
