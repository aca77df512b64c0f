"""Each implementation of a kernel: everywhere, or where the chip that it is for is present."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import pytest

from energymodel.scenarios.scenario import load_scenario
from gpu_lowering import abstract_gpu

CHIPS = {"pallas_triton": "gpu", "pallas_tpu": "tpu"}


@pytest.fixture(params=["xla", "interpret", *CHIPS])
def implementation(request):
    """Name of an implementation that can run here."""
    name = request.param
    chip = CHIPS.get(name)
    if chip not in (None, jax.default_backend()):
        pytest.skip(
            f"{name} runs on a {chip}, and there is none: `python -m pytest -n 0 -k pallas tests/kernels` there"
        )
    return name


class Target(NamedTuple):
    """An implementation, the chip that it is for, and what a program of that chip calls a kernel."""

    name: str
    platform: str
    call: str

    def is_called_by(self, function: Callable[..., Any], *args: Any) -> bool:
        """Whether `function(name, *args)`, lowered for the chip, calls the kernel."""
        with abstract_gpu() if self.platform == "cuda" else contextlib.nullcontext():
            program = jax.jit(lambda *args: function(self.name, *args)).trace(*args)
            text = program.lower(lowering_platforms=(self.platform,)).as_text()
        return "custom_call" in text and self.call in text


CALLS = {"pallas_triton": ("cuda", "triton"), "pallas_tpu": ("tpu", "tpu_custom_call")}


@pytest.fixture(params=CALLS)
def target(request):
    """Each implementation for an accelerator, whether or not that is present."""
    return Target(request.param, *CALLS[request.param])


@pytest.fixture(scope="session")
def scenario():
    """Load a preset scenario."""
    return load_scenario
