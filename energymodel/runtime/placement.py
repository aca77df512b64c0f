"""Devices that programs run on: small ones on the CPU even where there is an accelerator, large ones on that."""

from collections.abc import Callable
from typing import Any

import jax

CONFIG: Any = jax.config  # its stub leaves out its settings


def platform() -> str:
    """Platform of the programs that are made here, such as `"cpu"` or `"gpu"` [see `jax.default_device`]."""
    device = CONFIG.jax_default_device
    return jax.default_backend() if device is None else getattr(device, "platform", device)


def accelerated() -> bool:
    """Whether programs run where thousands of lanes go together and conditions on the host cost most."""
    return platform() != "cpu"


def for_threads(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the caller's precision and device in any thread, which would start with the defaults."""
    x64, device = CONFIG.jax_enable_x64, CONFIG.jax_default_device

    def call(*args: Any) -> Any:
        with jax.enable_x64(x64), jax.default_device(device):
            return function(*args)

    return call
