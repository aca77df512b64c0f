"""Device that programs are made for, in threads as well."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any


def beside_accelerator() -> AbstractContextManager[Any]:
    """Run the small programs of a large one on the CPU, unless the caller chose a device or JAX has no CPU."""
    import jax

    config: Any = jax.config
    if config.jax_default_device is None and accelerated():
        with suppress(RuntimeError):
            return jax.default_device(jax.local_devices(backend="cpu")[0])
    return nullcontext()


def platform() -> str:
    """Platform of the programs that are made here, such as `"cpu"` or `"gpu"` [see `jax.default_device`]."""
    import jax

    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    return jax.default_backend() if device is None else getattr(device, "platform", device)


def accelerated() -> bool:
    """Whether programs run where thousands of lanes go together and conditions on the host cost most."""
    return platform() != "cpu"


def for_threads(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the caller's precision and device in any thread, which would start with the defaults."""
    import jax

    config: Any = jax.config
    x64, device = config.jax_enable_x64, config.jax_default_device

    def call(*args: Any) -> Any:
        with jax.enable_x64(x64), jax.default_device(device):
            return function(*args)

    return call
