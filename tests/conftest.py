"""Tests run in float64 unless a module says otherwise."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _precision(request):
    """Enter float64, or float32 where the test module sets `PRECISION = 32`."""
    with jax.enable_x64(getattr(request.module, "PRECISION", 64) == 64):
        yield
