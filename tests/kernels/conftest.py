"""Each implementation of a kernel: everywhere, or where the chip that it is for is present."""

import jax
import pytest

from energymodel.presets.scenario import load_scenario

CHIPS = {"pallas_triton": "gpu", "pallas_mosaic_gpu": "gpu", "pallas_tpu": "tpu"}
HOPPER = 9.0


@pytest.fixture(params=["xla", "interpret", *CHIPS])
def implementation(request):
    """Name of an implementation that can run here."""
    name = request.param
    chip = CHIPS.get(name)
    if chip not in (None, jax.default_backend()):
        pytest.skip(
            f"{name} runs on a {chip}, and there is none: `python -m pytest -n 0 -k pallas tests/kernels` there"
        )
    if name == "pallas_mosaic_gpu" and float(jax.devices()[0].compute_capability) < HOPPER:
        pytest.skip("Mosaic GPU is for Hopper and later")
    return name


@pytest.fixture(params=["pallas_triton", "pallas_mosaic_gpu", "pallas_tpu"])
def lowered(request):
    """Lower a function of an implementation's name for the chip that it is for, and find the kernel in the program."""
    name = request.param
    platform = "tpu" if name == "pallas_tpu" else "cuda"
    call = {"pallas_triton": "triton", "pallas_mosaic_gpu": "mosaic_gpu", "pallas_tpu": "tpu_custom_call"}[name]

    def lower(function, *args):
        program = jax.jit(lambda *args: function(name, *args)).trace(*args).lower(lowering_platforms=(platform,))
        text = program.as_text()
        assert "custom_call" in text
        assert call in text
        return text

    lower.name = name
    return lower


@pytest.fixture(scope="session")
def scenario():
    """Load a preset scenario."""
    return load_scenario
