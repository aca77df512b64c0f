"""Tests run in float64 unless a module says otherwise, compile quickly, and share what they compile."""

import os

# Compiling takes most of the time of the tests, a third of it in these optimizations (`compilation.compiler_options`).
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import jax
import pytest


def pytest_configure(config):
    """Keep compiled programs for the other processes of this run, and for the next run."""
    jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("jax")))


@pytest.fixture(autouse=True)
def _precision(request):
    """Enter float64, or float32 where the test module sets `PRECISION = 32`."""
    with jax.enable_x64(getattr(request.module, "PRECISION", 64) == 64):
        yield
